"""The way of a job's request that applies now: the admitted or the preferred one. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dovetail import names
from dovetail.api.builtin import Job
from dovetail.engine.model.claims import Ask
from dovetail.jobs.cpu_fallback import on_cpu

CPU: Final = "cpu"


def chosen_way(ways: Sequence[Ask], *, child: Job | None, admitted: Ask | None) -> Ask | None:
    """Each worker's request: the way of the batch Job, else the `admitted` one, else the first.

    None without any way: the request cannot be read.
    """
    if not ways:
        return None
    if fell_back(child) or (child is None and admitted is not None and admitted.gpu is None):
        return on_cpu(ways[0])
    if child is not None:
        return replace(ways[0], resource=child.metadata.annotations.get(names.GPU_RESOURCE, ""))
    return next((way for way in ways if admitted is not None and way.resource == admitted.resource), ways[0])


def other_ways(ways: Sequence[Ask], *, chosen: Ask, child: Job | None) -> tuple[Ask, ...]:
    """The ways that the queue may try after the `chosen` one."""
    # The pods of a running batch Job have one request, which does not change.
    at_work = child is not None and not child.spec.suspend
    return () if at_work else tuple(way for way in ways if way != chosen)


def fell_back(child: Job | None) -> bool:
    """Whether the batch Job runs without its GPUs."""
    return child is not None and child.metadata.annotations.get(names.DEVICE) == CPU

"""Checks which kinds of other projects can wait in the queue here. Pure.

A module of its own: each subject of the doctor has one, with its `judge`.
"""

from collections.abc import Iterator
from typing import Final

from dovetail.answers.doctor import CheckResult
from dovetail.api.resources import PODS, Resource
from dovetail.cluster.picture import Picture, Unseen
from dovetail.jobs.guests.registry import KINDS
from dovetail.jobs.guests.replicas import REPLICATED

_CHECK: Final = "kinds"
_RESOURCES: Final = (PODS, *(kind.resource for kind in KINDS), *(kind.resource for kind in REPLICATED))


def crd_of(resource: Resource) -> str:
    """The name of the kind's CRD; empty for a kind that every cluster has."""
    return f"{resource.plural}.{resource.group}" if "." in resource.group else ""


# What the reader has to look for.
CRDS: Final = tuple(crd for resource in _RESOURCES if (crd := crd_of(resource)))


def judge(picture: Picture) -> Iterator[CheckResult]:
    """Which kinds the queue takes, and which rest because their CRD is missing.

    If CRDs cannot be read, the check of neighbours says so.
    """
    if isinstance(picture.neighbours, Unseen):
        return
    there = [each.kind for each in _RESOURCES if not (crd := crd_of(each)) or crd in picture.neighbours]
    resting = [each.kind for each in _RESOURCES if each.kind not in there]
    message = f"{', '.join(there)} with the label dovetail.dev/queue wait in the queue (docs/kinds.md)"
    if resting:
        message += f"; {', '.join(resting)} would too, but their CRDs are not installed"
    yield CheckResult(level="ok", check=_CHECK, message=message)

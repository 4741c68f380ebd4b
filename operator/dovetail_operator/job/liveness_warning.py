"""Liveness probes of jobs that take turns: who waits stands still and answers none, so kubelet would end it. Pure."""

from collections.abc import Iterator
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.claims import Ask
from dovetail.pods.demand import template_spec
from dovetail_operator.events.announcement import Announcement

REASON: Final = "LivenessProbe"


def warning_of(job: GPUJob, ask: Ask | None) -> Announcement | None:
    """What a job is told that takes turns and has a liveness probe; None for all others."""
    if ask is None or ask.mode != "TimeShared":
        return None
    probed = list(_probed(job))
    if not probed:
        return None
    message = (
        f"Container {', '.join(probed)} has a liveness probe, but where tenants take turns the whole pod stands still "
        "while it waits: kubelet may end it. Remove the probe, or ask for whole GPUs or shares"
    )
    return Announcement(about=job.metadata, severity="Warning", reason=REASON, message=message)


def _probed(job: GPUJob) -> Iterator[str]:
    spec = template_spec(job)
    for container in [*spec.get("containers", ()), *(spec.get("initContainers") or ())]:
        if container.get("livenessProbe"):
            yield str(container.get("name", ""))

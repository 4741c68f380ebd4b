"""Warns about liveness probes of time-shared jobs. Pure.

A pod that waits for its turn is paused and answers no probe, so kubelet would restart its containers.
"""

from collections.abc import Iterator
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.claims import Ask
from dovetail.pods.demand import template_spec
from dovetail_operator.events.announcement import Announcement

REASON: Final = "LivenessProbe"


def warning_of(job: GPUJob, *, ask: Ask | None) -> Announcement | None:
    """The warning for a time-shared job with a liveness probe; None for all others."""
    if ask is None or ask.mode != "TimeShared":
        return None
    probed = list(_probed(job))
    if not probed:
        return None
    message = (
        f"Container {', '.join(probed)} has a liveness probe, but where tenants take turns the whole pod is frozen "
        "while it waits: kubelet may end it. Remove the probe, or ask for whole GPUs or shares"
    )
    return Announcement(about=job.metadata, severity="Warning", reason=REASON, message=message)


def _probed(job: GPUJob) -> Iterator[str]:
    spec = template_spec(job)
    for container in [*spec.get("containers", ()), *(spec.get("initContainers") or ())]:
        if container.get("livenessProbe"):
            yield str(container.get("name", ""))

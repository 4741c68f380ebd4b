"""Warns about liveness probes of time-shared jobs. Pure.

A pod that waits for its turn is paused and answers no probe, so kubelet would restart its containers.
"""

from collections.abc import Iterator

from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons.events import FREEZES
from dovetail.engine.model.claims import Ask
from dovetail.pods.demand import template_spec
from dovetail_operator.events.announcement import Announcement


def warning_of(job: GPUJob, *, ask: Ask | None) -> Announcement | None:
    """The warning for a time-shared job with a liveness probe; None for all others."""
    if ask is None or ask.mode != "TimeShared":
        return None
    probed = list(_probed(job))
    if not probed:
        return None
    return Announcement(about=job.metadata, severity="Warning", why=FREEZES(containers=", ".join(probed)))


def _probed(job: GPUJob) -> Iterator[str]:
    spec = template_spec(job)
    for container in [*spec.get("containers", ()), *(spec.get("initContainers") or ())]:
        if container.get("livenessProbe"):
            yield str(container.get("name", ""))

"""The holders of each device, from the jobs' statuses, without promising one twice. Pure.

A status may lag behind its pods: for a moment two jobs name one device, the job that has just ended and the next one.
The job that was admitted later holds the device, because no device is promised twice.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from dovetail.api.gpujob import GPUJob
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.query.jobs.states import phase_of

# Job number and share of every holder, by node and index of the device.
Held = Mapping[tuple[str, int], Sequence[tuple[int, int]]]


def held_devices(jobs: Iterable[GPUJob]) -> Held:
    """The holders of each held device, in the order of their admission."""
    holders: dict[tuple[str, int], list[tuple[GPUJob, int]]] = defaultdict(list)
    holding = (job for job in jobs if phase_of(job) in {"Starting", "Running"})
    for job in sorted(holding, key=_let_go, reverse=True):
        for device in job.status.devices:
            there = holders[device.node, device.index]
            if _is_room(there, job=job, share_milli=device.share_milli):
                there.append((job, device.share_milli))
    return {
        device: [(job.status.number or 0, share) for job, share in reversed(there)] for device, there in holders.items()
    }


def allocated_milli(jobs: Iterable[GPUJob]) -> int:
    """The compute that the jobs hold now, in thousandths of a device.

    A device whose tenants take turns counts as held whole.
    """
    devices = held_devices(jobs).values()
    return sum(min(WHOLE_MILLI, sum(share for _, share in holders)) for holders in devices)


def _let_go(job: GPUJob) -> tuple[str, int]:
    return job.status.admitted_time or "", job.status.number or 0


def _is_room(later: Sequence[tuple[GPUJob, int]], *, job: GPUJob, share_milli: int) -> bool:
    """Whether a job that was admitted before these can still hold its share together with them."""
    if job.spec.mode == "TimeShared" and all(each.spec.mode == "TimeShared" for each, _ in later):
        return True
    return share_milli + sum(share for _, share in later) <= WHOLE_MILLI

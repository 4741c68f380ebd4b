"""Who holds which device, from the jobs' statuses: the live grid and the last tables. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import Device
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.query.jobs.columns import View
from dovetail_cli.jobs import job_rows
from dovetail_cli.replay.device_holders import Held, held_devices
from dovetail_cli.replay.tally import Tally, is_waiting
from dovetail_cli.ui import output

_FREE, _PART, _FULL = "□", "◧", "■"
JOB_FIELDS: Final = ("JOBID", "NAME", "ST", "TIME", "GPUS", "NODELIST(REASON)")
_MOST_WAITING: Final = 5


def grid(tally: Tally) -> list[str]:
    """A line a node: a sign a device, free, partly or wholly held."""
    held = held_devices(tally.seen.values())
    width = max(map(len, tally.nodes), default=0)
    return [
        f"{node:<{width}}  {''.join(_sign(held, node=node, device=device) for device in devices)}  {devices[0].model}"
        for node, devices in tally.nodes.items()
    ]


def _sign(held: Held, *, node: str, device: Device) -> str:
    share = sum(share for _, share in held.get((node, device.index), ()))
    return _FREE if share == 0 else _FULL if share >= WHOLE_MILLI else _PART


def waiting_lines(tally: Tally) -> list[str]:
    """The first jobs that wait, each with its reason."""
    waiting = [job for job in tally.seen.values() if is_waiting(job) and job.status.reason]
    waiting.sort(key=lambda job: (job.status.number is None, job.status.number))
    lines = [f"{job.metadata.name}: {job.status.reason}: {job.status.message}" for job in waiting[:_MOST_WAITING]]
    return [*lines, f"and {len(waiting) - _MOST_WAITING} more"] if len(waiting) > _MOST_WAITING else lines


def job_table(jobs: Sequence[GPUJob], *, view: View) -> str:
    """All jobs by number."""
    ordered = sorted(jobs, key=lambda job: (job.status.number is None, job.status.number))
    rows = [job_rows.row(job, fields=JOB_FIELDS, view=view) for job in ordered]
    return output.render(rows, columns=JOB_FIELDS, form="table")


def node_table(nodes: Mapping[str, Sequence[Device]], *, jobs: Iterable[GPUJob]) -> str:
    """The nodes with their devices: who holds each, with the share where it is a part."""
    held = held_devices(jobs)
    rows = [
        {
            "NODE": node,
            "MODEL": devices[0].model,
            "GPUS": len(devices),
            "FREE": sum((node, device.index) not in held for device in devices),
            "DEVICES": _holders(held, node=node, devices=devices),
        }
        for node, devices in nodes.items()
    ]
    return output.render(rows, columns=("NODE", "MODEL", "GPUS", "FREE", "DEVICES"), form="table")


def _holders(held: Held, *, node: str, devices: Sequence[Device]) -> str:
    parts = []
    for device in devices:
        holders = held.get((node, device.index), ())
        if holders:
            parts.append(
                f"{device.index}: {', '.join(_holder(number, share_milli=share) for number, share in holders)}"
            )
    return "; ".join(parts)


def _holder(number: int, *, share_milli: int) -> str:
    return f"job {number}" if share_milli == WHOLE_MILLI else f"job {number} ({share_milli / WHOLE_MILLI:g})"

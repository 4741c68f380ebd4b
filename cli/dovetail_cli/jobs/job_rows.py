"""A job as one row: short names of states, the columns, its place or its reason to wait. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from dovetail import names
from dovetail.api.gpujob import FINISHED, AssignedDevice, GPUJob, Phase
from dovetail.decoding import UnreadableError, convert
from dovetail.gpu.request import RequestError, parse
from dovetail.jobs.runs import end_of_run
from dovetail_cli.ui import projects
from dovetail_cli.ui.errors import UsageError
from dovetail_cli.ui.times import elapsed, run_seconds

DEFAULT_FIELDS: Final = ("JOBID", "NAME", "ST", "TIME", "NODES", "NODELIST(REASON)")
# Slurm's letters, and the long names that -s takes in addition to phases. As in Slurm, a starting job counts as pending
# and a suspended job as held.
SHORT: Final[dict[Phase, str]] = {
    "Queued": "PD", "Starting": "PD", "Held": "H", "Suspended": "H", "Running": "R", "Succeeded": "CD", "Failed": "F",
    "Cancelled": "CA", "TimedOut": "TO", "Preempted": "PR",
}  # fmt: skip
_LONG: Final = {
    "QUEUED": "PD", "PENDING": "PD", "HOLD": "H", "HELD": "H", "RUNNING": "R", "FINISHED": "CD", "COMPLETED": "CD",
    "FAILED": "F", "CANCELLED": "CA", "TIMEOUT": "TO", "PREEMPTED": "PR",
}  # fmt: skip
_SYNONYMS: Final = frozenset({"PENDING", "HELD", "COMPLETED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What rows depend on besides the job: the clock, and whether one node has all GPUs (its name is then left out)."""

    now: datetime
    one_node: bool = False


Column = Callable[[GPUJob, View], Any]


def phase_of(job: GPUJob) -> Phase:
    """The job's phase; one that no operator has seen yet is queued."""
    return job.status.phase or "Queued"


def long_name(short: str) -> str:
    """`Queued` for `PD`: what -s takes and tables say."""
    return next(long for long, each in _LONG.items() if each == short).capitalize()


def is_unfinished(job: GPUJob) -> bool:
    """Whether the job waits or runs."""
    return phase_of(job) not in FINISHED


def place_or_reason(job: GPUJob, view: View) -> str:
    """`node-3:0,1` for a job that has a place, `(Resources: Need 4 GPUs, only 1 available)` for one that has none."""
    status = job.status
    if status.reason and phase_of(job) != "Running":
        return f"({status.reason}: {status.message})" if status.message else f"({status.reason})"
    if status.phase is None:
        return "(Evaluating: no operator has seen it yet)"
    return _devices(status.devices, view) or ",".join(status.nodes)


def _devices(devices: Sequence[AssignedDevice], view: View) -> str:
    """Indices by node: `node-3:0,1 node-4:0`; just `0,1` where there is one GPU node."""
    places = sorted({(device.node, device.index) for device in devices})
    by_node = {node: ",".join(str(index) for _, index in group) for node, group in groupby(places, key=lambda p: p[0])}
    if view.one_node and len(by_node) == 1:
        return next(iter(by_node.values()))
    return " ".join(f"{node}:{indices}" for node, indices in by_node.items())


def _time(job: GPUJob, view: View) -> str:
    return elapsed(run_seconds(job.status.start_time, end_of_run(job.status), now=view.now))


def _memory(job: GPUJob, _view: View) -> str:
    """Host memory that each worker asks for, as Slurm shows it."""
    mebibytes = _host_mib(job)
    if not mebibytes:
        return "0"
    return f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M"


def _host_mib(job: GPUJob) -> int:

    # NumPy is behind it, and few look at this column.
    from dovetail.api.builtin import PodSpec
    from dovetail.pods.demand import host_request, written_spec

    try:
        return host_request(convert(written_spec(job), as_type=PodSpec, strict=False))[1]
    except (UnreadableError, RequestError, ValueError):
        # A template that no pod can be made of; the operator says so in the reason.
        return 0


def _asked(job: GPUJob) -> float:
    """GPUs that each worker asks for, a share as such: by it 16 comes behind 2."""
    try:
        request = parse(job.status.request or str(job.spec.gpu or ""))
    except RequestError:
        # Nothing is said yet, or `cpu`.
        return 0
    return request.total_milli


def _limit(job: GPUJob, _view: View) -> str:
    seconds = job.spec.active_deadline_seconds
    return "UNLIMITED" if seconds is None else elapsed(seconds)


COLUMNS: Final[Mapping[str, Column]] = {
    "JOBID": lambda job, _: "-" if job.status.number is None else job.status.number,
    "NAME": lambda job, _: job.metadata.name,
    "ST": lambda job, _: SHORT[phase_of(job)],
    "STATE": lambda job, _: phase_of(job),
    "TIME": _time,
    "TIMELIMIT": _limit,
    "NODES": lambda job, _: job.status.gpus,
    "GPUS": lambda job, _: job.status.request or str(job.spec.gpu or ""),
    "NODE": lambda job, _: job.status.node_list,
    "NODELIST(REASON)": place_or_reason,
    "NODELIST": place_or_reason,
    "MEMORY": _memory,
    "PRIORITY": lambda job, _: job.spec.priority,
    "USER": lambda job, _: job.metadata.annotations.get(names.USER, "-"),
    "PROJECT": lambda job, _: projects.of(job) or "-",
    "POSITION": lambda job, _: job.status.queue.position if job.status.queue else "-",
    "ETA": lambda job, _: (job.status.queue and job.status.queue.estimated_start) or "-",
}


def parse_fields(text: str | None) -> list[str]:
    """The columns that `-f` names, in any case. Raises `UsageError` for one that there is not."""
    if text is None:
        return list(DEFAULT_FIELDS)
    fields = [field.strip() for field in text.split(",") if field.strip()]
    for field in fields:
        if field.upper() not in COLUMNS:
            raise UsageError(f'-f "{field}": unknown field, allowed are {", ".join(COLUMNS)}')
    return [field.upper() for field in fields] or list(DEFAULT_FIELDS)


def parse_states(text: str | None) -> frozenset[str]:
    """The short states that `-s` names, long or short, in any case. Raises `UsageError`; empty without `-s`."""
    known = {**{short: short for short in SHORT.values()}, **_LONG}
    known |= {phase.upper(): short for phase, short in SHORT.items()}
    chosen = []
    for word in (text or "").split(","):
        state = word.strip().upper()
        if state and state not in known:
            allowed = ", ".join(f"{long} {short}" for long, short in _LONG.items() if long not in _SYNONYMS)
            raise UsageError(f'-s "{word.strip()}": unknown state, allowed are {allowed}')
        if state:
            chosen.append(known[state])
    return frozenset(chosen)


def row(job: GPUJob, fields: Sequence[str], *, view: View) -> dict[str, Any]:
    """The columns asked for, by their names."""
    return {field: COLUMNS[field](job, view) for field in fields}


def parse_sort(text: str | None) -> list[str]:
    """The columns that `-r` names, `-` before one for the largest first. Raises `UsageError`."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word.upper().removeprefix("-") not in COLUMNS:
            raise UsageError(f'-r "{word}": unknown field, allowed are {", ".join(COLUMNS)}, also with - before them')
    return [word.upper() for word in words]


def sort_jobs(jobs: Sequence[GPUJob], fields: Sequence[str], *, view: View) -> list[GPUJob]:
    """The jobs by these columns, the first one first; without columns as they are."""
    ordered = list(jobs)
    for field in reversed(fields):
        ordered.sort(key=_sort_key(field.removeprefix("-"), view=view), reverse=field.startswith("-"))
    return ordered


def _sort_key(field: str, *, view: View) -> Callable[[GPUJob], Any]:
    numbers: dict[str, Callable[[GPUJob], float]] = {
        "JOBID": lambda job: job.status.number or 0,
        "TIME": lambda job: run_seconds(job.status.start_time, end_of_run(job.status), now=view.now) or 0,
        "TIMELIMIT": lambda job: job.spec.active_deadline_seconds or float("inf"),
        "MEMORY": _host_mib,
        "GPUS": _asked,
        "POSITION": lambda job: job.status.queue.position if job.status.queue else 0,
    }
    return numbers.get(field, lambda job: COLUMNS[field](job, view))


def record(job: GPUJob, *, view: View) -> dict[str, Any]:
    """The job as programs read it: numbers as numbers, times as RFC 3339, nothing shortened."""
    status = job.status
    return {
        "id": status.number,
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "state": phase_of(job),
        "st": SHORT[phase_of(job)],
        "reason": status.reason,
        "message": status.message,
        "gpus": status.gpus,
        "request": status.request,
        "priority": job.spec.priority,
        "user": job.metadata.annotations.get(names.USER),
        "project": projects.of(job),
        "position": status.queue.position if status.queue else None,
        "estimated_start": status.queue.estimated_start if status.queue else None,
        "estimate_basis": status.queue.basis if status.queue else "",
        "dependencies": [
            {"name": each.name, "condition": each.condition, "state": each.state} for each in status.dependencies
        ],
        "workers": job.spec.workers,
        "nodes": list(status.nodes),
        "devices": [
            {
                "worker": device.worker,
                "node": device.node,
                "index": device.index,
                "uuid": device.uuid,
                "share_milli": device.share_milli,
                "memory_mib": device.memory_mib,
            }
            for device in status.devices
        ],
        "run_seconds": run_seconds(status.start_time, end_of_run(status), now=view.now),
        "time_limit_seconds": job.spec.active_deadline_seconds,
        "submit_time": job.metadata.creation_timestamp,
        "start_time": status.start_time,
        "completion_time": status.completion_time,
    }

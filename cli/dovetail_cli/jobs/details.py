"""One job found by its number or name, and shown in sections of `key=value`."""

from collections.abc import Sequence
from typing import Any

import msgspec

from dovetail.api.gpujob import GPUJob, Preemption, Tasks
from dovetail.api.historyquery import HistoryQuerySpec, JobRecord
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.query.jobs import selection
from dovetail.query.jobs.details import JobDetails, job_details
from dovetail.query.jobs.records import last_run_seconds
from dovetail.query.jobs.rows import JobDevice
from dovetail_cli.cluster.connection import Cluster, list_jobs, work
from dovetail_cli.jobs import history, job_events
from dovetail_cli.ui import output, times
from dovetail_cli.ui.errors import MissingError

Pairs = list[tuple[str, Any]]


async def find(cluster: Cluster, *, wanted: selection.Wanted) -> GPUJob:
    """The job. Raises `MissingError`."""
    chosen, missing = selection.select(await list_jobs(cluster), wanted=[wanted])
    if missing:
        raise MissingError(selection.none_such(missing))
    return chosen[0]


async def remembered(cluster: Cluster, *, wanted: selection.Wanted, logs: bool = False) -> JobRecord:
    """The record of the latest job of that number or name. Raises `MissingError`."""
    question = HistoryQuerySpec(
        names=[wanted.name] if wanted.name else [], numbers=[] if wanted.name else [wanted.first], limit=1, logs=logs
    )
    found = (await history.ask(cluster, question=question)).records
    if not found:
        raise MissingError(selection.none_such([wanted.text]))
    return found[0]


def show(word: str, *, form: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> str:
    """The job, else what the history has of it, as text."""
    wanted = selection.parse_one(word, field="JOB")

    async def go(cluster: Cluster) -> str:
        try:
            job = await find(cluster, wanted=wanted)
        except MissingError:
            return recorded(await remembered(cluster, wanted=wanted), form=form)
        events = await job_events.events_of(cluster, job=job)
        return shown(job_details(job, events=events, now=times.utc_now()), form=form)

    return work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)


def shown(job: JobDetails, *, form: str) -> str:
    """A job whose object exists, as text or for programs."""
    if form == "table":
        return "\n".join(part for part in (text(sections(job)), job_events.section(job.events)) if part)
    return _printed(msgspec.to_builtins(job), form=form)


def recorded(found: JobRecord, *, form: str) -> str:
    """A job of which only its record is left, as text or for programs."""
    return text(recorded_sections(found)) if form == "table" else _printed(msgspec.to_builtins(found), form=form)


def _printed(value: Any, *, form: str) -> str:
    return output.as_json(value) if form == "json" else output.as_yaml(value)


def text(parts: Sequence[tuple[str, Pairs]]) -> str:
    """Sections with a title, and a line for each pair that says something."""
    shown = [(title, [f"  {key}={value}" for key, value in pairs if value not in {None, ""}]) for title, pairs in parts]
    return "\n".join(line for title, lines in shown if lines for line in (output.bold(title), *lines))


def _earlier(seconds: float) -> str | None:
    """Run time of the runs before the last one; None without any."""
    return times.elapsed(seconds) if seconds >= 1 else None


def _queue(job: JobDetails) -> Pairs:
    """Position and estimated start, with its bounds and how often such bounds have held."""
    bounds = ""
    if job.estimated_earliest and job.estimated_latest:
        held = "" if job.bounds_held is None else f" ({job.bounds_held:.0%} of the latest jobs started within theirs)"
        bounds = f"{job.estimated_earliest} to {job.estimated_latest}{held}"
    return [
        ("Position", job.position),
        ("EstimatedStart", job.estimated_start),
        ("Bounds", bounds),
        ("Basis", job.estimate_basis),
    ]


def sections(job: JobDetails) -> list[tuple[str, Pairs]]:
    """The sections of a job whose object exists."""
    return [
        ("Job", _identity(job)),
        ("Queue", _queue(job)),
        ("Request", _request(job)),
        ("Place", [("NodeList", job.place if job.nodes else None), *map(_device, job.devices)]),
        ("Times", _times(job)),
        ("Tasks", _tasks(job.tasks)),
        ("Preemption", _preemption(job.preemption)),
        ("Measured", _measured(job)),
        ("Notifications", _notifications(job)),
        ("Attempts", [(f"Attempt{each.number}", f"{each.reason}: {each.message}") for each in job.attempts]),
        ("Depends on", [(each.name, f"{each.condition} ({each.state})") for each in job.dependencies]),
    ]


def _identity(job: JobDetails) -> Pairs:
    return [
        ("JobId", job.id),
        ("JobName", job.name),
        ("Object", None if job.object_name == job.name else job.object_name),
        ("Namespace", job.namespace),
        ("UserId", job.user),
        ("Project", job.project),
        ("JobState", job.state),
        ("Simulated", "yes: nothing of it really runs" if job.simulated else None),
        ("Reason", job.reason),
        ("Message", job.message),
        ("Priority", job.priority),
    ]


def _request(job: JobDetails) -> Pairs:
    limit = job.time_limit_seconds
    return [
        ("Gpus", job.request),
        ("Device", job.device),
        ("Workers", job.workers),
        ("TimeLimit", "UNLIMITED" if limit is None else times.elapsed(limit)),
        ("Retries", f"{job.retries} of {job.max_retries}"),
    ]


def _times(job: JobDetails) -> Pairs:
    return [
        ("SubmitTime", job.submit_time),
        ("BeginTime", job.begin_time),
        ("AdmittedTime", job.admitted_time),
        ("StartTime", job.start_time),
        ("EndTime", job.completion_time),
        ("LeaseEnds", job.lease_end_time),
        ("RunTime", None if job.run_seconds is None else times.elapsed(job.run_seconds)),
        ("EarlierRunTime", _earlier(job.earlier_run_seconds)),
    ]


def recorded_sections(found: JobRecord) -> list[tuple[str, Pairs]]:
    """A job of which only its record is left."""
    return [
        (
            "Job (its object is gone; this is its record)",
            [
                ("JobId", found.number),
                ("JobName", found.name),
                ("Namespace", found.namespace),
                ("UserId", found.user),
                ("Project", found.project),
                ("JobState", found.phase),
                ("Reason", found.reason),
                ("Message", found.message),
                ("Priority", found.priority),
            ],
        ),
        ("Request", [("Gpus", found.request), ("Workers", found.workers), ("Attempts", found.attempts)]),
        ("Place", [("NodeList", ",".join(found.nodes)), ("Devices", " ".join(found.devices))]),
        (
            "Times",
            [
                ("SubmitTime", found.submitted),
                ("StartTime", found.started),
                ("EndTime", found.ended),
                ("WaitTime", None if found.wait_seconds is None else times.elapsed(found.wait_seconds)),
                ("RunTime", times.elapsed(last_run_seconds(found))),
                ("EarlierRunTime", _earlier(found.run_seconds - last_run_seconds(found))),
            ],
        ),
        (
            "Measured",
            [
                ("GpuHours", f"{found.gpu_seconds / 3600:.3f}"),
                ("PeakMemoryMiB", found.peak_mib or None),
                ("MeanUtilization", found.mean_utilization),
            ],
        ),
    ]


def _device(device: JobDevice) -> tuple[str, Any]:
    share, memory = device.share_milli / WHOLE_MILLI, device.memory_mib
    return f"Worker{device.worker}", f"{device.node}:{device.index} {device.uuid} share={share:g} memory={memory}MiB"


def _tasks(tasks: Tasks | None) -> Pairs:
    if tasks is None:
        return []
    return [
        ("Total", tasks.total),
        ("Waiting", tasks.waiting),
        ("Running", tasks.running),
        ("Succeeded", f"{tasks.succeeded} ({tasks.succeeded_indexes})" if tasks.succeeded else 0),
        ("Failed", f"{tasks.failed} ({tasks.failed_indexes})" if tasks.failed else 0),
    ]


def _preemption(made: Preemption | None) -> Pairs:
    if made is None:
        return []
    return [("Times", made.count or None), ("LastTime", made.last_time), ("EndsAt", made.at), ("Why", made.message)]


def _notifications(job: JobDetails) -> Pairs:
    return [
        ("To", ",".join(job.notify_emails)),
        ("Events", ",".join(job.notify_events)),
        ("Sent", ",".join(job.notified)),
    ]


def _measured(job: JobDetails) -> Pairs:
    return [
        ("PeakMemoryMiB", job.peak_memory_mib),
        ("MemoryBasis", job.memory_basis),
        ("MeanUtilization", None if job.mean_utilization is None else f"{job.mean_utilization:.2f}"),
    ]

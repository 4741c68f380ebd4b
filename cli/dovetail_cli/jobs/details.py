"""One job found by its number or name, and shown in sections of `key=value`."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from dovetail import names
from dovetail.api.builtin import Event
from dovetail.api.gpujob import ENDS, AssignedDevice, GPUJob
from dovetail.api.historyquery import HistoryQuerySpec, JobRecord
from dovetail.jobs.runs import end_of_run
from dovetail_cli.cluster.connection import Cluster, list_jobs, work
from dovetail_cli.jobs import history, job_events, job_rows
from dovetail_cli.ui import output, projects, selection, times
from dovetail_cli.ui.errors import MissingError, UsageError

Pairs = list[tuple[str, Any]]


def parse(word: str) -> selection.Wanted:
    """The one job that a word names. Raises `UsageError`."""
    found = selection.parse_ids([word], option="JOB")
    if len(found) > 1 or not found[0].single:
        raise UsageError(f'JOB "{word}": name one job, such as 7 or train-resnet')
    return found[0]


async def find(cluster: Cluster, wanted: selection.Wanted) -> GPUJob:
    """The job. Raises `MissingError`."""
    chosen, missing = selection.select(await list_jobs(cluster), [wanted])
    if missing:
        raise MissingError(selection.none_such(missing))
    return chosen[0]


async def remembered(cluster: Cluster, wanted: selection.Wanted, *, logs: bool = False) -> JobRecord:
    """The record of the latest job of that number or name. Raises `MissingError`."""
    question = HistoryQuerySpec(
        names=[wanted.name] if wanted.name else [], numbers=[] if wanted.name else [wanted.first], limit=1, logs=logs
    )
    found = (await history.ask(cluster, question)).records
    if not found:
        raise MissingError(selection.none_such([wanted.text]))
    return found[0]


def show(word: str, *, form: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> str:
    """The job, else what the history has of it, as text."""
    wanted = parse(word)

    async def go(cluster: Cluster) -> str:
        try:
            job = await find(cluster, wanted)
        except MissingError:
            return recorded(await remembered(cluster, wanted), form=form)
        return told(job, await job_events.events_of(cluster, job), form=form)

    return work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)


def told(job: GPUJob, events: Sequence[Event] | None, *, form: str) -> str:
    """A job that is there and what has happened to it, as text or for programs."""
    if form == "table":
        return "\n".join(part for part in (text(sections(job)), job_events.section(events)) if part)
    return _printed({**record(job), "events": job_events.records(events)}, form=form)


def recorded(found: JobRecord, *, form: str) -> str:
    """A job of which only its record is left, as text or for programs."""
    return text(recorded_sections(found)) if form == "table" else _printed(msgspec.to_builtins(found), form=form)


def _printed(value: Any, *, form: str) -> str:
    return output.as_json(value) if form == "json" else output.as_yaml(value)


def record(job: GPUJob) -> dict[str, Any]:
    """What programs get: what gqueue tells of it, and the rest of what the status knows."""
    status = job.status
    return {
        **job_rows.record(job, view=job_rows.View(now=times.utc_now())),
        "user": job.metadata.annotations.get(names.USER, ""),
        "device": status.device,
        "attempt": status.attempt,
        "attempts": [msgspec.to_builtins(each) for each in status.attempts],
        "peak_memory_mib": status.memory.peak_mib if status.memory else None,
        "mean_utilization": status.measured.mean_utilization if status.measured else None,
        "conditions": [msgspec.to_builtins(each) for each in status.conditions],
    }


def text(parts: Sequence[tuple[str, Pairs]]) -> str:
    """Sections with a title, and a line for each pair that says something."""
    shown = [(title, [f"  {key}={value}" for key, value in pairs if value not in {None, ""}]) for title, pairs in parts]
    return "\n".join(line for title, lines in shown if lines for line in (output.bold(title), *lines))


def _earlier(seconds: float) -> str | None:
    """Run time of the runs before the last one; None without any."""
    return times.elapsed(seconds) if seconds >= 1 else None


def _request(job: GPUJob) -> Pairs:
    status, spec = job.status, job.spec
    limit = spec.active_deadline_seconds
    return [
        ("Gpus", status.request or spec.gpu),
        ("Device", status.device),
        ("Workers", spec.workers),
        ("TimeLimit", "UNLIMITED" if limit is None else times.elapsed(limit)),
        ("Retries", f"{status.retries} of {spec.backoff_limit}"),
    ]


def _times(job: GPUJob) -> Pairs:
    status = job.status
    running = times.run_seconds(status.start_time, end_of_run(status), now=times.utc_now())
    return [
        ("SubmitTime", job.metadata.creation_timestamp),
        ("BeginTime", job.spec.begin_time),
        ("AdmittedTime", status.admitted_time),
        ("StartTime", status.start_time),
        ("EndTime", status.completion_time),
        ("LeaseEnds", status.lease.expiration_time if status.lease else None),
        ("RunTime", None if running is None else times.elapsed(running)),
        ("EarlierRunTime", _earlier(status.earlier_run_seconds)),
    ]


def sections(job: GPUJob) -> list[tuple[str, Pairs]]:
    """A job that is there."""
    status, spec = job.status, job.spec
    place = job_rows.place_or_reason(job, job_rows.View(now=times.utc_now()))
    return [
        (
            "Job",
            [
                ("JobId", status.number),
                ("JobName", job.metadata.name),
                ("Namespace", job.metadata.namespace),
                ("UserId", job.metadata.annotations.get(names.USER)),
                ("Project", projects.of(job)),
                ("JobState", job_rows.phase_of(job)),
                ("Reason", status.reason or None),
                ("Message", status.message),
                ("Priority", spec.priority),
            ],
        ),
        ("Queue", list(_queue(job))),
        ("Request", _request(job)),
        ("Place", [("NodeList", place if status.nodes else None), *_devices(job)]),
        ("Times", _times(job)),
        ("Tasks", _tasks(job)),
        ("Preemption", _preemption(job)),
        ("Measured", _measured(job)),
        ("Notifications", _notifications(job)),
        ("Attempts", [(f"Attempt{each.number}", f"{each.reason}: {each.message}") for each in status.attempts]),
        ("Depends on", [(each.name, f"{each.condition} ({each.state})") for each in status.dependencies]),
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
                ("RunTime", times.elapsed(history.last_run_seconds(found))),
                ("EarlierRunTime", _earlier(found.run_seconds - history.last_run_seconds(found))),
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


def _queue(job: GPUJob) -> Iterator[tuple[str, Any]]:
    place = job.status.queue
    if place is not None:
        yield "Position", place.position
        yield "EstimatedStart", place.estimated_start
        yield "Basis", place.basis


def _devices(job: GPUJob) -> Pairs:
    return [(f"Worker{device.worker}", _device(device)) for device in job.status.devices]


def _device(device: AssignedDevice) -> str:
    share, memory = device.share_milli / 1000, device.memory_mib
    return f"{device.node}:{device.index} {device.uuid} share={share:g} memory={memory}MiB"


def _tasks(job: GPUJob) -> Pairs:
    tasks = job.status.tasks
    if tasks is None:
        return []
    return [
        ("Total", tasks.total),
        ("Waiting", tasks.waiting),
        ("Running", tasks.running),
        ("Succeeded", f"{tasks.succeeded} ({tasks.succeeded_indexes})" if tasks.succeeded else 0),
        ("Failed", f"{tasks.failed} ({tasks.failed_indexes})" if tasks.failed else 0),
    ]


def _preemption(job: GPUJob) -> Pairs:
    made = job.status.preemption
    if made is None:
        return []
    return [("Times", made.count or None), ("LastTime", made.last_time), ("EndsAt", made.at), ("Why", made.message)]


def _notifications(job: GPUJob) -> Pairs:
    asked = job.spec.notify
    if asked is None:
        return []
    return [
        ("To", ",".join(asked.emails)),
        ("Events", ",".join(asked.events or ENDS)),
        ("Told", ",".join(job.status.notified)),
    ]


def _measured(job: GPUJob) -> Pairs:
    memory, measured = job.status.memory, job.status.measured
    return [
        ("PeakMemoryMiB", memory.peak_mib if memory else None),
        ("MemoryBasis", memory.basis if memory else None),
        ("MeanUtilization", f"{measured.mean_utilization:.2f}" if measured else None),
    ]

"""One job found by its number or name, and shown in sections of `key=value`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.answers.jobs import EventRow, job_details
from dovetail.answers.owners import project_of, user_of
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import (
    ENDS,
    AssignedDevice,
    GPUJob,
    GPUJobStatus,
    NotifySpec,
    Preemption,
    QueuePlace,
    Tasks,
)
from dovetail.api.gpunode import GPUNode
from dovetail.api.historyquery import HistoryQuerySpec, JobRecord
from dovetail.api.resources import GPUNODES, PODS
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.jobs.device_totals import with_figures_so_far
from dovetail.jobs.display_name import display_name
from dovetail.jobs.runs import run_seconds
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.query.jobs import selection
from dovetail.query.jobs.places import place_or_reason
from dovetail.query.jobs.records import last_run_seconds
from dovetail.query.jobs.requests import request_text
from dovetail.query.jobs.states import phase_of
from dovetail_cli.cluster import identity, this_machine
from dovetail_cli.cluster.connection import Cluster, list_jobs, work
from dovetail_cli.jobs import history, job_events, job_rows
from dovetail_cli.submit.profiles import console_page
from dovetail_cli.ui import output, times
from dovetail_cli.ui.errors import MissingError

Pairs = list[tuple[str, Any]]
_STATE: Final = "JobState"


async def find(cluster: Cluster, *, wanted: selection.Wanted) -> GPUJob:
    """The job. Raises `MissingError`."""
    words = await identity.of_caller([wanted], cluster=cluster)
    chosen, missing = selection.select(await list_jobs(cluster), wanted=words)
    if missing:
        raise MissingError(selection.none_such(missing))
    return chosen[0]


async def remembered(cluster: Cluster, *, wanted: selection.Wanted, logs: bool = False) -> JobRecord:
    """The record of the latest job of that number or name.

    Raises `MissingError` and `NoHistoryError`.
    """
    if wanted.back is not None:
        raise MissingError(selection.none_such([wanted.text]))
    question = HistoryQuerySpec(
        names=[wanted.name] if wanted.name else [], numbers=[] if wanted.name else [wanted.first], limit=1, logs=logs
    )
    found = (await history.ask(cluster, question=question)).records
    if not found:
        raise MissingError(selection.none_such([wanted.text]))
    return found[0]


async def remembered_or(
    error: MissingError, *, cluster: Cluster, wanted: selection.Wanted, logs: bool = False
) -> JobRecord:
    """The record of a job that has no object, which `error` says. Raises `MissingError`."""
    try:
        return await remembered(cluster, wanted=wanted, logs=logs)
    except history.NoHistoryError as why:
        raise MissingError(f"{error}, and {why}") from why


def show(word: str, *, form: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> str:
    """The job, else what the history has of it, as text."""
    wanted = selection.parse_one(word, field="JOB")

    async def go(cluster: Cluster) -> str:
        try:
            job = await find(cluster, wanted=wanted)
        except MissingError as error:
            return recorded(await remembered_or(error, cluster=cluster, wanted=wanted), form=form)
        now = times.utc_now()
        job = await with_figures(cluster, job=job, now=now)
        if form != "table":
            return output.document(msgspec.to_builtins(job_details(job)), form=form)
        page = console_page.page_of(cluster, job=job) if output.on_terminal() else None
        events = await job_events.events_or_none(cluster, job=job)
        if not this_machine.is_one(cluster):
            return output.wrapped(shown(job, events=events, now=now, page=page))
        said = this_machine.events(events=events or [])
        job = this_machine.job(cluster, job=job)
        return output.wrapped(shown(job, events=said, now=now, page=page, namespace=False))

    return work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)


async def with_figures(cluster: Cluster, *, job: GPUJob, now: datetime) -> GPUJob:
    """The job with the figures of its current run, if the user may read its pods and nodes."""
    if job.status.phase != "Running":
        return job
    selector = f"{names.LABEL_JOB}={job.metadata.name}"
    try:
        pods = await cluster.client.list(PODS, as_type=Pod, namespace=job.metadata.namespace, label_selector=selector)
        gpunodes = {
            name: await cluster.client.get(GPUNODES, name=name, as_type=GPUNode) for name in set(job.status.nodes)
        }
    except (Forbidden, NotFound):
        return job
    return with_figures_so_far(job, pods=pods.items, gpunodes=gpunodes, now=now)


def happened(word: str, *, form: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> str:
    """What has happened to the job, as text or for programs."""
    wanted = selection.parse_one(word, field="JOB")

    async def go(cluster: Cluster) -> str:
        job = await find(cluster, wanted=wanted)
        events = await job_events.events_of(cluster, job=job)
        if form == "table" and this_machine.is_one(cluster):
            events = this_machine.events(events=events)
        return job_events.shown(events, form=form)

    return work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)


def shown(
    job: GPUJob, *, events: Sequence[EventRow] | None, now: datetime, page: str | None = None, namespace: bool = True
) -> str:
    """A job whose object exists, as text, with its `page` in the console and its `namespace`.

    `events` is None if the user may not list them.
    """
    first, *others = sections(job, now=now, namespace=namespace)
    title, pairs = first
    parts = text([(title, [*pairs, ("Console", page)]), *others]), job_events.section(events)
    return "\n".join(part for part in parts if part)


def recorded(found: JobRecord, *, form: str) -> str:
    """A job of which only its record is left, as text or for programs."""
    return text(recorded_sections(found)) if form == "table" else output.document(msgspec.to_builtins(found), form=form)


def text(parts: Sequence[tuple[str, Pairs]]) -> str:
    """Sections with a title, and a line for each pair that says something."""
    shown = [
        (title, [f"  {key}={_coloured(key, value=value)}" for key, value in pairs if value not in {None, ""}])
        for title, pairs in parts
    ]
    return "\n".join(line for title, lines in shown if lines for line in (output.bold(title), *lines))


def _coloured(key: str, *, value: Any) -> str:
    colour = job_rows.COLOURS["STATE"].get(value) if key == _STATE else None
    return str(value) if colour is None else output.paint(str(value), colour=colour)


def _earlier(seconds: float) -> str | None:
    """Run time of the runs before the last one; None without any."""
    return times.elapsed(seconds) if seconds >= 1 else None


def _queue(place: QueuePlace | None) -> Pairs:
    """Position and estimated start, with its bounds and how often such bounds have held."""
    if place is None:
        return []
    bounds = ""
    if place.estimated_start_earliest and place.estimated_start_latest:
        held = ""
        if place.bounds_held is not None:
            held = f" ({place.bounds_held:.0%} of the latest jobs started within theirs)"
        bounds = f"{place.estimated_start_earliest} to {place.estimated_start_latest}{held}"
    return [
        ("Position", place.position),
        ("EstimatedStart", place.estimated_start),
        ("Bounds", bounds),
        ("Basis", place.basis),
    ]


def sections(job: GPUJob, *, now: datetime, namespace: bool = True) -> list[tuple[str, Pairs]]:
    """The sections of a job whose object exists."""
    status = job.status
    return [
        ("Job", _identity(job, namespace=namespace)),
        ("Queue", _queue(status.queue)),
        ("Request", _request(job)),
        ("Place", [("NodeList", place_or_reason(job) if status.nodes else None), *map(_device, status.devices)]),
        ("Times", _times(job, now=now)),
        ("Tasks", _tasks(status.tasks)),
        ("Preemption", _preemption(status.preemption)),
        ("Measured", _measured(status)),
        ("Notifications", _notifications(job.spec.notify, sent=status.notified)),
        ("Attempts", [(f"Attempt{each.number}", f"{each.reason}: {each.message}") for each in status.attempts]),
        ("Depends on", [(each.name, f"{each.condition} ({each.state})") for each in status.dependencies]),
    ]


def _identity(job: GPUJob, *, namespace: bool) -> Pairs:
    meta, name = job.metadata, display_name(job.metadata)
    return [
        ("JobId", job.status.number),
        ("JobName", name),
        ("Object", None if meta.name == name else meta.name),
        ("Namespace", meta.namespace if namespace else None),
        ("UserId", user_of(job)),
        ("Project", project_of(job)),
        (_STATE, phase_of(job)),
        ("Simulated", "yes: nothing of it really runs" if job.status.simulated else None),
        ("Reason", job.status.reason),
        ("Message", job.status.message),
        ("Priority", job.spec.priority),
    ]


def _request(job: GPUJob) -> Pairs:
    limit = job.spec.active_deadline_seconds
    return [
        ("Gpus", request_text(job)),
        ("Device", job.status.device),
        ("Workers", job.spec.workers),
        ("TimeLimit", "UNLIMITED" if limit is None else times.elapsed(limit)),
        ("Retries", f"{job.status.retries} of {job.spec.backoff_limit}"),
    ]


def _times(job: GPUJob, *, now: datetime) -> Pairs:
    status, run = job.status, run_seconds(job.status, now=now)
    return [
        ("SubmitTime", job.metadata.creation_timestamp),
        ("BeginTime", job.spec.begin_time),
        ("AdmittedTime", status.admitted_time),
        ("StartTime", status.start_time),
        ("EndTime", status.completion_time),
        ("LeaseEnds", status.lease.expiration_time if status.lease else None),
        ("RunTime", None if run is None else times.elapsed(run)),
        ("EarlierRunTime", _earlier(status.earlier_run_seconds)),
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
                (_STATE, found.phase),
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


def _device(device: AssignedDevice) -> tuple[str, Any]:
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


def _notifications(notify: NotifySpec | None, *, sent: Sequence[str]) -> Pairs:
    if notify is None:
        return [("Sent", ",".join(sent))]
    return [
        ("To", ",".join(notify.emails)),
        ("Events", ",".join(notify.events or ENDS)),
        ("Sent", ",".join(sent)),
    ]


def _measured(status: GPUJobStatus) -> Pairs:
    memory, measured = status.memory, status.measured
    mean = None if measured is None else measured.mean_utilization
    return [
        ("PeakMemoryMiB", memory.peak_mib if memory else None),
        ("MemoryBasis", memory.basis if memory else None),
        ("MeanUtilization", None if mean is None else f"{mean:.2f}"),
    ]

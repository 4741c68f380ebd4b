"""A job as a row of numbers and texts, for programs. Pure."""

from datetime import datetime

import msgspec

from dovetail.api.gpujob import (
    AssignedDevice,
    DependencyCondition,
    DependencyState,
    DeviceKind,
    GPUJob,
    GPUJobStatus,
    Phase,
)
from dovetail.formats.timestamps import seconds_between
from dovetail.jobs.display_name import display_name
from dovetail.jobs.runs import end_of_run
from dovetail.query.jobs.owners import project_of, user_of
from dovetail.query.jobs.places import place_or_reason
from dovetail.query.jobs.requests import request_text
from dovetail.query.jobs.states import phase_of, short_state


class JobDependency(msgspec.Struct, frozen=True, kw_only=True):
    """A job that must meet a condition first.

    name       its name
    condition  the condition that it must meet
    state      whether it has met it
    """

    name: str
    condition: DependencyCondition
    state: DependencyState


class JobDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device, or a share of one, that a worker holds or held.

    worker       the worker's index, from 0
    node         the node's name
    index        the device's index on its node
    uuid         the device's UUID
    share_milli  the share of its compute, in thousandths
    memory_mib   the memory promised on it, in MiB
    """

    worker: int
    node: str
    index: int
    uuid: str
    share_milli: int
    memory_mib: int


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job. Times are RFC 3339; None is what does not apply or is not known yet.

    id                  its number in its namespace
    name                what people call it
    object_name         the name of its GPUJob
    namespace           its namespace
    state               its phase
    st                  the phase in Slurm's letters
    reason              why it waits or how it ended, in one word; empty if there is nothing to say
    message             the same in one sentence
    place               its devices, such as `node-3:0,1`, or its reason in parentheses
    gpus                the number of GPUs of all workers
    request             what each worker requests, as compact text
    priority            from 0 to 255, higher first
    user                who submitted it
    project             its project; empty for none
    position            its place in the queue, from 1
    estimated_start     when it is expected to start
    estimate_basis      what the estimate rests on
    dependencies        the jobs that it waits for
    workers             the number of workers that it requests
    device              what it runs on: cuda, or cpu for one without GPUs or without those that it requests
    simulated           whether nothing of it really runs
    nodes               the nodes of its workers
    devices             the devices of its workers
    run_seconds         how long its latest run has lasted, in seconds
    time_limit_seconds  the longest time that it may run, in seconds; None for no limit
    submit_time         when it was created
    start_time          when its latest run started
    completion_time     when it ended
    """

    id: int | None
    name: str
    object_name: str
    namespace: str
    state: Phase
    st: str
    reason: str
    message: str
    place: str
    gpus: int
    request: str
    priority: int
    user: str | None
    project: str
    position: int | None
    estimated_start: str | None
    estimate_basis: str
    dependencies: list[JobDependency]
    workers: int
    device: DeviceKind | None
    simulated: bool
    nodes: list[str]
    devices: list[JobDevice]
    run_seconds: float | None
    time_limit_seconds: int | None
    submit_time: str
    start_time: str | None
    completion_time: str | None


def job_row(job: GPUJob, *, now: datetime) -> JobRow:
    """The job at `now`."""
    status, spec, place = job.status, job.spec, job.status.queue
    return JobRow(
        id=status.number,
        name=display_name(job.metadata),
        object_name=job.metadata.name,
        namespace=job.metadata.namespace,
        state=phase_of(job),
        st=short_state(job),
        reason=status.reason,
        message=status.message,
        place=place_or_reason(job),
        gpus=status.gpus,
        request=request_text(job),
        priority=spec.priority,
        user=user_of(job),
        project=project_of(job),
        position=place.position if place else None,
        estimated_start=place.estimated_start if place else None,
        estimate_basis=place.basis if place else "",
        dependencies=[
            JobDependency(name=each.name, condition=each.condition, state=each.state) for each in status.dependencies
        ],
        workers=spec.workers,
        device=status.device,
        simulated=status.simulated,
        nodes=status.nodes,
        devices=[job_device(device) for device in status.devices],
        run_seconds=run_seconds(status, now=now),
        time_limit_seconds=spec.active_deadline_seconds,
        submit_time=job.metadata.creation_timestamp,
        start_time=status.start_time,
        completion_time=status.completion_time,
    )


def job_device(device: AssignedDevice) -> JobDevice:
    """The device as a row."""
    return JobDevice(
        worker=device.worker,
        node=device.node,
        index=device.index,
        uuid=device.uuid,
        share_milli=device.share_milli,
        memory_mib=device.memory_mib,
    )


def run_seconds(status: GPUJobStatus, *, now: datetime) -> float | None:
    """How long the latest run has lasted, in seconds: until its end, or until `now`; None before its start."""
    return seconds_between(status.start_time, end=end_of_run(status), now=now)

"""What a user writes into a GPUJob. Data only."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from dovetail import decoding, names
from dovetail.api.gpujob.components import (
    NO_TEMPLATE,
    Dependency,
    MemoryRequest,
    PodTemplate,
    ResourceRequest,
    TemplateMetadata,
)
from dovetail.api.gpujob.enums import FINISHED, KIND, MAX_SECONDS, Mode, Moves, Policy, Restart, Workload
from dovetail.api.gpujob.execution import (
    ArraySpec,
    Distributed,
    PodFailurePolicy,
    ReservationSpec,
    RetryPolicy,
    SweepSpec,
)
from dovetail.api.gpujob.fields import spec_field
from dovetail.api.gpujob.status import GPUJobStatus
from dovetail.api.gpujob.topology import TopologySpec
from dovetail.api.meta import Described, ObjectMeta, Timestamp
from dovetail.api.text_formats import TIME
from dovetail.gpu.request import PART_PATTERN

OnNoGPU = Literal["Wait", "RunOnCPU"]
NotifyEvent = Literal["Started", "Succeeded", "Failed", "TimedOut", "Cancelled", "Preempted"]
# The default of `events`: how the job ended.
ENDS: Final[tuple[NotifyEvent, ...]] = ("Succeeded", "Failed", "TimedOut", "Cancelled")
ADDRESS_PATTERN: Final = r"^[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,186}[A-Za-z0-9])?$"
MOST_ADDRESSES: Final = 8


class NotifySpec(Described, frozen=True, kw_only=True):
    """Who receives messages about the job, by mail or by a webhook, as the installation configures it."""

    emails: Annotated[
        list[Annotated[str, Meta(pattern=ADDRESS_PATTERN, max_length=253)]],
        Meta(description="Mail addresses. A webhook gets them too.", max_length=MOST_ADDRESSES),
    ] = []
    events: Annotated[
        list[NotifyEvent],
        Meta(description="The events to report. Empty: the end of the job, with any result.", max_length=6),
    ] = []


_TERM: Final = Meta(ge=0, le=100)


class ScoreWeights(Described, frozen=True, kw_only=True):
    """How much each term counts when nodes are ranked. A term that is left out has its namespace's weight."""

    utilization: Annotated[
        Annotated[float, _TERM] | None, Meta(description="How busy or idle the devices are measured to be, 0 to 100.")
    ] = None
    memory: Annotated[Annotated[float, _TERM] | None, Meta(description="How much device memory is free, 0 to 100.")] = (
        None
    )
    cpu: Annotated[Annotated[float, _TERM] | None, Meta(description="How much CPU the node has free, 0 to 100.")] = None
    fragmentation: Annotated[
        Annotated[float, _TERM] | None, Meta(description="What the placement costs later requests, 0 to 100.")
    ] = None


class GPUJobSpec(Described, frozen=True, kw_only=True):
    """What a user requests."""

    # A factory: the schema's generator cannot write a Raw as a default.
    template: Annotated[PodTemplate, Meta(description="The pod that each worker runs. Instead of `reservation`.")] = (
        msgspec.field(default_factory=lambda: NO_TEMPLATE)
    )
    reservation: Annotated[
        ReservationSpec | None,
        Meta(description="Hold the devices for a period without a program of the user. Instead of `template`."),
    ] = None
    gpu: Annotated[
        int | str | None,
        Meta(
            extra=spec_field(stays=True),
            description="GPUs for each worker: a whole number (2), or quoted text: a share below 1 ('0.5'), memory in "
            "GiB and a share ('8G,0.5'), a model in brackets ('2(V100)'), MIG instances ('2x3g.40gb'). Instead of "
            "`resources`.",
        ),
    ] = None
    resources: Annotated[
        ResourceRequest | None,
        Meta(extra=spec_field(stays=True), description="The structured form of the request. Instead of `gpu`."),
    ] = None
    right_size: Annotated[
        Annotated[str, Meta(pattern=PART_PATTERN, max_length=32)] | None,
        Meta(
            extra=spec_field(tasks_follow=True),
            description="What suffices of each device, such as '8G,0.5': from its next start on, the job requests no "
            "more of each. `gjob resize` writes what was measured. Unset: the job requests what `gpu` or `resources` "
            "says.",
        ),
    ] = None
    mode: Annotated[
        Mode | None,
        Meta(
            extra=spec_field(stays=True, annotation=names.MODE),
            description="Exclusive: whole devices. Fractional: shares of a device. TimeShared: tenants take turns. "
            "Unset: follows from the request.",
        ),
    ] = None
    policy: Annotated[
        Policy | None,
        Meta(
            extra=spec_field(tasks_follow=True, annotation=names.POLICY),
            description="Spread prefers idle devices, Pack the used ones, Balanced packs promises away from load. "
            "Unset: the configured one.",
        ),
    ] = None
    score_weights: Annotated[
        ScoreWeights | None,
        Meta(
            extra=spec_field(tasks_follow=True, annotation=names.SCORE_WEIGHTS),
            description="Weights of the terms that rank nodes under Spread and Balanced, within the bounds of the "
            "namespace. Unset: those of the namespace.",
        ),
    ] = None
    memory: Annotated[
        MemoryRequest,
        Meta(
            extra=spec_field(stays=True, annotation=names.MEMORY_STRATEGY),
            description="How the memory guard treats the job.",
        ),
    ] = MemoryRequest()
    workload: Annotated[
        Workload | None,
        Meta(
            extra=spec_field(stays=True, annotation=names.WORKLOAD),
            description="Training or Inference: a device has a limit for the number of each. Unset: no limit applies.",
        ),
    ] = None
    priority: Annotated[
        int,
        Meta(
            extra=spec_field(tasks_follow=True, annotation=names.PRIORITY),
            description="Priority from 0 to 255; the highest starts first.",
            ge=0,
            le=255,
        ),
    ] = 10
    preemptible: Annotated[
        bool,
        Meta(
            description="Whether the job may be ended for another one and start again later. A job with false starts "
            "only within the guarantee of its GPUQuota."
        ),
    ] = True
    moves: Annotated[
        Moves | None,
        Meta(
            extra=spec_field(tasks_follow=True),
            description="Whether the running job may restart on other nodes so that a waiting one starts. Restart: "
            "yes, once room is held for it there. Never: no. Unset: as the configuration says for its namespace "
            "(moves.namespaces), Never by default.",
        ),
    ] = None
    move_request_time: Annotated[
        Annotated[Timestamp, Meta(pattern=TIME)] | None,
        Meta(
            description="When it was last requested that jobs which may move restart elsewhere so that this one starts "
            "(RFC 3339); `dovetail move apply` writes it. A request counts for 10 minutes."
        ),
    ] = None
    checkpoint_interval_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_SECONDS)] | None,
        Meta(
            description="The job saves its work at least every so many seconds, so its end loses no more; 0: when it "
            "is notified. Jobs that lose the least work are ended first. Unset: it loses its whole run."
        ),
    ] = None
    workers: Annotated[
        int,
        Meta(
            description="Number of pods that run at the same time. Only a job with minWorkers can change it "
            "(`kubectl scale`): it restarts with the new number.",
            ge=1,
            le=1024,
        ),
    ] = 1
    min_workers: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        Meta(
            extra=spec_field(stays=True),
            description="The job may start with fewer workers, as many as fit, but at least this number. It keeps "
            "the number until it restarts. Unset: all of `workers` or none.",
        ),
    ] = None
    topology: Annotated[
        TopologySpec | None,
        Meta(
            description="Levels of the network, such as rack, that hold the workers together. Unset: any nodes, with "
            "neighbouring indexes on neighbouring nodes."
        ),
    ] = None
    restart: Annotated[
        Restart,
        Meta(
            description="What starts again after a worker has lost its node: Gang, all workers, or Worker, this one on "
            "another node of the gang's domain if there is room. A worker that fails by itself restarts the gang."
        ),
    ] = "Gang"
    pool: Annotated[
        Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)] | None,
        Meta(
            extra=spec_field(tasks_follow=True),
            description="Only nodes of this pool (label dovetail.dev/pool). Unset: any that the quotas allow.",
        ),
    ] = None
    group: Annotated[
        Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)] | None,
        Meta(
            extra=spec_field(tasks_follow=True),
            description="Jobs of the namespace that name the same group count together for `maxConcurrent`.",
        ),
    ] = None
    max_concurrent: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Meta(
            extra=spec_field(tasks_follow=True),
            description="The job starts only while fewer jobs of its group run than this. Unset: no such limit.",
        ),
    ] = None
    begin_time: Annotated[
        Annotated[Timestamp, Meta(pattern=TIME)] | None,
        Meta(description="The job does not start before this time (RFC 3339). Unset: as soon as there is capacity."),
    ] = None
    dependencies: Annotated[
        list[Dependency],
        Meta(
            description="Jobs of the namespace that must come first.",
            max_length=32,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = []
    dependency_policy: Annotated[
        Literal["All", "Any"], Meta(description="Whether all dependencies must be met, or any one of them.")
    ] = "All"
    on_dependency_failure: Annotated[
        Literal["Cancel", "Wait"],
        Meta(description="What happens when the dependencies can no longer be met: Cancel ends the job."),
    ] = "Cancel"
    suspend: Annotated[
        bool,
        Meta(description="Hold the job: it does not start, or its pods end and it waits until this is unset."),
    ] = False
    cancel: Annotated[bool, Meta(description="End the job permanently. This cannot be undone.")] = False
    active_deadline_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_SECONDS)] | None,
        Meta(
            extra=spec_field(tasks_follow=True),
            description="Time limit of a run in seconds, from its start; then the job has TimedOut.",
        ),
    ] = None
    maximum_execution_time_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_SECONDS)] | None,
        Meta(
            extra=spec_field(tasks_follow=True),
            description="Limit of the total run time in seconds; suspended, preempted and failed runs count too.",
        ),
    ] = None
    backoff_limit: Annotated[
        int,
        Meta(
            extra=spec_field(tasks_follow=True),
            description="How many times the job is retried after one of its workers has failed.",
            ge=0,
            le=1000,
        ),
    ] = 0
    retry_policy: Annotated[
        RetryPolicy | None,
        Meta(
            extra=spec_field(stays=True), description="Which ends of a run are retried. Unset: any failure, no timeout."
        ),
    ] = None
    pod_failure_policy: Annotated[
        PodFailurePolicy | None,
        Meta(extra=spec_field(stays=True), description="Rules that classify failures, as in a batch Job."),
    ] = None
    distributed: Annotated[
        Distributed | None,
        Meta(
            extra=spec_field(stays=True),
            description="How several workers find each other. Unset: as for PyTorch, and with TF_CONFIG up to 128 "
            "workers.",
        ),
    ] = None
    array: Annotated[
        ArraySpec | None, Meta(description="The same job for each of many indexes. Not together with `sweep`.")
    ] = None
    sweep: Annotated[
        SweepSpec | None, Meta(description="The same job for each combination of parameters. Not with `array`.")
    ] = None
    on_no_gpu: Annotated[
        OnNoGPU | None,
        Meta(
            extra=spec_field(stays=True),
            description="What happens if no node of the cluster could ever meet the request: Wait, or run on the CPU. "
            "Unset: what is configured for the namespace, otherwise Wait.",
        ),
    ] = None
    on_no_gpu_after_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_SECONDS)] | None,
        Meta(
            description="With RunOnCPU: the job also runs on the CPU after it has waited this many seconds for busy "
            "GPUs; 0: if none is free at once. Unset: it waits for busy GPUs."
        ),
    ] = None
    notify: Annotated[
        NotifySpec | None,
        Meta(description="Who receives messages about the job. For an array: about all tasks together."),
    ] = None
    managed_by: Annotated[
        Annotated[str, Meta(pattern=r"^[a-z0-9.-]{1,128}/[A-Za-z0-9._-]{1,63}$", max_length=192)] | None,
        Meta(
            extra=spec_field(stays=True),
            description="The controller of this job; dovetail.dev/operator or unset is Dovetail itself.",
        ),
    ] = None
    ttl_seconds_after_finished: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_SECONDS)] | None,
        Meta(
            extra=spec_field(tasks_follow=True),
            description="Delete the job this many seconds after its end. Unset: keep it.",
        ),
    ] = None


class GPUJob(Described, frozen=True, kw_only=True):
    """Work that needs GPUs: it waits in the queue, gets devices, runs as a batch Job and reports its status."""

    metadata: ObjectMeta
    spec: GPUJobSpec
    api_version: str = names.API_VERSION
    kind: str = KIND
    status: GPUJobStatus = GPUJobStatus()


def is_finished(job: GPUJob) -> bool:
    """Whether the job is over for good: its phase is Succeeded, Failed, Cancelled or TimedOut."""
    return job.status.phase in FINISHED


def job_of(values: Mapping[str, Any]) -> GPUJob:
    """The GPUJob with these values, as in a manifest. Raises `UnreadableError`."""
    return decoding.decode(msgspec.json.encode(values), as_type=GPUJob)


def template_of(spec: Mapping[str, Any], *, metadata: TemplateMetadata | None = None) -> PodTemplate:
    """The pod template with that pod spec."""
    return PodTemplate(spec=msgspec.Raw(msgspec.json.encode(spec)), metadata=metadata or TemplateMetadata())


def spec_of(template: PodTemplate) -> dict[str, Any]:
    """The pod spec of a template, decoded: each call makes a new one. Raises `UnreadableError`."""
    return decoding.decode(template.spec, as_type=dict[str, Any])

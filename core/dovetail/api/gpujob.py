"""GPUJob: work that needs GPUs. Users write the spec, the operator writes the status."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from dovetail.api.meta import Condition, Described, ObjectMeta, Timestamp
from dovetail.names import API_VERSION
from dovetail.requests import MAX_COUNT

KIND: Final = "GPUJob"
# 68 years. Beyond 292 the Job controller's clock overflows, and a job would be over its limit at once.
MAX_SECONDS: Final = 2**31 - 1
Mode = Literal["Exclusive", "Fractional", "TimeShared"]
Policy = Literal["Spread", "Pack", "Balanced"]
MemoryStrategy = Literal["Conservative", "Aggressive", "Dynamic"]
Workload = Literal["Training", "Inference"]
Phase = Literal[
    "Queued", "Held", "Starting", "Running", "Suspended", "Succeeded", "Failed", "Cancelled", "TimedOut", "Preempted",
]  # fmt: skip
DependencyCondition = Literal["Succeeded", "Finished", "Started"]
DependencyState = Literal["Met", "Waiting", "Unknown", "Failed"]
FINISHED: Final[frozenset[Phase]] = frozenset({"Succeeded", "Failed", "Cancelled", "TimedOut"})
Reason = Literal[
    "Held", "BeginTime", "Dependency", "DependencyFailed", "Invalid", "ExceedsCapacity", "Quota", "Priority",
    "Resources", "Fragmentation", "MemoryGuard", "GangWaiting", "Reserved", "NodeUnhealthy", "ExternallyManaged",
    "Evaluating",
]  # fmt: skip

# The longest container and volume names, and enough of each for any pod: bounds keep the CEL cost estimates low.
_TEMPLATE_SPEC: Final = {
    "x-kubernetes-preserve-unknown-fields": True,
    # A rule and not `required`: the API server then answers in one sentence.
    "x-kubernetes-validations": [
        {
            "rule": "has(self.containers) && size(self.containers) > 0",
            "message": "containers must name at least one container",
        }
    ],
    "properties": {
        "containers": {
            "type": "array",
            "maxItems": 32,
            "description": "The worker's containers; the first one holds the devices.",
            "items": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "description": "Name of the container.", "maxLength": 63},
                    "image": {"type": "string", "description": "Image of the container."},
                },
            },
        }
    },
}


class ResourceRequest(Described, frozen=True, kw_only=True):
    """The structured form of a request, for those who would rather not write the compact text."""

    count: Annotated[int, Meta(description="Number of devices for each worker.", ge=1, le=MAX_COUNT)] = 1
    share: Annotated[
        float,
        Meta(
            description="Share of each device's compute, a ratio from 0.001 to 1 in steps of 0.001.",
            ge=0.001,
            le=1,
        ),
    ] = 1.0
    memory: Annotated[
        Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,9}(Mi|Gi)$")] | None,
        Meta(description="Memory on each device, such as 8Gi or 512Mi. Unset: all of it, or the share's part."),
    ] = None
    models: Annotated[
        list[Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", max_length=63)]],
        Meta(description="Models that will do, such as V100; empty means any.", max_length=16),
    ] = []
    vendor: Annotated[
        Literal["nvidia", "amd", "intel", "ascend"] | None, Meta(description="The vendor; unset means any.")
    ] = None
    device: Annotated[
        str,
        Meta(
            description="cuda: any device; cuda:N: the device with index N of its node; cpu: no device at all.",
            pattern=r"^(cuda(:[0-9]{1,3})?|cpu)$",
            max_length=8,
        ),
    ] = "cuda"


class TemplateMetadata(Described, frozen=True, kw_only=True):
    """Labels and annotations of the worker's pods."""

    labels: Annotated[dict[str, str], Meta(description="Labels of the pods.")] = {}
    annotations: Annotated[dict[str, str], Meta(description="Annotations of the pods.")] = {}


class PodTemplate(Described, frozen=True, kw_only=True):
    """The worker's pod, as in a batch Job."""

    spec: Annotated[
        dict[str, Any],
        Meta(description="The pod's spec, as in a batch Job's template.", extra_json_schema=_TEMPLATE_SPEC),
    ]
    metadata: Annotated[TemplateMetadata, Meta(description="Labels and annotations of the pods.")] = TemplateMetadata()


class MemoryRequest(Described, frozen=True, kw_only=True):
    """How the memory guard treats the job."""

    strategy: Annotated[
        MemoryStrategy | None,
        Meta(
            description="How much of a shared device's memory may be promised. Conservative: 0.8 of it. Aggressive: "
            "0.95. Dynamic: what earlier runs of this name used, with a margin. Unset: the configured one."
        ),
    ] = None


class Dependency(Described, frozen=True, kw_only=True):
    """Another job of the namespace that has to come first."""

    name: Annotated[
        str,
        Meta(
            description="Name of the GPUJob. It may be created later.",
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            max_length=63,
        ),
    ]
    condition: Annotated[
        DependencyCondition,
        Meta(
            description="Succeeded: it has ended well. Finished: it has ended somehow. Started: a worker of it has "
            "begun to run."
        ),
    ] = "Succeeded"


class GPUJobSpec(Described, frozen=True, kw_only=True):
    """What a user asks for."""

    template: Annotated[PodTemplate, Meta(description="The pod that each worker runs.")]
    gpu: Annotated[
        int | str | None,
        Meta(
            description="GPUs for each worker: a whole number (2), or quoted text: a share below 1 ('0.5'), memory in "
            "GiB and a share ('8G,0.5'), a model in brackets ('2(V100)'). Instead of `resources`."
        ),
    ] = None
    resources: Annotated[
        ResourceRequest | None, Meta(description="The structured form of the request. Instead of `gpu`.")
    ] = None
    mode: Annotated[
        Mode | None,
        Meta(
            description="Exclusive: whole devices. Fractional: shares side by side. TimeShared: tenants take turns. "
            "Unset: what the request says."
        ),
    ] = None
    policy: Annotated[
        Policy | None,
        Meta(
            description="Spread prefers idle devices, Pack the used ones, Balanced packs promises away from load. "
            "Unset: the configured one."
        ),
    ] = None
    memory: Annotated[MemoryRequest, Meta(description="How the memory guard treats the job.")] = MemoryRequest()
    workload: Annotated[
        Workload | None,
        Meta(
            description="Training or Inference: how many of each share a device is limited. Unset: no such limit binds."
        ),
    ] = None
    priority: Annotated[int, Meta(description="Priority from 0 to 255; higher goes first.", ge=0, le=255)] = 10
    workers: Annotated[int, Meta(description="Number of pods that run side by side.", ge=1, le=1024)] = 1
    begin_time: Annotated[
        Annotated[
            Timestamp, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})$")
        ]
        | None,
        Meta(description="The job does not start before this time (RFC 3339). Unset: as soon as there is room."),
    ] = None
    dependencies: Annotated[
        list[Dependency],
        Meta(
            description="Jobs of the namespace that have to come first.",
            max_length=32,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = []
    dependency_policy: Annotated[
        Literal["All", "Any"], Meta(description="Whether all dependencies have to be met, or any one of them.")
    ] = "All"
    on_dependency_failure: Annotated[
        Literal["Cancel", "Wait"],
        Meta(description="What follows when the dependencies cannot be met any more: Cancel ends the job."),
    ] = "Cancel"
    suspend: Annotated[
        bool,
        Meta(description="Hold the job: it does not start, or its pods end and it waits until this is unset."),
    ] = False
    cancel: Annotated[bool, Meta(description="End the job for good. It cannot be taken back.")] = False
    active_deadline_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_SECONDS)] | None,
        Meta(description="Time limit of a run in seconds, from its start; then the job has TimedOut."),
    ] = None
    backoff_limit: Annotated[int, Meta(description="How many times a failed worker is tried again.", ge=0, le=1000)] = 0
    ttl_seconds_after_finished: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_SECONDS)] | None,
        Meta(description="Delete the job this many seconds after its end. Unset: keep it."),
    ] = None


class AssignedDevice(Described, frozen=True, kw_only=True, omit_defaults=False):
    """One device that a worker holds."""

    worker: Annotated[int, Meta(description="Index of the worker, from 0.", ge=0)]
    node: Annotated[str, Meta(description="The node's name.")]
    index: Annotated[int, Meta(description="Index of the device on its node.", ge=0)]
    uuid: Annotated[str, Meta(description="UUID of the device.")]
    share_milli: Annotated[int, Meta(description="Share of the device's compute in thousandths.", ge=0, le=1000)]
    memory_mib: Annotated[int, Meta(description="Memory promised on the device in MiB.", ge=0)]


class DependencyStatus(Described, frozen=True, kw_only=True, omit_defaults=False):
    """How one dependency stands."""

    name: Annotated[str, Meta(description="Name of the GPUJob.")]
    condition: Annotated[DependencyCondition, Meta(description="What is needed of it.")]
    state: Annotated[
        DependencyState,
        Meta(
            description="Met: for good, even when that job is gone later. Waiting: not yet. Unknown: there is no such "
            "job. Failed: it has ended otherwise."
        ),
    ]


class QueuePlace(Described, frozen=True, kw_only=True, omit_defaults=False):
    """Where a waiting job stands in the queue."""

    position: Annotated[
        int, Meta(description="Place among the jobs that wait for room and could have it, from 1.", ge=1)
    ]
    estimated_start: Annotated[
        Timestamp | None,
        Meta(
            description="When it is going to start (RFC 3339), as far as can be foreseen; of the first 100 jobs only."
        ),
    ] = None
    basis: Annotated[str, Meta(description="What the estimate rests on, in one sentence.")] = ""


class EarlierRun(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What an earlier run of the same name used."""

    uid: Annotated[str, Meta(description="UID of its GPUJob, which may be gone.", max_length=64)]
    created: Annotated[Timestamp, Meta(description="When that was submitted (RFC 3339).")]
    peak_mib: Annotated[int, Meta(description="The most that a worker used of a device, in MiB.", ge=0)]
    limited: Annotated[bool, Meta(description="That was all it was promised, so it may have needed more.")] = False


class MemoryUse(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What the job uses of its devices' memory, and what was learned from earlier runs of its name."""

    strategy: Annotated[MemoryStrategy, Meta(description="The strategy that the job is under.")]
    basis: Annotated[str, Meta(description="What its promise rests on, in one sentence with numbers.")]
    estimate_mib: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Memory on each device in MiB, estimated from earlier runs; unset when there is no estimate."),
    ] = None
    peak_mib: Annotated[int, Meta(description="The most that a worker was measured to use of a device, in MiB.")] = 0
    limited: Annotated[bool, Meta(description="A worker came up to what it was promised: it may have needed more.")] = (
        False
    )
    earlier_runs: Annotated[
        list[EarlierRun], Meta(description="Earlier runs of this name, the newest first.", max_length=16)
    ] = []


class GPUJobStatus(Described, frozen=True, kw_only=True):
    """What became of it. Every field is the operator's."""

    observed_generation: Annotated[int, Meta(description="metadata.generation that this status is about.")] = 0
    number: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Short number of the job, unique in its namespace and never reused."),
    ] = None
    phase: Annotated[Phase | None, Meta(description="Summary of the conditions in one word.")] = None
    reason: Annotated[
        str, Meta(description="Why the job is where it is, in one word; empty when it runs or has succeeded.")
    ] = ""
    message: Annotated[str, Meta(description="The same in one sentence with numbers.")] = ""
    request: Annotated[str, Meta(description="What each worker asks for in the compact text; `cpu` for none.")] = ""
    gpus: Annotated[int, Meta(description="Number of devices that all workers ask for together.", ge=0)] = 0
    queue: Annotated[
        QueuePlace | None, Meta(description="Where the job stands in the queue; unset when it does not wait for room.")
    ] = None
    dependencies: Annotated[
        list[DependencyStatus], Meta(description="How each of the job's dependencies stands.", max_length=32)
    ] = []
    workers_active: Annotated[int, Meta(description="Number of workers whose pods exist and have not ended.")] = 0
    workers_ready: Annotated[int, Meta(description="Number of workers whose pods run and are ready.")] = 0
    workers_succeeded: Annotated[int, Meta(description="Number of workers that have ended well.")] = 0
    workers_failed: Annotated[int, Meta(description="Number of pods of this job that have failed.")] = 0
    nodes: Annotated[list[str], Meta(description="Names of the nodes that the workers run or ran on.")] = []
    node_list: Annotated[str, Meta(description="The nodes in one line, for tables.")] = ""
    devices: Annotated[list[AssignedDevice], Meta(description="The devices that the workers hold or held.")] = []
    memory: Annotated[
        MemoryUse | None,
        Meta(description="Measured and learned memory; unset while nothing was measured and nothing is to be learned."),
    ] = None
    admitted_time: Annotated[Timestamp | None, Meta(description="When the queue let the job go (RFC 3339).")] = None
    start_time: Annotated[Timestamp | None, Meta(description="When the first worker began to run (RFC 3339).")] = None
    completion_time: Annotated[Timestamp | None, Meta(description="When the job ended (RFC 3339).")] = None
    elapsed: Annotated[
        str,
        Meta(
            description="Run time so far, such as 3m20s; refreshed about every tenth of itself while the job runs, "
            "exact once it has ended."
        ),
    ] = ""
    conditions: Annotated[
        list[Condition],
        Meta(description="Admitted, and batch Job's Complete, Failed, Suspended, SuccessCriteriaMet, FailureTarget."),
    ] = []


class GPUJob(Described, frozen=True, kw_only=True):
    """Work that needs GPUs: it waits in the queue, gets devices, runs as a batch Job and tells what became of it."""

    metadata: ObjectMeta
    spec: GPUJobSpec
    api_version: str = API_VERSION
    kind: str = KIND
    status: GPUJobStatus = GPUJobStatus()

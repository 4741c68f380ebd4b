"""The status of a GPUJob. Only the operator writes it. Data only."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from dovetail.api.devices import DeviceShare
from dovetail.api.gpujob.enums import DependencyCondition, DependencyState, Mode, Phase, Workload
from dovetail.api.meta import Condition, Described, MessageDetails, Timestamp
from dovetail.gpu import memory_strategy

# Of a move, which takes about a minute.
MOST_EARLIER_TIMES: Final = 60

DeviceKind = Literal["cuda", "cpu"]


class Attempt(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A run that ended and was followed by another one."""

    number: Annotated[int, Meta(description="Which attempt it was, from 1.", ge=1)]
    reason: Annotated[str, Meta(description="Why it ended, in one word.")]
    message: Annotated[str, Meta(description="The same in one sentence.")]
    counted: Annotated[bool, Meta(description="Whether it cost one of the retries of backoffLimit.")]
    start_time: Annotated[Timestamp | None, Meta(description="When its first worker started (RFC 3339).")] = None
    end_time: Annotated[Timestamp, Meta(description="When it ended (RFC 3339).")]
    nodes: Annotated[list[str], Meta(description="Nodes that its workers ran on.")] = []


class Elastic(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The workers of a job that may run with fewer than it requests."""

    workers: Annotated[int, Meta(description="Number of workers that its latest run was started with.", ge=1)]
    requested: Annotated[int, Meta(description="spec.workers when that run was planned.", ge=1)]
    limit: Annotated[
        str,
        Meta(
            description="The limit that allowed no more workers, such as `GPUQuota vision`; empty if it has all, or "
            "if no more fit."
        ),
    ] = ""
    earlier_worker_seconds: Annotated[
        int, Meta(description="Run time in seconds of all workers of the runs before that one, added up.", ge=0)
    ] = 0


class Measured(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What was measured on the job's devices while it ran."""

    mean_utilization: Annotated[
        float, Meta(description="Mean utilization of its devices as measured, a ratio from 0 to 1.", ge=0, le=1)
    ]
    device_seconds: Annotated[
        float, Meta(description="How long that was measured, in seconds, summed over its devices.", ge=0)
    ]


class Tasks(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The progress of an array or a sweep. The sets are written as indexes, such as 0-3,7."""

    total: Annotated[int, Meta(description="Number of tasks.", ge=0)]
    waiting: Annotated[int, Meta(description="Tasks that have not started.", ge=0)] = 0
    running: Annotated[int, Meta(description="Tasks that run.", ge=0)] = 0
    succeeded: Annotated[int, Meta(description="Tasks that have succeeded.", ge=0)] = 0
    failed: Annotated[int, Meta(description="Tasks that have ended with another result.", ge=0)] = 0
    succeeded_indexes: Annotated[str, Meta(description="Indexes of the tasks that have succeeded.")] = ""
    failed_indexes: Annotated[str, Meta(description="Indexes of the tasks that have ended with another result.")] = ""


class Lease(Described, frozen=True, kw_only=True, omit_defaults=False):
    """How long a reservation holds its devices."""

    expiration_time: Annotated[
        Timestamp, Meta(description="When it ends unless spec.reservation.renewTime is renewed (RFC 3339).")
    ]


class AssignedDevice(DeviceShare, frozen=True, kw_only=True):
    """A device that a worker holds or held."""

    worker: Annotated[int, Meta(description="Index of the worker, from 0.", ge=0)]


class DependencyStatus(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The state of one dependency."""

    name: Annotated[str, Meta(description="Name of the GPUJob.")]
    condition: Annotated[DependencyCondition, Meta(description="The condition that it must meet.")]
    state: Annotated[
        DependencyState,
        Meta(
            description="Met: permanently, even if that job is deleted later. Waiting: not yet. Unknown: there is no "
            "such job. Failed: it has ended with another result."
        ),
    ]


class PlannedNode(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The number of workers that are planned for one node."""

    name: Annotated[str, Meta(description="The node's name.")]
    workers: Annotated[int, Meta(description="Number of workers on it.", ge=1)]


class PlannedWorker(Described, frozen=True, kw_only=True):
    """What each worker of a plan takes of its node."""

    request: Annotated[str, Meta(description="The GPUs in the compact text.")]
    mode: Annotated[Mode, Meta(description="How the devices are shared.")] = "Exclusive"
    resource: Annotated[
        str, Meta(description="The vendor's resource that requests the devices; empty on managed nodes.")
    ] = ""
    cpu_milli: Annotated[int, Meta(description="CPU in thousandths.", ge=0)] = 0
    memory_mib: Annotated[int, Meta(description="The node's memory in MiB.", ge=0)] = 0
    guard: Annotated[
        Annotated[str, Meta(pattern=memory_strategy.GUARD_PATTERN)] | None,
        Meta(
            description="How much of a shared device's memory may be promised: Conservative, Aggressive or a "
            "fraction; unset: the configured fraction."
        ),
    ] = None
    workload: Annotated[Workload | None, Meta(description="The workload that tenant limits count, if any.")] = None


class Placement(Described, frozen=True, kw_only=True):
    """The plan: nodes and numbers of workers, never devices; the first workers run on the first node."""

    generation: Annotated[
        int, Meta(description="Which plan of the job this is, from 1: the next one has the next number.", ge=1)
    ]
    nodes: Annotated[list[PlannedNode], Meta(description="The nodes, in the order of the workers.", max_length=1024)]
    worker: Annotated[PlannedWorker, Meta(description="What each worker takes.")]
    limit_seconds: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="The time limit in seconds with which it started, if that alone let it start on nodes that a "
            "reservation keeps: the run lasts no longer, and until its end the limits of the spec may only shrink."
        ),
    ] = None
    replaced: Annotated[
        int, Meta(description="How many workers lost their node and got another one (restart: Worker).", ge=0)
    ] = 0
    released: Annotated[
        list[int],
        Meta(
            description="The workers whose room was given back: the object that the job records asks for fewer pods "
            "than when it started.",
            max_length=1024,
        ),
    ] = []


class KeptOnNode(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What is kept free on one node for a waiting job."""

    name: Annotated[str, Meta(description="The node's name.")]
    keeps: Annotated[
        list[str],
        Meta(description="What is kept free on it now, each in the compact text of a request.", max_length=64),
    ]


class ReservedRoom(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The capacity that is kept for the first waiting job, which starts there when the jobs before it have ended."""

    time: Annotated[Timestamp, Meta(description="Its latest start there, by the time limits (RFC 3339).")]
    nodes: Annotated[list[PlannedNode], Meta(description="The planned nodes of its workers.", max_length=1024)]
    kept: Annotated[list[KeptOnNode], Meta(description="What is free there now and kept for it.", max_length=1024)] = []
    mode: Annotated[Mode, Meta(description="How the kept devices would be shared.")] = "Exclusive"
    resource: Annotated[str, Meta(description="The vendor's resource that requests them; empty on managed nodes.")] = ""


class QueuePlace(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The place of a waiting job in the queue."""

    position: Annotated[
        int, Meta(description="Position among the jobs that wait for capacity and could have it, from 1.", ge=1)
    ]
    estimated_start: Annotated[
        Timestamp | None,
        Meta(description="The estimated start (RFC 3339), if it can be estimated; only for the first 100 jobs."),
    ] = None
    estimated_start_earliest: Annotated[
        Timestamp | None,
        Meta(description="The earlier bound (RFC 3339): nine in ten jobs start between their bounds."),
    ] = None
    estimated_start_latest: Annotated[Timestamp | None, Meta(description="The later bound (RFC 3339).")] = None
    bounds_held: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Meta(
            description="Of the latest jobs that started on this cluster, the part that started between their bounds, "
            "0 to 1; unset for fewer than 20 jobs."
        ),
    ] = None
    basis: Annotated[str, Meta(description="What the estimate rests on, in one sentence.")] = ""
    basis_details: MessageDetails = []
    reserved: Annotated[
        ReservedRoom | None,
        Meta(
            description="Capacity that is kept for this job: for the first one that does not fit, and for one that "
            "preempts others."
        ),
    ] = None


class EarlierRun(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What an earlier run of the same name used."""

    uid: Annotated[str, Meta(description="UID of its GPUJob, which may be deleted.", max_length=64)]
    created: Annotated[Timestamp, Meta(description="When that job was submitted (RFC 3339).")]
    peak_mib: Annotated[int, Meta(description="The highest use of a device by a worker, in MiB.", ge=0)]
    limited: Annotated[bool, Meta(description="It used its whole promise, so it may have needed more.")] = False


class MemoryUse(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What the job uses of its devices' memory, and what was learned from earlier runs of its name."""

    strategy: Annotated[str, Meta(description="The strategy of the job.", pattern=memory_strategy.PATTERN)]
    basis: Annotated[str, Meta(description="The basis of its promise, in one sentence with numbers.")]
    estimate_mib: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Memory on each device in MiB, estimated from earlier runs or from the model's parameters; "
            "unset when there is no estimate."
        ),
    ] = None
    peak_mib: Annotated[int, Meta(description="The highest measured use of a device by a worker, in MiB.")] = 0
    limited: Annotated[bool, Meta(description="A worker used its whole promise: it may have needed more.")] = False
    earlier_runs: Annotated[
        list[EarlierRun], Meta(description="Earlier runs of this name, the newest first.", max_length=16)
    ] = []


class Preemption(Described, frozen=True, kw_only=True, omit_defaults=False):
    """How often the job was preempted, and whether it is about to be."""

    count: Annotated[int, Meta(description="How many times it was preempted.", ge=0)] = 0
    last_time: Annotated[Timestamp | None, Meta(description="When it was last preempted (RFC 3339).")] = None
    at: Annotated[
        Timestamp | None,
        Meta(description="When its pods will end (RFC 3339); unset if no preemption is announced."),
    ] = None
    by: Annotated[
        str,
        Meta(
            description="UID of the GPUJob that preempts it, `Drain` if its node is to be emptied, or `reserve/` and "
            "the name of the GPUQuota whose reserve it leaves; empty once it runs again.",
            max_length=261,
        ),
    ] = ""
    message: Annotated[str, Meta(description="The preempting job, in one sentence with numbers.")] = ""


class Move(Described, frozen=True, kw_only=True, omit_defaults=False):
    """How often the job moved to other nodes for a waiting one, and the move that is under way."""

    count: Annotated[int, Meta(description="How many times it was ended to restart elsewhere.", ge=0)] = 0
    last_time: Annotated[Timestamp | None, Meta(description="When it was last ended for that (RFC 3339).")] = None
    earlier_times: Annotated[
        list[Timestamp],
        Meta(
            description="When it was ended for that before, in the hour up to its last end.",
            max_length=MOST_EARLIER_TIMES,
        ),
    ] = []
    by: Annotated[
        str,
        Meta(description="UID of the GPUJob that starts by its move; empty if no move is under way.", max_length=64),
    ] = ""
    reserved: Annotated[
        ReservedRoom | None,
        Meta(
            description="The room that is held for it on other nodes; unset once its plan holds the room, or if that "
            "was lost."
        ),
    ] = None
    message: Annotated[str, Meta(description="Why a move was given up, in one sentence; else empty.")] = ""


class Provisioning(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A request for nodes that do not exist yet, for the workers that need one."""

    pool: Annotated[str, Meta(description="Name of the growing pool.", max_length=63)]
    nodes: Annotated[int, Meta(description="Number of nodes that the plan needs.", ge=1)]
    workers: Annotated[int, Meta(description="Number of workers that are planned on them.", ge=1)]
    requested_time: Annotated[Timestamp, Meta(description="When they were requested (RFC 3339).")]
    failures: Annotated[int, Meta(description="How many requests were given up so far.", ge=0)] = 0
    retry_time: Annotated[
        Timestamp | None,
        Meta(description="When the next request is made (RFC 3339); set once this one is given up."),
    ] = None
    state: Annotated[
        Literal["", "Accepted", "Provisioned"],
        Meta(description="How far the cluster autoscaler is with a ProvisioningRequest; empty for placeholder pods."),
    ] = ""
    refusal: Annotated[
        str, Meta(description="Why the cluster autoscaler does not serve the request, in its words.", max_length=512)
    ] = ""


class GPUJobStatus(Described, frozen=True, kw_only=True):
    """The state of the job. Only the operator writes it."""

    observed_generation: Annotated[int, Meta(description="The metadata.generation that this status describes.")] = 0
    number: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Short number of the job, unique in its namespace and never reused."),
    ] = None
    phase: Annotated[Phase | None, Meta(description="Summary of the conditions in one word.")] = None
    reason: Annotated[
        str, Meta(description="The reason for the phase, in one word; empty when it runs or has succeeded.")
    ] = ""
    message: Annotated[str, Meta(description="The same in one sentence with numbers.")] = ""
    details: MessageDetails = []
    request: Annotated[str, Meta(description="What each worker requests, in the compact text; `cpu` for none.")] = ""
    gpus: Annotated[int, Meta(description="Number of devices that all workers request together.", ge=0)] = 0
    queue: Annotated[
        QueuePlace | None, Meta(description="The job's place in the queue; unset if it does not wait for capacity.")
    ] = None
    placement: Annotated[
        Placement | None,
        Meta(description="The plan of the workers; unset while the job waits, and after its end."),
    ] = None
    plans: Annotated[
        int, Meta(description="How many plans were made for the job so far: the generation of the latest.", ge=0)
    ] = 0
    dependencies: Annotated[
        list[DependencyStatus], Meta(description="The state of each of the job's dependencies.", max_length=32)
    ] = []
    selector: Annotated[
        str, Meta(description="The label selector of the pods of a job with minWorkers, for autoscalers; else empty.")
    ] = ""
    workers_active: Annotated[int, Meta(description="Number of workers whose pods exist and have not ended.")] = 0
    workers_ready: Annotated[int, Meta(description="Number of workers whose pods run and are ready.")] = 0
    workers_succeeded: Annotated[int, Meta(description="Number of workers that have succeeded.")] = 0
    workers_failed: Annotated[int, Meta(description="Number of pods of this attempt that have failed.")] = 0
    nodes: Annotated[list[str], Meta(description="Names of the nodes that the workers run or ran on.")] = []
    node_list: Annotated[str, Meta(description="The nodes in one line, for tables.")] = ""
    devices: Annotated[list[AssignedDevice], Meta(description="The devices that the workers hold or held.")] = []
    memory: Annotated[
        MemoryUse | None,
        Meta(
            description="Measured and learned memory; unset if nothing was measured and nothing can be learned. The "
            "peak of a running job is in the totals of the GPUNodes, unless it used its whole promise."
        ),
    ] = None
    preemption: Annotated[Preemption | None, Meta(description="Its preemptions; unset without any.")] = None
    move: Annotated[Move | None, Meta(description="Its moves to other nodes; unset without any.")] = None
    measured: Annotated[
        Measured | None,
        Meta(
            description="Measurements of its devices over its ended runs; unset without any. Those of a running one "
            "are in the totals of the GPUNodes."
        ),
    ] = None
    device: Annotated[
        DeviceKind | None,
        Meta(description="What it runs on: cuda, or cpu if it requests no GPU or falls back; unset while it waits."),
    ] = None
    simulated: Annotated[
        bool,
        Meta(description="Whether nothing of it really runs: it is on simulated nodes, or the cluster has no others."),
    ] = False
    attempt: Annotated[int, Meta(description="Which attempt this is, from 1.", ge=1)] = 1
    retries: Annotated[int, Meta(description="How many of the retries of backoffLimit are used.", ge=0)] = 0
    attempts: Annotated[
        list[Attempt], Meta(description="The last attempts before this one, the latest last.", max_length=16)
    ] = []
    earlier_run_seconds: Annotated[
        int, Meta(description="Run time in seconds of the runs before this one: suspended, preempted or failed.", ge=0)
    ] = 0
    tasks: Annotated[Tasks | None, Meta(description="The progress of the tasks of an array or a sweep.")] = None
    elastic: Annotated[
        Elastic | None, Meta(description="The workers of a job with minWorkers; unset for all others.")
    ] = None
    gpu_wait_start_time: Annotated[
        Timestamp | None,
        Meta(
            description="Since when the job waits for busy GPUs (RFC 3339); only of a job that runs on the CPU after a "
            "time (onNoGPUAfterSeconds)."
        ),
    ] = None
    provisioning: Annotated[
        Provisioning | None, Meta(description="Nodes that were requested for the waiting job; unset without a request.")
    ] = None
    lease: Annotated[Lease | None, Meta(description="The lease of a running reservation.")] = None
    notified: Annotated[
        list[Annotated[str, Meta(max_length=64)]],
        Meta(description="Messages of `spec.notify` that were already sent, the latest last.", max_length=32),
    ] = []
    admitted_time: Annotated[Timestamp | None, Meta(description="When the queue admitted the job (RFC 3339).")] = None
    start_time: Annotated[Timestamp | None, Meta(description="When the first worker started (RFC 3339).")] = None
    completion_time: Annotated[Timestamp | None, Meta(description="When the job ended (RFC 3339).")] = None
    elapsed: Annotated[
        str,
        Meta(
            description="Run time of its latest run, such as 3m20s, once that has ended; of a running job it follows "
            "from startTime."
        ),
    ] = ""
    conditions: Annotated[
        list[Condition],
        Meta(description="Admitted, and batch Job's Complete, Failed, Suspended, SuccessCriteriaMet, FailureTarget."),
    ] = []

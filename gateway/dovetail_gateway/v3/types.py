"""What v3 takes and answers. Data only; names on the wire are camelCase, times RFC 3339, units in the names."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dovetail.api.gpujob import DeviceKind, Phase
from dovetail.api.historyquery import JobRecord, Moment
from dovetail.api.meta import wire_name
from dovetail_gateway.routing.table import Strictly

_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
NamespaceName = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
ObjectName = Annotated[str, Meta(pattern=_NAME, max_length=253)]
JobName = Annotated[str, Meta(pattern=_NAME, max_length=63)]
Limit = Annotated[int, Meta(ge=1, le=1000, description="How many at most.")]
Cursor = Annotated[str, Meta(max_length=512, description="`next` of the page before.")]


class Row(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The common shape of answers: every field is there, null where it is not known."""


class Input(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name, forbid_unknown_fields=True):
    """The common shape of requests: an unknown field is an error."""


class JobPath(Strictly, frozen=True, kw_only=True):
    """A GPUJob."""

    namespace: NamespaceName
    name: JobName


class NodePath(Strictly, frozen=True, kw_only=True):
    """A node."""

    name: ObjectName


class JobFilter(Input, frozen=True, kw_only=True):
    """Which jobs, and which page of them."""

    namespace: NamespaceName | None = None
    phase: Annotated[Phase | None, Meta(description="Only jobs of this phase.")] = None
    user: Annotated[Annotated[str, Meta(max_length=253)] | None, Meta(description="Only jobs of this user.")] = None
    project: Annotated[Annotated[str, Meta(max_length=63)] | None, Meta(description="Only jobs of this project.")] = (
        None
    )
    unfinished: Annotated[bool, Meta(description="Only jobs that have not ended.")] = False
    limit: Limit = 100
    cursor: Cursor = ""


class NodeFilter(Input, frozen=True, kw_only=True):
    """Which nodes, and which page of them."""

    model: Annotated[
        Annotated[str, Meta(max_length=63)] | None, Meta(description="Only nodes with devices of this model.")
    ] = None
    limit: Limit = 100
    cursor: Cursor = ""


class JobDevice(Row, frozen=True, kw_only=True):
    """A device that a worker holds or held."""

    worker: int
    node: str
    index: int
    uuid: str
    share_milli: int
    memory_mib: int


class JobRow(Row, frozen=True, kw_only=True):
    """A GPUJob in one row. `device` is what it runs on: `cpu` also for one that runs without the GPUs it requests."""

    namespace: str
    name: str
    uid: str
    number: int | None
    user: str
    project: str
    phase: Phase
    reason: str
    message: str
    request: str
    gpus: int
    device: DeviceKind | None
    workers: int
    priority: int
    reservation: bool
    position: int | None
    estimated_start: str | None
    nodes: list[str]
    devices: list[JobDevice]
    submitted_at: str
    started_at: str | None
    completed_at: str | None
    lease_ends_at: str | None


class JobList(Row, frozen=True, kw_only=True):
    """A page of jobs. `next` is the cursor of the next page; null for the last one."""

    items: list[JobRow]
    next: str | None
    total: int


class TenantRow(Row, frozen=True, kw_only=True):
    """A pod that holds a device or a share of it; `job` is its job's number."""

    namespace: str
    pod: str
    job: int | None
    share_milli: int
    memory_mib: int


class OtherTenants(Row, frozen=True, kw_only=True):
    """The tenants of a device whose namespaces you may not list, summed up."""

    tenants: int
    share_milli: int
    memory_mib: int


class DeviceRow(Row, frozen=True, kw_only=True):
    """A device. `available` says whether a job could take it whole now."""

    node: str
    index: int
    uuid: str
    vendor: str
    model: str
    memory_mib: int
    used_mib: int
    utilization: float
    temperature_celsius: int | None
    power_watts: int | None
    health: Literal["Healthy", "Unhealthy"]
    health_reason: str
    cordoned: bool
    available: bool
    strangers: int
    tenants: list[TenantRow]
    others: OtherTenants | None


class NodeRow(Row, frozen=True, kw_only=True):
    """A node with GPUs."""

    name: str
    takes_work: bool
    pool: str
    driver_version: str
    enforces: str
    observed_at: str | None
    devices: list[DeviceRow]


class NodeList(Row, frozen=True, kw_only=True):
    """A page of nodes."""

    items: list[NodeRow]
    next: str | None
    total: int


class DeviceList(Row, frozen=True, kw_only=True):
    """The devices of a page of nodes."""

    items: list[DeviceRow]
    next: str | None


class JobDetails(Row, frozen=True, kw_only=True):
    """A GPUJob: its row, and the spec and status of the API object."""

    row: JobRow
    spec: Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/GPUJobSpec"})]
    status: Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/GPUJobStatus"})]


class NewJob(Input, frozen=True, kw_only=True):
    """A GPUJob to create. Without a name, the gateway makes one of `namePrefix`."""

    namespace: NamespaceName
    spec: Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/GPUJobSpec"})]
    name: JobName | None = None
    name_prefix: Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)] = "job"
    labels: Annotated[dict[str, str], Meta(max_length=64)] = {}
    annotations: Annotated[dict[str, str], Meta(max_length=64)] = {}


class LogQuery(Input, frozen=True, kw_only=True):
    """Whose lines, and which."""

    worker: Annotated[int, Meta(ge=0, le=9999, description="The worker, counted from 0.")] = 0
    tail: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | None, Meta(description="Only so many of the last lines.")
    ] = None
    follow: Annotated[bool, Meta(description="Send new lines until the worker ends.")] = False


class HistoryFilter(Input, frozen=True, kw_only=True):
    """Which jobs that have ended, and which page of them."""

    namespace: NamespaceName
    since: Annotated[Moment | None, Meta(description="Only jobs that ended at this time or later.")] = None
    until: Annotated[Moment | None, Meta(description="Only jobs that ended before this time.")] = None
    user: Annotated[Annotated[str, Meta(max_length=253)] | None, Meta(description="Only jobs of this user.")] = None
    name: Annotated[Annotated[str, Meta(max_length=253)] | None, Meta(description="Only jobs of this name.")] = None
    number: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="Only the job of this number.")] = None
    project: Annotated[Annotated[str, Meta(max_length=63)] | None, Meta(description="Only jobs of this project.")] = (
        None
    )
    phase: Annotated[Phase | None, Meta(description="Only jobs that ended in this phase.")] = None
    limit: Limit = 100
    cursor: Annotated[str, Meta(max_length=128, description="`next` of the page before.")] = ""


class HistoryPage(Row, frozen=True, kw_only=True):
    """A page of jobs that have ended, the latest end first. `next` is the cursor of the next page."""

    items: list[JobRecord]
    next: str | None


class PlanFilter(Input, frozen=True, kw_only=True):
    """Which jobs of the plan, and which page of them."""

    namespace: NamespaceName | None = None
    limit: Limit = 100
    cursor: Cursor = ""


class PlanRow(Row, frozen=True, kw_only=True):
    """A job that runs, or that waits with an estimated start. `earliest` and `latest` are the estimate's bounds.

    `endsBy` is when its lease or its time limit ends it, null without either.
    """

    namespace: str
    name: str
    number: int | None
    user: str
    phase: Phase
    request: str
    workers: int
    starts_at: str
    earliest: str | None
    latest: str | None
    ends_by: str | None
    position: int | None
    nodes: list[str]
    devices: list[JobDevice]


class PlanPage(Row, frozen=True, kw_only=True):
    """A page of the plan, by start."""

    items: list[PlanRow]
    next: str | None


class DryRunFlag(Input, frozen=True, kw_only=True):
    """Whether to store anything."""

    dry_run: Annotated[bool, Meta(description="Validate only: nothing is created.")] = False


class JobChange(Input, frozen=True, kw_only=True, omit_defaults=True):
    """What to change of a job; absent fields stay."""

    held: Annotated[bool | None, Meta(description="true holds the job, false releases it.")] = None
    priority: Annotated[int, Meta(ge=0, le=255)] | None = None
    renew: Annotated[bool, Meta(description="Renew the lease of a reservation as of now.")] = False


class Removed(Row, frozen=True, kw_only=True):
    """A job that is cancelled or deleted; `found` is false if it was gone already."""

    namespace: str
    name: str
    found: bool


class Position(Row, frozen=True, kw_only=True):
    """The place of a job in the queue; null for one that does not wait for room."""

    phase: Phase
    reason: str
    message: str
    position: int | None
    estimated_start: str | None
    earliest: str | None
    latest: str | None
    bounds_held: float | None
    basis: str


class EventRow(Row, frozen=True, kw_only=True):
    """Something that happened to a job."""

    type: str
    reason: str
    message: str
    count: int
    at: str | None


class EventList(Row, frozen=True, kw_only=True):
    """The events of a job, the oldest first."""

    items: list[EventRow]


class QuotaUse(Row, frozen=True, kw_only=True):
    """What a namespace or user uses of a quota."""

    who: str
    gpus: float
    running_jobs: int
    queued_jobs: int
    gpu_seconds: float


class QuotaRow(Row, frozen=True, kw_only=True):
    """A quota that applies to a namespace you may list.

    `otherNamespaces` and `otherUsers` count those that you may not list.
    """

    name: str
    per: str
    gpus_limit: float | None
    running_jobs_limit: int | None
    queued_jobs_limit: int | None
    shares: int | None
    max_priority: int | None
    gpus: float
    running_jobs: int
    queued_jobs: int
    namespaces: list[str]
    users: list[str]
    other_namespaces: int
    other_users: int
    uses: list[QuotaUse]
    as_of: str | None


class QuotaList(Row, frozen=True, kw_only=True):
    """The quotas."""

    items: list[QuotaRow]


class Me(Row, frozen=True, kw_only=True):
    """Who the API server says you are. `everywhere` says whether you may list the GPUJobs of all namespaces."""

    username: str
    groups: list[str]
    everywhere: bool
    namespaces: list[str]
    expires_at: str | None


class NewRequest(Input, frozen=True, kw_only=True):
    """A job that is not submitted: its spec, and the namespace that it would be in."""

    namespace: NamespaceName
    spec: Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/GPUJobSpec"})]


class NodeShare(Row, frozen=True, kw_only=True):
    """A number of GPUs on a node."""

    node: str
    gpus: int


class DryRunAnswer(Row, frozen=True, kw_only=True):
    """What the queue would decide now. `victims` counts the jobs that would be preempted.

    `cpu_in_seconds` is when a job that waits for busy GPUs would run on the CPU; null if it would wait for them.
    """

    outcome: Literal["Starts", "Waits", "Never", "NotBefore", "Blocked", "Invalid"]
    reason: str
    message: str
    nodes: list[NodeShare]
    position: int | None
    starts_in_seconds: float | None
    earliest_in_seconds: float | None
    latest_in_seconds: float | None
    basis: str
    victims: int
    cpu_in_seconds: float | None


class ExplainedNode(Row, frozen=True, kw_only=True):
    """A node's answer to a job; `reason` is empty where it fits."""

    node: str
    reason: str
    message: str
    score: float | None


class ExplainedChange(Row, frozen=True, kw_only=True):
    """A change that would make the job fit."""

    kind: str
    text: str
    node: str
    request: str


class ExplainedCause(Row, frozen=True, kw_only=True):
    """How many nodes refuse for one cause."""

    reason: str
    text: str
    nodes: int


class ExplainedDevice(Row, frozen=True, kw_only=True):
    """A device that the job holds."""

    pod: str
    node: str
    index: int
    uuid: str
    share_milli: int
    memory_mib: int


class ExplanationAnswer(Row, frozen=True, kw_only=True):
    """Why a job waits, or where it is. What belongs to other tenants is called `another tenant`."""

    state: str
    summary: str
    fits: bool | None
    reason: str
    notes: list[str]
    basis: str
    changes: list[ExplainedChange]
    causes: list[ExplainedCause]
    nodes: list[ExplainedNode]
    held: list[ExplainedDevice]


class FindingRow(Row, frozen=True, kw_only=True):
    """A promise that is broken."""

    kind: str
    subject: str
    message: str


class AuditAnswer(Row, frozen=True, kw_only=True):
    """The proof that no device is promised beyond its capacity: it holds if there is no finding.

    `items` names the findings only if you may list the GPUJobs of all namespaces; `findings` counts them.
    """

    pods: int
    devices: int
    findings: int
    items: list[FindingRow]


class GoneJob(Row, frozen=True, kw_only=True):
    """A job that is deleted."""

    namespace: str
    name: str


class Snapshot(Row, frozen=True, kw_only=True):
    """Everything that you may see; `/api/v3/stream?since=EPOCH:SEQ` leads on from here."""

    epoch: str
    seq: int
    jobs: list[JobRow]
    nodes: list[NodeRow]


class Delta(Row, frozen=True, kw_only=True):
    """The data of the event `delta`: rows that are new or changed, and what is gone."""

    seq: int
    jobs: list[JobRow]
    gone_jobs: list[GoneJob]
    nodes: list[NodeRow]
    gone_nodes: list[str]


class StreamQuery(Input, frozen=True, kw_only=True):
    """Where the stream begins; Last-Event-ID takes precedence."""

    since: Annotated[str, Meta(max_length=64, description="EPOCH:SEQ of a snapshot; empty: now.")] = ""

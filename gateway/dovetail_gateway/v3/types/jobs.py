"""GPUJobs: lists, one job, what creates and changes one, its logs and events, and its place in the queue."""

from typing import Annotated

import msgspec
from msgspec import Meta

from dovetail.api.gpujob import DeviceKind, Phase
from dovetail_gateway.routing.table import Strictly
from dovetail_gateway.v3.types.common import Cursor, Input, JobName, Limit, NamespaceName, Row


class JobPath(Strictly, frozen=True, kw_only=True):
    """A GPUJob."""

    namespace: NamespaceName
    name: JobName


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


class JobDevice(Row, frozen=True, kw_only=True):
    """A device that a worker holds or held."""

    worker: int
    node: str
    index: int
    uuid: str
    share_milli: int
    memory_mib: int


class JobRow(Row, frozen=True, kw_only=True):
    """A GPUJob in one row. `device` is what it runs on: `cpu` also for one that runs without the GPUs it requests.

    `earliest` and `latest` are the bounds of `estimatedStart`. `after` names the jobs that have to come first.
    `endsBy` is when the lease or the time limit ends the job, from its start or its estimated start. `idle` says since
    when it leaves its GPUs idle, by the idle policy; empty if it does not.
    """

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
    earliest: str | None
    latest: str | None
    after: list[str]
    nodes: list[str]
    devices: list[JobDevice]
    submitted_at: str
    started_at: str | None
    completed_at: str | None
    lease_ends_at: str | None
    ends_by: str | None
    idle: str


class JobList(Row, frozen=True, kw_only=True):
    """A page of jobs. `next` is the cursor of the next page; null for the last one."""

    items: list[JobRow]
    next: str | None
    total: int


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


class LogQuery(Input, frozen=True, kw_only=True):
    """Whose lines, and which."""

    worker: Annotated[int, Meta(ge=0, le=9999, description="The worker, counted from 0.")] = 0
    workers: Annotated[
        int,
        Meta(ge=1, le=64, description="How many workers from this one on; with several, each line begins with `N│ `."),
    ] = 1
    tail: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | None, Meta(description="Only so many of the last lines.")
    ] = None
    follow: Annotated[bool, Meta(description="Send new lines until the worker ends.")] = False

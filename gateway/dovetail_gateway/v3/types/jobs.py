"""What is asked of GPUJobs: which ones, what creates and changes one, and its logs."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dovetail.api.gpujob import Moves, Phase
from dovetail_gateway.routing.table import Strictly
from dovetail_gateway.v3.types.common import Input, JobName, NamespaceName, Page


class JobPath(Strictly, frozen=True, kw_only=True):
    """A GPUJob."""

    namespace: NamespaceName
    name: JobName


class JobFilter(Page, frozen=True, kw_only=True):
    """Which jobs, and which page of them."""

    phase: Annotated[Phase | None, Meta(description="Only jobs of this phase.")] = None
    user: Annotated[Annotated[str, Meta(max_length=253)] | None, Meta(description="Only jobs of this user.")] = None
    project: Annotated[Annotated[str, Meta(max_length=63)] | None, Meta(description="Only jobs of this project.")] = (
        None
    )
    number: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="Only the jobs of this number.")] = None
    unfinished: Annotated[bool, Meta(description="Only jobs that have not ended.")] = False


class NewJob(Input, frozen=True, kw_only=True):
    """A GPUJob to create. Without a name, the gateway makes one of `namePrefix`."""

    namespace: NamespaceName
    spec: Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/GPUJobSpec"})]
    name: JobName | None = None
    name_prefix: Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)] = "job"
    labels: Annotated[dict[str, str], Meta(max_length=64)] = {}
    annotations: Annotated[dict[str, str], Meta(max_length=64)] = {}


class Creation(Input, frozen=True, kw_only=True):
    """Whether to store anything, and whether to wait for the queue's answer."""

    dry_run: Annotated[bool, Meta(description="Validate only: nothing is created.")] = False
    answer_seconds: Annotated[
        int, Meta(ge=0, le=10, description="Wait up to so many seconds for the queue's `answer`; 0 does not.")
    ] = 0


class JobChange(Input, frozen=True, kw_only=True, omit_defaults=True):
    """What to change of a job; absent fields stay."""

    held: Annotated[bool | None, Meta(description="true holds the job, false releases it.")] = None
    priority: Annotated[int, Meta(ge=0, le=255)] | None = None
    renew: Annotated[bool, Meta(description="Renew the lease of a reservation as of now.")] = False
    moves: Annotated[Moves | None, Meta(description="Whether it may restart elsewhere so that others start.")] = None
    request_moves: Annotated[
        bool | None,
        Meta(
            description="true has jobs that may move restart elsewhere so that this one starts, false withdraws that."
        ),
    ] = None
    resize: Annotated[
        Literal["Accept", "Withdraw"] | None,
        Meta(
            description="Accept has the job request no more than its right size from its next start on, Withdraw as "
            "much as before."
        ),
    ] = None


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

"""HistoryQuery: a query of the finished jobs of its namespace, and the answer. Data only.

The right to create one in a namespace is the right to know what ran there. The operator writes the answer to the status
and deletes the object soon after.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from dovetail.api.gpujob import Phase
from dovetail.api.meta import Described, MessageDetails, ObjectMeta, Timestamp
from dovetail.api.text_formats import TIME
from dovetail.names import API_VERSION

KIND: Final = "HistoryQuery"
# So much of each job's record fits an object with room to spare: etcd takes 1.5 MiB.
MOST_RECORDS: Final = 1000
MOST_LOGS: Final = 10
# So many groups of sums at most; the rest is one more, of this name.
MOST_GROUPS: Final = 1000
OTHERS: Final = "(others)"
Moment = Annotated[Timestamp, Meta(pattern=TIME)]
Grouping = Literal["Nothing", "User", "Name", "Project", "Day"]


class HistoryQuerySpec(Described, frozen=True, kw_only=True):
    """The jobs to select, and what to return. An absent field does not restrict the selection."""

    since: Annotated[Moment | None, Meta(description="Jobs that ended at this time or later (RFC 3339).")] = None
    until: Annotated[Moment | None, Meta(description="Jobs that ended before this time (RFC 3339).")] = None
    users: Annotated[
        list[Annotated[str, Meta(max_length=253)]], Meta(description="Jobs of these users.", max_length=100)
    ] = []
    names: Annotated[
        list[Annotated[str, Meta(max_length=253)]], Meta(description="Jobs of these names.", max_length=1000)
    ] = []
    projects: Annotated[
        list[Annotated[str, Meta(max_length=63)]], Meta(description="Jobs of these projects.", max_length=100)
    ] = []
    numbers: Annotated[
        list[Annotated[int, Meta(ge=1)]], Meta(description="Jobs with these numbers.", max_length=1000)
    ] = []
    phases: Annotated[
        list[Annotated[str, Meta(max_length=32)]], Meta(description="Jobs that ended in these phases.", max_length=10)
    ] = []
    limit: Annotated[
        int,
        Meta(description="The maximum number of records in an answer; the latest come first.", ge=1, le=MOST_RECORDS),
    ] = MOST_RECORDS
    after: Annotated[
        str, Meta(description="Continue after this place: `next` of the previous answer.", max_length=128)
    ] = ""
    logs: Annotated[
        bool, Meta(description=f"Include the last lines of the logs; then at most {MOST_LOGS} records.")
    ] = False
    group_by: Annotated[
        Grouping | None,
        Meta(description="Sums instead of records: of all jobs together (Nothing), or by User, Name, Project or Day."),
    ] = None


class JobRecord(Described, frozen=True, kw_only=True):
    """The record of a job that has ended or started."""

    uid: Annotated[str, Meta(description="UID of its GPUJob.")]
    namespace: Annotated[str, Meta(description="Its namespace.")]
    name: Annotated[str, Meta(description="Its name.")]
    number: Annotated[int | None, Meta(description="Its short number.")] = None
    user: Annotated[str, Meta(description="The user who submitted it; empty if unknown.")] = ""
    project: Annotated[str, Meta(description="The project that it counted for; empty if none.")] = ""
    phase: Annotated[Phase, Meta(description="Its last phase; Running before its end.")]
    reason: Annotated[str, Meta(description="Why, in one word.")] = ""
    message: Annotated[str, Meta(description="The same in one sentence.")] = ""
    request: Annotated[str, Meta(description="The request of each worker.")] = ""
    gpus: Annotated[float, Meta(description="GPUs that it held; a share counts as its fraction.")] = 0.0
    workers: Annotated[int, Meta(description="Number of its workers.")] = 1
    priority: Annotated[int, Meta(description="Its priority.")] = 0
    attempts: Annotated[int, Meta(description="Number of attempts.")] = 1
    nodes: Annotated[list[str], Meta(description="Nodes that its workers ran on.")] = []
    devices: Annotated[list[str], Meta(description="UUIDs of its devices; of the first 64.", max_length=64)] = []
    submitted: Annotated[Timestamp, Meta(description="When it was submitted (RFC 3339).")]
    started: Annotated[Timestamp | None, Meta(description="When its last run started (RFC 3339).")] = None
    ended: Annotated[Timestamp | None, Meta(description="When it ended (RFC 3339).")] = None
    wait_seconds: Annotated[
        float | None, Meta(description="Its wait in seconds until its first run; unset if it never ran.")
    ] = None
    run_seconds: Annotated[float, Meta(description="Its run time in seconds, over all attempts.")] = 0.0
    gpu_seconds: Annotated[float, Meta(description="GPUs times run time in seconds.")] = 0.0
    peak_mib: Annotated[int, Meta(description="The highest measured use of a device by a worker, in MiB.")] = 0
    mean_utilization: Annotated[
        float | None, Meta(description="Mean utilization of its devices (0-1); unset without measurements.")
    ] = None
    log: Annotated[str, Meta(description="The last lines of its logs, if requested.")] = ""


class HistorySums(Described, frozen=True, kw_only=True):
    """Sums over jobs."""

    group: Annotated[
        str,
        Meta(
            description="The user, the name, the project or the day (UTC); empty for all together. Beyond the "
            f"{MOST_GROUPS} groups with the most GPU time all others are one, {OTHERS}."
        ),
    ]
    jobs: Annotated[int, Meta(description="Number of jobs.")]
    by_phase: Annotated[dict[str, int], Meta(description="Number of jobs by their last phase.")]
    gpu_seconds: Annotated[float, Meta(description="GPUs times run time in seconds, summed.")]
    run_seconds: Annotated[float, Meta(description="Run time in seconds, summed.")]
    mean_wait_seconds: Annotated[float | None, Meta(description="Mean wait in seconds of those that ran.")] = None
    median_wait_seconds: Annotated[float | None, Meta(description="Median wait in seconds of those that ran.")] = None
    p95_wait_seconds: Annotated[
        float | None, Meta(description="The wait in seconds that 95 % of those that ran did not exceed.")
    ] = None
    peak_mib: Annotated[int, Meta(description="The highest use of a device by a worker, in MiB.")]
    mean_utilization: Annotated[
        float | None, Meta(description="Mean measured utilization (0-1), weighted by GPU time.")
    ] = None


class HistoryQueryStatus(Described, frozen=True, kw_only=True):
    """The answer. Only the operator writes it."""

    answered: Annotated[bool, Meta(description="Whether this is the answer.")] = False
    message: Annotated[str, Meta(description="Why there is no answer; empty when there is one.")] = ""
    details: MessageDetails = []
    records: Annotated[list[JobRecord], Meta(description="The jobs, the latest end first.")] = []
    sums: Annotated[list[HistorySums], Meta(description=f"Sums by group, the most GPU time first; {OTHERS} last.")] = []
    next: Annotated[str, Meta(description="The start of the next page; empty on the last page.")] = ""


class HistoryQuery(Described, frozen=True, kw_only=True):
    """A query of this namespace's finished jobs; answered in its status, then deleted."""

    metadata: ObjectMeta
    spec: Annotated[HistoryQuerySpec, Meta(description="The query.")] = HistoryQuerySpec()
    status: Annotated[HistoryQueryStatus, Meta(description="The answer.")] = HistoryQueryStatus()
    api_version: str = API_VERSION
    kind: str = KIND


COLUMNS: Final = [
    ("Answered", "boolean", ".status.answered", "Whether the answer is there."),
    ("Message", "string", ".status.message", "What was wrong with the question."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the object was made."),
]

"""HistoryQuery: a question about jobs of its namespace that have ended, and the answer to it. Data only.

Whoever may create one in a namespace may know what ran there; the operator answers in the status and deletes it soon.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from dovetail.api.gpujob import Phase
from dovetail.api.meta import Described, ObjectMeta, Timestamp
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
    """Which jobs, and what of them. What is not said does not narrow the choice."""

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
        list[Annotated[str, Meta(max_length=32)]], Meta(description="Jobs that ended like this.", max_length=10)
    ] = []
    limit: Annotated[
        int, Meta(description="The most records of an answer; the latest come first.", ge=1, le=MOST_RECORDS)
    ] = MOST_RECORDS
    after: Annotated[str, Meta(description="Go on after this place: `next` of the answer before.", max_length=128)] = ""
    logs: Annotated[bool, Meta(description=f"With the last lines of their logs; then at most {MOST_LOGS} records.")] = (
        False
    )
    group_by: Annotated[
        Grouping | None,
        Meta(description="Sums instead of records: of all jobs together (Nothing), or by User, Name, Project or Day."),
    ] = None


class JobRecord(Described, frozen=True, kw_only=True):
    """What is kept of a job that has ended, or has begun to run."""

    uid: Annotated[str, Meta(description="UID of its GPUJob.")]
    namespace: Annotated[str, Meta(description="Its namespace.")]
    name: Annotated[str, Meta(description="Its name.")]
    number: Annotated[int | None, Meta(description="Its short number.")] = None
    user: Annotated[str, Meta(description="Who submitted it; empty where nobody said.")] = ""
    project: Annotated[str, Meta(description="What it was counted for; empty where nobody said.")] = ""
    phase: Annotated[Phase, Meta(description="How it ended; Running while it has not.")]
    reason: Annotated[str, Meta(description="Why, in one word.")] = ""
    message: Annotated[str, Meta(description="The same in one sentence.")] = ""
    request: Annotated[str, Meta(description="What each worker asked for.")] = ""
    gpus: Annotated[float, Meta(description="GPUs that it held; a share counts as such.")] = 0.0
    workers: Annotated[int, Meta(description="Number of its workers.")] = 1
    priority: Annotated[int, Meta(description="Its priority.")] = 0
    attempts: Annotated[int, Meta(description="How many attempts it took.")] = 1
    nodes: Annotated[list[str], Meta(description="Nodes that its workers ran on.")] = []
    devices: Annotated[list[str], Meta(description="UUIDs of its devices; of the first 64.", max_length=64)] = []
    submitted: Annotated[Timestamp, Meta(description="When it was submitted (RFC 3339).")]
    started: Annotated[Timestamp | None, Meta(description="When its last run began (RFC 3339).")] = None
    ended: Annotated[Timestamp | None, Meta(description="When it ended (RFC 3339).")] = None
    wait_seconds: Annotated[
        float | None, Meta(description="Its wait in seconds until its first run began; unset when it never ran.")
    ] = None
    run_seconds: Annotated[float, Meta(description="How long it ran in seconds, over all attempts.")] = 0.0
    gpu_seconds: Annotated[float, Meta(description="GPUs times run time in seconds.")] = 0.0
    peak_mib: Annotated[int, Meta(description="The most that a worker used of a device, in MiB, as measured.")] = 0
    mean_utilization: Annotated[
        float | None, Meta(description="Mean utilization of its devices (0-1); unset where nothing was measured.")
    ] = None
    log: Annotated[str, Meta(description="The last lines of its logs, where they are asked for.")] = ""


class HistorySums(Described, frozen=True, kw_only=True):
    """What jobs add up to."""

    group: Annotated[
        str,
        Meta(
            description="The user, the name, the project or the day (UTC); empty for all together. Beyond the "
            f"{MOST_GROUPS} groups with the most GPU time all others are one, {OTHERS}."
        ),
    ]
    jobs: Annotated[int, Meta(description="Number of jobs.")]
    by_phase: Annotated[dict[str, int], Meta(description="Number of jobs by how they ended.")]
    gpu_seconds: Annotated[float, Meta(description="GPUs times run time in seconds, summed.")]
    run_seconds: Annotated[float, Meta(description="Run time in seconds, summed.")]
    mean_wait_seconds: Annotated[float | None, Meta(description="Mean wait in seconds of those that ran.")] = None
    median_wait_seconds: Annotated[float | None, Meta(description="Median wait in seconds of those that ran.")] = None
    p95_wait_seconds: Annotated[
        float | None, Meta(description="The wait in seconds that 95 % of those that ran did not exceed.")
    ] = None
    peak_mib: Annotated[int, Meta(description="The most that a worker used of a device, in MiB.")]
    mean_utilization: Annotated[
        float | None, Meta(description="Mean utilization (0-1), weighted by GPU time, where it was measured.")
    ] = None


class HistoryQueryStatus(Described, frozen=True, kw_only=True):
    """The answer. Every field is the operator's."""

    answered: Annotated[bool, Meta(description="Whether this is the answer.")] = False
    message: Annotated[str, Meta(description="Why there is no answer; empty when there is one.")] = ""
    records: Annotated[list[JobRecord], Meta(description="The jobs, the latest end first.")] = []
    sums: Annotated[list[HistorySums], Meta(description=f"Sums by group, the most GPU time first; {OTHERS} last.")] = []
    next: Annotated[str, Meta(description="Where the next page begins; empty when this is all.")] = ""


class HistoryQuery(Described, frozen=True, kw_only=True):
    """A question about jobs of this namespace that have ended; answered in its status, then deleted."""

    metadata: ObjectMeta
    spec: Annotated[HistoryQuerySpec, Meta(description="The question.")] = HistoryQuerySpec()
    status: Annotated[HistoryQueryStatus, Meta(description="The answer.")] = HistoryQueryStatus()
    api_version: str = API_VERSION
    kind: str = KIND


COLUMNS: Final = [
    ("Answered", "boolean", ".status.answered", "Whether the answer is there."),
    ("Message", "string", ".status.message", "What was wrong with the question."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the object was made."),
]

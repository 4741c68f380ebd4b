"""What a GPUJob's status tells of its runs: attempts, tasks, measurements, a lease. Data only."""

from typing import Annotated, Literal

from msgspec import Meta

from dovetail.api.meta import Described, Timestamp

DeviceKind = Literal["cuda", "cpu"]


class Attempt(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A run that ended and was followed by another one."""

    number: Annotated[int, Meta(description="Which attempt it was, from 1.", ge=1)]
    reason: Annotated[str, Meta(description="Why it ended, in one word.")]
    message: Annotated[str, Meta(description="The same in one sentence.")]
    counted: Annotated[bool, Meta(description="Whether it cost one of the retries of backoffLimit.")]
    start_time: Annotated[Timestamp | None, Meta(description="When its first worker began (RFC 3339).")] = None
    end_time: Annotated[Timestamp, Meta(description="When it ended (RFC 3339).")]
    nodes: Annotated[list[str], Meta(description="Nodes that its workers ran on.")] = []


class Elastic(Described, frozen=True, kw_only=True, omit_defaults=False):
    """With how many workers a job runs or ran that may have fewer than it asks for."""

    workers: Annotated[int, Meta(description="Number of workers that its latest run was started with.", ge=1)]
    limit: Annotated[
        str,
        Meta(
            description="What limit left it no more workers, such as `GPUQuota vision`; empty where it has all, or "
            "where there was room for no more."
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
    """How far an array or a sweep is. The sets are written as indexes, such as 0-3,7."""

    total: Annotated[int, Meta(description="Number of tasks.", ge=0)]
    waiting: Annotated[int, Meta(description="Tasks that have not begun to run.", ge=0)] = 0
    running: Annotated[int, Meta(description="Tasks that run.", ge=0)] = 0
    succeeded: Annotated[int, Meta(description="Tasks that have ended well.", ge=0)] = 0
    failed: Annotated[int, Meta(description="Tasks that have ended otherwise.", ge=0)] = 0
    succeeded_indexes: Annotated[str, Meta(description="Which have ended well.")] = ""
    failed_indexes: Annotated[str, Meta(description="Which have ended otherwise.")] = ""


class Lease(Described, frozen=True, kw_only=True, omit_defaults=False):
    """How long a reservation holds its devices."""

    expiration_time: Annotated[
        Timestamp, Meta(description="When it ends unless spec.reservation.renewTime is renewed (RFC 3339).")
    ]

"""The run time that a job has used, over all its runs. Pure."""

import msgspec

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import find_condition
from dovetail.formats.durations import moment, timestamp
from dovetail.jobs.batch_job import true_condition
from dovetail_operator.job.observation import Observed


def used_seconds(seen: Observed) -> int:
    """Run time of all ended runs in seconds, including one that has just ended."""
    status = seen.job.status
    if status.start_time is None:
        return status.earlier_run_seconds
    ran = (moment(_end_of_run(seen)) - moment(status.start_time)).total_seconds()
    return status.earlier_run_seconds + max(0, round(ran))


def with_time_used(seen: Observed) -> GPUJob:
    """The job as it starts again: its status includes the time of all runs so far."""
    status = msgspec.structs.replace(seen.job.status, earlier_run_seconds=used_seconds(seen))
    return msgspec.structs.replace(seen.job, status=status)


def is_used_up(seen: Observed) -> bool:
    """Whether the job has used up its total run time."""
    limit = seen.job.spec.maximum_execution_time_seconds
    return limit is not None and used_seconds(seen) >= limit


def _end_of_run(seen: Observed) -> str:
    ended = None if seen.child is None else true_condition(seen.child, "Failed", "Suspended")
    held = find_condition(seen.job.status.conditions, type="Suspended")
    if ended is not None and ended.last_transition_time is not None:
        return ended.last_transition_time
    return held.last_transition_time if held is not None and held.status == "True" else timestamp(seen.now)

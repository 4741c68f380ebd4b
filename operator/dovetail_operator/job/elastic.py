"""The status of an elastic job: how many workers its run has, and what limits them. Pure."""

from dovetail.api.gpujob import FINISHED, Elastic
from dovetail.queue.verdicts import Admitted
from dovetail_operator.job.actions import Stage
from dovetail_operator.job.observation import Observed
from dovetail_operator.job.run_time import used_seconds


def elastic_of(seen: Observed, *, stage: Stage, start: str | None) -> Elastic | None:
    """The latest run of an elastic job; None before its first run.

    `start` is when the current run began, None if no run is in progress.
    """
    before = seen.job.status.elastic
    if seen.job.spec.min_workers is None and before is None:
        return None
    earlier = 0 if before is None else before.earlier_worker_seconds
    if before is not None and start is None:
        over = used_seconds(seen) - seen.job.status.earlier_run_seconds
        earlier += before.workers * over
    if stage.phase in {"Starting", "Running"} or (before is None and stage.phase in FINISHED and start is not None):
        return Elastic(workers=seen.job.spec.workers, limit=_limit(seen), earlier_worker_seconds=earlier)
    if before is None:
        return None
    return Elastic(workers=before.workers, limit=before.limit, earlier_worker_seconds=earlier)


def _limit(seen: Observed) -> str:
    """What limits the number of workers: as the queue says until the batch Job runs."""
    at_work = seen.child is not None and not seen.child.spec.suspend
    if not at_work and isinstance(seen.verdict, Admitted):
        return seen.verdict.limit
    return seen.job.status.elastic.limit if seen.job.status.elastic is not None else ""

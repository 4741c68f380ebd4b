"""The jobs that would be preempted for a query's job, by the operator's rules. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import asdict

from dovetail.answers.jobs import job_reference
from dovetail.answers.questions import DryRunPreemption, Victim
from dovetail.answers.readers import Reader
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.cluster.objects import ClusterObjects
from dovetail.query.checkpoints import checkpoint
from dovetail.query.preemption_rules import rules_of
from dovetail.query.queue_view import QueueView
from dovetail.queue.inputs.leaving_pods import pods_of_batch_jobs
from dovetail.queue.inputs.preemption_candidates import running_of, served_jobs
from dovetail.queue.preemption.policy import ENDING_SECONDS, Evictor, Rules, rules_now
from dovetail.queue.preemption.victims import Running

# Bound on the times to try, soonest first, at which a further job has run long enough to be preempted.
_LOOKS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionView:
    """The running and preempted jobs, and the current rules; `jobs` has all jobs by UID."""

    running: Sequence[Running]
    rules: Rules
    jobs: Mapping[str, GPUJob]

    def evictor(self, *, in_seconds: float = 0.0) -> Evictor:
        """An evictor that chooses victims as of now, or as of `in_seconds` from now."""
        older = [replace(each, run_seconds=each.run_seconds + in_seconds * (not each.left)) for each in self.running]
        return Evictor(running=older, rules=self.rules, orders={}, pause=checkpoint)

    def ripe_in(self, *, priority: int) -> Iterator[float]:
        """Seconds from now at which further jobs may be preempted for this priority, soonest first."""
        rules = self.rules
        waits = {
            rules.min_run_seconds - each.run_seconds
            for each in self.running
            if rules.gap and each.priority + rules.gap <= priority and not each.left
        }
        yield from sorted(wait for wait in waits if wait > 0)[:_LOOKS]


def preemption_view(objects: ClusterObjects, *, queue: QueueView) -> PreemptionView:
    """The preemption candidates and rules in the objects, at the time of the queue's view."""
    rules = rules_now(rules_of(objects.settings.preemption), jobs=objects.jobs, now=queue.now)
    ends = rules.gap or queue.quotas.tree().guarantees
    running = list(_running(objects, queue=queue)) if ends else []
    return PreemptionView(running=running, rules=rules, jobs={job.metadata.uid: job for job in objects.jobs})


def preempting(
    evictor: Evictor, *, key: str, others: PreemptionView, reader: Reader, in_seconds: float = 0.0
) -> DryRunPreemption | None:
    """The preemption for the candidate `key` that one cycle has found, for `reader`; None without one."""
    orders = [order for order in evictor.orders.values() if order.by.key == key]
    if not orders:
        return None
    grace = max(order.grace_seconds for order in orders)
    victims = [others.jobs[order.victim] for order in orders]
    seen = [victim for victim in victims if reader.sees(victim.metadata.namespace)]
    return DryRunPreemption(
        in_seconds=in_seconds,
        grace_seconds=grace,
        starts_in_seconds=in_seconds + grace + ENDING_SECONDS,
        victims=[Victim(**asdict(job_reference(victim)), priority=victim.spec.priority) for victim in seen],
        other_victims=len(victims) - len(seen),
    )


def _running(objects: ClusterObjects, *, queue: QueueView) -> Iterator[Running]:
    served, of_batch_jobs, of_jobs = served_jobs(objects.jobs), pods_of_batch_jobs(objects.pods), objects.pods_by_job()
    for job in objects.jobs:
        child, key = queue.batch_jobs.get(job.metadata.uid), key_of(job.metadata)
        found = running_of(
            job,
            child=child,
            pods=() if child is None else of_batch_jobs.get(child.metadata.uid, ()),
            pods_of_all_runs=lambda key=key: of_jobs.get(key, ()),  # type: ignore[misc] # mypy infers no default's type
            served=served,
            quotas=queue.quotas,
            now=queue.now,
        )
        if found is not None:
            yield found

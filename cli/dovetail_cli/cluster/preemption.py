"""Who makes way for a job that is asked about, by the operator's own rules over the cluster as it was read. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.gpujob import FINISHED, GPUJob
from dovetail.api.meta import key_of
from dovetail.formats.timestamps import moment, timestamp
from dovetail.queue.limits.priorities import bound_of, within
from dovetail.queue.limits.quotas import subject_of
from dovetail.queue.preemption.budget import rules_now, rules_of
from dovetail.queue.preemption.policy import ENDING_SECONDS, Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail_cli.cluster.queue_view import ASKED, holds
from dovetail_cli.cluster.snapshot import Picture
from dovetail_cli.ui.times import brief

# Times at which jobs become old enough to make way that are looked at, the soonest first.
_LOOKS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Yielding:
    """The jobs that run or have made way, by the rules that hold now; `jobs` are all there are, by UID."""

    running: Sequence[Running]
    rules: Rules
    jobs: dict[str, GPUJob]

    def evictor(self, *, in_seconds: float = 0.0) -> Evictor:
        """Finds who makes way now, or once so much time has passed."""
        older = [replace(each, run_seconds=each.run_seconds + in_seconds * (not each.left)) for each in self.running]
        return Evictor(running=older, rules=self.rules, orders={})

    def ripe_in(self, *, priority: int) -> Iterator[float]:
        """In how many seconds further jobs have run for long enough to make way for one of that priority."""
        rules = self.rules
        waits = {
            rules.min_run_seconds - each.run_seconds
            for each in self.running
            if rules.gap and each.priority + rules.gap <= priority and not each.left
        }
        yield from sorted(wait for wait in waits if wait > 0)[:_LOOKS]


def yielding(picture: Picture, *, now: datetime) -> Yielding:
    """What is known of preemption in the cluster as it was read."""
    rules = rules_now(rules_of(picture.settings.preemption), picture.jobs, now=now)
    jobs = {job.metadata.uid: job for job in picture.jobs}
    return Yielding(running=list(_running(picture, now=now)) if rules.gap else [], rules=rules, jobs=jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Others make way for the job that is asked about: in how many seconds it starts at the latest, in words."""

    starts_in: float
    told: str


def way_made(evictor: Evictor, *, job: GPUJob, others: Yielding, now: datetime, in_seconds: float = 0.0) -> Way | None:
    """What one look has found of those who make way for the job `in_seconds` from now; None where nobody does."""
    victims = [others.jobs[order.victim] for order in evictor.orders.values() if order.by.key == ASKED]
    if not victims:
        return None
    grace = others.rules.grace_seconds
    starts_in = in_seconds + grace + ENDING_SECONDS
    who = " and ".join(_named(victim, beside=job) for victim in victims)
    told = f"{'each ' if len(victims) > 1 else ''}told {grace:.0f} s beforehand"
    way = (
        f"In {brief(in_seconds)} {who} may be made to make way for it" if in_seconds else f"{who} would make way for it"
    )
    at = timestamp(now + timedelta(seconds=starts_in))
    return Way(starts_in=starts_in, told=f"{way}, {told}: it would start in about {brief(starts_in)}, at {at}.")


def _named(victim: GPUJob, *, beside: GPUJob) -> str:
    meta = victim.metadata
    name = meta.name if meta.namespace == beside.metadata.namespace else key_of(meta)
    return f"{name} (priority {victim.spec.priority})"


def _running(picture: Picture, *, now: datetime) -> Iterator[Running]:
    pods_of = picture.pods_by_job()
    for job in picture.jobs:
        status, made = job.status, job.status.preemption
        yields_to = "" if made is None else made.by
        at_work = status.phase in {"Starting", "Running"} and not job.spec.suspend and status.start_time is not None
        if status.phase in FINISHED or status.tasks is not None or not (at_work or yields_to):
            continue
        uid = job.metadata.uid
        bound = [pod.metadata.uid for pod in pods_of.get(key_of(job.metadata), ()) if holds(pod)]
        yield Running(
            key=uid,
            priority=within(job.spec.priority, bound=bound_of(picture.quotas or (), subject_of(job))),
            run_seconds=(now - moment(status.start_time)).total_seconds() if at_work and status.start_time else 0.0,
            claims=(*bound, *(f"{uid}/{worker}" for worker in range(job.spec.workers))),
            preempted=0 if made is None else made.count,
            yields_to=yields_to,
            left=not at_work,
        )

"""The terms of the queue and of the extender, as their ConfigMaps say, or learned from the objects. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from dovetail.api.reasons import explain as says
from dovetail.api.reasons.clause import Clause, Sentence
from dovetail.cluster.objects import ClusterObjects
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.score.live_fragmentation import LiveFragmentation, price_by
from dovetail.engine.score.mix_record import MixRecord
from dovetail.engine.score.warm_start import learned_at_once, restored_at_once
from dovetail.pods.tenancy import is_submitted_as_job
from dovetail.query.checkpoints import checkpoint
from dovetail.query.learned import Learned


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A fragmentation term, and the mix that it rests on in words."""

    term: LiveFragmentation
    mix: Sentence

    @property
    def words(self) -> Sentence:
        """How it compares places."""
        return says.BY_TERM(term=self.term.live) + self.mix


def judge_of_queue(ledger: Ledger, *, objects: ClusterObjects, learned: Learned) -> Judge:
    """The queue's term. Plans on the ledger and its copies are judged by it from now on."""
    found = _judge(
        ledger,
        objects=objects,
        record=objects.job_mix,
        otherwise=chain(_asks_of_jobs(objects, learned=learned), _asks_of_other_pods(objects)),
        is_recorded=says.MIX_SUBMITTED,
        is_learned=says.MIX_HERE,
    )
    price_by(found.term, ledger=ledger)
    return found


def judge_of_extender(ledger: Ledger, *, objects: ClusterObjects) -> Judge:
    """The extender's term."""
    return _judge(
        ledger,
        objects=objects,
        record=objects.pod_mix,
        otherwise=objects.asks_of_pods(),
        is_recorded=says.MIX_SEEN,
        is_learned=says.MIX_OF_PODS,
    )


def _judge(
    ledger: Ledger,
    *,
    objects: ClusterObjects,
    record: MixRecord | None,
    otherwise: Iterator[tuple[str, Ask | None]],
    is_recorded: Clause,
    is_learned: Clause,
) -> Judge:
    policy = objects.settings.fragmentation_policy
    if record is not None:
        return Judge(term=restored_at_once(ledger, policy=policy, record=record), mix=is_recorded())
    term, count = learned_at_once(ledger, policy=policy, asks=otherwise)
    return Judge(term=term, mix=is_learned(count=count))


def _asks_of_jobs(objects: ClusterObjects, *, learned: Learned) -> Iterator[tuple[str, Ask | None]]:
    """What each worker of each job requests, by a key of its own, the oldest job first."""
    for job in sorted(objects.jobs, key=lambda job: job.metadata.creation_timestamp):
        checkpoint()
        ways = learned.readable_ways(job, child=None)
        ask = ways[0] if ways else None
        for worker in range(job.spec.workers):
            yield f"{job.metadata.uid}/{worker}", ask


def _asks_of_other_pods(objects: ClusterObjects) -> Iterator[tuple[str, Ask | None]]:
    """What each pod of no job requests, by its UID, the oldest first."""
    of_jobs = {pod.metadata.uid for pod in objects.pods if is_submitted_as_job(pod)}
    return ((uid, ask) for uid, ask in objects.asks_of_pods() if uid not in of_jobs)

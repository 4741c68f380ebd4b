"""The victims of a reclaim against an exact solver: every set of a small cluster's jobs, tried one by one."""

from itertools import combinations
from random import Random

import pytest

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.limits.guarantees import capacity_of, loans_of, quota_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate, Room, commit, find_room
from dovetail.queue.preemption.cheapest_victims import Choice
from dovetail.queue.preemption.victims import Proof, Proofs, Running
from dovetail.queue.quota_tree.loans import Loans
from dovetail.queue.quota_tree.tree_builder import tree_of
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import make_job
from tests.core.queue.quota_tree.builders import make_quota

NODES = {"n": 4, "m": 4, "o": 2}
# What the choice may lose more than the least, and how many random clusters are compared.
MARGIN = 1.1
SEEDS = range(60)


class Cluster:
    """Three nodes full of borrowers' jobs, two of whose quotas have guarantees, and a job of an owner."""

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self.ledger: Ledger = make_ledger(**NODES)
        self.running: list[Running] = []
        counted: list[Counted] = []
        for number in range(9):
            job = make_job(f"r{number}", rng.choice(["1", "1", "2", "4", "0.5"]), workers=rng.choice([1, 1, 1, 2]))
            found = find_room(job, ledger=self.ledger, fit_cache=FitCache(self.ledger), sites={})
            if not isinstance(found, Room):
                continue
            commit(found.claims, job=job, ledger=self.ledger)
            self.running.append(
                Running(
                    key=job.key,
                    priority=rng.choice([0, 10]),
                    run_seconds=rng.uniform(10, 5000),
                    claims=tuple(claim.key for claim in found.claims),
                    checkpoint_seconds=rng.choice([None, None, 60.0]),
                )
            )
            counted.append(count(job, rng.choice(["b", "c", "guest"])))
        self.owner: Candidate = make_job("owner", rng.choice(["1", "2", "4"]), workers=rng.choice([1, 1, 2]))
        counted.append(count(self.owner, "a", queued=True))
        quotas = (
            make_quota("a", guaranteed=8),
            make_quota("b", guaranteed=rng.randint(0, 1)),
            make_quota("c", guaranteed=rng.randint(0, 1)),
        )
        self.loans: Loans = loans_of(
            tree_of(quotas, capacity=capacity_of(self.ledger)),
            counted=counted,
            pods=(),
            quota_of=lambda subject: quota_of(quotas, subject=subject),
            recent={},
        )
        self.proofs = Proofs(job=self.owner, ledger=self.ledger, sites={}, beside=None)
        owner = self.loans.owner(self.owner.key)
        assert owner is not None
        willing = [each for each in self.running if self.loans.gives_back(each.key, to=self.owner.key, owner=owner)]
        self.choice = Choice(proofs=self.proofs, loans=self.loans, owner=owner, willing=willing)

    def least(self) -> float | None:
        """The least work that any set of willing jobs loses whose end makes room and breaks no guarantee."""
        willing = self.choice.willing
        costs = [
            self.choice.cost(victims)[0]
            for size in range(1, len(willing) + 1)
            for victims in combinations(willing, size)
            if self.choice.may_all_end(victims) and self.proofs.without(victims) is not None
        ]
        return min(costs, default=None)


def count(job: Candidate, namespace: str, *, queued: bool = False) -> Counted:
    subject = Subject(namespace=namespace, user="ada")
    return Counted(uid=job.key, subject=subject, milli=round(job.gpus * 1000), queued=queued)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lost_work_is_within_a_tenth_of_the_least(seed: int) -> None:
    cluster = Cluster(seed)
    if cluster.proofs.without(()) is not None:
        return
    found, least = cluster.choice.cheapest(), cluster.least()
    assert (found is None) == (least is None)
    if found is not None and least is not None:
        assert cluster.choice.cost(found.victims)[0] <= MARGIN * least + 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_many_victims_are_chosen_well_too(seed: int) -> None:
    """The ways for too many sets, on clusters where the exact one can be compared with them."""
    cluster = Cluster(seed)
    least = cluster.least()
    if cluster.proofs.without(()) is not None or least is None:
        return
    found = cluster.choice.roughly()
    assert found is None or isinstance(found, Proof)
    if found is not None:
        assert cluster.choice.may_all_end(found.victims)
        assert all(
            cluster.proofs.without([each for each in found.victims if each is not victim]) is None
            for victim in found.victims
        ), "none of them is unnecessary"

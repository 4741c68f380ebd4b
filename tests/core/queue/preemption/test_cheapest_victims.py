"""The victims of a reclaim against an exact solver: every set of a small cluster's jobs, tried one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from dovetail.api.gpuquota import GPUQuota
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
from tests.core.engine.builders import make_ask, make_ledger
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
        quotas = (
            make_quota("a", guaranteed=8),
            make_quota("b", guaranteed=rng.randint(0, 1)),
            make_quota("c", guaranteed=rng.randint(0, 1)),
        )
        if self.owner.workers > 1 and rng.random() < 0.5:
            self.owner = replace(self.owner, least=1)
        counted.append(count(self.owner, "a", queued=True))
        if rng.random() < 0.3:
            # Its pods are still going.
            self.running[0] = replace(self.running[0], left=True, run_seconds=0.0, yields_to=self.owner.key)
        self.loans: Loans = loans_of(
            tree_of(quotas, capacity=capacity_of(self.ledger)),
            counted=counted,
            pods=(),
            quota_of=lambda subject: quota_of(quotas, subject=subject),
            recent={},
        )
        self.proofs = Proofs(job=self.owner, ledger=self.ledger, sites={}, residual=None)
        owner = self.loans.owner(self.owner.key)
        assert owner is not None
        potential_victims = [
            each for each in self.running if self.loans.gives_back(each.key, to=self.owner.key, owner=owner)
        ]
        self.choice = Choice(proofs=self.proofs, loans=self.loans, owner=owner, potential_victims=potential_victims)

    def nodes_of(self, running: Running) -> set[str]:
        return {claim.node for key in running.claims if (claim := self.ledger.claim(key)) is not None}

    def least(self) -> float | None:
        """The least work that any set of potential victims loses whose end makes room and breaks no guarantee."""
        potential_victims = self.choice.potential_victims
        costs = [
            self.choice.cost(victims)[0]
            for size in range(1, len(potential_victims) + 1)
            for victims in combinations(potential_victims, size)
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
    if cluster.owner.workers == 1:
        assert found is not None, "each node is looked at by itself"
        assert cluster.choice.cost(found.victims)[0] <= MARGIN * least + 1e-9
    if found is not None:
        assert cluster.choice.may_all_end(found.victims)
        assert all(
            cluster.proofs.without([each for each in found.victims if each is not victim]) is None
            for victim in found.victims
            if not victim.left
        ), "none of them is unnecessary"
        there = {each.key for each in found.victims}
        used = {claim.node for claim in found.room.claims}
        left = [each for each in cluster.choice.potential_victims if each.left]
        assert all(each.key in there for each in left if cluster.nodes_of(each) <= used and there), "it goes anyway"


# --- single clusters ------------------------------------------------------------------------------------------------


def choice(
    owner: Candidate, *, quotas: Sequence[GPUQuota], running: Mapping[str, tuple[Candidate, str, float]], **nodes: int
) -> Choice:
    """The choice for a job of quota `a`; each job that runs has its quota and run time, and a node as its site."""
    ledger, known, counted = make_ledger(**nodes), list[Running](), [count(owner, "a", queued=True)]
    for job, quota, seconds in running.values():
        sites = {job.site: [job.site]}
        found = find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites=sites)
        assert isinstance(found, Room), job.key
        commit(found.claims, job=job, ledger=ledger)
        keys = tuple(claim.key for claim in found.claims)
        known.append(Running(key=job.key, priority=0, run_seconds=seconds, claims=keys))
        counted.append(count(job, quota))
    loans = loans_of(
        tree_of(quotas, capacity=capacity_of(ledger)),
        counted=counted,
        pods=(),
        quota_of=lambda subject: quota_of(quotas, subject=subject),
        recent={},
    )
    index = loans.owner(owner.key)
    assert index is not None
    potential_victims = [each for each in known if loans.gives_back(each.key, to=owner.key, owner=index)]
    proofs = Proofs(job=owner, ledger=ledger, sites={"pool": [name for name in nodes if name[0] == "p"]}, residual=None)
    return Choice(proofs=proofs, loans=loans, owner=index, potential_victims=potential_victims)


def ends(proof: Proof | None) -> list[str]:
    return [] if proof is None else sorted(each.key.removeprefix("uid-") for each in proof.victims)


def ones(*nodes: str, quota: str = "b") -> dict[str, tuple[Candidate, str, float]]:
    """Eight jobs of one GPU on each node, the first ones of all nodes the youngest."""
    return {
        f"{node}-{at}": (make_job(f"{node}-{at}", "1", site=node), quota, 100.0 + at)
        for node in nodes
        for at in range(8)
    }


def test_many_nodes_whose_quota_lends_too_little_hide_no_other_node() -> None:
    names = [f"n{number:02d}" for number in range(40)]
    running = {**ones(*names), "c": (make_job("c", "8", site="z"), "guest", 5000.0)}
    quotas = [make_quota("a", guaranteed=8), make_quota("b", guaranteed=40 * 8 - 4)]
    found = choice(make_job("mine", "8"), quotas=quotas, running=running, **dict.fromkeys([*names, "z"], 8))
    assert ends(found.cheapest()) == ["c"]


def test_jobs_on_nodes_that_a_gang_may_not_use_take_nothing_from_what_their_quota_lends() -> None:
    names = ["o0", "o1", "o2", "o3"]
    large = {name: (make_job(name, "8", site=name), "b", 5000.0) for name in ("p0", "p1")}
    found = choice(
        make_job("mine", "8", workers=2, site="pool"),
        quotas=[make_quota("a", guaranteed=16), make_quota("b", guaranteed=32)],
        running={**ones(*names), **large},
        **dict.fromkeys([*names, *large], 8),
    )
    assert ends(found.cheapest()) == ["p0", "p1"]


def test_a_gang_gets_whole_nodes_where_the_cheapest_gpus_of_all_nodes_make_no_room() -> None:
    names = ["n0", "n1", "n2", "n3"]
    found = choice(
        make_job("mine", "8", workers=2),
        quotas=[make_quota("a", guaranteed=16), make_quota("b", guaranteed=16)],
        running=ones(*names),
        **dict.fromkeys(names, 8),
    )
    assert ends(found.cheapest()) == sorted(ones("n0", "n1"))


def test_what_time_shared_jobs_have_beyond_a_gpu_is_not_missing() -> None:
    shared = replace(make_job("t", site="n"), ask=make_ask("4G,1", mode="TimeShared"))
    running = {f"t{at}": (replace(shared, key=f"uid-t{at}"), "guest", 9000.0) for at in range(4)}
    running["half"] = make_job("half", "0.5", site="n"), "guest", 100.0
    found = choice(make_job("mine", "1"), quotas=[make_quota("a", guaranteed=1)], running=running, n=2)
    assert ends(found.roughly()) == ends(found.cheapest()) == ["half"]


@pytest.mark.parametrize("names", [("two", "one", "other"), ("one", "two", "other"), ("one", "other", "two")])
def test_of_sets_that_lose_the_same_work_the_smallest_goes(names: tuple[str, ...]) -> None:
    known = {
        "two": (make_job("two", "2", site="n"), "guest", 100.0),
        "one": (make_job("one", "1", site="n"), "guest", 100.0),
        "other": (make_job("other", "1", site="n"), "guest", 100.0),
    }
    running = {name: known[name] for name in names}
    found = choice(make_job("mine", "2"), quotas=[make_quota("a", guaranteed=2)], running=running, n=4)
    assert ends(found.cheapest()) == ["two"]

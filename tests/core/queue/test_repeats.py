"""A cycle that judges each kind of job once says of each job what one says that judges each, and so do later cycles."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import msgspec
import pytest

from dovetail.queue import cycle as core_cycle
from dovetail.queue import verdicts
from dovetail.queue.backfill.residual import Ground, KnownShortages, Shortages
from dovetail.queue.cycle import SchedulingCycle, admit
from dovetail.queue.limits.limits import LimitGate, Takes, limits_of
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.model.gate import APART, Gate
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.verdicts import Admitted, Previous, Verdict, Waits
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import make_job
from tests.core.queue.quota_tree.builders import make_quota
from tests.core.queue.test_checked_cycles import Scene

WAITING = 40
FIRST = 3
SOMEONE = Subject(namespace="team", user="ada")


@pytest.fixture(autouse=True)
def _few_are_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "RENEWED_JOBS", FIRST)


class OneByOne(SchedulingCycle):
    """The cycle that judges each job."""

    def at(self, job: Candidate) -> Verdict:
        self._repeats.changed()
        return super().at(job)


def scene_of(seed: int) -> Scene:
    """A scene with many waiting jobs. Three in four have no advance reservations and no tree: see `gate_of`."""
    scene = Scene(random=Random(seed))
    for number in range(len(scene.waiting), WAITING):
        owned = scene._owned(f"w{number}", at=number)
        scene.waiting[owned.job.key] = owned
    if seed % 4:
        scene.windows = ()
    return scene


def gate_of(scene: Scene, *, seed: int) -> Gate | None:
    """The gate of all quotas; without a tree, the limits alone; or none."""
    gate = scene.gate(gone={})
    if seed % 4:
        gate.loans = gate._firm = None
    return None if seed % 4 == 3 else gate


def cycle_of(
    scene: Scene, *, seed: int, previous: Previous | None = None, shortages: Shortages | None = None
) -> Iterator[Verdict]:
    evictor = Evictor(running=scene.as_running({}, left=False), rules=scene.rules)
    return admit(
        [owned.job for owned in scene.waiting.values()], ledger=scene.ledger.copy(), sites={}, leaving=scene.ends,
        gate=gate_of(scene, seed=seed), evictor=evictor, windows=scene.placed_windows(), shortages=shortages,
        previous=previous or Previous(),
    )  # fmt: skip


def one_by_one(scene: Scene, *, seed: int, monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    with monkeypatch.context() as patch:
        patch.setattr(core_cycle, "SchedulingCycle", OneByOne)
        return list(cycle_of(scene, seed=seed))


@pytest.mark.parametrize("seed", range(60))
def test_a_kind_is_judged_once_and_each_job_as_if_it_were_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of(seed)
    found = list(cycle_of(scene, seed=seed))
    assert found == one_by_one(scene, seed=seed, monkeypatch=monkeypatch)


@pytest.mark.parametrize("seed", range(60))
def test_a_later_cycle_says_what_is_new_and_nothing_else(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, random = scene_of(seed), Random(seed)
    every = one_by_one(scene, seed=seed, monkeypatch=monkeypatch)
    ground = Ground(changes=scene.ledger.changes, limits=scene.ledger.limits)
    shortages = KnownShortages()
    for _ in range(2):
        before = {each.key: other_reason(each) if random.random() < 0.2 else each for each in every}
        found = list(cycle_of(scene, seed=seed, previous=Previous(verdicts=before), shortages=shortages.on(ground)))
        new = [
            each for rank, each in enumerate(every)
            if rank < FIRST or isinstance(each, Admitted) or each.reason != getattr(before[each.key], "reason", "")
        ]  # fmt: skip
        assert found == new


def other_reason(verdict: Verdict) -> Verdict:
    return msgspec.structs.replace(verdict, reason="GangWaiting") if isinstance(verdict, Waits) else verdict


def test_all_get_a_new_message_for_a_reason_that_is_renewed() -> None:
    jobs = [make_job(f"j{number}", "4", at=number) for number in range(8)]
    every = list(admit(jobs, ledger=make_ledger(n=2), sites={}))
    known = {each.key: each for each in every}
    (kept, renewed) = (
        list(admit(jobs, ledger=make_ledger(n=2), sites={}, previous=Previous(verdicts=known, renewed_reasons=reasons)))
        for reasons in ((), ("ExceedsCapacity",))
    )
    assert kept == every[:FIRST]
    assert renewed == every


def judged(jobs: Sequence[Candidate], *, evictor: Evictor | None = None) -> list[str]:
    """The keys of the jobs that a cycle on a full node judges by themselves, after the first ones."""
    look = SchedulingCycle(make_ledger(n=1), sites={}, evictor=evictor)
    look.at(make_job("first", "1", at=0))
    seen: list[str] = []
    original = look._at
    look._at = lambda job: (seen.append(job.key), original(job))[1]  # type: ignore[method-assign]
    for job in jobs:
        look.at(job)
    return seen


def test_jobs_of_one_kind_are_judged_once() -> None:
    jobs = [make_job(f"j{number}", "1", at=number) for number in range(1, 9)]
    # The first two: one of them reserves, which changes what the others find.
    assert judged(jobs) == ["uid-j1", "uid-j2"]


@pytest.mark.parametrize(
    "other",
    [
        {"priority": 30}, {"share": 0.5}, {"may_preempt": False}, {"limited": True}, {"run_seconds": 5.0},
        {"name": "other/x"}, {"workers": 2}, {"site": "x"}, {"cpu_in_seconds": 60.0},
    ],
    ids=str,
)  # fmt: skip
def test_what_makes_another_kind(other: dict[str, object]) -> None:
    job = make_job("x", "1")
    assert replace(job, **other).kind is not job.kind
    assert replace(job, key="y", number=7, created="2027-01-01T00:00:00Z").kind is job.kind


def test_a_job_for_which_others_end_is_judged_by_itself() -> None:
    jobs = [make_job(f"j{number}", "1", at=number) for number in range(1, 9)]
    running = [Running(key="r", priority=0, run_seconds=9.0, claims=("r/0",), yields_to="uid-j7")]
    assert "uid-j7" in judged(jobs, evictor=Evictor(running=running, rules=Rules()))


def test_jobs_that_a_limit_of_queued_jobs_counts_are_judged_by_themselves() -> None:
    scene = scene_of(0)
    for seed, apart in ((0, True), (1, False)):
        gate = gate_of(scene, seed=seed)
        assert gate is not None
        assert {gate.terms_of(owned.job) is APART for owned in scene.waiting.values()} == {apart}
    job = make_job("x", "1")
    limits = limits_of(
        [make_quota("q", namespaces=["team"], limit={"queuedJobs": 2})], subject=SOMEONE, takes=Takes(milli=1000)
    )
    assert LimitGate({job.key: limits}).terms_of(job) is APART
    assert LimitGate({}).terms_of(job) is None


def test_what_is_known_of_shapes_goes_with_the_ground() -> None:
    known = KnownShortages()
    ground = Ground(changes=7, limits=make_ledger(n=1).limits, ends=frozenset({"a"}), sites={"": ("n",)})
    found = known.on(ground)
    assert known.on(replace(ground)) is found
    for other in (replace(ground, changes=8), replace(ground, ends=frozenset()), replace(ground, sites={}), None, None):
        found.hope["shape"] = True
        before, found = found, known.on(other)
        assert not found.hope
        assert before.hope, "a cycle that pauses keeps what it has"

"""Whose jobs end for a reserve, beside a plain count of what is ready on each node without them."""

from dataclasses import replace
from random import Random
from typing import Final

from msgspec.structs import replace as with_fields

from dovetail.queue.backfill.advance_reservation import Window, Windows, placed
from dovetail.queue.limits.limits import LimitGate
from dovetail.queue.limits.quota_reservations import reserve_of
from dovetail.queue.preemption.victims import Running
from dovetail.queue.verdicts import Admitted
from tests.core.queue.preemption.test_give_back import RESERVE, Case, Runs, Scene, chat
from tests.core.queue.quota_tree.builders import make_quota
from tests.seeds import seeds

NODES: Final = {"n": 4, "m": 3, "o": 2}
WITHIN: Final = 60
SOON, LATE = 20.0, 900.0


class Drawn(Scene):
    """A cluster of borrowers; some of them are known to end, in time or not, or are taken to end by then."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.each = random.choice([1, 1, 2])
        self.pool = random.choice([None, ["n", "m"], ["o"]])
        self.guaranteed = random.randint(1, 6)
        self.kept = random.choice([0, 0, 2])
        self.ends: dict[str, tuple[float, bool]] = {}
        self.wanted: list[Window] = []
        running = [self.draw(number) for number in range(random.randint(3, 7))]
        quotas = (
            chat(
                self.guaranteed,
                gpus=random.randint(self.each, 4) // self.each * self.each,
                each=self.each,
                within=WITHIN,
            ),
            make_quota("train", guaranteed=self.kept),
        )
        waiting = (("replica", "chat", "1"),) if random.random() < 0.5 else ()
        super().__init__(Case(says="", running=tuple(running), quotas=quotas, waiting=waiting, nodes=NODES, ends={}))

    def draw(self, number: int) -> Runs:
        random = self.random
        firm = random.random() < 0.15
        facts = {"run_seconds": random.choice([50.0, 500.0, 900.0]), "preemptible": not firm}
        if random.random() < 0.3:
            facts["yields_to"] = "uid-gone"
        return Runs(
            name=f"x{number}", gpus="1", namespace=random.choice(["train", "train", "other", "chat"]),
            leaves=None if firm else random.choice([30.0, 600.0]), facts=facts,
        )  # fmt: skip

    def run(self, runs: Runs) -> None:
        super().run(runs)
        self.ends[runs.name] = self.random.choice([(LATE, True), (LATE, True), (SOON, True), (SOON, False)])
        at_seconds, assumed = self.ends[runs.name]
        self.leaving[-1] = with_fields(self.leaving[-1], at_seconds=at_seconds, assumed=assumed)

    def windows(self, gate: LimitGate) -> Windows:
        loans = gate.loans
        assert loans is not None
        window = reserve_of(self.quotas[0], loans=loans, leaving=self.leaving)
        self.wanted = [] if window is None else [replace(window, nodes=self.pool)]
        own = {each.uid: frozenset({"chat"}) for each in self.counted if each.subject.namespace == "chat"}
        kept = placed(self.wanted, ledger=self.ledger, leaving=self.leaving)
        return Windows(reservations=kept, quotas_of=own, wanted=self.wanted)

    # --- the same by hand ---------------------------------------------------------------------------------------

    def namespace(self, name: str) -> str:
        return next(each.subject.namespace for each in self.counted if each.uid == f"uid-{name}")

    def used(self, namespace: str, *, without: set[str]) -> int:
        return sum(name not in without and self.namespace(name) == namespace for name in self.ends)

    def lent(self) -> set[str]:
        """Those that leave in time if they are asked to, as far as their quota keeps its guarantee."""
        found: set[str] = set()
        for each in self.counted:
            name = each.uid.removeprefix("uid-")
            if (
                each.queued
                or each.leave_seconds is None
                or each.leave_seconds > WITHIN
                or self.namespace(name) == "chat"
            ):
                continue
            if self.running_of(name).yields_to:
                continue
            if self.namespace(name) == "train" and self.used("train", without=found) - 1 < self.kept:
                continue
            found.add(name)
        return found

    def running_of(self, name: str) -> Running:
        return next(each for each in self.running if each.key == f"uid-{name}")

    def ready(self, without: set[str]) -> int:
        """How many parts of the reserve have room without these jobs."""
        taken = dict.fromkeys(NODES, 0)
        for leaving in self.leaving:
            claim = self.ledger.claim(leaving.key)
            if claim is not None and leaving.job.removeprefix("uid-") not in without:
                taken[claim.node] += 1
        for verdict in self.verdicts.values():
            for claim in verdict.claims if isinstance(verdict, Admitted) else ():
                taken[claim.node] += 1
        pool = self.pool or list(NODES)
        return sum((NODES[node] - taken[node]) // self.each for node in pool)


@seeds(160)
def test_those_end_that_make_as_much_of_a_reserve_ready_as_can_be_and_no_others(seed: int) -> None:
    scene = Drawn(seed)
    ordered = {name for name, order in scene.orders.items() if order.by.key == RESERVE}
    assert ordered == set(scene.orders), "the replica starts, or waits for what it may not have"
    if not scene.wanted:
        assert ordered == set()
        return
    starts = sum(isinstance(each, Admitted) for each in scene.verdicts.values())
    left = max(0, scene.guaranteed - scene.used("chat", without=set()) - starts)
    parts = min(scene.wanted[0].gpus, left) // scene.each
    lent = scene.lent()
    # The end of a job by its time limit is no loan: its quota uses its GPUs until then.
    going = lent | {name for name, end in scene.ends.items() if end == (SOON, False)}
    slow = {
        name
        for name in scene.ends.keys() - lent
        if scene.namespace(name) != "chat"
        and scene.running_of(name).preemptible
        and not scene.running_of(name).yields_to
        and (scene.namespace(name) != "train" or scene.used("train", without=lent) - 1 >= scene.kept)
    }
    ready, most = min(parts, scene.ready(going)), min(parts, scene.ready(going | slow))
    assert ordered <= slow
    if ordered:
        assert min(parts, scene.ready(going | ordered)) == most > ready
        assert all(scene.ready((going | ordered) - {name}) < most for name in ordered)
        before = scene.used("train", without=lent)
        assert scene.used("train", without=ordered | lent) >= min(scene.kept, before)
    elif scene.kept == 0:
        assert most == ready

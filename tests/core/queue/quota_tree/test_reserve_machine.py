"""Reserves and guarantees that the calendar raises and lowers, as a state machine beside the cycle's twin.

From numbers of its own it checks that a replica starts at once in a ready reserve, or once jobs have ended that leave
in time; that no job ends for a reserve which is not ready afterwards; and that give-backs come to an end.
"""

from dataclasses import replace
from typing import Final

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import initialize, invariant, precondition, rule

from dovetail.queue.backfill.advance_reservation import Windows, is_reserve, placed
from dovetail.queue.limits.quota_reservations import reserve_of
from dovetail.queue.limits.quota_usage import Counted
from tests.core.queue.quota_tree.builders import make_quota
from tests.core.queue.quota_tree.test_tree_machine import SHAPES, TreeMachine
from tests.core.queue.twin import CheckedCycle

WITHIN: Final = 60
QUICK: Final = 30.0
SLOW: Final = 600.0
TEAMS: Final = ("chat", "vision", "guest")
# GPUs of the cluster.
ALL: Final = 6


class ReserveMachine(TreeMachine):
    """Six GPUs on two nodes: a service with a reserve, a team with a guarantee, and guests without one."""

    cycle = CheckedCycle

    def __init__(self) -> None:
        super().__init__()
        self.leaves: dict[str, float] = {}
        self.floor = 0
        self.vision = 0
        self.most = 0
        # What is to be ready, and what is, at the last look.
        self.wanted = self.ready = self.ready_before = 0

    @initialize(amounts=st.tuples(st.integers(1, 4), st.integers(0, 2)), most=st.integers(1, 4))
    def plant(self, amounts: tuple[int, int], most: int) -> None:  # type: ignore[override] # another tree
        self.floor, self.vision, self.most = *amounts, most
        self.write()

    def write(self) -> None:
        reserve = {"gpus": self.most, "leaveWithinSeconds": WITHIN}
        self.quotas = [
            make_quota("chat", guaranteed=self.floor, reserve=reserve),
            make_quota("vision", guaranteed=self.vision),
        ]

    # --- what happens --------------------------------------------------------------------------------------------

    @rule(floor=st.integers(0, 4))
    def tide(self, floor: int) -> None:
        """A window begins or ends."""
        self.floor = floor
        self.write()
        self.look()

    @rule(
        team=st.sampled_from(TEAMS), shape=st.sampled_from(SHAPES), leaves=st.sampled_from([QUICK, SLOW]),
        firm=st.sampled_from([False, False, True]),
    )  # fmt: skip
    def come(self, team: str, shape: str, leaves: float, firm: bool) -> None:
        self.add(team, shape=shape, firm=firm, leaves=leaves)
        self.look()

    @rule(team=st.sampled_from(TEAMS[1:]), leaves=st.sampled_from([QUICK, SLOW]))
    def flood(self, team: str, leaves: float) -> None:
        """A team fills what is free, and then some."""
        for _ in range(ALL):
            self.add(team, shape="1", leaves=leaves)
        self.look()

    def add(  # type: ignore[override] # with how long its pods take to end
        self, team: str, *, shape: str, workers: int = 1, priority: int = 10, firm: bool = False, leaves: float = QUICK
    ) -> None:
        super().add(team, shape=shape, workers=workers, priority=priority, firm=firm)
        key = list(self.waiting)[-1]
        self.leaves[key] = leaves
        self.waiting[key] = replace(self.waiting[key], leave_seconds=None if firm else leaves)

    @precondition(lambda self: self.wanted and self.wanted == self.ready)
    @rule()
    def scale_up(self) -> None:
        """Where the reserve is ready, a replica starts at once, or once jobs have ended that leave in time."""
        before = set(self.waiting)
        self.add("chat", shape="1")
        (key,) = self.waiting.keys() - before
        self.look()
        if key in self.running:
            return
        if any(self.team[each] == "chat" for each in before):
            # An older job of the service takes the place.
            return
        victims = [each for each, by in self.told.items() if by == key]
        assert victims, f"{key} waits although the reserve was ready"
        assert all(self.leaves[each] <= WITHIN for each in victims), "only jobs that leave in time end for a replica"
        self.give_back()
        assert key in self.running

    # Of the inherited rules, those of other trees do not apply.
    submit = crowd = claim = None  # type: ignore[assignment]

    # --- the operator's part -------------------------------------------------------------------------------------

    def counted(self) -> list[Counted]:
        return [
            replace(each, leave_seconds=self.leaves[each.uid] if each.preemptible else None)
            for each in super().counted()
        ]

    def windows(self) -> Windows:
        loans = self.gate().loans
        assert loans is not None
        window = reserve_of(self.quotas[0], loans=loans, leaving=self.leaving())
        wanted = [] if window is None else [window]
        found = placed(wanted, ledger=self.ledger, leaving=self.leaving())
        self.wanted = 0 if window is None else window.gpus
        self.ready = sum(len(each.claims) for kept in found.values() for each in kept)
        own = {key: frozenset({"chat"}) for key in self.waiting if self.team[key] == "chat"}
        return Windows(reservations=found, quotas_of=own, wanted=wanted)

    # --- what is checked, from numbers of its own ----------------------------------------------------------------

    def path(self, key: str) -> list[str]:
        return [self.team[key]] if self.team[key] in {"chat", "vision"} else []

    def check_ends(self, key: str, *, by: str) -> None:
        if not is_reserve(by):
            super().check_ends(key, by=by)
            return
        assert key not in self.firm
        assert self.leaves[key] > WITHIN, "a job that leaves in time is ready as it is"
        assert self.team[key] != "chat"
        ended = frozenset(self.told)
        for quota in self.path(key):
            assert self.used(quota, without=ended) >= self.guaranteed(quota), f"{quota} loses below its guarantee"

    def check_start(self, by: str) -> None:
        if is_reserve(by):
            assert self.ready > self.ready_before or self.ready == self.wanted, "more is ready once a job has ended"
        else:
            super().check_start(by)

    @rule()
    def give_back(self) -> None:
        self.look()
        self.ready_before = self.ready
        super().give_back()

    def check_no_owner_waits_in_vain(self) -> None:
        """Reserves keep owners waiting too."""

    @invariant()
    def a_job_that_may_not_be_preempted_is_within_a_guarantee(self) -> None:
        firm = sum(run.milli for key, run in self.running.items() if key in self.firm and self.team[key] == "vision")
        assert firm <= self.vision * 1000

    @invariant()
    def the_reserve_is_what_the_guarantee_leaves(self) -> None:
        # The last look has counted what ran before it.
        assert self.ready <= self.wanted <= min(self.most, self.floor)


TestReserves = ReserveMachine.TestCase
TestReserves.settings = settings(max_examples=40, stateful_step_count=20, deadline=None, derandomize=True)

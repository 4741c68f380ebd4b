"""Turns by a clock of the test's own: what share of the time each tenant gets, and how long it waits at most."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dovetail_agent.turns.schedule import LONGEST_WAIT_TURNS, Contender, Turns, step

TURN = 2.0


def contender(uid: str, *devices: str, weight: int = 10) -> Contender:
    return Contender(uid=uid, devices=frozenset(devices or ("GPU-0",)), weight=weight)


def turned(contenders: Sequence[Contender], *, turns: Turns | None = None, count: int) -> Iterator[Turns]:
    """The turns at each of their ends, `count` times."""
    turns = turns or Turns()
    for _ in range(count):
        now = 0.0 if not turns.standings else min(turns.next_at, turns.at + TURN)
        turns = step(turns, contenders=contenders, now=now, turn_seconds=TURN)
        yield turns


def running(turns: Turns) -> frozenset[str]:
    return frozenset(turns.standings) - turns.waiting


def seconds_run(contenders: Sequence[Contender], *, count: int) -> Counter[str]:
    ran: Counter[str] = Counter()
    for turns in turned(contenders, count=count):
        ran.update(running(turns))
    return ran


def test_a_tenant_alone_is_never_stopped() -> None:
    turns = step(Turns(), contenders=[contender("a")], now=0.0, turn_seconds=TURN)
    assert (turns.waiting, turns.next_at) == (frozenset(), math.inf)


def test_two_tenants_of_equal_weight_take_turns() -> None:
    order = [running(turns) for turns in turned([contender("a"), contender("b")], count=4)]
    assert order == [{"a"}, {"b"}, {"a"}, {"b"}]


def test_a_turn_is_not_cut_short_by_looks_between() -> None:
    both = [contender("a"), contender("b")]
    (turns,) = turned(both, count=1)
    later = step(turns, contenders=both, now=TURN / 2, turn_seconds=TURN)
    assert running(later) == {"a"}
    assert later.next_at == TURN


def test_a_newcomer_waits_for_the_end_of_the_turn_and_is_given_the_next_one() -> None:
    old = [contender("a"), contender("b")]
    *_, turns = turned(old, count=20)
    with_new = step(turns, contenders=[*old, contender("c")], now=turns.at + 1, turn_seconds=TURN)
    assert "c" in with_new.waiting
    waited = [running(each) for each in turned([*old, contender("c")], turns=with_new, count=3)]
    assert {"c"} in waited


def test_who_leaves_gives_the_rest_of_its_turn_away() -> None:
    (turns,) = turned([contender("a"), contender("b"), contender("c")], count=1)
    assert running(turns) == {"a"}
    left = step(turns, contenders=[contender("b"), contender("c")], now=0.5, turn_seconds=TURN)
    assert len(running(left)) == 1


def test_the_last_one_left_goes_on_at_once() -> None:
    (turns,) = turned([contender("a"), contender("b")], count=1)
    left = step(turns, contenders=[contender("b")], now=0.5, turn_seconds=TURN)
    assert running(left) == {"b"}


def test_a_tenant_of_two_devices_runs_on_both_or_on_none_and_does_not_starve() -> None:
    tenants = [contender("both", "GPU-0", "GPU-1"), contender("left", "GPU-0"), contender("right", "GPU-1")]
    seen = {running(turns) for turns in turned(tenants, count=10)}
    assert seen == {frozenset({"both"}), frozenset({"left", "right"})}


def test_devices_without_a_common_tenant_do_not_wait_for_each_other() -> None:
    tenants = [contender("a", "GPU-0"), contender("b", "GPU-0"), contender("c", "GPU-1")]
    assert all("c" in running(turns) for turns in turned(tenants, count=5))


def test_a_late_end_of_a_turn_is_charged_to_who_had_it() -> None:
    both = [contender("a"), contender("b")]
    (turns,) = turned(both, count=1)
    late = step(turns, contenders=both, now=3 * TURN, turn_seconds=TURN)
    made_up = [running(each) for each in turned(both, turns=late, count=3)]
    assert [running(late), *made_up[:2]] == [{"b"}, {"b"}, {"b"}]


@settings(max_examples=20, deadline=None)
@given(weights=st.lists(st.integers(1, 255), min_size=2, max_size=4))
def test_time_is_shared_in_the_ratio_of_the_weights(weights: list[int]) -> None:
    # Beyond this the longest wait wins over the weights.
    weights = [max(weight, -(-sum(weights) // (LONGEST_WAIT_TURNS - len(weights)))) for weight in weights]
    tenants = [contender(f"t{at}", weight=weight) for at, weight in enumerate(weights)]
    count = 1000
    ran = seconds_run(tenants, count=count)
    for each in tenants:
        assert ran[each.uid] / count == pytest.approx(each.weight / sum(weights), rel=0.1)


@settings(max_examples=20, deadline=None)
@given(weights=st.lists(st.integers(1, 255), min_size=2, max_size=8))
def test_nobody_waits_longer_than_promised(weights: list[int]) -> None:
    tenants = [contender(f"t{at}", weight=weight) for at, weight in enumerate(weights)]
    since: dict[str, float] = {}
    for turns in turned(tenants, count=200):
        since = {uid: since.get(uid, turns.at) for uid in turns.waiting}
        longest = max((turns.at - at for at in since.values()), default=0.0)
        assert longest <= (LONGEST_WAIT_TURNS + len(tenants)) * TURN


class Node(RuleBasedStateMachine):
    """Tenants come and go at any time, on devices of any choice."""

    def __init__(self) -> None:
        super().__init__()
        self.turns, self.now = Turns(), 0.0
        self.tenants: dict[str, Contender] = {}
        self.waits: dict[str, float] = {}

    @rule(
        uid=st.sampled_from("abcdef"), devices=st.sets(st.sampled_from("0123"), min_size=1), weight=st.integers(1, 255)
    )
    def arrive(self, uid: str, devices: set[str], weight: int) -> None:
        if uid not in self.tenants:
            self.tenants[uid] = contender(uid, *devices, weight=weight)
            self.look(after=0.0)

    @rule(uid=st.sampled_from("abcdef"))
    def leave(self, uid: str) -> None:
        self.tenants.pop(uid, None)
        self.look(after=0.0)

    @rule(after=st.floats(0, 3))
    def look(self, after: float) -> None:
        self.now += after
        before = self.turns.standings
        self.turns = step(self.turns, contenders=self.tenants.values(), now=self.now, turn_seconds=TURN)
        for uid in before.keys() & self.turns.standings.keys():
            assert self.turns.standings[uid].charged_seconds >= before[uid].charged_seconds, "what was run is forgotten"
        self.waits = {uid: self.waits.get(uid, self.now) for uid in self.turns.waiting}

    @rule(turns=st.integers(1, 30))
    def time_goes_on(self, turns: int) -> None:
        for _ in range(turns):
            if self.turns.next_at < math.inf:
                self.look(after=max(0.0, self.turns.next_at - self.now))

    @invariant()
    def no_device_has_two(self) -> None:
        taken = [device for uid in running(self.turns) for device in self.tenants[uid].devices]
        assert len(taken) == len(set(taken))

    @invariant()
    def nobody_stands_still_for_nothing(self) -> None:
        taken = {device for uid in running(self.turns) for device in self.tenants[uid].devices}
        assert all(self.tenants[uid].devices & taken for uid in self.turns.waiting)

    @invariant()
    def everybody_is_known_and_nobody_else(self) -> None:
        assert set(self.turns.standings) == set(self.tenants)

    @invariant()
    def nobody_starves(self) -> None:
        # A look may come a turn and a half late.
        bound = (LONGEST_WAIT_TURNS + 6) * (TURN + 3)
        assert all(self.now - since <= bound for since in self.waits.values())


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=40, deadline=None)


def test_one_that_has_waited_for_fifteen_turns_goes_before_all() -> None:
    heavy, light = contender("heavy", weight=1000), contender("light", weight=1)
    waits = []
    turns = step(Turns(), contenders=[heavy, light], now=0.0, turn_seconds=TURN)
    turns = step(turns, contenders=[heavy, light], now=TURN, turn_seconds=TURN)
    since = TURN if "light" in turns.waiting else 2 * TURN
    for count in range(2, 40):
        turns = step(turns, contenders=[heavy, light], now=count * TURN, turn_seconds=TURN)
        if "light" not in turns.waiting:
            waits.append(count * TURN - since)
            since = (count + 1) * TURN
    assert waits[1:] == [LONGEST_WAIT_TURNS * TURN] * len(waits[1:])
    assert len(waits) >= 2


def test_all_turns_of_a_circle_end_with_the_first() -> None:
    """A newcomer on a free device gets what is left of the turn."""
    a, b = contender("a", "0"), contender("b", "0", "1")
    turns = step(Turns(), contenders=[a, b], now=0.0, turn_seconds=TURN)
    assert running(turns) == {"a"}
    c = contender("c", "1")
    later = step(turns, contenders=[a, b, c], now=0.5, turn_seconds=TURN)
    assert running(later) == {"a", "c"}
    assert {each.turn_ends for uid, each in later.standings.items() if uid in {"a", "c"}} == {TURN}


def test_when_rivals_leave_the_last_one_is_charged_no_more() -> None:
    both = [contender("a"), contender("b")]
    turns = step(Turns(), contenders=both, now=0.0, turn_seconds=TURN)
    alone = step(turns, contenders=both[:1], now=1.0, turn_seconds=TURN)
    assert alone.standings["a"].charged_seconds == 1.0 / 10
    later = step(alone, contenders=both[:1], now=100.0, turn_seconds=TURN)
    assert later.standings["a"].charged_seconds == 1.0 / 10
    assert (later.waiting, later.next_at) == (frozenset(), math.inf)


def test_a_newcomer_starts_level_with_its_least_served_rival() -> None:
    old = [contender("a", weight=10), contender("b", weight=20)]
    turns = Turns()
    for count in range(6):
        turns = step(turns, contenders=old, now=count * TURN, turn_seconds=TURN)
    charged = [turns.standings[uid].charged_seconds for uid in "ab"]
    new = step(turns, contenders=[*old, contender("c")], now=turns.at, turn_seconds=TURN)
    assert new.standings["c"].charged_seconds == min(charged) < max(charged)

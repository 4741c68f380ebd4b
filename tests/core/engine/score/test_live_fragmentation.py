"""The live fragmentation term: what is kept equals what is reckoned from scratch, and learning makes nobody wait."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from dovetail.api.gpujob import Policy
from dovetail.engine.filter.fit import Fit, Judgement, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.live_fragmentation import FragmentationSettings, LiveFragmentation
from dovetail.engine.score.priced_term import CapacityMirror
from dovetail.fragmentation import cutting_stock
from dovetail.fragmentation.arrivals import LearningSettings
from dovetail.gpu.request import parse
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device, make_ledger

NODES = ["a", "b", "c", "d"]
ASKS = [
    make_ask("1", policy="Pack", cpu_milli=1000),
    make_ask("2", policy="Pack"),
    make_ask("0.5", policy="Pack"),
    make_ask("0.3", policy="Spread"),
    make_ask("8G,0.25", policy="Pack"),
    make_ask("2x0.5(V100)", policy="Pack"),
    make_ask("1", mode="TimeShared", policy="Pack"),
    Ask(gpu=None, policy="Pack", cpu_milli=2000),
    replace(make_ask("0.5", policy="Pack"), more=(parse("0.3"),)),
]


def fragments_on(ledger: Ledger, *arrivals: str, policy: FragmentationPolicy = "ph") -> LiveFragmentation:
    """A term that has learned from these arrivals, all of them at once."""
    learning = LearningSettings(first_look=max(1, len(arrivals)))
    fragments = LiveFragmentation(ledger, settings=FragmentationSettings(policy=policy, learning=learning))
    fragments.follow()
    for number, text in enumerate(arrivals):
        fragments.arrived(make_ask(text), key=f"arrival-{number}")
    while fragments.work():
        pass
    fragments.follow()
    return fragments


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, str, int]]:
    one = st.tuples(
        st.sampled_from(["place", "place", "release", "node", "drop", "arrive", "work"]),
        st.sampled_from(NODES),
        st.integers(0, len(ASKS) - 1),
    )
    return draw(st.lists(one, min_size=1, max_size=20))


def apply(ledger: Ledger, fragments: LiveFragmentation, step: tuple[str, str, int], *, number: int) -> None:
    what, node, at = step
    match what:
        case "place":
            found = check(ledger, ask=ASKS[at], node=node, key=f"pod-{at}")
            if isinstance(found, Fit):
                ledger.commit(found.claim)
        case "release":
            ledger.release(f"pod-{at}")
        case "node":
            add_node(ledger, node, gpus=at, model="T4" if at % 2 else "V100")
        case "drop":
            ledger.drop_node(node)
        case "arrive":
            fragments.arrived(ASKS[at], key=f"arrival-{number}")
        case "work":
            fragments.work()


@settings(max_examples=60, deadline=None)
@given(steps(), st.sampled_from(["ph", "fgd"]))
def test_what_is_kept_equals_what_is_reckoned_from_scratch(
    happened: list[tuple[str, str, int]], policy: FragmentationPolicy
) -> None:
    ledger = make_ledger(a=2, b=4)
    fragments = LiveFragmentation(
        ledger, settings=FragmentationSettings(policy=policy, learning=LearningSettings(first_look=2, looks_factor=1))
    )
    fit_cache = FitCache(ledger, term=fragments)
    for number, step in enumerate(happened):
        apply(ledger, fragments, step, number=number)
        ask = ASKS[step[2]]
        fits = fit_cache.best(ask, nodes=NODES, key="")
        judged = Judgement(ledger, ask=ask, nodes=fits, key="")
        _, parts = fit_cache._columns(fit_cache._shape(ask), nodes=fits, key="")
        np.testing.assert_allclose(parts.fragmentation, fragments.alone(judged, key=""), atol=2e-5)


def test_a_pod_s_own_hold_does_not_count_against_it() -> None:
    ledger = make_ledger(a=4, b=2)
    fit_cache = FitCache(ledger, term=fragments_on(ledger, "0.5", "1", "2"))
    before = fit_cache.scores(ASKS[2], nodes=["a", "b"], key="pod")
    found = fit_cache.check(ASKS[2], node="b", key="pod")
    assert isinstance(found, Fit)
    ledger.commit(found.claim, hold_until=10)
    assert sorted(before) == [0, 1]
    assert fit_cache.scores(ASKS[2], nodes=["a", "b"], key="pod") == before
    assert fit_cache.check(ASKS[2], node="b", key="pod") == found


# --- learning ---------------------------------------------------------------------------------------------------


def test_a_hold_looked_past_before_it_was_taken_over_and_then_ended_leaves_no_trace() -> None:
    ledger = make_ledger(a=2, b=2)
    mirror = CapacityMirror(ledger)
    mirror.follow()
    untouched = mirror.columns.left.tolist()
    found = check(ledger, ask=make_ask("0.5"), node="b", key="pod")
    assert isinstance(found, Fit)
    ledger.commit(found.claim, hold_until=30.0)
    with mirror.without("pod"):
        assert mirror.columns.left.tolist() == untouched
    ledger.release("pod")
    mirror.follow()
    assert mirror.columns.left.tolist() == untouched


def test_each_pod_arrives_once_however_often_it_is_asked_about() -> None:
    fragments = LiveFragmentation(make_ledger(a=1))
    for _ in range(5):
        fragments.arrived(make_ask("1"), key="pod")
    assert fragments.measure().arrivals == 1


def test_a_mix_that_moved_counts_once_it_is_worked_out() -> None:
    ledger = make_ledger(a=2)
    fragments = LiveFragmentation(ledger, settings=FragmentationSettings(learning=LearningSettings(first_look=4)))
    fragments.follow()
    before = fragments.generation
    for number in range(4):
        fragments.arrived(make_ask("0.5"), key=f"pod-{number}")
    fragments.follow()
    assert fragments.generation == before
    assert fragments.work()
    hold_devices(ledger, "a", 0)
    fragments.follow()
    assert fragments.generation == before + 1
    assert fragments.measure().idle_gpus == 1


def test_without_highs_best_fit_takes_the_place_of_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting_stock, "available", lambda: False)
    ledger = make_ledger(a=8, b=4, c=2)
    fragments = LiveFragmentation(ledger)
    assert fragments.live == "bestfit"
    assert "needs HiGHS" in fragments.shortcoming
    best = FitCache(ledger, term=fragments).best(make_ask("2", policy="Pack"), nodes=["a", "b", "c"], key="", limit=2)
    assert best == ["c", "b"]


def test_nodes_that_come_and_models_that_are_new_are_priced() -> None:
    ledger = make_ledger(a=2)
    fragments = fragments_on(ledger, "1", "2")
    fit_cache = FitCache(ledger, term=fragments)
    assert fit_cache.best(ASKS[0], nodes=["a"], key="") == ["a"]
    for number in range(100):
        add_node(ledger, f"n{number}", gpus=8, model="T4")
    assert fit_cache.best(ASKS[0], nodes=["n99", "a"], key="") == ["n99", "a"]
    assert len(set(fit_cache.scores(ASKS[0], nodes=["n99", "a"], key=""))) == 2
    assert fragments.measure().idle_gpus == 802


@pytest.mark.parametrize("policy", ["ph", "fgd"])
def test_nodes_that_come_are_reckoned_as_if_they_had_always_been_there(policy: FragmentationPolicy) -> None:
    ledger = make_ledger(a=2)
    add_node(ledger, "t", gpus=1, model="T4")
    early = fragments_on(ledger, "0.5(T4)", "1(V100)", policy=policy)
    for number in range(20):
        add_node(ledger, f"n{number}", gpus=4, model="T4" if number % 2 else "V100", cpu_milli=500 * number)
    late = fragments_on(ledger, "0.5(T4)", "1(V100)", policy=policy)
    nodes, ask = ledger.nodes(), make_ask("0.5(T4)", policy="Pack")
    # But for the prior, which is of the nodes that were there when the mix was learned.
    assert early.measure().fragmented_gpus == pytest.approx(late.measure().fragmented_gpus, rel=1e-2)
    assert FitCache(ledger, term=early).scores(ask, nodes=nodes, key="") == pytest.approx(
        FitCache(ledger, term=late).scores(ask, nodes=nodes, key=""), abs=0.05
    )


# --- what is measured -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["ph", "fgd", "bestfit"])
def test_fragmentation_is_told_whichever_term_is_live(policy: FragmentationPolicy) -> None:
    ledger = make_ledger(a=2)
    fragments = fragments_on(ledger, "0.5", "0.5", policy=policy)
    hold_devices(ledger, "a", 0, share_milli=700, mode="Fractional")
    measured = fragments.measure()
    assert (measured.policy, measured.idle_gpus) == (policy, 1.3)
    # 0.3 of a GPU is too little for the halves that come.
    assert measured.fragmented_gpus == pytest.approx(0.3, abs=0.01)
    assert measured.ratio == pytest.approx(0.3 / 1.3, abs=0.01)


def test_an_empty_cluster_has_no_fragments() -> None:
    assert LiveFragmentation(Ledger()).measure().ratio == 0


# --- devices ----------------------------------------------------------------------------------------------------


def residuals(*left: int) -> Ledger:
    """One node whose devices have so many milli left."""
    ledger = make_ledger(a=len(left))
    for index, milli in enumerate(left):
        if milli < 1000:
            hold_devices(ledger, "a", index, share_milli=1000 - milli, mode="Fractional")
    return ledger


DEVICES = {
    "priced: the residual that is worth the least for what comes": ((500, 600, 1000), "Pack", "ph", 0),
    "priced: not the tightest, where that is worth keeping": ((400, 700, 1000), "Pack", "ph", 1),
    "best fit: the tightest that is enough": ((500, 400, 1000), "Balanced", "bestfit", 1),
    "spread: the emptiest": ((500, 400, 1000), "Spread", "ph", 2),
}


@pytest.mark.parametrize(("left", "policy", "term", "expected"), DEVICES.values(), ids=DEVICES.keys())
def test_a_share_gets_the_device(
    left: tuple[int, ...], policy: Policy, term: FragmentationPolicy, expected: int
) -> None:
    ledger = residuals(*left)
    fit_cache = FitCache(ledger, term=fragments_on(ledger, *["0.6", "0.4"] * 20, policy=term))
    found = fit_cache.check(make_ask("0.3", policy=policy), node="a", key="pod")
    assert isinstance(found, Fit)
    assert [device.index for device in found.claim.devices] == [expected]


@pytest.fixture
def wired() -> Ledger:
    ledger = make_ledger(a=0)
    pairs = {0: 2, 2: 0, 1: 3, 3: 1}
    ledger.set_devices(
        "a", devices=[make_device("a", index, nvlink=(other,)) for index, other in sorted(pairs.items())]
    )
    return ledger


def test_two_whole_devices_are_linked_ones(wired: Ledger) -> None:
    found = FitCache(wired, term=fragments_on(wired, "2")).check(make_ask("2", policy="Pack"), node="a", key="pod")
    assert isinstance(found, Fit)
    assert [device.index for device in found.claim.devices] == [0, 2]


def test_the_device_that_is_asked_for_by_index_is_the_one(wired: Ledger) -> None:
    fit_cache = FitCache(wired, term=fragments_on(wired, "0.5"))
    found = fit_cache.check(make_ask("0.5@cuda:3", policy="Pack"), node="a", key="pod")
    assert isinstance(found, Fit)
    assert [device.index for device in found.claim.devices] == [3]

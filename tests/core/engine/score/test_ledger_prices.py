"""Plans on a ledger and on its copies are judged by the prices of the ledger."""

from weakref import ref

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from dovetail.engine.filter.fit import Fit, Judgement, check
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.fragmentation_term import BestFit
from dovetail.engine.score.live_fragmentation import LiveFragmentation, price_by, term_of
from dovetail.engine.score.priced_term import CapacityMirror, PricedTerm
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_ledger
from tests.core.engine.score.test_live_fragmentation import ASKS, NODES, fragments_on

MIX = ["0.6", "0.4", "0.3", "1", "1", "2", "4", "8"] * 3


def priced(ledger: Ledger, *, policy: FragmentationPolicy = "ph", mix: list[str] = MIX) -> LiveFragmentation:
    """The term of the ledger's plans, learned from the mix."""
    term = fragments_on(ledger, *mix, policy=policy)
    price_by(term, ledger=ledger)
    return term


def change(ledger: Ledger, step: tuple[str, str, int]) -> None:
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


def steps(*kinds: str) -> st.SearchStrategy[list[tuple[str, str, int]]]:
    return st.lists(
        st.tuples(st.sampled_from(kinds), st.sampled_from(NODES), st.integers(0, len(ASKS) - 1)), max_size=8
    )


STEPS = steps("place", "place", "release", "node", "drop")


@settings(max_examples=60, deadline=None)
@given(STEPS, STEPS, STEPS, STEPS, st.sampled_from(["ph", "fgd"]), st.sampled_from(ASKS))
def test_a_copy_s_term_is_that_of_its_own_capacity(
    before: list[tuple[str, str, int]],
    of_copy: list[tuple[str, str, int]],
    of_original: list[tuple[str, str, int]],
    of_second: list[tuple[str, str, int]],
    policy: FragmentationPolicy,
    ask: Ask,
) -> None:
    ledger = make_ledger(a=2, b=4)
    priced(ledger, policy=policy)
    for step in before:
        change(ledger, step)
    copy = ledger.copy()
    for step in of_copy:
        change(copy, step)
    # The term of the copy is made only now, when its original has changed too.
    for step in of_original:
        change(ledger, step)
    second = copy.copy()
    for step in of_second:
        change(second, step)
    for each in (second, copy):
        term = term_of(each)
        assert isinstance(term, PricedTerm)
        term.follow()
        mirror = CapacityMirror(each)
        mirror.follow()
        fresh = PricedTerm(
            each,
            mirror=mirror,
            pricing=term._pricing,
            mix=term._mix,
            appraisal=term._pricing.appraise(mirror.columns, mix=term._mix),
        )
        judged = Judgement(each, ask=ask, nodes=NODES, key="")
        assert term.columns.idle_milli == mirror.columns.idle_milli
        np.testing.assert_allclose(term.alone(judged, key=""), fresh.alone(judged, key=""), atol=2e-5)


@settings(max_examples=60, deadline=None)
@given(steps("place", "release", "drop"), st.sampled_from(["1", "2", "0.5", "0.3", "8G,0.25", "4"]), st.integers(1, 6))
def test_a_priced_plan_never_promises_more_than_the_ledger_has(
    before: list[tuple[str, str, int]], text: str, workers: int
) -> None:
    ledger = make_ledger(a=4, b=8, c=2)
    priced(ledger)
    for step in before:
        change(ledger, step)
    plan, content = ledger.copy(), ledger.content()
    found = place(plan, ask=make_ask(text, cpu_milli=1000), workers=workers, key="job")
    assert plan.content() == content
    for claim in [] if isinstance(found, Shortage) else found:
        assert isinstance(check(ledger, ask=make_ask(text, cpu_milli=1000), node=claim.node, key=claim.key), Fit)
        ledger.commit(claim)
        columns = ledger.columns([claim.node])
        assert columns.share_left.min() >= 0
        assert columns.cpu_free.min() >= 0
        assert (columns.promised <= columns.total).all()


@settings(max_examples=40, deadline=None)
@given(
    STEPS,
    st.lists(st.tuples(st.sampled_from(["1", "2", "0.5", "0.3"]), st.integers(1, 4)), min_size=1, max_size=6),
    st.sampled_from(["Pack", "Balanced", "Spread"]),
    st.sampled_from(["ph", "fgd", "bestfit"]),
)
def test_a_plan_has_the_nodes_and_devices_that_the_extender_chooses_one_worker_after_the_other(
    before: list[tuple[str, str, int]], jobs: list[tuple[str, int]], policy: str, term: FragmentationPolicy
) -> None:
    ledger = make_ledger(a=4, b=8, c=2, d=8)
    for step in before:
        change(ledger, step)
    asked = ledger.copy()
    priced(ledger, policy=term)
    extender = FitCache(asked, term=fragments_on(asked, *MIX, policy=term))
    plan = ledger.copy()
    for number, (text, workers) in enumerate(jobs):
        ask = make_ask(text, policy=policy, cpu_milli=1000)  # type: ignore[arg-type]
        found = place(plan, ask=ask, workers=workers, key=f"job-{number}")
        if isinstance(found, Shortage):
            continue
        assert found == chosen(extender, ledger=asked, ask=ask, workers=workers, key=f"job-{number}")
        plan.commit_all(found)


def chosen(extender: FitCache, *, ledger: Ledger, ask: Ask, workers: int, key: str) -> list[Claim]:
    """What filter, prioritize and bind choose for these pods, one after the other."""
    claims = []
    for worker in range(workers):
        own = f"{key}/{worker}"
        nodes = extender.best(ask, nodes=ledger.nodes(), key=own, limit=64)
        scores = extender.scores(ask, nodes=nodes, key=own)
        found = extender.check(ask, node=nodes[scores.index(max(scores))], key=own)
        assert isinstance(found, Fit)
        ledger.commit(found.claim)
        claims.append(found.claim)
    return claims


def test_a_plan_leaves_the_room_that_the_mix_needs() -> None:
    """Best fit takes the fuller node and breaks its pair; jobs of two GPUs lose nothing on the other one."""
    ledger = make_ledger(a=4, b=4)
    hold_devices(ledger, "a", 0)
    hold_devices(ledger, "b", 0, 1)
    ask = make_ask("1", policy="Pack")
    by_best_fit = place(ledger, ask=ask, workers=1, key="job")
    priced(ledger, mix=["2"] * 20)
    by_price = place(ledger.copy(), ask=ask, workers=1, key="job")
    assert isinstance(by_best_fit, list)
    assert isinstance(by_price, list)
    assert [by_best_fit[0].node, by_price[0].node] == ["b", "a"]


def test_a_ledger_without_prices_is_planned_by_best_fit() -> None:
    ledger = make_ledger(a=1)
    assert isinstance(term_of(ledger), BestFit)
    assert isinstance(term_of(ledger.copy()), BestFit)


def test_best_fit_by_configuration_needs_no_mirror() -> None:
    ledger = make_ledger(a=1)
    priced(ledger, policy="bestfit")
    assert isinstance(term_of(ledger), BestFit)
    assert isinstance(term_of(ledger.copy().copy()), BestFit)


def test_a_copy_that_is_dropped_is_gone_at_once() -> None:
    ledger = make_ledger(a=4)
    priced(ledger)
    copy = ledger.copy()
    gone = ref(copy)
    FitCache(copy).best(make_ask("1"), nodes=["a"], key="")
    del copy
    assert gone() is None


def test_nothing_is_priced_before_a_node_fits() -> None:
    ledger = make_ledger(**{f"n{number}": 0 for number in range(100)})
    term, fit_cache, names = priced(ledger), FitCache(ledger), ledger.nodes()
    add_node(ledger, "n3", gpus=1)
    hold_devices(ledger, "n3", 0, key="pod")
    assert fit_cache.best(make_ask("1"), nodes=names, key="", limit=1) == []
    assert not term._mirror.has_seen("n3")
    # Now a node has a term, and those after it have none.
    ledger.release("pod")
    assert fit_cache.best(make_ask("1"), nodes=names, key="", limit=1) == ["n3"]
    assert term._mirror.has_seen("n3")
    fresh = FitCache(ledger).scores(make_ask("1"), nodes=["n3"], key="")
    assert fit_cache.scores(make_ask("1"), nodes=["n3"], key="") == fresh


def test_a_copy_keeps_the_mix_of_when_its_term_was_made() -> None:
    ledger = make_ledger(a=4, b=4)
    term = priced(ledger)
    copy = ledger.copy()
    of_copy = term_of(copy)
    assert isinstance(of_copy, PricedTerm)
    before = of_copy.appraisal
    for number in range(200):
        term.arrived(make_ask("4"), key=f"later-{number}")
        while term.work():
            pass
        term.follow()
    of_copy.follow()
    assert term.generation > of_copy.generation
    assert of_copy.appraisal is before

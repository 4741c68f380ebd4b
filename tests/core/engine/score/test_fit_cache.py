"""What is kept answers as a judgement from scratch would, whatever happened in between."""

from dataclasses import replace
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import given, settings

from dovetail.engine.filter.fit import Fit, check, screen
from dovetail.engine.ledger import node_table
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import MAX_ASKS, FitCache
from dovetail.engine.score.score import rank
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_ledger

NODES = ["a", "b", "c", "d"]
ASKS = [
    make_ask("1"),
    make_ask("2", policy="Pack"),
    make_ask("0.5", policy="Spread"),
    make_ask("8G,0.25"),
    make_ask("1(T4)"),
    replace(make_ask("1"), warm=("b", "gone")),
]
Step = tuple[str, str, int, str, list[str]]


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    one = st.tuples(
        st.sampled_from(["place", "release", "node", "drop", "ask"]),
        st.sampled_from(NODES),
        st.integers(0, 4),
        st.sampled_from(["1", "2", "0.5", "8G,0.25"]),
        # The nodes that are asked about.
        st.one_of(st.just(NODES), st.lists(st.sampled_from(NODES), min_size=3, max_size=3, unique=True)),
    )
    return draw(st.lists(one, min_size=1, max_size=25))


def apply(ledger: Ledger, step: Step) -> None:
    what, node, number, text, _ = step
    match what:
        case "place":
            found = check(ledger, ask=make_ask(text), node=node, key=f"pod-{number}")
            if isinstance(found, Fit):
                ledger.commit(found.claim)
        case "release":
            ledger.release(f"pod-{number}")
        case "node":
            add_node(ledger, node, gpus=number, model="T4" if number % 2 else "V100")
        case "drop":
            ledger.drop_node(node)


# Answers about few nodes keep no rows: here, two are many.
@patch.object(node_table, "MANY_NODES", 2)
@settings(max_examples=80, deadline=None)
@given(steps())
def test_what_is_kept_equals_a_judgement_from_scratch(happened: list[Step]) -> None:
    ledger = make_ledger(a=2, b=4)
    fit_cache = FitCache(ledger)
    for step in happened:
        apply(ledger, step)
        ask, key, nodes = ASKS[step[2]], f"pod-{step[2]}", step[4]
        expected = screen(ledger, ask=ask, nodes=nodes, key=key)
        assert fit_cache.best(ask, nodes=nodes, key=key) == expected.fits
        assert fit_cache.scores(ask, nodes=expected.fits, key=key) == rank(
            ledger, ask=ask, nodes=expected.fits, key=key
        )
        refusals = fit_cache.refusals(ask, nodes=nodes, key=key)
        assert {name: (refusal.kind, refusal.text) for name, refusal in refusals.items()} == {
            name: (refusal.kind, refusal.text) for name, refusal in expected.refusals.items()
        }


def test_a_limit_gives_the_best_nodes_first() -> None:
    ledger = make_ledger(a=8, b=4, c=2)
    best = FitCache(ledger).best(make_ask("2", policy="Pack"), nodes=["a", "b", "c"], key="", limit=2)
    assert best == ["c", "b"]


def test_of_equal_nodes_the_first_of_the_ledger_come_first_whatever_the_order_of_the_question_is() -> None:
    fit_cache = FitCache(make_ledger(a=4, b=4, c=2, d=4))
    for nodes in (["a", "b", "c", "d"], ["d", "c", "b", "a"], ["b", "d", "a", "c"]):
        assert fit_cache.best(make_ask("1", policy="Pack"), nodes=nodes, key="", limit=4) == ["c", "a", "b", "d"]


def test_nodes_that_score_too_far_below_the_best_are_left_out() -> None:
    ledger, nodes = make_ledger(a=8, b=4, c=2, d=2), ["a", "b", "c", "d"]

    def near(within: float) -> list[str]:
        return FitCache(ledger).best(make_ask("2", policy="Pack"), nodes=nodes, key="", limit=3, within=within)

    assert near(0.0) == ["c", "d"], "equals of the best stay"
    assert near(0.5) == ["c", "d", "b"]
    assert near(1.0) == ["c", "d", "b"], "and the limit counts too"


def test_nodes_that_were_never_seen_do_not_fit() -> None:
    assert FitCache(Ledger()).best(make_ask("1"), nodes=["a"], key="") == []


def test_a_node_that_comes_later_is_found() -> None:
    ledger = make_ledger(a=1)
    fit_cache = FitCache(ledger)
    hold_devices(ledger, "a", 0)
    assert fit_cache.best(make_ask("1"), nodes=["a"], key="") == []
    for number in range(100):
        add_node(ledger, f"n{number}", gpus=1)
    assert fit_cache.best(make_ask("1"), nodes=["a", "n99"], key="") == ["n99"]


def test_a_node_that_gets_room_is_found_among_many_without() -> None:
    ledger = make_ledger(**{f"n{number}": 0 for number in range(100)})
    fit_cache, names = FitCache(ledger), ledger.nodes()
    assert fit_cache.best(make_ask("1"), nodes=names, key="", limit=1) == []
    add_node(ledger, "n3", gpus=1)
    assert fit_cache.best(make_ask("1"), nodes=[*names, "new"], key="", limit=1) == ["n3"]


def test_a_reader_behind_the_log_reads_all_rows() -> None:
    ledger = make_ledger(Ledger(log_length=3), a=1, b=1)
    fit_cache = FitCache(ledger)
    assert fit_cache.best(make_ask("1"), nodes=["a", "b"], key="") == ["a", "b"]
    hold_devices(ledger, "a", 0)
    for _ in range(5):
        hold_devices(ledger, "b", 0)
        ledger.release(ledger.claims_on("b")[0].key)
    assert fit_cache.best(make_ask("1"), nodes=["a", "b"], key="") == ["b"]


def test_a_copied_ledger_is_read_from_the_beginning() -> None:
    copy = make_ledger(a=1, b=1).copy()
    assert FitCache(copy).best(make_ask("1"), nodes=["a", "b"], key="") == ["a", "b"]


def test_more_shapes_than_are_kept_still_get_right_answers() -> None:
    ledger = make_ledger(a=1, b=1)
    fit_cache = FitCache(ledger)
    for share in range(1, MAX_ASKS + 10):
        assert fit_cache.best(make_ask(f"0.{share:03d}"), nodes=["a", "b"], key="") == ["a", "b"]
    hold_devices(ledger, "a", 0)
    assert fit_cache.best(make_ask("0.001"), nodes=["a", "b"], key="") == ["b"]


def test_asks_that_take_too_much_memory_are_evicted() -> None:
    ledger = make_ledger(a=1, b=1)
    fit_cache = FitCache(ledger, max_bytes=1)
    for text in ("1", "0.5", "1"):
        assert fit_cache.best(make_ask(text), nodes=["a", "b"], key="") == ["a", "b"]
        assert len(fit_cache._cached) == 1


def test_many_nodes_are_looked_up_anew_when_others_are_asked_about() -> None:
    ledger = make_ledger(**{f"n{number}": 1 for number in range(300)})
    fit_cache, names = FitCache(ledger), [f"n{number}" for number in range(300)]
    assert fit_cache.best(make_ask("1"), nodes=[*names, "new"], key="") == names
    add_node(ledger, "new", gpus=1)
    assert fit_cache.best(make_ask("1"), nodes=[*names, "new"], key="") == [*names, "new"]
    assert fit_cache.best(make_ask("1"), nodes=names[::-1], key="") == names[::-1]
    copy = ledger.copy()
    add_node(copy, "newer", gpus=1)
    for each, found in ((copy, [*names, "newer"]), (ledger, names)):
        assert FitCache(each).best(make_ask("1"), nodes=[*names, "newer"], key="") == found


def test_the_best_few_are_those_of_a_stable_sort() -> None:
    ledger = make_ledger(**{f"n{number}": 1 + number % 4 for number in range(40)})
    names = ledger.nodes()
    ask = make_ask("1", policy="Pack")
    scores = dict(zip(names, rank(ledger, ask=ask, nodes=names, key=""), strict=True))
    expected = sorted(names, key=lambda name: -scores[name])
    assert FitCache(ledger).best(ask, nodes=names, key="", limit=15) == expected[:15]


def test_the_ask_that_was_not_used_for_longest_is_evicted() -> None:
    fit_cache = FitCache(make_ledger(a=1))
    asks = [make_ask(f"0.{share:03d}") for share in range(1, MAX_ASKS + 2)]
    for ask in [*asks[:-1], asks[0], asks[-1]]:
        fit_cache.best(ask, nodes=["a"], key="")
    assert set(fit_cache._cached) == {*asks} - {asks[1]}

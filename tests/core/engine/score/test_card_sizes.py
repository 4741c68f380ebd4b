"""Large requests prefer large cards, and only among nodes of equal scores."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.score.fit_cache import FitCache
from tests.core.engine.builders import add_node, hold_devices, make_ask
from tests.core.engine.score.test_ledger_prices import priced

MODELS = ["T4", "V100", "A100"]


def cluster(*nodes: tuple[str, int, int]) -> Ledger:
    """Nodes as (model, devices, devices in use), in this order."""
    ledger = Ledger()
    for number, (model, gpus, used) in enumerate(nodes):
        name = f"n{number}"
        add_node(ledger, name, gpus=gpus, model=model)
        if used:
            hold_devices(ledger, name, *range(min(used, gpus)))
    return ledger


def first(ledger: Ledger, text: str, *, limit: int = 1) -> list[str]:
    return FitCache(ledger).best(make_ask(text, policy="Pack"), nodes=ledger.nodes(), key="", limit=limit)


@pytest.mark.parametrize("text", ["2", "4"])
def test_a_large_request_gets_the_largest_card_among_equals(text: str) -> None:
    ledger = cluster(("T4", 4, 0), ("V100", 4, 0), ("A100", 4, 0))
    assert first(ledger, text) == ["n2"]
    assert first(ledger, text, limit=2) == ["n2", "n1"]
    assert first(ledger, text, limit=3) == ["n2", "n1", "n0"]


@pytest.mark.parametrize("text", ["1", "0.5", "2x8G,0.5"])
def test_small_requests_keep_the_order_of_the_nodes(text: str) -> None:
    assert first(cluster(("T4", 4, 0), ("A100", 4, 0)), text) == ["n0"]


def test_a_better_place_counts_more_than_a_larger_card() -> None:
    assert first(cluster(("A100", 8, 0), ("T4", 2, 0)), "2") == ["n1"]


NODES = st.lists(st.tuples(st.sampled_from(MODELS), st.integers(1, 8), st.integers(0, 8)), min_size=1, max_size=6)


@settings(max_examples=80, deadline=None)
@given(
    nodes=NODES,
    text=st.sampled_from(["1", "2", "4", "0.5", "8"]),
    policy=st.sampled_from(["Spread", "Pack", "Balanced"]),
    prices=st.sampled_from([None, "ph", "fgd", "bestfit"]),
    limit=st.integers(1, 6),
)
def test_the_card_never_changes_a_choice_where_scores_differ(
    nodes: list[tuple[str, int, int]],
    text: str,
    policy: str,
    prices: FragmentationPolicy | None,
    limit: int,
) -> None:
    ledger = cluster(*nodes)
    term = None if prices is None else priced(ledger, policy=prices)
    cache, ask = FitCache(ledger, term=term), make_ask(text, policy=policy)  # type: ignore[arg-type]
    fitting = cache.best(ask, nodes=ledger.nodes(), key="")
    scores = dict(zip(fitting, cache.scores(ask, nodes=fitting, key=""), strict=True))
    chosen = cache.best(ask, nodes=ledger.nodes(), key="", limit=limit)
    assert [scores[name] for name in chosen] == sorted(scores.values(), reverse=True)[:limit]
    size = {f"n{number}": MODELS.index(model) for number, (model, _, _) in enumerate(nodes)}
    if text in {"2", "4", "8"} and chosen:
        equals = [name for name in fitting if scores[name] == scores[chosen[0]]]
        assert size[chosen[0]] == max(size[name] for name in equals)

"""The score of a node, term by term: 0.4 utilization + 0.3 memory + 0.2 CPU + 0.1 fragmentation."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from dovetail.api.gpujob import Policy
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.settings import DEFAULT_WEIGHTS, Weights
from dovetail.engine.score.fragmentation_term import compactness
from dovetail.engine.score.priced_rows import shape_of
from dovetail.engine.score.score import rank, scaled
from dovetail.fragmentation.pod_shapes import Shape
from dovetail.gpu.request import parse
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device, make_ledger


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A node of two V100 and 64 CPUs, and its score: alone it has the best fragmentation term, which counts 0.1."""

    says: str
    policy: Policy
    score: float
    cpu_used_milli: int = 0
    memory_promised_mib: int = 0
    foreign_mib: int = 0
    share_milli: int = 0
    utilization: float = 0.0
    cpu_load: float = 0.0
    weights: Weights = DEFAULT_WEIGHTS


CASES = (
    Scored(says="Balanced: an idle node is as good as any", policy="Balanced", score=1.0),
    Scored(says="Balanced: requested CPU is expected", policy="Balanced", cpu_used_milli=32000, score=1.0),
    Scored(
        says="Balanced: CPU that was requested may be busy",
        policy="Balanced", cpu_used_milli=32000, cpu_load=0.5, score=1.0,
    ),
    Scored(
        says="Balanced: busy CPU beyond what was requested is worse",
        policy="Balanced", cpu_used_milli=32000, cpu_load=0.75, score=1.0 - 0.2 * 0.25,
    ),
    Scored(
        says="Balanced: promised memory is expected",
        policy="Balanced", share_milli=100, memory_promised_mib=16384, score=1.0,
    ),
    Scored(
        says="Balanced: memory of strangers is worse",
        policy="Balanced", foreign_mib=16384, score=1.0 - 0.3 * 0.25,
    ),
    Scored(
        says="Balanced: load without a promise is worse",
        policy="Balanced", utilization=0.5, score=1.0 - 0.4 * 0.25,
    ),
    Scored(
        says="Balanced: load up to the promise is expected",
        policy="Balanced", share_milli=500, utilization=0.5, score=1.0,
    ),
    Scored(
        says="Balanced: load beyond the promise is worse",
        policy="Balanced", share_milli=500, utilization=0.8, score=1.0 - 0.4 * 0.15,
    ),
    Scored(says="Balanced: an idle promise is no load", policy="Balanced", share_milli=500, score=1.0),
    Scored(says="Spread: an idle node is the best there is", policy="Spread", score=1.0),
    Scored(says="Spread: used CPU is worse", policy="Spread", cpu_used_milli=32000, score=1.0 - 0.1),
    Scored(says="Spread: busy CPU that nobody requested is worse", policy="Spread", cpu_load=0.5, score=1.0 - 0.1),
    Scored(
        says="Spread: of requested and busy CPU the higher counts",
        policy="Spread", cpu_used_milli=16000, cpu_load=0.5, score=1.0 - 0.1,
    ),
    Scored(says="Spread: promised memory is worse", policy="Spread", share_milli=1, memory_promised_mib=16384,
           score=1.0 - 0.3 * 0.25 - 0.4 * 0.0005),
    Scored(says="Spread: a promise counts as load at once", policy="Spread", share_milli=500, score=1.0 - 0.4 * 0.25),
    Scored(
        says="Spread: of a promise and a measured load the higher counts",
        policy="Spread", share_milli=500, utilization=0.8, score=1.0 - 0.4 * 0.4,
    ),
    Scored(says="Pack: fragmentation alone", policy="Pack", cpu_used_milli=32000, utilization=0.5, score=1.0),
    Scored(
        says="weights need not sum to one",
        policy="Balanced", weights=Weights(utilization=4, memory=3, cpu=2, fragmentation=1), utilization=0.5, score=0.9,
    ),
    Scored(
        says="one weight alone",
        policy="Spread", weights=Weights(utilization=0, memory=0, cpu=3, fragmentation=0), cpu_used_milli=16000,
        score=0.75,
    ),
    Scored(
        says="no weight at all",
        policy="Balanced", weights=Weights(utilization=0, memory=0, cpu=0, fragmentation=0), score=0.0,
    ),
)  # fmt: skip


def node_of(case: Scored) -> Ledger:
    """The load and the strangers are those of its first device."""
    ledger = Ledger()
    add_node(ledger, "a", gpus=2)
    first = make_device("a", 0, foreign_mib=case.foreign_mib, utilization=case.utilization)
    ledger.set_devices("a", devices=[first, make_device("a", 1)], cpu_load=case.cpu_load)
    ledger.commit(Claim(key="host", node="a", cpu_milli=case.cpu_used_milli))
    if case.share_milli:
        hold_devices(
            ledger, "a", 0, share_milli=case.share_milli, memory_mib=case.memory_promised_mib, mode="Fractional"
        )
    return ledger


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_the_score_of_a_node(case: Scored) -> None:
    ask = replace(make_ask("0.1", policy=case.policy), weights=case.weights)
    (score,) = rank(node_of(case), ask=ask, nodes=["a"], key="p")
    assert score == pytest.approx(case.score)


def test_a_pod_without_gpus_is_scored_by_cpu_and_what_is_left_over() -> None:
    ledger = make_ledger(a=1)
    ledger.commit(Claim(key="host", node="a", cpu_milli=16000))
    scores = {
        policy: rank(ledger, ask=Ask(gpu=None, policy=policy), nodes=["a"], key="p")[0]
        for policy in ("Balanced", "Spread")
    }  # fmt: skip
    assert scores == pytest.approx({"Balanced": 0.2 + 0.1, "Spread": 0.2 * 0.75 + 0.1})


def test_a_node_whose_cpu_is_not_known_counts_as_unused() -> None:
    ledger = Ledger()
    add_node(ledger, "a", gpus=1, cpu_milli=0)
    ledger.commit(Claim(key="host", node="a", cpu_milli=500))
    assert rank(ledger, ask=make_ask("1", policy="Spread"), nodes=["a"], key="p") == pytest.approx([1.0])


def test_the_fragmentation_term_is_scaled_from_the_worst_to_the_best() -> None:
    assert scaled(np.array([2.0, 4.0, 3.0])).tolist() == [0.0, 1.0, 0.5]
    assert scaled(np.array([3.0, 3.0])).tolist() == [1.0, 1.0]
    assert scaled(np.array([])).tolist() == []


# --- best fit as the fragmentation term ------------------------------------------------------------------------------


def tidy(ledger: Ledger, ask: Ask, *nodes: str) -> list[float]:
    return list(compactness(Judgement(ledger, ask=ask, nodes=nodes, key="p")).tolist())


def bare(ledger: Ledger, name: str, *, gpus: int, cpu_milli: int = 0) -> None:
    add_node(ledger, name, gpus=gpus, cpu_milli=cpu_milli)


def test_a_node_that_is_filled_to_the_last_is_as_tidy_as_can_be() -> None:
    ledger = Ledger()
    bare(ledger, "a", gpus=1, cpu_milli=1000)
    assert tidy(ledger, make_ask("1", cpu_milli=1000), "a") == [1.0]
    assert tidy(ledger, Ask(gpu=None, cpu_milli=1000), "a")[0] < 1.0, "a device is left over"


def test_of_whole_devices_the_free_ones_that_remain_count() -> None:
    """Beside one worker each: none, one and three free devices, of a table that is eight devices wide."""
    ledger = Ledger()
    for name, gpus in (("a", 1), ("b", 2), ("d", 4)):
        bare(ledger, name, gpus=gpus)
    left_over = [0.0, 0.07, 0.19]
    pieces = [0.0, 1 / 8, 3 / 8]
    expected = [1 - (left + piece) / 2 for left, piece in zip(left_over, pieces, strict=True)]
    assert tidy(ledger, make_ask("1"), "a", "b", "d") == pytest.approx(expected)


def test_a_share_goes_to_a_started_device_rather_than_break_a_whole_one() -> None:
    ledger = Ledger()
    for name in "ab":
        bare(ledger, name, gpus=2)
    hold_devices(ledger, "a", 0, 1, share_milli=500, mode="Fractional")
    hold_devices(ledger, "b", 0)
    started, broken = tidy(ledger, make_ask("0.3"), "a", "b")
    assert started == pytest.approx(1 - (0.05 + 0.1) / 2)
    assert broken == pytest.approx(1 - (0.05 + 0.5 + 1 / 16) / 2)


# --- classes of pods -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "memory_mib", "gpus", "share_milli"),
    [
        (make_ask("2"), 32768, 2, 1000),
        (make_ask("0.25"), 32768, 1, 250),
        (make_ask("8G,0.1"), 32768, 1, 250),
        (make_ask("8G,0.5"), 32768, 1, 500),
        (make_ask("64G,0.1"), 32768, 1, 1000),
        (make_ask("8G,0.1"), 0, 1, 100),
        (make_ask("0.25", mode="TimeShared"), 32768, 1, 1000),
        (replace(make_ask("2x0.5"), more=(parse("3x0.5"),)), 32768, 5, 500),
        (Ask(gpu=None), 32768, 0, 0),
    ],
    ids=[
        "whole devices", "a share", "memory that is more than the share", "a share that is more than the memory",
        "more memory than a device has", "no device is known", "turns take a whole device", "several containers",
        "no device",
    ],
)  # fmt: skip
def test_the_class_of_pods_that_an_ask_belongs_to(ask: Ask, memory_mib: int, gpus: int, share_milli: int) -> None:
    asked = replace(ask, cpu_milli=3, memory_mib=5)
    found = shape_of(asked, memory_mib=memory_mib)
    assert found == Shape(cpu_milli=3, memory_mib=5, gpus=gpus, share_milli=share_milli, models=found.models)

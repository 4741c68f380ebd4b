"""One node judged in plain numbers: the same answer, and the same scores, as many nodes judged at once."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from dovetail.engine.filter import single_node
from dovetail.engine.filter.fit import Fit, Judgement, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.columns import Columns
from dovetail.engine.model.inventory import NodeFacts
from dovetail.engine.model.node_row import NodeRow
from dovetail.engine.score.fit_cache import card_gb, card_gb_of_node
from dovetail.engine.score.fragmentation_term import compactness, compactness_of_node
from dovetail.engine.score.score import terms, terms_of_node
from tests.core.engine.builders import hold_devices, make_ask, make_device, make_ledger, node_causes

TEXTS = (
    "1",
    "2",
    "0.5",
    "8G,0.25",
    "2x4G,0.1",
    "1G,0.6",
    "1(T4)",
    "0.5(nvidia,V100)",
    "2(>=32G)",
    "1(!T4,!V100)",
    "50%,0.25",
    "2x30%,1",
    "0.5@cuda:1",
    "0.5@a/cuda:0",
)
MODELS = ("V100", "T4", "A100")


@st.composite
def devices(draw: st.DrawFn, *, node: str) -> list[Any]:
    return [
        make_device(
            node,
            index,
            model=draw(st.sampled_from(MODELS)),
            healthy=draw(st.integers(0, 9)) > 0,
            cordoned=draw(st.integers(0, 9)) == 0,
            foreign_mib=draw(st.sampled_from([0, 0, 0, 700, 3000])),
            utilization=draw(st.sampled_from([0.0, 0.1, 0.7])),
            training_limit=draw(st.sampled_from([None, 1, 1])),
            inference_limit=draw(st.sampled_from([None, 2])),
            numa_node=draw(st.sampled_from([None, 0, 1])),
        )
        for index in range(draw(st.sampled_from([0, 1, 1, 2, 3, 5])))
    ]


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    text = draw(st.sampled_from(TEXTS))
    ask = make_ask(
        text,
        mode=draw(st.sampled_from(["Exclusive", "Fractional", "TimeShared"])),
        policy=draw(st.sampled_from(["Balanced", "Pack", "Spread"])),
        cpu_milli=draw(st.sampled_from([0, 1000, 30_000])),
        guard=draw(st.sampled_from([None, "Aggressive"])),
        workload=draw(st.sampled_from([None, "Training", "Inference"])),
    )
    return replace(ask, gpu=None) if draw(st.integers(0, 9)) == 0 else ask


@st.composite
def questions(draw: st.DrawFn) -> tuple[Ledger, Ask]:
    """Nodes of any devices, some of them closed, and an ask.

    The claims were promised one after the other; half of them are of the same ask, which fills what it shares.
    """
    ledger, ask = Ledger(), draw(asks())
    for name in "ab":
        obstacle = draw(st.sampled_from(["", "", "", "", "not ready"]))
        managed, cordoned = draw(st.integers(0, 9)) > 0, draw(st.integers(0, 9)) == 0
        ledger.set_node(
            NodeFacts(name=name, cpu_milli=64_000, memory_mib=262_144, managed=managed,
                      unavailable=node_causes({"obstacle": obstacle, "cordoned": cordoned}),
                      pods=draw(st.sampled_from([3, 110])))
        )  # fmt: skip
        load, note = draw(st.sampled_from([0.0, 0.9])), draw(st.sampled_from(["", "", "", "too old"]))
        ledger.set_devices(name, devices=draw(devices(node=name)), cpu_load=load, note=note)
    for number, one in enumerate(draw(st.lists(st.one_of(st.just(ask), asks()), max_size=8))):
        found = check(ledger, ask=one, node=draw(st.sampled_from("ab")), key=f"pod-{number}")
        if isinstance(found, Fit):
            ledger.commit(found.claim, hold_until=draw(st.sampled_from([None, 10.0])))
    return ledger, ask


@settings(max_examples=300, deadline=None)
@given(questions(), st.sampled_from("ab"), st.sampled_from(["", "pod-0", "pod-1"]))
def test_a_node_alone_is_judged_as_among_many(question: tuple[Ledger, Ask], node: str, key: str) -> None:
    ledger, ask = question
    alone = single_node.judge(ledger, ask=ask, node=node, key=key)
    judged = Judgement(ledger, ask=ask, nodes=[node], key=key)
    assert alone.fits == judged.fits[0]
    assert alone.guard_fraction == judged.guard_fraction
    assert (*terms_of_node(alone), compactness_of_node(alone)) == tuple(
        part[0] for part in _parts(terms(judged, fragmentation=compactness(judged)))
    )
    assert card_gb_of_node(alone) == card_gb(judged)[0]
    if ask.gpu is not None:
        devices = judged.free_of(0)
        assert alone.slots == devices.slots
        for slot in alone.slots:
            assert alone.allowed_mib[slot] == devices.allowed_mib[slot]
            assert alone.free_mib[slot] == devices.free_mib[slot]


@settings(max_examples=150, deadline=None)
@given(questions(), st.sampled_from("ab"), st.sampled_from(["", "pod-0", "pod-1"]))
def test_a_claim_does_not_depend_on_how_the_node_is_judged(question: tuple[Ledger, Ask], node: str, key: str) -> None:
    ledger, ask = question
    found = check(ledger, ask=ask, node=node, key=key)
    with patch.object(single_node, "covers", return_value=False):
        assert check(ledger, ask=ask, node=node, key=key) == found


@pytest.mark.parametrize(
    ("ask", "held", "tenants"),
    [
        (make_ask("1G,0.6"), {"share_milli": 500, "mode": "Fractional"}, 1),
        (make_ask("0.1", mode="TimeShared"), {"share_milli": 100, "mode": "TimeShared"}, 4),
        (make_ask("20G,0.1"), {"share_milli": 100, "memory_mib": 9000, "mode": "Fractional"}, 1),
        (make_ask("0.1"), {"share_milli": 100, "mode": "TimeShared"}, 1),
        (make_ask("1"), {"share_milli": 100, "mode": "Fractional"}, 1),
    ],
    ids=[
        "its share is short",
        "it has no turn left",
        "its memory is short",
        "it is in another mode",
        "it is not empty",
    ],
)
def test_a_device_is_not_free_when(ask: Ask, held: dict[str, Any], tenants: int) -> None:
    ledger = make_ledger(a=1)
    assert single_node.judge(ledger, ask=ask, node="a").slots == [0]
    for tenant in range(tenants):
        hold_devices(ledger, "a", 0, key=f"tenant-{tenant}", **held)
    assert single_node.judge(ledger, ask=ask, node="a").slots == []
    assert not Judgement(ledger, ask=ask, nodes=["a"], key="").fits[0]


def test_asks_with_rules_of_their_own_are_judged_among_many() -> None:
    gpu = make_ask("0.5").gpu
    assert gpu is not None
    movable = Ask(gpu=gpu, mode="TimeShared", host_room_mib=65_536)
    for ask in (Ask(gpu=gpu, more=(gpu,)), Ask(gpu=gpu, resource="nvidia.com/gpu"), movable):
        assert not single_node.covers(ask)
    assert single_node.covers(make_ask("0.5", mode="TimeShared"))


def test_a_row_has_the_columns_names_and_values() -> None:
    ledger = Ledger()
    ledger.set_node(NodeFacts(name="a", cpu_milli=64_000, memory_mib=262_144))
    ledger.set_devices("a", devices=[make_device("a", 0, utilization=0.25), make_device("a", 1)], cpu_load=0.5)
    ledger.commit(Claim(key="pod", node="a", cpu_milli=500))
    columns, row = ledger.columns(["a"]), ledger.node_row("a")
    assert set(NodeRow.__slots__) == set(Columns.__slots__)
    for name in NodeRow.__slots__:
        assert getattr(row, name) == getattr(columns, name)[0].tolist(), name


def _parts(found: Any) -> tuple[np.typing.NDArray[np.float64], ...]:
    return found.utilization, found.memory, found.cpu, found.stake, found.fragmentation

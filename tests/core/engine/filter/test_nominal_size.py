"""Requests for a nominal size: which devices meet it, and what a refusal says."""

import pytest

from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.refusals import Refusal
from dovetail.engine.model.settings import Limits
from tests.core.engine.builders import add_node, make_ask, make_device


def cluster(*, limits: Limits | None = None, **cards: tuple[str, int]) -> Ledger:
    """One node a name, with two devices of a model and its measured MiB."""
    ledger = Ledger(limits=limits)
    for name, (model, mib) in cards.items():
        add_node(ledger, name, gpus=0)
        devices = [make_device(name, index, model=model, memory_mib=mib) for index in range(2)]
        ledger.set_devices(name, devices=devices)
    return ledger


SIZES = {"t4": ("T4", 15360), "v100": ("V100", 32510), "a100": ("A100", 81251)}


def fitting(ledger: Ledger, *, text: str) -> list[str]:
    return [name for name in SIZES if isinstance(check(ledger, ask=make_ask(text), node=name, key="x"), Fit)]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("1(>=16G)", ["t4", "v100", "a100"]),
        ("1(>=17G)", ["v100", "a100"]),
        ("2(>=80G)", ["a100"]),
        ("1(>=81G)", []),
        ("1(T4|A100,>=16G)", ["t4", "a100"]),
        ("1(T4|V100,>=32G)", ["v100"]),
        ("0.5(>=32G)", ["v100", "a100"]),
        ("2x32G,1", ["a100"]),
        ("1(A100M80)", ["a100"]),
        ("1(amd,>=16G)", []),
    ],
)
def test_a_device_meets_a_size_by_what_it_is_sold_as(text: str, nodes: list[str]) -> None:
    assert fitting(cluster(**SIZES), text=text) == nodes


def test_a_configured_size_counts_for_a_model_that_the_table_does_not_have() -> None:
    other = {**SIZES, "t4": ("T4", 15360), "v100": ("V100", 20000)}
    assert fitting(cluster(**other), text="1(>=24G)") == ["a100"]
    assert fitting(cluster(limits=Limits(memory_specs={"V100": 24}), **other), text="1(>=24G)") == ["v100", "a100"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1(>=32G)", "t4: no GPU of at least 32 GB (2 GPUs: 16 GB)"),
        ("1(T4,>=32G)", "t4: no GPU of model T4 of at least 32 GB (2 GPUs: 16 GB)"),
        ("3(>=16G)", "t4: Need 3 GPUs, only 2 available: fewer than 3 GPUs of at least 16 GB"),
    ],
)
def test_a_node_s_refusal_names_the_size_and_what_it_has(text: str, says: str) -> None:
    found = check(cluster(**SIZES), ask=make_ask(text), node="t4", key="x")
    assert isinstance(found, Refusal)
    assert found.message == says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1(>=81G)", "no node has a GPU of at least 81 GB, there is 16 GB, 32 GB, 80 GB"),
        ("1(T4,>=32G)", "no node has a GPU of model T4 of at least 32 GB, there is 16 GB"),
        ("1(L4,>=16G)", "no node has model L4 of at least 16 GB, there is A100, T4, V100"),
        ("4(>=80G)", "Need 4 GPUs, only 2 available on one node"),
    ],
)
def test_a_job_that_no_node_could_ever_run_is_given_the_sizes_that_exist(text: str, says: str) -> None:
    found = place(cluster(**SIZES), ask=make_ask(text), workers=1, key="x")
    assert isinstance(found, Shortage)
    assert found.reason == "ExceedsCapacity"
    assert says in found.message


def test_a_size_is_free_again_only_when_a_large_device_is() -> None:
    ledger = cluster(**SIZES)
    found = place(ledger, ask=make_ask("2(>=80G)"), workers=1, key="x")
    assert not isinstance(found, Shortage)
    ledger.commit_all(found)
    (claim,) = found
    assert isinstance(claim, Claim)
    assert claim.node == "a100"
    waiting = place(ledger, ask=make_ask("1(>=80G)"), workers=1, key="y")
    assert isinstance(waiting, Shortage)
    assert (waiting.reason, waiting.message) == ("Resources", "Need 1 GPU, only 0 available")

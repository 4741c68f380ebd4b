"""The labels by which other programs read a node's GPUs."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.api.gpunode import Device
from dovetail.api.meta import ObjectMeta
from dovetail_agent.report.node_labels import COUNT, MEMORY, PRODUCT, described, labels_patch

OURS = {names.LABEL_DESCRIBED: "true"}
WANTED = {COUNT: "8", PRODUCT: "Tesla-V100-SXM2-32GB", MEMORY: "32768"}


def device(index: int = 0, **more: Any) -> Device:
    facts: dict[str, Any] = {"vendor": "nvidia", "model": "Tesla V100-SXM2-32GB", "memory_mib": 32768, **more}
    return Device(index=index, uuid=f"GPU-{index}", **facts)


def labelled(labels: dict[str, str]) -> Node:
    return Node(metadata=ObjectMeta(name="a", labels=labels))


def test_they_say_how_many_of_which_with_how_much_memory() -> None:
    assert described([device(at) for at in range(8)]) == WANTED


def test_of_several_models_none_is_named_and_the_smallest_memory_counts() -> None:
    assert described([device(), device(1, model="A100", memory_mib=16384)]) == {COUNT: "2", MEMORY: "16384"}


@pytest.mark.parametrize("devices", [[], [device(vendor="amd")], [device(mig_profile="1g.10gb")]])
def test_a_node_without_whole_gpus_of_nvidia_has_none(devices: list[Device]) -> None:
    assert described(devices) == {}


@given(model=st.text(max_size=200))
def test_whatever_the_driver_calls_it_the_value_is_one_that_a_label_may_have(model: str) -> None:
    value = described([device(model=model)]).get(PRODUCT, "")
    assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", value)


def test_they_are_written_once() -> None:
    assert labels_patch(labelled({"zone": "a"}), wanted=WANTED) == WANTED | OURS
    assert labels_patch(labelled(WANTED | OURS), wanted=WANTED) == {}


def test_they_follow_the_devices() -> None:
    assert labels_patch(labelled(WANTED | OURS), wanted=WANTED | {COUNT: "7"}) == {COUNT: "7"}
    mixed = {COUNT: "8", MEMORY: "16384"}
    assert labels_patch(labelled(WANTED | OURS), wanted=mixed) == {MEMORY: "16384", PRODUCT: None}


def test_they_go_with_the_devices() -> None:
    assert labels_patch(labelled(WANTED | OURS), wanted={}) == dict.fromkeys([*WANTED, names.LABEL_DESCRIBED])


@pytest.mark.parametrize(
    "theirs", [WANTED, {PRODUCT: "mine"}, {**WANTED, **OURS, "nvidia.com/gfd.timestamp": "1790000000"}]
)
@pytest.mark.parametrize("wanted", [WANTED | {COUNT: "7"}, {}])
def test_those_of_another_program_or_of_people_are_left(theirs: dict[str, str], wanted: dict[str, str]) -> None:
    assert labels_patch(labelled(theirs), wanted=wanted) == {}

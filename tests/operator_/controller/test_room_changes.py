"""Which new versions of a node's report are signs of life: those that change load and times alone."""

from typing import Any

import pytest
from msgspec.structs import fields, replace

from dovetail.api.gpunode import GPUNode, GPUNodeSpec, GPUNodeStatus
from dovetail.api.meta import ObjectMeta
from dovetail_operator.controller.room_changes import is_sign_of_life
from tests.cli.builders import make_gpunode

BEFORE = replace(
    make_gpunode("a", gpus=1),
    metadata=ObjectMeta(name="a", uid="u", resource_version="1", generation=1, labels={"rack": "1"}),
)


def later(**changes: Any) -> GPUNode:
    return replace(BEFORE, metadata=replace(BEFORE.metadata, resource_version="2", generation=2), **changes)


def test_load_and_times_alone_are_a_sign_of_life() -> None:
    (device,) = BEFORE.status.devices
    status = replace(BEFORE.status, observed_at="2026-11-29T12:00:00Z", devices=[replace(device, utilization=0.9)])
    assert is_sign_of_life(later(status=status), before=BEFORE)
    assert not is_sign_of_life(BEFORE, before=None)


@pytest.mark.parametrize("name", [each.name for each in fields(GPUNodeSpec)])
def test_whatever_people_set_on_a_node_is_none(name: str) -> None:
    spec = GPUNodeSpec()
    value = getattr(spec, name)
    other = ["GPU-0"] if isinstance(value, list) else {"GPU-0": "x"} if isinstance(value, dict) else "other"
    assert not is_sign_of_life(later(spec=replace(spec, **{name: other})), before=BEFORE)


def test_another_device_or_label_is_none() -> None:
    (device,) = BEFORE.status.devices
    assert not is_sign_of_life(later(status=GPUNodeStatus(devices=[device, replace(device, index=1)])), before=BEFORE)
    meta = ObjectMeta(name="a", uid="u", resource_version="2", generation=2, labels={"rack": "2"})
    assert not is_sign_of_life(replace(BEFORE, metadata=meta), before=BEFORE)

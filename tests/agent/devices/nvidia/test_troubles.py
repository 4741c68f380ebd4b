"""Every named trouble of NVIDIA's library: the report is whole and says what it must, and no caller waits."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from dovetail.api.gpunode import GPUNodeStatus
from dovetail_agent.devices.discovery import MeasuredProvider
from dovetail_agent.devices.model import InventoryUnreadable
from dovetail_agent.devices.poller import Watch
from dovetail_agent.report import node_status
from tests.agent.builders import NOON, make_node
from tests.agent.nvml_stub import Stub
from tests.agent.nvml_stub.scenarios import TROUBLES, Trouble
from tests.agent.procfs import make_proc

NODE = make_node("gpu-1", devices=None)


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_the_report_is_whole_and_says_what_is_the_matter(
    trouble: Trouble, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    library: Stub = request.getfixturevalue("old_nvml" if trouble.old_driver else "nvml")
    library.play(trouble.scenario)
    watch: Watch = request.getfixturevalue("watch_on")(proc=make_proc(tmp_path / "host", pods={7: None}))
    provider = MeasuredProvider(watch, name="nvml", node="gpu-1")
    inventory = provider.inventory(NODE)
    sample = provider.sample(inventory, node=NODE, tenants=[], now=NOON)
    assert tuple(state.unhealthy_reason for state in sample.devices) == trouble.reasons
    status = node_status.readable(inventory, sample=sample, provider="nvml", tenants=[], previous=None, now=NOON)
    written = json.loads(json.dumps(node_status.written_status(status)))
    assert msgspec.convert(written, GPUNodeStatus) == status


def test_who_asks_while_a_call_takes_its_time_is_answered_at_once(nvml: Stub, watch_on: Callable[..., Watch]) -> None:
    nvml.play(TROUBLES["a call that takes 2 s"].scenario)
    watch = watch_on(first_look=False)
    while watch.waiting_for != "nvmlDeviceGetPowerUsage":
        assert not watch.looked.is_set(), "the call was over before it was seen"
    with pytest.raises(InventoryUnreadable, match=r"not been read yet \(nvmlDeviceGetPowerUsage has not answered\)"):
        MeasuredProvider(watch, name="nvml", node="gpu-1").inventory(NODE)

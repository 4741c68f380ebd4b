"""The tree of devices that an agent prints when it begins."""

import io
from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields

from dovetail.api.gpunode import Device, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import Sample
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.startup_tree import StartupTree
from tests.agent.builders import NOON, allocated, make_node, make_tenant

IDLE = Device(index=1, uuid="GPU-1", vendor="nvidia", model="Tesla V100", memory_mib=32768)
H100 = Device(
    index=0, uuid=allocated(0).uuid, vendor="nvidia", model="NVIDIA H100 80GB HBM3", memory_mib=81559, reserved_mib=559,
    used_mib=20250, temperature_celsius=61, power_watts=350, utilization=0.8, compute_capability="9.0",
)  # fmt: skip
STATUS = GPUNodeStatus(provider="nvml", driver_version="580.65.06", runtime_version="13.0", devices=[H100, IDLE])
SAMPLE = Sample(devices=())


async def printed(
    *nodes: str, tenants: tuple[NodeTenant, ...] = (), status: GPUNodeStatus = STATUS, times: int = 1
) -> str:
    out = io.StringIO()
    tree = StartupTree(out)
    for _ in range(times):
        for node in nodes:
            seen = Seen(node=make_node(node), now=NOON, tenants=tenants, sample=SAMPLE)
            await tree.act(seen, status=status)
    return out.getvalue()


async def test_every_device_is_told_with_what_it_is_and_does() -> None:
    training = with_fields(make_tenant(allocated(0), uid="a"), workload="Training")
    inference = with_fields(make_tenant(allocated(0), uid="b"), workload="Inference")
    silent = make_tenant(allocated(0), uid="c")
    assert (await printed("gpu-1", tenants=(training, inference, silent))).splitlines() == [
        "gpu-1 (nvml, driver 580.65.06, runtime 13.0)",
        "├── 0: NVIDIA H100 80GB HBM3, compute capability 9.0",
        "│   ├── memory 81559 MiB: used 20250 MiB (24.8%), free 60750 MiB (74.5%)",
        "│   ├── temperature 61 °C, power 350 W, utilization 80%",
        "│   └── tasks: 1 training, 1 inference, 1 that do not say",
        "└── 1: Tesla V100",
        "    ├── memory 32768 MiB: used 0 MiB (0.0%), free 32768 MiB (100.0%)",
        "    ├── temperature not reported, power not reported, utilization 0%",
        "    └── tasks: 0 training, 0 inference",
    ]


async def test_a_sick_device_says_why() -> None:
    sick = Device(
        index=0,
        uuid="GPU-0",
        vendor="nvidia",
        model="V100",
        memory_mib=1,
        health="Unhealthy",
        health_reason="GpuIsLost",
    )
    assert "0: V100, unhealthy: GpuIsLost" in await printed("gpu-1", status=GPUNodeStatus(devices=[sick]))


async def test_a_name_that_looks_like_markup_is_text() -> None:
    odd = Device(index=0, uuid="GPU-0", vendor="nvidia", model="[bold]V100[/]", memory_mib=1)
    assert "0: [bold]V100[/]" in await printed("gpu-1", status=GPUNodeStatus(devices=[odd]))


async def test_a_node_is_told_once() -> None:
    assert (await printed("gpu-1", times=3)).count("gpu-1") == 1


async def test_of_very_many_nodes_the_first_are_told() -> None:
    assert (await printed(*(f"node-{number}" for number in range(100)))).count("node-") == 8


async def test_devices_that_cannot_be_read_yet_are_told_when_they_can() -> None:
    out = io.StringIO()
    tree = StartupTree(out)
    unread = Seen(node=make_node("gpu-1"), now=NOON, problem="no driver")
    await tree.act(unread, status=STATUS)
    assert out.getvalue() == ""
    await tree.act(replace(unread, sample=SAMPLE, problem=""), status=STATUS)
    assert "gpu-1" in out.getvalue()


@pytest.mark.parametrize("columns", ["40", "400"])
async def test_what_goes_into_a_log_does_not_depend_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert "memory 81559 MiB: used 20250 MiB (24.8%), free 60750 MiB (74.5%)" in await printed("gpu-1")

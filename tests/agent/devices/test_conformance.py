"""What every provider keeps to: the simulated one, each vendor's on our library of its name, and NVML on the cards of
this machine."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pynvml
import pytest

from dovetail.api.builtin import Node
from dovetail.api.gpunode import GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.gpu.models import VENDORS
from dovetail_agent.devices.discovery import PROVIDERS, MeasuredProvider, opened
from dovetail_agent.devices.driver import loads
from dovetail_agent.devices.model import Inventory, InventoryUnreadable, Provider, Sample
from dovetail_agent.devices.poller import Watch
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.report import node_status
from tests.agent.builders import NOON, allocated, make_node, make_tenant
from tests.agent.nvml_stub import DRIVER_NOT_LOADED, GPU_IS_LOST, Process, Scenario, Stub, card_uuid
from tests.agent.procfs import make_proc
from tests.agent.vendors import Played

POD = "0f2a9c1e-7d3b-4c55-9e10-6b1f2d3c4a5b"
NODE = "v100-0"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A provider, the node that it serves, and how to have it in trouble. A real card is in none at our wish."""

    provider: Provider
    node: Node
    now: datetime = NOON
    tenant: NodeTenant | None = None
    broken: Callable[[], "Source"] | None = None
    unreadable: Callable[[], "Source"] | None = None

    def inventory(self) -> Inventory:
        return self.provider.inventory(self.node)

    def sample(self) -> Sample:
        tenants = [self.tenant] if self.tenant else []
        return self.provider.sample(self.inventory(), node=self.node, tenants=tenants, now=self.now)


@pytest.fixture
def simulated() -> Source:
    provider = SimulatedProvider()
    sick, unclear = make_node(NODE, faults={"1": "XID79FellOffTheBus"}), make_node(NODE, devices="{")
    return Source(
        provider=provider,
        node=make_node(NODE),
        tenant=make_tenant(allocated(0), uid=POD),
        broken=lambda: Source(provider=provider, node=sick),
        unreadable=lambda: Source(provider=provider, node=unclear),
    )


@pytest.fixture
def nvml_on_a_stub(nvml: Stub, watch_on: Callable[..., object], tmp_path: Path) -> Source:
    node = make_node(NODE, devices=None)
    proc = make_proc(tmp_path / "host", pods={10: POD, 11: None})
    processes = [Process(pid=10, mib=5000), Process(pid=11, mib=700)]
    busy = {"used": 5700, "util": 80}

    def playing(scenario: Scenario) -> Source:
        nvml.play(scenario)
        return Source(provider=MeasuredProvider(watch_on(proc=proc), name="nvml", node=NODE), node=node)  # type: ignore[arg-type]  # a watch

    device = msgspec.structs.replace(allocated(0), uuid=card_uuid(0), memory_mib=6000)
    peers = {0: [1], 1: [0]}
    return replace(
        playing(Scenario(figures={0: busy}, processes=processes, peers=peers)),
        tenant=make_tenant(device, uid=POD),
        broken=lambda: playing(Scenario(answers=[("nvmlDeviceGetUtilizationRates", 1, GPU_IS_LOST)])),
        unreadable=lambda: playing(Scenario(answers=[("nvmlInitWithFlags", -1, DRIVER_NOT_LOADED)])),
    )


@pytest.fixture
def vendor_on_a_stub(played: Played, tmp_path: Path) -> Callable[[str], Source]:
    """AMD, Intel and Ascend: each through its own calls, on our library of that name."""

    def source_of(vendor: str) -> Source:
        proc = make_proc(tmp_path / "host", pods={10: POD, 11: None})
        lost, silent = VENDOR_TROUBLES[vendor]

        def source(watch: Watch) -> Source:
            return Source(provider=MeasuredProvider(watch, name=vendor, node=NODE), node=make_node(NODE, devices=None))

        well = source(played(vendor, proc=proc, processes=[(0, 10, 5000), (0, 11, 700)]))
        device = msgspec.structs.replace(allocated(0), uuid=well.inventory().devices[0].uuid, memory_mib=6000)
        return replace(
            well,
            tenant=make_tenant(device, uid=POD),
            broken=lambda: source(played(vendor, proc=proc, then={"answers": [lost]})),
            unreadable=lambda: source(played(vendor, proc=proc, answers=[silent])),
        )

    return source_of


@pytest.fixture
def nvml_on_real_cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    with opened("nvml", node=NODE, look_every=timedelta(seconds=30)) as provider:
        yield Source(provider=provider, node=make_node(NODE, devices=None), now=datetime.now(UTC))


# What a card that is lost answers, and a library without its driver: call, card, code.
VENDOR_TROUBLES = {
    "amd": (("amdsmi_get_gpu_vram_usage", 1, 12), ("amdsmi_init", -1, 34)),
    "intel": (("zesMemoryGetState", 1, 0x70000001), ("zesInit", -1, 0x78000001)),
    "ascend": (("dcmi_get_device_temperature", 1, -8008), ("dcmi_init", -1, -8012)),
}
SOURCES = [
    "simulated",
    "nvml_on_a_stub",
    *VENDOR_TROUBLES,
    *(["nvml_on_real_cards"] if loads("libnvidia-ml.so.1") else []),
]


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Source:
    if request.param in VENDOR_TROUBLES:
        made: Callable[[str], Source] = request.getfixturevalue("vendor_on_a_stub")
        return made(request.param)
    found: Source = request.getfixturevalue(request.param)
    return found


def test_it_serves_its_node(source: Source) -> None:
    assert source.provider.serves(source.node)
    assert not source.provider.serves(make_node("another", devices=None))


def test_its_name_is_one_that_the_command_line_takes(source: Source) -> None:
    assert source.provider.name in PROVIDERS


def test_the_devices_are_in_the_order_of_their_indexes_and_each_is_there_once(source: Source) -> None:
    devices = source.inventory().devices
    assert devices
    indexes = [device.index for device in devices]
    assert indexes == sorted(set(indexes))
    assert len({device.uuid for device in devices} - {""}) == len(devices)


def test_every_device_says_what_it_is(source: Source) -> None:
    for device in source.inventory().devices:
        assert device.vendor in VENDORS
        assert device.model
        assert 0 <= device.reserved_mib < device.memory_mib


def test_links_lead_to_other_devices_and_back(source: Source) -> None:
    devices = {device.index: device for device in source.inventory().devices}
    for index, device in devices.items():
        for other in device.links.nvlink:
            assert other != index
            assert index in devices[other].links.nvlink
        for other in device.links.switch:
            assert index in devices[other].links.switch


def test_what_the_devices_are_stays_the_same(source: Source) -> None:
    assert source.inventory() == source.inventory()


def test_every_device_has_a_sample_within_its_bounds(source: Source) -> None:
    sample, inventory = source.sample(), source.inventory()
    for device, state in zip(inventory.devices, sample.devices, strict=True):
        assert state.used_mib is None or 0 <= state.used_mib <= device.memory_mib
        assert state.utilization is None or 0 <= state.utilization <= 1
        assert state.temperature_celsius is None or 0 < state.temperature_celsius < 120
        assert state.power_watts is None or 0 < state.power_watts < 3000
    for ratio in (sample.cpu_utilization, sample.memory_utilization):
        assert ratio is None or 0 <= ratio <= 1


def test_a_sample_is_not_from_the_future(source: Source) -> None:
    measured_at = source.sample().measured_at
    assert measured_at is None or measured_at <= source.now + timedelta(seconds=1)


def test_what_pods_use_is_not_more_than_is_used(source: Source) -> None:
    for state in source.sample().devices:
        if state.used_by_tenant_mib is not None and state.used_mib is not None:
            assert sum(state.used_by_tenant_mib.values()) <= state.used_mib


def test_a_running_tenant_shows_in_its_device_and_in_no_other(source: Source) -> None:
    if source.tenant is None:
        pytest.skip("nobody was given a card of this machine")
    first, second = source.sample().devices
    assert first.used_by_tenant_mib is not None
    assert first.used_by_tenant_mib[POD] > 0
    assert (first.utilization or 0) > 0
    assert second.used_by_tenant_mib == {}


def test_a_broken_device_has_a_reason_and_no_figures_and_the_others_are_well(source: Source) -> None:
    if source.broken is None:
        pytest.skip("no card of this machine is broken")
    well, broken = source.broken().sample().devices
    assert well.unhealthy_reason == ""
    assert broken.unhealthy_reason
    assert (broken.used_mib, broken.utilization, broken.temperature_celsius) == (None, None, None)


def test_devices_that_cannot_be_read_are_one_sentence_with_the_node(source: Source) -> None:
    if source.unreadable is None:
        pytest.skip("this machine's cards can be read")
    with pytest.raises(InventoryUnreadable, match=f"^node {NODE}: ") as caught:
        source.unreadable().inventory()
    assert "\n" not in str(caught.value)


def test_the_report_is_one_that_the_api_server_takes(source: Source) -> None:
    sample = source.sample()
    tenants = [source.tenant] if source.tenant else []
    status = node_status.readable(
        source.inventory(), sample=sample, provider=source.provider.name, tenants=tenants, previous=None, now=source.now
    )
    written = json.loads(json.dumps(node_status.written_status(status)))
    assert msgspec.convert(written, GPUNodeStatus) == status

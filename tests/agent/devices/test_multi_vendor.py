"""Cards of several vendors in one node: one report, and one vendor's trouble is not the other's."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from dovetail.api.gpunode import Links
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory, InventoryUnreadable, Sample, SplitCard
from dovetail_agent.devices.multi_vendor import SILENT, ManyProvider
from tests.agent.builders import NOON, make_node
from tests.seeds import seeds

NODE = make_node("mixed", devices=None)


class Part:
    """One vendor's provider, whose answers are said."""

    def __init__(self, name: str, *, cards: int, problem: str = "", measured_at: datetime | None = NOON) -> None:
        self.name = name
        self.cards = cards
        self.problem = problem
        self.measured_at = measured_at

    def serves(self, node: Any) -> bool:
        return node.metadata.name == "mixed"

    def listen(self, news: Any) -> None:
        self.news = news

    def inventory(self, node: Any, **_: Any) -> Inventory:
        if self.problem:
            raise InventoryUnreadable(node.metadata.name, problem=self.problem)
        devices = (
            DeviceInfo(
                index=index, uuid=f"{self.name}-{index}", vendor=self.name, model="M", memory_mib=1000,
                links=Links(nvlink=[other for other in range(self.cards) if other != index]),
            )
            for index in range(self.cards)
        )  # fmt: skip
        split = SplitCard(index=0, uuid=f"{self.name}-card", model="M", slots=())
        return Inventory(devices=tuple(devices), driver_version="1.0", split=(split,))

    async def reshape(self, _node: Any, *, card: str, profiles: Sequence[str]) -> str:
        return f"{self.name} has no place for {'+'.join(profiles)} on {card}"

    def assignments(self, inventory: Any, **_: Any) -> list[Any]:
        return []

    def sample(self, inventory: Inventory, *, node: Any, **_: Any) -> Sample:
        self.inventory(node)
        return Sample(
            devices=tuple(DeviceSample(used_mib=10) for _ in inventory.devices),
            measured_at=self.measured_at,
            cpu_utilization=0.5,
        )


def seen(many: ManyProvider) -> tuple[Inventory, Sample]:
    inventory = many.inventory(NODE)
    return inventory, many.sample(inventory, node=NODE, tenants=[], now=NOON)


def test_the_devices_are_numbered_on_and_their_links_with_them() -> None:
    inventory, _ = seen(ManyProvider([Part("nvml", cards=2), Part("amd", cards=2)]))
    assert [(device.index, device.uuid) for device in inventory.devices] == [
        (0, "nvml-0"), (1, "nvml-1"), (2, "amd-0"), (3, "amd-1")
    ]  # fmt: skip
    assert [device.links.nvlink for device in inventory.devices] == [[1], [0], [3], [2]]


def test_the_report_names_all_of_them() -> None:
    many = ManyProvider([Part("nvml", cards=1), Part("amd", cards=1)])
    assert many.name == "nvml+amd"
    assert seen(many)[0].driver_version == "nvml 1.0, amd 1.0"
    assert many.serves(NODE)
    assert not many.serves(make_node("another", devices=None))
    assert many.assignments(seen(many)[0], node=NODE, tenants=[], previous=[]) == []


def test_a_vendor_whose_driver_goes_silent_keeps_its_devices_and_they_take_no_work() -> None:
    nvml, amd = Part("nvml", cards=1), Part("amd", cards=1)
    many = ManyProvider([nvml, amd])
    before, _ = seen(many)
    amd.problem = "AMD SMI: no driver"
    inventory, sample = seen(many)
    assert inventory == before
    assert [state.unhealthy_reason for state in sample.devices] == ["", SILENT]
    assert [state.used_mib for state in sample.devices] == [10, None]


def test_a_vendor_that_never_answered_has_no_devices() -> None:
    inventory, sample = seen(ManyProvider([Part("nvml", cards=1, problem="no driver"), Part("amd", cards=1)]))
    assert [(device.index, device.uuid) for device in inventory.devices] == [(0, "amd-0")]
    assert [state.used_mib for state in sample.devices] == [10]


def test_where_none_can_be_read_all_problems_are_told_in_one_sentence() -> None:
    many = ManyProvider([Part("nvml", cards=1, problem="NVML: gone"), Part("amd", cards=1, problem="AMD SMI: gone")])
    with pytest.raises(InventoryUnreadable, match=r"^node mixed: NVML: gone; AMD SMI: gone$"):
        many.inventory(NODE)


def test_it_was_measured_when_the_slowest_of_them_was() -> None:
    earlier = NOON.replace(hour=11)
    many = ManyProvider([Part("nvml", cards=1), Part("amd", cards=1, measured_at=earlier)])
    _, sample = seen(many)
    assert (sample.measured_at, sample.cpu_utilization) == (earlier, 0.5)
    assert replace(sample, devices=()).memory_utilization is None


def test_the_news_of_each_of_them_is_news() -> None:
    parts, heard = [Part("nvml", cards=1), Part("amd", cards=1)], []
    ManyProvider(parts).listen(lambda: heard.append(1))
    for part in parts:
        part.news()
    assert heard == [1, 1]


async def test_a_gpu_is_partitioned_by_the_vendor_that_has_it() -> None:
    many = ManyProvider([Part("nvml", cards=1), Part("amd", cards=2)])
    assert [(card.index, card.uuid) for card in many.inventory(NODE).split] == [(0, "nvml-card"), (1, "amd-card")]
    refused = await many.reshape(NODE, card="amd-card", profiles=["3g.20gb"])
    assert refused == "amd has no place for 3g.20gb on amd-card"
    unknown = await many.reshape(NODE, card="intel-card", profiles=["3g.20gb"])
    assert unknown == "no vendor's library has a GPU intel-card in MIG mode"


@seeds(40)
def test_what_several_vendors_report_of_themselves_is_together_what_it_was_apart(seed: int) -> None:
    """Indexes, links and split GPUs of each vendor, moved behind the indexes of those before it, which have gaps."""
    random = Random(seed)
    parts = [Odd(name, random=random) for name in "abc"[: random.randint(1, 3)]]
    provider = ManyProvider(parts)
    found = provider.inventory(NODE)
    first, devices, split = 0, list[DeviceInfo](), list[SplitCard]()
    for part in parts:
        own = part.inventory(NODE)
        for each in own.devices:
            links = Links(
                nvlink=[other + first for other in each.links.nvlink],
                switch=[other + first for other in each.links.switch],
            )
            devices.append(replace(each, index=each.index + first, links=links))
        split += [replace(each, index=each.index + first) for each in own.split]
        first = devices[-1].index + 1 if devices else 0
    assert list(found.devices) == devices
    assert list(found.split) == split
    assert len({each.index for each in devices}) == len(devices), "no index is there twice"
    sample = provider.sample(found, node=NODE, tenants=(), now=NOON)
    assert [each.used_mib for each in sample.devices] == [int(each.uuid.partition("-")[2]) for each in devices]
    assert sample.measured_at == min(part.measured_at for part in parts if part.measured_at)


class Odd(Part):
    """A vendor whose indexes have gaps, with both kinds of links and GPUs that are split."""

    def __init__(self, name: str, *, random: Random) -> None:
        super().__init__(name, cards=0, measured_at=NOON - timedelta(seconds=random.randint(0, 99)))
        indexes = sorted(random.sample(range(6), random.randint(0, 3)))
        whole = indexes[:2]
        self.own = tuple(
            DeviceInfo(
                index=index, uuid=f"{name}-{index}", vendor=name, model="M", memory_mib=1000,
                links=Links(nvlink=[each for each in whole if each != index], switch=whole[:at]),
            )
            for at, index in enumerate(whole)
        )  # fmt: skip
        self.apart = tuple(SplitCard(index=index, uuid=f"{name}-{index}", model="M", slots=()) for index in indexes[2:])

    def inventory(self, node: Any, **_: Any) -> Inventory:
        return Inventory(devices=self.own, split=self.apart)

    def sample(self, inventory: Inventory, **_: Any) -> Sample:
        used = (DeviceSample(used_mib=int(each.uuid.partition("-")[2])) for each in inventory.devices)
        return Sample(devices=tuple(used), measured_at=self.measured_at)

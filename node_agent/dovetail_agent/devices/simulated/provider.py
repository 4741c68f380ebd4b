"""Simulated devices: a Node's annotation declares them, its pods determine the load. Pure.

`dovetail.dev/simulated-devices` = `{"model": "V100", "count": 8, "memoryMiB": 32768}` declares the devices.
`"mig": ["7x1g.5gb"]` in it partitions the first devices, an entry each; the others stay whole.
`"demand": {"web": 1.5}` gives the running pods of a namespace work for so many devices, however many pods there are.
`dovetail.dev/simulated-faults` = `{"1": "Xid79FellOffTheBus"}` breaks some of them, by index.
`dovetail.dev/simulated-strangers` puts processes without an assignment on them (`strangers`).

A device that was partitioned again stays so, by the last report, whatever `mig` says of it.

The same node name gives the same UUIDs. The same pods at the same time give the same load.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.decoding import UnreadableError, decode
from dovetail.formats.quantities import mebibytes, milli
from dovetail.gpu.geometry import arrange, described
from dovetail.gpu.models import VENDORS
from dovetail.gpu.partition import EXAMPLE, partition
from dovetail_agent.devices.assignments import deal
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory, InventoryUnreadable, Sample, SplitCard
from dovetail_agent.devices.simulated.demand import DEMAND_ALLOWED, is_demand, levels_of
from dovetail_agent.devices.simulated.partitions import instances_in, partitioned, reported_partitions, slots_of
from dovetail_agent.devices.simulated.scenarios import (
    OTHER_FAULT,
    SCENARIOS,
    Fault,
    afflicted,
    compute_level,
    memory_level,
    traits,
    unlinked,
    wiring,
)
from dovetail_agent.devices.simulated.strangers import ALLOWED, SimulatedStranger, joined, processes_of, read_stranger
from dovetail_agent.devices.simulated.strangers import EXAMPLE as STRANGERS_EXAMPLE
from dovetail_agent.tenants import promised_mib, promised_milli, work_of

MAX_DEVICES: Final = 128
_MAX_MEMORY_MIB: Final = 1 << 24
_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, names.GROUP)
_EXAMPLE: Final = '{"model": "V100", "count": 8, "memoryMiB": 32768}'
_FAULTS_EXAMPLE: Final = '{"1": "Xid79FellOffTheBus"}'


class Field(NamedTuple):
    """One field of the annotation: a check of its value, and the sentence for a refusal."""

    takes: Callable[[Any], bool]
    allowed: str
    default: Any = None


def _whole_number(low: int, *, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


_FIELDS: Final = {
    "model": Field(lambda value: isinstance(value, str) and value != "", "a model's name, such as V100"),
    "count": Field(_whole_number(1, high=MAX_DEVICES), f"a whole number from 1 to {MAX_DEVICES}"),
    "memoryMiB": Field(_whole_number(1, high=_MAX_MEMORY_MIB), f"a whole number of MiB from 1 to {_MAX_MEMORY_MIB}"),
    "reservedMiB": Field(_whole_number(0, high=_MAX_MEMORY_MIB), "a whole number of MiB from 0 to memoryMiB", 0),
    "load": Field(lambda value: value in SCENARIOS.loads, f"one of {', '.join(SCENARIOS.loads)}", "Mixed"),
    "topology": Field(
        lambda value: value in SCENARIOS.topologies, f"one of {', '.join(SCENARIOS.topologies)}", "TwoSockets"
    ),
    "mig": Field(
        lambda value: isinstance(value, list) and all(instances_in(each) for each in value),
        f'a list with the instances of each device that is partitioned, such as ["7x1g.5gb", "{EXAMPLE}"]',
        [],
    ),
    "vendor": Field(lambda value: value in VENDORS, f"one of {', '.join(VENDORS)}", "nvidia"),
    "demand": Field(is_demand, DEMAND_ALLOWED, {}),
}


class SimulatedProvider:
    """The provider of nodes with the annotation `dovetail.dev/simulated-devices`."""

    name = "simulated"

    def serves(self, node: Node) -> bool:
        """Whether the node declares devices."""
        return names.SIMULATED_DEVICES in node.metadata.annotations

    def listen(self, news: Callable[[], None]) -> None:
        """Do nothing: only nodes and pods bring news, and the agent watches both."""

    def __init__(self) -> None:
        self._reshaped: dict[str, tuple[str, ...]] = {}

    def inventory(self, node: Node, *, previous: GPUNodeStatus | None = None) -> Inventory:
        """Return the declared devices, and the instances of those that were partitioned again since.

        Raises `InventoryUnreadable` with the field, its value and what is allowed.
        """
        declared = _declaration(node)
        if declared["reservedMiB"] > declared["memoryMiB"]:
            raise _refusal(node, annotation=names.SIMULATED_DEVICES, name="reservedMiB", value=declared["reservedMiB"])
        whole = tuple(_device(index, declared=declared, node=node.metadata.name) for index in range(declared["count"]))
        split = whole[: len(declared["mig"])]
        changed = reported_partitions(previous) | self._reshaped
        by_card = [
            changed.get(card.uuid, partition(entry)) for card, entry in zip(split, declared["mig"], strict=False)
        ]
        devices = partitioned(whole, by_card=by_card)
        known = {index: _fault(name) for index, name in _faults(node, count=declared["count"]).items()}
        cards = (SplitCard(index=card.index, uuid=card.uuid, model=card.model, slots=slots_of(card)) for card in split)
        return Inventory(devices=unlinked(devices, faults=known), driver_version="simulated", split=tuple(cards))

    async def reshape(self, node: Node, *, card: str, profiles: Sequence[str]) -> str:
        """Partition a simulated GPU; why that failed, empty if it did not."""
        split = next((each for each in self.inventory(node).split if each.uuid == card), None)
        if split is None:
            return f"GPU {card} is not in MIG mode"
        places = arrange(tuple(sorted(profiles)), slots=split.slots)
        if places is None:
            return f"{described(profiles)} do not fit on the GPU together"
        self._reshaped[card] = tuple(place.profile for place in places)
        return ""

    def assignments(
        self, inventory: Inventory, *, node: Node, tenants: Sequence[NodeTenant], previous: Sequence[Assignment]
    ) -> list[Assignment]:
        """Return what kubelet's device manager would have assigned: a simulated node has no kubelet."""
        faults = _faults(node, count=len(inventory.devices))
        sick = [index for index, name in faults.items() if _fault(name).unhealthy]
        gpus = replace(inventory, devices=tuple(device for device in inventory.devices if not device.mig_profile))
        return deal(gpus, sick=sick, tenants=tenants, previous=previous)

    def sample(self, inventory: Inventory, *, node: Node, tenants: Sequence[NodeTenant], now: datetime) -> Sample:
        """Return a load that follows the running tenants.

        A silent faulty device reports only its fault.
        """
        faults = _faults(node, count=len(inventory.devices))
        _refuse_if_hung(node, faults=faults.values())
        strangers = _strangers(node, count=len(inventory.devices))
        running = [tenant for tenant in tenants if tenant.running]
        allocatable, declared = node.status.allocatable, _declaration(node)
        levels = levels_of(running, demand=declared["demand"])
        samples = {
            device.index: _device_sample(
                device,
                running=running,
                now=now,
                stranger=strangers.get(device.index),
                load=declared["load"],
                levels=levels,
            )
            for device in inventory.devices
        }
        return Sample(
            devices=tuple(
                _with_fault(samples[device.index], name=faults.get(device.index, ""), device=device, now=now)
                for device in inventory.devices
            ),
            cpu_utilization=_ratio(
                sum(tenant.cpu_milli * host_level(work_of(tenant)) for tenant in running),
                whole=milli(allocatable.get("cpu", "0")),
            ),
            memory_utilization=_ratio(
                sum(tenant.memory_mib * host_level(work_of(tenant)) for tenant in running),
                whole=mebibytes(allocatable.get("memory", "0")),
            ),
        )


def _device(index: int, *, declared: dict[str, Any], node: str) -> DeviceInfo:
    socket, links = wiring(index, count=declared["count"], model=declared["model"], topology=declared["topology"])
    return DeviceInfo(
        index=index,
        uuid=device_uuid(node, index=index),
        vendor=declared["vendor"],
        model=declared["model"],
        memory_mib=declared["memoryMiB"],
        reserved_mib=declared["reservedMiB"],
        numa_node=socket,
        links=links,
    )


def _fault(name: str) -> Fault:
    return SCENARIOS.faults.get(name, OTHER_FAULT)


def _refuse_if_hung(node: Node, *, faults: Iterable[str]) -> None:
    for call in (_fault(name).hangs for name in faults):
        if call:
            raise InventoryUnreadable(node.metadata.name, problem=f"the driver: {call} does not answer")


def _with_fault(sample: DeviceSample, *, name: str, device: DeviceInfo, now: datetime) -> DeviceSample:
    return afflicted(sample, name=name, fault=_fault(name), device=device, now=now) if name else sample


def device_uuid(node: str, *, index: int) -> str:
    """Return the UUID of a simulated device, the same on every machine and at every time."""
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}')}"


def host_level(workload: str) -> float:
    """Return which ratio of its requested CPU and memory a workload uses, from 0.3 to 0.7."""
    return 0.3 + 0.4 * traits(workload)[1]


def _device_sample(
    device: DeviceInfo,
    *,
    running: Sequence[NodeTenant],
    now: datetime,
    stranger: SimulatedStranger | None,
    load: str,
    levels: Mapping[str, float],
) -> DeviceSample:
    """The figures of one device; `levels` is how much of its share a pod with declared work computes, by UID."""
    tenants = [tenant for tenant in running if any(each.uuid == device.uuid for each in tenant.devices)]
    used = {
        tenant.uid: int(promised_mib(tenant, uuid=device.uuid) * memory_level(work_of(tenant), load=load))
        for tenant in tenants
    }
    busy = {
        tenant.uid: promised_milli(tenant, uuid=device.uuid)
        / 1000
        * levels.get(tenant.uid, compute_level(work_of(tenant), now=now, load=load))
        for tenant in tenants
    }
    # Tenants that take turns can be promised more than the device together; its utilization ends at 1.
    utilization = min(1.0, sum(busy.values()))
    sample = DeviceSample(
        used_mib=min(sum(used.values()), device.memory_mib),
        used_by_tenant_mib=used,
        utilization=utilization,
        temperature_celsius=round(32 + 44 * utilization),
        power_watts=round(28 + 230 * utilization),
        processes=processes_of(used, utilization=busy) if levels.keys() & busy.keys() else None,
    )
    if stranger is None:
        return sample
    return joined(sample, stranger=stranger, tenants=running, memory_mib=device.memory_mib)


def _ratio(part: float, *, whole: float) -> float | None:
    return min(1.0, part / whole) if whole else None


def _declaration(node: Node) -> dict[str, Any]:
    given = _json_object(node, annotation=names.SIMULATED_DEVICES, example=_EXAMPLE)
    for name in given:
        if name not in _FIELDS:
            raise _unreadable(
                node,
                annotation=names.SIMULATED_DEVICES,
                problem=f"{name} is no field of it; allowed are {', '.join(_FIELDS)}",
            )
    declared = {name: given.get(name, field.default) for name, field in _FIELDS.items()}
    for name, field in _FIELDS.items():
        if not field.takes(declared[name]):
            raise _refusal(node, annotation=names.SIMULATED_DEVICES, name=name, value=declared[name])
    return declared


def _faults(node: Node, *, count: int) -> dict[int, str]:
    if names.SIMULATED_FAULTS not in node.metadata.annotations:
        return {}
    given = _json_object(node, annotation=names.SIMULATED_FAULTS, example=_FAULTS_EXAMPLE)
    for index, reason in given.items():
        if not (index.isdecimal() and int(index) < count):
            raise _unreadable(
                node,
                annotation=names.SIMULATED_FAULTS,
                problem=f"{index} is no device of it; allowed are 0 to {count - 1}",
            )
        if not isinstance(reason, str) or not reason:
            wrong = f"{index} is {json.dumps(reason)}; allowed is a word for the fault"
            raise _unreadable(node, annotation=names.SIMULATED_FAULTS, problem=wrong)
    return {int(index): reason for index, reason in given.items()}


def _strangers(node: Node, *, count: int) -> dict[int, SimulatedStranger]:
    if names.SIMULATED_STRANGERS not in node.metadata.annotations:
        return {}
    found = {}
    for index, value in _json_object(node, annotation=names.SIMULATED_STRANGERS, example=STRANGERS_EXAMPLE).items():
        stranger = read_stranger(value)
        if not (index.isdecimal() and int(index) < count):
            wrong = f"{index} is no device of it; allowed are 0 to {count - 1}"
            raise _unreadable(node, annotation=names.SIMULATED_STRANGERS, problem=wrong)
        if stranger is None:
            wrong = f"{index} is {json.dumps(value)}; allowed is {ALLOWED}"
            raise _unreadable(node, annotation=names.SIMULATED_STRANGERS, problem=wrong)
        found[int(index)] = stranger
    return found


def _json_object(node: Node, *, annotation: str, example: str) -> dict[str, Any]:
    text = node.metadata.annotations.get(annotation)
    if text is None:
        raise _unreadable(node, annotation=annotation, problem=f"it is missing; write {example}")
    try:
        given = decode(text, as_type=Any)
    except UnreadableError as error:
        raise _unreadable(
            node, annotation=annotation, problem=f"{text!r} is no JSON ({error}); write {example}"
        ) from error
    if not isinstance(given, dict):
        raise _unreadable(node, annotation=annotation, problem=f"{text!r} is no JSON object; write {example}")
    return given


def _refusal(node: Node, *, annotation: str, name: str, value: Any) -> InventoryUnreadable:
    found = "missing" if value is None else json.dumps(value)
    return _unreadable(node, annotation=annotation, problem=f"{name} is {found}; allowed is {_FIELDS[name].allowed}")


def _unreadable(node: Node, *, annotation: str, problem: str) -> InventoryUnreadable:
    return InventoryUnreadable(node.metadata.name, problem=f"annotation {annotation}: {problem}")

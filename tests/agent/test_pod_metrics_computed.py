"""The metrics of pods, computed again from who has which device: alone, together, in parts, by several containers."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Final

import pytest

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory, Process, Sample
from dovetail_agent.pod_metrics import pod_metrics
from dovetail_agent.report.collect import Look
from tests.seeds import seeds

MIB: Final = 1 << 20
Key = tuple[str, str, str, str, str]


def tenant(random: Random, *, number: int, node: str) -> NodeTenant:
    """A pod of one of two namespaces, which has parts of up to two devices in up to two containers."""
    parts = [
        (
            AllocatedDevice(
                uuid=f"{node}-{index}",
                index=index,
                share_milli=random.choice([250, 500]),
                memory_mib=random.choice([10, 20]),
            ),
            random.choice(["main", "side"]),
        )
        for index in sorted(random.choices(range(2), k=random.randint(0, 3)))
    ]
    return NodeTenant(
        uid=f"uid-{node}-{number}", namespace=random.choice(["team", "other"]), name=f"p{number}", job="j",
        devices=[device for device, _ in parts], device_containers=[container for _, container in parts],
    )  # fmt: skip


def sample(random: Random, *, tenants: list[NodeTenant]) -> DeviceSample:
    uids = ["", *(each.uid for each in tenants)]
    processes = tuple(
        Process(
            pid=pid, pod_uid=random.choice(uids), used_mib=5, utilization=random.choice([None, 0.0, 0.25, 0.5, 0.5])
        )
        for pid in range(random.randint(0, 3))
    )
    return DeviceSample(
        used_by_tenant_mib=random.choice([None, {each.uid: random.randint(0, 9) for each in tenants[:2]}]),
        processes=random.choice([None, processes, processes]),
        utilization=random.choice([None, 0.75, 0.75]),
        power_watts=random.choice([None, 300]),
        throttled_by=random.choice([None, (), ("SwPowerCap",)]),
    )


def want(look: Look, *, node: str) -> Counter[tuple[str, Key]]:
    """The value of each metric, by its name and by namespace, pod, container, node and device."""
    found: Counter[tuple[str, Key]] = Counter()
    assert look.inventory is not None
    assert look.sample is not None
    for device, measured in zip(look.inventory.devices, look.sample.devices, strict=True):
        there = [each for each in look.tenants if any(held.uuid == device.uuid for held in each.devices)]
        for pod in there:
            held = [
                (container, each)
                for each, container in zip(pod.devices, pod.device_containers, strict=True)
                if each.uuid == device.uuid
            ]
            for container, each in held:
                key = (pod.namespace, pod.name, container, node, device.uuid)
                found["promised_share_ratio", key] += each.share_milli  # type: ignore[assignment] # thousandths
                found["promised_memory_bytes", key] += each.memory_mib * MIB
            containers = {container for container, _ in held}
            key = (pod.namespace, pod.name, containers.pop() if len(containers) == 1 else "", node, device.uuid)
            if measured.used_by_tenant_mib is not None:
                found["memory_used_bytes", key] = measured.used_by_tenant_mib.get(pod.uid, 0) * MIB
            if len(there) == 1:
                own: float | None = measured.utilization
            else:
                own = part_of(measured, uid=pod.uid)
            if own is not None:
                found["utilization_ratio", key] = own  # type: ignore[assignment] # a ratio
            if len(there) == 1 and measured.power_watts is not None:
                found["power_watts", key] = measured.power_watts
            if len(there) == 1 and measured.throttled_by:
                found["throttled", key] = 1
    return found


def part_of(measured: DeviceSample, *, uid: str) -> float | None:
    """What a pod has of a shared device's utilization; not known where a process is not, or works for no pod."""
    if measured.processes is None or measured.utilization is None:
        return None
    each = [(process.pod_uid, process.utilization) for process in measured.processes]
    if any(used is None or (used > 0 and not whose) for whose, used in each):
        return None
    total = sum(used or 0 for _, used in each)
    return measured.utilization * sum(used or 0 for whose, used in each if whose == uid) / total if total else 0.0


@seeds(150)
def test_each_pod_has_what_it_was_promised_and_what_is_known_to_be_its_own(seed: int) -> None:
    random, looks = Random(seed), dict[str, Look]()
    for node in ("a", "b"):
        tenants = [tenant(random, number=number, node=node) for number in range(random.randint(0, 3))]
        devices = tuple(
            DeviceInfo(uuid=f"{node}-{index}", index=index, vendor="v", model="M", memory_mib=100) for index in range(2)
        )
        samples = tuple(sample(random, tenants=tenants) for _ in devices)
        looks[node] = Look(
            status=GPUNodeStatus(),
            tenants=tuple(tenants),
            inventory=Inventory(devices=devices),
            sample=Sample(devices=samples),
        )
    looks["blind"] = replace(looks["a"], sample=None)
    found: dict[tuple[str, Key], float] = {}
    for family in pod_metrics(looks):
        for each in family.samples:
            name = each.name.removeprefix("dovetail_pod_gpu_")
            if name == "left_out":
                assert each.value == 0
                continue
            key = tuple(each.labels[label] for label in ("namespace", "pod", "container", "node", "uuid"))
            assert (name, key) not in found, "a series has one value"
            scale = 1000 if name == "promised_share_ratio" else 1
            found[name, key] = each.value * scale  # type: ignore[index] # five labels
    expected = {each: value for node in ("a", "b") for each, value in want(looks[node], node=node).items()}
    assert found == pytest.approx(expected)

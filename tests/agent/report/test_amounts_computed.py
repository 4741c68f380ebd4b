"""What a report says of memory and free devices, computed a second time from promises and uses."""

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import Assignment, Device
from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory, Sample
from dovetail_agent.report import node_status
from tests.agent.builders import NOON, make_tenant

COUNT = 3
PODS = ("a", "b", "c", "d")
# By pod and device: share in thousandths and memory in MiB, and what the pod uses.
promises = st.dictionaries(
    st.tuples(st.sampled_from(PODS), st.integers(0, COUNT - 1)),
    st.tuples(st.integers(1, 1000), st.integers(0, 900)),
    max_size=6,
)
uses = st.dictionaries(
    st.tuples(st.sampled_from([*PODS, "gone"]), st.integers(0, COUNT - 1)), st.integers(0, 1200), max_size=6
)
Promises = dict[tuple[str, int], tuple[int, int]]


def tenants(promised: Promises) -> list[NodeTenant]:
    def of_pod(pod: str) -> list[AllocatedDevice]:
        return [
            AllocatedDevice(uuid=f"g{at}", index=at, share_milli=milli, memory_mib=mib)
            for (holder, at), (milli, mib) in promised.items()
            if holder == pod
        ]

    held = {pod: of_pod(pod) for pod in PODS}
    return [make_tenant(*devices, uid=pod) for pod, devices in held.items() if devices]


def reported(
    promised: Promises,
    *,
    used: dict[tuple[str, int], int],
    strange: int,
    sick: set[int],
    given_out: set[int],
    apart: bool = True,
) -> Any:
    infos = tuple(
        DeviceInfo(index=at, uuid=f"g{at}", vendor="nvidia", model="V100", memory_mib=4000) for at in range(COUNT)
    )
    samples = tuple(
        DeviceSample(
            used_mib=strange + sum(mib for (_, on), mib in used.items() if on == at),
            used_by_tenant_mib={pod: mib for (pod, on), mib in used.items() if on == at} if apart else None,
            unhealthy_reason="XID79" if at in sick else "",
        )
        for at in range(COUNT)
    )
    assigned = [Assignment(uid="x", namespace="n", name="p", devices=[f"g{at}::{at}" for at in sorted(given_out)])]
    return node_status.readable(
        Inventory(devices=infos), sample=Sample(devices=samples), provider="nvml", tenants=tenants(promised),
        previous=None, now=NOON, assignments=assigned if given_out else [],
    )  # fmt: skip


def uses_of(device: Device) -> dict[str, int]:
    return {each.uid: each.used_mib for each in device.tenants}


@given(
    promised=promises, used=uses, strange=st.integers(0, 500), sick=st.sets(st.integers(0, COUNT - 1), max_size=1),
    given_out=st.sets(st.integers(0, COUNT - 1), max_size=1), apart=st.booleans(),
)  # fmt: skip
def test_foreign_memory_is_what_no_promise_covers_and_free_is_what_no_pod_has(
    promised: Promises, used: dict[tuple[str, int], int], strange: int, sick: set[int], given_out: set[int], apart: bool
) -> None:
    found = reported(promised, used=used, strange=strange, sick=sick, given_out=given_out, apart=apart)
    free = Fraction(0)
    for at, device in enumerate(found.devices):
        of_device = {pod: amounts for (pod, on), amounts in promised.items() if on == at}
        on_device = {pod: mib for (pod, on), mib in used.items() if on == at}
        if apart:
            beyond = sum(max(0, mib - of_device.get(pod, (0, 0))[1]) for pod, mib in on_device.items())
            assert device.foreign_mib == strange + beyond
            assert uses_of(device) == {pod: mib for pod, mib in on_device.items() if pod in promised_pods(promised)}
        else:
            covered = sum(mib for _, mib in of_device.values())
            assert device.foreign_mib == max(0, strange + sum(on_device.values()) - covered)
            assert device.tenants == []
        if at not in sick | given_out:
            free += max(Fraction(0), 1 - sum(Fraction(milli, 1000) for milli, _ in of_device.values()))
    assert Fraction(found.free) == free


def promised_pods(promised: Promises) -> set[str]:
    """The tenants of the node: what they use is theirs on whichever of its devices."""
    return {pod for pod, _ in promised}

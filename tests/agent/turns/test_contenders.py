"""Which tenants want turns, from what one report of the devices shows."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceSample, Process, Sample
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.turns.feature import at_rest, contenders
from tests.agent.builders import NOON, allocated, make_node, make_tenant

NODE = make_node(devices={"model": "V100", "count": 2, "memoryMiB": 32768})
TENANT = with_fields(make_tenant(allocated(0), uid="a"), mode="TimeShared", priority=20)


def seen(*tenants: NodeTenant, first: DeviceSample | None = None, second: DeviceSample | None = None) -> Seen:
    """Both devices, of which nothing is told where no sample is given."""
    return Seen(
        node=NODE,
        now=NOON,
        gpunode=None,
        tenants=tenants,
        inventory=SimulatedProvider().inventory(NODE),
        sample=Sample(devices=(first or DeviceSample(), second or DeviceSample())),
    )


def uses(**mib: int) -> DeviceSample:
    return DeviceSample(used_by_tenant_mib=mib)


def want(look: Seen, **options: Any) -> list[str]:
    return [contender.uid for contender, _ in contenders(look, **options)]


@pytest.mark.parametrize(
    ("tenant", "wants"),
    [
        pytest.param(TENANT, True, id="it runs"),
        pytest.param(with_fields(TENANT, mode="Fractional"), False, id="it takes no turns"),
        pytest.param(with_fields(TENANT, devices=[]), False, id="it has no device"),
        pytest.param(with_fields(TENANT, running=False), False, id="it has not started"),
        pytest.param(with_fields(TENANT, leaving=True), False, id="it is being deleted"),
    ],
)
def test_a_tenant_wants_turns_while_it_runs_by_turns(tenant: NodeTenant, wants: bool) -> None:
    assert want(seen(tenant)) == (["a"] if wants else [])


@pytest.mark.parametrize(
    ("first", "second", "options", "wants"),
    [
        pytest.param(None, None, {}, True, id="processes are not told apart"),
        pytest.param(uses(a=0), uses(), {}, False, id="no process on either device"),
        pytest.param(uses(a=1), uses(), {}, True, id="a process on the first"),
        pytest.param(uses(), uses(a=1), {}, True, id="a process on the second"),
        pytest.param(uses(), None, {}, True, id="one device tells, and the other does not"),
        pytest.param(uses(), uses(), {"away": {"a"}}, True, id="its memory is on the host"),
        pytest.param(uses(a=1), uses(), {"resting": {"a"}}, False, id="its processes compute nothing"),
        pytest.param(uses(a=1), uses(), {"resting": {"b"}}, True, id="another tenant's compute nothing"),
    ],
)
def test_a_tenant_wants_turns_while_it_has_work(
    first: DeviceSample | None, second: DeviceSample | None, options: dict[str, Any], wants: bool
) -> None:
    both = with_fields(TENANT, devices=[allocated(0), allocated(1)])
    assert want(seen(both, first=first, second=second), **options) == (["a"] if wants else [])


def test_one_tenant_that_rests_keeps_no_other_from_its_turn() -> None:
    other = with_fields(TENANT, uid="b")
    assert want(seen(TENANT, other, first=uses(b=1))) == ["b"]
    assert want(seen(TENANT, other), resting={"a"}) == ["b"]


@pytest.mark.parametrize(("priority", "weight"), [(20, 20), (1, 1), (0, 1)])
def test_a_weight_is_the_priority_and_at_least_one(priority: int, weight: int) -> None:
    ((contender, tenant),) = contenders(seen(with_fields(TENANT, priority=priority)))
    assert (contender.weight, contender.devices, tenant.uid) == (weight, {allocated(0).uuid}, "a")


def test_without_a_sample_every_running_tenant_wants_turns() -> None:
    for blind in (replace(seen(TENANT), sample=None), replace(seen(TENANT), inventory=None)):
        assert want(blind) == ["a"]


@pytest.mark.parametrize(
    ("utilizations", "rests"),
    [([0.0], True), ([0.0, 0.0], True), ([0.0, 0.1], False), ([None], False), ([0.0, None], False), ([], False)],
)
def test_a_tenant_rests_when_every_process_of_it_was_measured_to_compute_nothing(
    utilizations: list[float | None], rests: bool
) -> None:
    processes = tuple(
        Process(pid=at, pod_uid="a", utilization=utilization) for at, utilization in enumerate(utilizations)
    )
    busy = Process(pid=99, pod_uid="b", utilization=0.9)
    look = seen(TENANT, first=DeviceSample(processes=(*processes, busy)))
    assert at_rest(look, judged={"a", "b"}) == ({"a"} if rests else frozenset())
    assert at_rest(look, judged={"b"}) == frozenset()

"""Each way in which a device can fail, in every view: all say the same, and none counts what cannot work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.answers.inventory import Inventory, NodeReader, NodeUse, take
from dovetail.answers.node_rows import inventory_row
from dovetail.answers.v2 import Counts
from dovetail.api.builtin import Node, ResourceSlice
from dovetail.api.gpunode import GPUNode, Reshape
from dovetail.api.meta import Condition
from dovetail.cluster.dra_drivers import drivers_now
from dovetail.cluster.objects import ClusterObjects
from dovetail.cluster.staleness import Freshness
from dovetail.cluster.view import ClusterView
from dovetail.config.settings import Settings
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.model.refusals import Refusal
from dovetail.gpu.device_indexes import NodeDevice
from dovetail.pods.node_affinity import admits
from dovetail_cli.nodes import inventory as ginfo
from dovetail_cli.nodes.top_screen import Screen
from dovetail_gateway.access.visibility import EVERYTHING
from dovetail_gateway.v1.allocations import suggestion
from dovetail_gateway.v1.status import device_data, node_row
from dovetail_gateway.v1.types import Wanted
from dovetail_gateway.v2.devices import NumberedDevice, devices_of
from dovetail_gateway.v2.resources import device_row
from tests.core.builders import make_gpunode, make_node
from tests.core.engine.builders import make_ask

NO_TASKS = Counts(training=0, inference=0)
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
FRESH, OLD = "2026-11-21T11:59:00Z", "2026-11-21T10:00:00Z"
LABELLED = {"name": "a", "labels": {names.LABEL_MANAGED: "true"}}
SLICE = {"metadata": {"name": "s"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "a", "pool": {"name": "a"}}}
READY = {"allocatable": {"cpu": "8", "memory": "64Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}


def reported(**device: Any) -> GPUNode:
    figures = {"temperatureCelsius": 31, "powerWatts": 70, "usedMiB": 812, "utilization": 0.25}
    return make_gpunode("a", observed_at=FRESH, **(figures | device))


def unreadable(message: str, *, reason: str = "InventoryUnreadable") -> GPUNode:
    found = reported()
    said = {"reason": reason, "message": f"node a: {message}", "last_transition_time": FRESH}
    ready = Condition(type="Ready", status="False", **said)
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=[ready]))


def one_lost() -> GPUNode:
    found = reported()
    lost, good = found.status.devices
    gone = {"health": "Unhealthy", "health_reason": "GpuIsLost", "temperature_celsius": None, "power_watts": None}
    devices = [msgspec.structs.replace(lost, used_mib=0, utilization=0.0, **gone), good]
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, devices=devices))


def with_spec(**spec: Any) -> GPUNode:
    found = reported(parent="CARD") if "reshape" in spec else reported()
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, **spec))


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What is wrong with a node of two GPUs, and what every view says of GPU 0."""

    name: str
    says: str
    cause: str
    gpunode: GPUNode = field(default_factory=reported)
    node: Node | None = field(default_factory=make_node)
    slices: Sequence[dict[str, Any]] = ()
    available: int = 0
    has_figures: bool = True

    @property
    def inventory(self) -> Inventory:
        freshness = Freshness(max_age_seconds=660.0, clock=lambda: 0.0, wall=lambda: NOW)
        drivers = drivers_now(msgspec.convert(each, ResourceSlice) for each in self.slices)
        nodes = [] if self.node is None else [self.node]
        reader = NodeReader(freshness=freshness, drivers=drivers)
        return take([self.gpunode], pods=[], scheduler="Running", namespace="default", nodes=nodes, reader=reader)

    @property
    def use(self) -> NodeUse:
        return self.inventory.nodes["a"]

    @property
    def view(self) -> ClusterView:
        objects = ClusterObjects(
            nodes=[] if self.node is None else [self.node],
            gpunodes=[self.gpunode],
            pods=[],
            jobs=[],
            settings=Settings(),
            slices=[msgspec.convert(each, ResourceSlice) for each in self.slices],
        )
        return objects.view()


CONFLICT = "node a: both Dovetail and the DRA driver gpu.nvidia.com hand out the node's GPUs"
PLUGIN = "node a: the node is labelled dovetail.dev/managed, but a plugin advertises nvidia.com/gpu there too"
FAILURES = [
    Failure(
        name="library missing", cause="DriverUnreadable", has_figures=False,
        gpunode=unreadable("no vendor's library can be loaded (libnvidia-ml.so.1); a hint", reason="NoLibrary"),
        says="no vendor's library can be loaded (libnvidia-ml.so.1) on node a; a hint",
    ),
    Failure(
        name="driver not loaded", cause="DriverUnreadable", gpunode=unreadable("NVML: driver not loaded"),
        says="NVML: driver not loaded on node a", has_figures=False,
    ),
    Failure(
        name="gone at run time", cause="DriverUnreadable", has_figures=False,
        gpunode=unreadable("NVML: nvmlDeviceGetUUID does not answer; the devices were last read at 11:00"),
        says="NVML: nvmlDeviceGetUUID does not answer on node a; the devices were last read at 11:00",
    ),
    Failure(
        name="one device lost", cause="Unhealthy", gpunode=one_lost(), says="GPU 0 on node a is unhealthy: GpuIsLost",
        available=1, has_figures=False,
    ),
    Failure(name="node gone", cause="NodeGone", node=None, says="node a is gone", has_figures=False),
    Failure(
        name="node not ready", cause="NodeNotReady", node=make_node(ready="False"), says="node a is not ready",
    ),
    Failure(
        name="node cordoned", cause="NodeCordoned", node=make_node(spec={"unschedulable": True}),
        says="node a is cordoned",
    ),
    Failure(
        name="node drained", cause="NodeDrained", says="node a is being drained: taint karpenter.sh/disrupted",
        node=make_node(spec={"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}),
    ),
    Failure(
        name="device cordoned", cause="Cordoned", gpunode=with_spec(cordoned=["a-0", "a-1"]),
        says="GPU 0 on node a is cordoned",
    ),
    Failure(
        name="device being partitioned", cause="Reshaping", says="GPU 0 on node a is being partitioned again",
        gpunode=with_spec(reshape={"CARD": Reshape(profiles=["1g.10gb"], requested_time=FRESH)}),
    ),
    Failure(
        name="strangers", cause="Strangers", gpunode=reported(taint="Strangers"),
        says="GPU 0 on node a is used by processes without an allocation",
    ),
    Failure(name="DRA conflict", cause="ServedTwice", slices=[SLICE], says=CONFLICT),
    Failure(
        name="plugin conflict", cause="ServedTwice", says=PLUGIN,
        node=make_node(status=READY | {"capacity": {"nvidia.com/gpu": "2"}}),
    ),
]  # fmt: skip
every_failure = pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)


def by_ginfo(failure: Failure) -> tuple[int, str]:
    lines = ginfo.text(failure.inventory).splitlines()
    count = next(line for line in lines if line.startswith("Available GPUs: "))
    status = next(line for line in lines if line.startswith("  Status: "))
    return int(count.rpartition(" ")[2]), status.removeprefix("  Status: Unavailable: ")


def by_json(failure: Failure) -> tuple[int, str]:
    found = msgspec.to_builtins(inventory_row(failure.inventory))
    first = found["nodes"][0]["devices"][0]
    assert (first["takesWork"], first["available"], first["cause"]) == (False, False, failure.cause)
    return found["availableGpus"], first["message"]


def by_top(failure: Failure) -> tuple[int, str]:
    lines = Screen(now=NOW, inventory=failure.inventory).lines()
    return int(lines[0].partition(" held, ")[2].split()[0]), lines[3].partition("Unavailable: ")[2]


def by_v1(failure: Failure) -> tuple[int, str]:
    return node_row(failure.use).available_gpus, device_data(failure.use.uses[0], sees=EVERYTHING).message


def numbered(failure: Failure) -> list[NumberedDevice]:
    indexes = {at: NodeDevice("a", at) for at in range(2)}
    return list(devices_of([failure.use], indexes=indexes))


def by_v2(failure: Failure) -> tuple[int, str]:
    devices = numbered(failure)
    return sum(each.use.available for each in devices), device_row(devices[0], tasks=NO_TASKS).message


VIEWS = [by_ginfo, by_json, by_top, by_v1, by_v2]


@every_failure
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_gives_the_same_number_and_the_same_sentence(
    failure: Failure, view: Callable[[Failure], tuple[int, str]]
) -> None:
    assert view(failure) == (failure.available, failure.says)


@every_failure
def test_queue_and_extender_place_as_many_as_the_views_count(failure: Failure) -> None:
    ledger = failure.view.ledger
    found = place(ledger, ask=make_ask("2"), workers=1, key="job", nodes=["a"])
    assert isinstance(found, Shortage)
    alone = check(ledger, ask=make_ask("1"), node="a", key="pod")
    assert isinstance(alone, Refusal) is (failure.available == 0)


@every_failure
def test_the_queues_reason_and_the_extenders_filter_name_the_cause(failure: Failure) -> None:
    ledger = failure.view.ledger
    refused = check(ledger, ask=make_ask("1@cuda:0" if failure.available else "1"), node="a", key="pod")
    assert isinstance(refused, Refusal)
    if failure.node is None:
        assert refused.text == "node is not known yet"
        return
    cause = failure.use.uses[0].unavailable[0]
    assert cause.text in refused.text or cause.cause == "Cordoned"
    assert "node a" not in refused.text
    possible = [name for name, node in failure.view.nodes.items() if admits(node, pod_spec={})]
    found = place(ledger, ask=make_ask("1@cuda:0"), workers=1, key="job", nodes=possible)
    assert isinstance(found, Shortage)
    assert found.reason == "NodeUnhealthy"
    assert failure.says in found.message


@every_failure
def test_the_extender_s_metric_counts_the_closed_devices_by_cause(failure: Failure) -> None:
    # A node that is gone has no devices.
    closed = 0 if failure.node is None else 2 - failure.available
    assert failure.view.ledger.closed_devices() == ({failure.cause: closed} if closed else {})


@every_failure
def test_validate_suggests_nothing_that_cannot_run(failure: Failure) -> None:
    said = suggestion(Wanted(gpu_count=4), nodes=[failure.use], specs={})
    if failure.available:
        assert said == f"ask for at most {failure.available} GPUs: as many are free on one node"
    else:
        assert said == f"no GPU takes work: {failure.says}"


@every_failure
def test_a_device_that_cannot_report_has_no_figures_in_any_view(failure: Failure) -> None:
    use, wanted = failure.use.uses[0], failure.has_figures
    (device, _) = inventory_row(failure.inventory).nodes[0].devices
    v1, v2 = device_data(use, sees=EVERYTHING), device_row(numbered(failure)[0], tasks=NO_TASKS)
    assert (device.utilization, device.used_mib, device.temperature_celsius) == (
        (0.25, 812, 31) if wanted else (None,) * 3
    )
    assert (v1.utilization, v1.memory_used_mib, v1.temperature_celsius) == ((0.25, 812, 31) if wanted else (None,) * 3)
    assert (v2.utilization, v2.temperature, v2.free_memory_gb is None) == (
        (25.0, 31, False) if wanted else (None, None, True)
    )
    for text in (
        ginfo.text(failure.inventory).partition("GPU 1")[0],
        Screen(now=NOW, inventory=failure.inventory).lines()[3],
    ):
        assert ("31 C" in text, "812/32768 MiB" in text) == (wanted, wanted)


def test_an_old_report_is_no_cause_and_its_figures_have_their_age() -> None:
    old = msgspec.structs.replace(reported(), status=msgspec.structs.replace(reported().status, observed_at=OLD))
    silent = Failure(name="agent dead", says="", cause="", gpunode=old)
    text, (line, _) = ginfo.text(silent.inventory), Screen(now=NOW, inventory=silent.inventory).lines()[3:]
    assert "Available GPUs: 2" in text
    assert "Report: measurements of node a are more than 11 min old: promises alone count" in text
    assert "Temperature: 31 C (120m ago)" in text
    assert "31 C (120m ago)" in line
    (node,) = inventory_row(silent.inventory).nodes
    assert [(each.stale, each.takes_work, each.measured_at) for each in node.devices] == [(True, True, OLD)] * 2
    assert isinstance(check(silent.view.ledger, ask=make_ask("2"), node="a", key="pod"), Fit)


def test_a_reader_without_the_right_to_nodes_still_hears_of_a_dead_driver() -> None:
    dead = unreadable("NVML: driver not loaded")
    found = take([dead], pods=[], scheduler="Running", namespace="default")
    assert [use.reason for use in found.devices] == ["NVML: driver not loaded on node a"] * 2

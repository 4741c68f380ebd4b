from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Condition, NodeInfo, Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import Reshape
from dovetail.cluster.view import ClusterView, device_facts, node_facts
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from tests.core.builders import make_gpunode, make_node, make_pod
from tests.core.engine.builders import make_ask


def make_allocated_pod(*, node: str = "a", device: str = "a-0", phase: str = "Running") -> Pod:
    allocation = Allocation(
        node=node,
        mode="Exclusive",
        containers=[
            ContainerAllocation(
                index=0, devices=[AllocatedDevice(uuid=device, index=0, share_milli=1000, memory_mib=32768)]
            )
        ],
    )
    return make_pod({names.GPU_MILLI: "1000"}, annotations=annotations_of(allocation), node=node, phase=phase)


def make_view() -> ClusterView:
    view = ClusterView(ledger=Ledger())
    view.node_changed(make_node())
    view.gpunode_changed(make_gpunode())
    return view


def free(view: ClusterView) -> int:
    totals = view.ledger.totals()
    return (totals.milli - totals.promised_milli) // 1000


def test_a_bound_pod_holds_its_devices_until_it_has_ended() -> None:
    view = make_view()
    assert free(view) == 2
    view.pod_changed(make_allocated_pod())
    assert free(view) == 1
    view.pod_changed(make_allocated_pod(phase="Succeeded"))
    assert free(view) == 2


def test_a_bound_pod_keeps_what_it_was_bound_with_whatever_its_annotations_say_later() -> None:
    view = make_view()
    allocation = Allocation(node="a", mode="Fractional", containers=[], guard_fraction=0.95, workload="Inference")
    said = {names.MEMORY_STRATEGY: "Conservative", names.WORKLOAD: "Training"}
    view.pod_changed(make_pod(annotations=annotations_of(allocation) | said, node="a"))
    claim = view.ledger.claim("pod-1")
    assert claim is not None
    assert (claim.guard_fraction, claim.workload) == (0.95, "Inference")


def test_people_may_give_a_device_tenant_limits_of_its_own() -> None:
    view = make_view()
    view.gpunode_changed(make_gpunode(limits={"a-1": {"training": 2}}))
    first, second = view.ledger.devices("a")
    assert (first.training_limit, second.training_limit, second.inference_limit) == (None, 2, None)
    columns = view.ledger.columns(["a"])
    assert columns.training_limit[0, :2].tolist() == [1, 2]


def test_a_mig_device_is_not_given_to_who_asks_a_gpu() -> None:
    gpunode = make_gpunode("a")
    card = gpunode.status.devices[0]
    parts = [msgspec.structs.replace(card, uuid=f"MIG-{at}", index=9 + at, mig_profile="1g.10gb") for at in range(7)]
    status = msgspec.structs.replace(gpunode.status, devices=[card, *parts])
    view = make_view()
    view.gpunode_changed(msgspec.structs.replace(gpunode, status=status))
    assert [facts.uuid for facts in view.ledger.devices("a")] == [card.uuid]
    assert [facts.uuid for facts in view.ledger.of_profile("1g.10gb").devices("a")] == [part.uuid for part in parts]


def test_a_deleted_pod_frees_its_devices() -> None:
    view = make_view()
    view.pod_changed(make_allocated_pod())
    view.pod_gone(make_allocated_pod())
    assert free(view) == 2


def test_pods_may_come_before_their_node() -> None:
    view = ClusterView(ledger=Ledger())
    view.pod_changed(make_allocated_pod())
    view.gpunode_changed(make_gpunode())
    view.node_changed(make_node())
    assert free(view) == 1


def test_a_broken_allocation_holds_no_device_and_stops_nothing() -> None:
    view = make_view()
    view.pod_changed(make_pod(annotations={names.ALLOCATION: "{"}, node="a"))
    assert free(view) == 2


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda view: view.node_gone("a"), "Unhealthy"),
        (lambda view: view.node_changed(make_node(ready="Unknown")), "Unhealthy"),
        (lambda view: view.node_changed(make_node(spec={"unschedulable": True})), "Cordoned"),
        (lambda view: view.gpunode_gone("a"), "NoGPU"),
        (lambda view: view.gpunode_changed(make_gpunode(ready="False")), "Unhealthy"),
        (lambda view: view.gpunode_changed(make_gpunode(cordoned=("a-0", "a-1"))), "Cordoned"),
        (lambda view: view.gpunode_changed(make_gpunode(taint="Strangers")), "Cordoned"),
    ],
)
def test_what_happens_to_a_node_shows_in_its_refusal(change: Any, kind: str) -> None:
    view = make_view()
    change(view)
    refusal = check(view.ledger, ask=make_ask("1"), node="a", key="pod")
    assert not isinstance(refusal, Fit)
    assert refusal.kind == kind


@pytest.mark.parametrize("amounts", [{"cpu": "9223372036854775807"}, {"memory": "9223372036854775807Ei"}])
def test_a_pod_of_absurd_size_leaves_its_node_no_room_and_stops_nothing(amounts: dict[str, Any]) -> None:
    view = ClusterView(ledger=Ledger())
    view.node_changed(make_node("a"))
    view.gpunode_changed(make_gpunode("a"))
    for uid in ("1", "2"):
        view.pod_changed(make_pod(amounts, node="a", uid=uid))
    found = check(view.ledger, ask=make_ask("1"), node="a", key="x")
    assert not isinstance(found, Fit)
    assert found.kind == "CPUOrMemoryShort"


def test_a_node_of_absurd_size_takes_pods() -> None:
    view = ClusterView(ledger=Ledger())
    node = make_node("a")
    absurd = msgspec.structs.replace(node.status, allocatable={"cpu": "9223372036854775807", "memory": "1000000Ei"})
    view.node_changed(msgspec.structs.replace(node, status=absurd))
    view.gpunode_changed(make_gpunode("a"))
    assert isinstance(check(view.ledger, ask=make_ask("1"), node="a", key="x"), Fit)


def test_only_nodes_that_the_template_may_go_to_are_eligible() -> None:
    view = make_view()
    view.node_changed(make_node("tainted", spec={"taints": [{"key": "k", "effect": "NoSchedule"}]}))
    view.node_changed(make_node("labelled", metadata={"name": "labelled", "labels": {"zone": "z1"}}))
    assert view.eligible_nodes({}) == ["a", "labelled"]
    assert view.eligible_nodes({"nodeSelector": {"zone": "z1"}}) == ["labelled"]
    assert view.eligible_nodes({"tolerations": [{"operator": "Exists"}]}) == ["a", "tainted", "labelled"]


@pytest.mark.parametrize(
    ("turns", "checkpoint", "ready", "movable"),
    [
        (True, True, "True", True),
        (True, False, "True", False),
        (False, True, "True", False),
        (True, True, "False", False),
    ],
)
def test_tenants_can_be_moved_where_the_agent_takes_turns_and_checkpoints(
    turns: bool, checkpoint: bool, ready: str, movable: bool
) -> None:
    gpunode = make_gpunode(ready=ready)
    enforcement = msgspec.structs.replace(gpunode.status.enforcement, turns=turns, checkpoint=checkpoint)
    status = msgspec.structs.replace(gpunode.status, enforcement=enforcement)
    assert {facts.movable for facts in device_facts(msgspec.structs.replace(gpunode, status=status))} == {movable}


@pytest.mark.parametrize(
    ("mode", "said", "movable"),
    [("TimeShared", True, True), ("TimeShared", False, False), ("Fractional", True, False)],
)
def test_a_claim_is_movable_where_the_pod_takes_turns_and_was_bound_so(mode: Any, said: bool, movable: bool) -> None:
    view = make_view()
    allocation = Allocation(node="a", mode=mode, containers=[], movable=said)
    view.pod_changed(make_pod(annotations=annotations_of(allocation), node="a"))
    claim = view.ledger.claim("pod-1")
    assert claim is not None
    assert (claim.movable, claim.mode) == (movable, mode)


def test_the_ready_condition_alone_says_whether_a_node_is_ready() -> None:
    node = make_node("a")
    pressure = Condition(type="MemoryPressure", status="False")
    conditions = [pressure, *node.status.conditions]
    status = msgspec.structs.replace(node.status, conditions=conditions)
    assert node_facts(msgspec.structs.replace(node, status=status)).obstacle == ""
    only = msgspec.structs.replace(node.status, conditions=[msgspec.structs.replace(pressure, status="True")])
    assert node_facts(msgspec.structs.replace(node, status=only)).obstacle == "node is not ready"


def test_a_node_has_the_cpu_memory_and_pods_that_it_can_give() -> None:
    node = make_node("a")
    amounts = {"cpu": "1500m", "memory": "2047Ki", "pods": "7"}
    facts = node_facts(msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, allocatable=amounts)))
    assert (facts.cpu_milli, facts.memory_mib, facts.pods) == (1500, 1, 7)


def test_a_device_tells_what_the_agent_reports_of_it() -> None:
    gpunode = make_gpunode("a", reservedMiB=100, foreignMiB=200, utilization=0.5)
    first, second = device_facts(gpunode)
    assert (first.reserved_mib, first.foreign_mib, first.utilization) == (100, 200, 0.5)
    assert [(each.index, each.uuid, each.unavailable) for each in (first, second)] == [(0, "a-0", ()), (1, "a-1", ())]


def make_simulated(name: str) -> Any:
    node = make_node(name=name)
    annotations = {names.SIMULATED_NODE: "fake"}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=annotations))


def test_one_s_own_machine_is_all_that_there_is_until_another_node_comes() -> None:
    view, machine, replace = ClusterView(ledger=Ledger()), make_node("local"), msgspec.structs.replace
    info = NodeInfo(container_runtime_version="processes://local")
    view.node_changed(replace(machine, status=replace(machine.status, node_info=info)))
    found = view.ledger.one_machine()
    assert found is not None
    assert found.name == "local"
    view.node_changed(make_node("other"))
    assert view.ledger.one_machine() is None
    view.node_gone("local")
    assert view.ledger.one_machine() is None


def test_a_job_on_a_simulated_node_is_simulated_and_one_on_a_real_node_is_not() -> None:
    view = make_view()
    view.node_changed(make_simulated("fake"))
    assert view.is_simulated(["fake"])
    assert view.is_simulated(["a", "fake"])
    assert not view.is_simulated(["a"])


def test_a_job_without_a_node_is_simulated_if_all_nodes_are() -> None:
    view = ClusterView(ledger=Ledger())
    assert not view.is_simulated([])
    view.node_changed(make_simulated("fake"))
    assert view.is_simulated([])
    view.node_changed(make_node(name="a"))
    assert not view.is_simulated([])
    view.node_gone("a")
    assert view.is_simulated([])


def test_a_node_that_turns_real_is_no_longer_simulated() -> None:
    view = ClusterView(ledger=Ledger())
    view.node_changed(make_simulated("a"))
    view.node_changed(make_node(name="a"))
    assert not view.is_simulated(["a"])


@pytest.mark.parametrize("reshaped", ["card", "other"])
def test_the_instances_of_a_gpu_that_is_partitioned_again_take_no_work(reshaped: str) -> None:
    gpunode = make_gpunode(migProfile="1g.10gb", parent="card")
    reshape = {reshaped: Reshape(profiles=["3g.40gb"], requested_time="2026-01-01T00:00:00Z")}
    gpunode = msgspec.structs.replace(gpunode, spec=msgspec.structs.replace(gpunode.spec, reshape=reshape))
    causes = {each.cause for device in device_facts(gpunode) for each in device.unavailable}
    assert causes == ({"Reshaping"} if reshaped == "card" else set())


def shortage_of(view: ClusterView, text: str) -> Shortage:
    found = place(view.ledger, ask=make_ask(text), workers=1, key="job")
    assert isinstance(found, Shortage)
    return found


def test_a_node_that_has_not_reported_yet_may_have_what_no_other_has() -> None:
    view = make_view()
    assert shortage_of(view, "9").reason == "ExceedsCapacity"
    view.node_changed(make_node("b"))
    found = shortage_of(view, "9")
    assert found.reason == "NodeUnhealthy"
    assert found.message.endswith("; node b has not reported its GPUs yet")
    view.node_changed(make_node("c"))
    assert shortage_of(view, "9").message.endswith("; node b and 1 more have not reported their GPUs yet")
    view.node_gone("c")
    # Its agent says that there are none, or that it cannot read them.
    view.gpunode_changed(make_gpunode("b", gpus=0, ready="False"))
    assert shortage_of(view, "9").reason == "ExceedsCapacity"
    view.gpunode_gone("b")
    assert shortage_of(view, "9").reason == "NodeUnhealthy"

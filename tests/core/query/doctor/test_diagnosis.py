"""What the doctor says of a cluster: each fault with its level and how to fix it, and nothing of what is in order."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.answers.doctor import CheckResult
from dovetail.api.builtin import ConfigMap, Lease, Namespace, Node, NodeInfo, ResourceSlice
from dovetail.api.gpunode import Device, Enforcement, GPUNode, GPUNodeStatus, Stranger
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.cluster.picture import LEASED, RIGHTS, Picture, Unseen
from dovetail.query.doctor import control_plane, diagnosis

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
GONE, FORBIDDEN = Unseen(why="not found", missing=True), Unseen(why="you may not", missing=False)
POLICIES = [f"dovetail-{name}" for name in control_plane.POLICIES]

BY_PLUGIN = ConfigMap(data={"gpu_config.yaml": "delivery: NRI"})


def stamp(ago: timedelta = timedelta(0)) -> str:
    return f"{NOW - ago:%Y-%m-%dT%H:%M:%SZ}"


def lease(*, ago: timedelta = timedelta(seconds=1)) -> Lease:
    spec = {"holderIdentity": "one", "renewTime": stamp(ago), "leaseDurationSeconds": 8}
    return msgspec.convert({"spec": spec}, Lease)


def node(name: str = "a", *, managed: bool = True, **capacity: str) -> Node:
    amounts = {"dovetail.dev/gpu-milli": "2k"} if managed else {}
    amounts |= {key.replace("__", "/").replace("_", "."): value for key, value in capacity.items()}
    labels = {"dovetail.dev/managed": "true"} if managed else {}
    return msgspec.convert(
        {"metadata": {"name": name, "labels": labels}, "status": {"capacity": amounts, "allocatable": amounts}}, Node
    )


def condition(type_: str, status: str, message: str = "said so") -> Condition:
    return msgspec.convert(
        {"type": type_, "status": status, "reason": "x", "message": message, "lastTransitionTime": stamp()}, Condition
    )


def report(
    name: str = "a", *, ago: timedelta = timedelta(0), conditions: tuple[Condition, ...] = (), **changes: Any
) -> GPUNode:
    device = {"index": 0, "uuid": "GPU-a", "vendor": "nvidia", "model": "V100", "memory_mib": 32768}
    status = GPUNodeStatus(
        observed_at=stamp(ago),
        provider=changes.pop("provider", "nvml"),
        enforcement=changes.pop("enforcement", Enforcement()),
        devices=[Device(**(device | changes))],
        conditions=list(conditions),
    )
    return GPUNode(metadata=ObjectMeta(name=name), status=status)


def namespace(name: str, *, enforce: str | None = None) -> Namespace:
    labels = {} if enforce is None else {"pod-security.kubernetes.io/enforce": enforce}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Namespace)


def agents(*, wanted: int = 1, ready: int = 1, runtime: str = "") -> dict[str, Any]:
    status = {"desiredNumberScheduled": wanted, "numberReady": ready}
    return {"spec": {"template": {"spec": {"runtimeClassName": runtime}}}, "status": status}


def picture(**changes: Any) -> Picture:
    """A cluster in order, with these things otherwise."""
    whole = Picture(
        now=NOW,
        kinds={"gpujobs": None, "gpunodes": None, "gpunodetenants": None, "gpuquotas": None, "historyqueries": None},
        nodes=[node()],
        gpunodes=[report()],
        leases={name: lease() for name in LEASED},
        config=ConfigMap(data={"gpu_config.yaml": "heartbeat_interval: 300"}),
        runtime_class={"handler": "nvidia"},
        priority_class={"value": 0},
        webhook={},
        policies=[*POLICIES, "dovetail-agents"],
        bound_policies=[*POLICIES, "dovetail-agents"],
        webhook_pods={"status": {"availableReplicas": 2}},
        agents=agents(runtime="nvidia"),
        workloads=[],
        rights=dict.fromkeys(RIGHTS, True),
        cluster_policies=GONE,
        slices=[],
        namespaces=[namespace("team", enforce="baseline"), namespace("lab")],
        built_containers=[],
        resources_asked={"team": {"dovetail.dev/gpu-milli"}, "lab": {"example.org/dongle"}},
        resources_waited_for={"lab": {"example.org/dongle"}},
        job_namespaces={"team"},
        storage_classes=[],
        pod_monitors=GONE,
        neighbours=frozenset(),
    )
    return replace(whole, **changes)


def wrong(taken: Picture) -> list[CheckResult]:
    return [finding for finding in diagnosis.judge(taken) if finding.level != "ok"]


def test_a_cluster_in_order_has_nothing_but_good_findings() -> None:
    assert wrong(picture()) == []


def leases(**others: Any) -> dict[str, Any]:
    return {name: lease() for name in LEASED} | others


@pytest.mark.parametrize(
    ("changes", "level", "check", "says"),
    [
        ({"kinds": {"gpujobs": GONE}}, "error", "kinds", "the cluster does not know it"),
        ({"kinds": {"gpujobs": FORBIDDEN}}, "unknown", "kinds", "not looked at: you may not"),
        ({"leases": leases(operator=GONE)}, "error", "components", "it has no Lease yet: no job starts"),
        ({"leases": leases(extender=lease(ago=timedelta(hours=2)))}, "error", "components", "last seen 120m ago"),
        ({"leases": leases(scheduler=FORBIDDEN)}, "unknown", "components", "not looked at"),
        ({"agents": agents(wanted=3, runtime="nvidia")}, "error", "agents", "2 of 3 are not ready"),
        ({"agents": agents(wanted=0, runtime="nvidia")}, "warning", "agents", "matches none"),
        (
            {"rights": {right: right.act.resource != "jobs" for right in RIGHTS}},
            "error", "permissions", "its account may not create jobs",
        ),
        ({"rights": {RIGHTS[0]: FORBIDDEN}}, "unknown", "permissions", "not looked at"),
        ({"webhook": GONE}, "warning", "webhook", "pods with the annotation"),
        ({"webhook": FORBIDDEN}, "unknown", "webhook", "not looked at"),
        ({"webhook_pods": {"status": {}}}, "error", "webhook", "none answers"),
        ({"policies": POLICIES}, "error", "policies", "missing: dovetail-agents"),
        ({"bound_policies": []}, "error", "policies", "missing: dovetail-agents, dovetail-bindings"),
        ({"policies": [*POLICIES[:-1], "dovetail-agents"]}, "warning", "policies", "may act as any account there"),
        ({"policies": FORBIDDEN}, "unknown", "policies", "not looked at"),
        ({"runtime_class": GONE}, "error", "runtime-class", "no pod gets its devices"),
        ({"priority_class": GONE}, "error", "priority-class", "no job gets pods"),
        ({"priority_class": FORBIDDEN}, "unknown", "priority-class", "not looked at"),
        ({"config": GONE}, "error", "configuration", "there is no ConfigMap"),
        ({"config": FORBIDDEN}, "unknown", "configuration", "not looked at"),
        ({"config": ConfigMap(data={"gpu_config.yaml": "polcy: Pack"})}, "error", "configuration", "polcy"),
        ({"config": ConfigMap(data={"gpu_config.yaml": "a: ["})}, "error", "configuration", "refused"),
        (
            {"config": ConfigMap(data={"gpu_config.yaml": "notify_url: smtp://me:geheim@mail"})},
            "error", "configuration", "notify_url has a password before its host",
        ),
        (
            {"cluster_policies": [{"metadata": {"name": "p"}, "spec": {"cdi": {"nriPluginEnabled": True}}}]},
            "error", "cdi", "it removes the RuntimeClass nvidia",
        ),
        (
            {"cluster_policies": [{"metadata": {"name": "p"}, "spec": {}}], "config": BY_PLUGIN},
            "error", "cdi", "config.delivery is NRI, but NVIDIA's GPU operator runs no NRI plugin",
        ),
        ({"slices": FORBIDDEN}, "unknown", "nodes", "not looked at: you may not"),
        ({"nodes": FORBIDDEN}, "unknown", "nodes", "not looked at"),
        ({"gpunodes": FORBIDDEN}, "unknown", "nodes", "not looked at"),
        ({"nodes": []}, "warning", "nodes", "no node has GPUs"),
    ],
)  # fmt: skip
def test_a_fault_of_what_the_chart_installs(changes: dict[str, Any], level: str, check: str, says: str) -> None:
    found = [finding for finding in wrong(picture(**changes)) if finding.check == check]
    assert [finding.level for finding in found] == [level]
    assert says in found[0].message
    assert found[0].fix


@pytest.mark.parametrize(
    ("changes", "level", "says"),
    [
        ({"gpunodes": []}, "error", "no agent reports its devices"),
        ({"gpunodes": [report(ago=timedelta(minutes=10))]}, "error", "silent for 10m"),
        ({"gpunodes": [report(ago=timedelta(minutes=-10))]}, "warning", "ahead of this one by 10m"),
        (
            {"gpunodes": [report(conditions=(condition("Ready", "False", "NVML: driver not loaded"),))]},
            "error", "cannot be read: NVML: driver not loaded",
        ),
        ({"gpunodes": [report(conditions=(condition("ProcessesSeen", "False"),))]}, "warning", "said so"),
        ({"gpunodes": [report(conditions=(condition("PodResources", "False"),))]}, "error", "said so"),
        ({"gpunodes": [report(health="Unhealthy", health_reason="GpuIsLost")]}, "warning", "unhealthy: GpuIsLost"),
        (
            {"gpunodes": [report(strangers=[Stranger(pid=7, command="python")], taint="Strangers")]},
            "warning", "(7 python); it takes no new work",
        ),
        ({"nodes": [node(nvidia_com__gpu="2")]}, "error", "takes no pods with GPUs"),
        ({"nodes": [node(managed=False, nvidia_com__gpu="2")], "gpunodes": []}, "warning", "labels alone"),
        ({"nodes": [node(managed=False, nvidia_com__gpu="2")]}, "warning", "does not ask kubelet"),
        ({"agents": agents()}, "error", "NVIDIA's runtime is the default there"),
        (
            {"agents": agents(), "gpunodes": [report(provider="nvml+amd")]},
            "error", "NVIDIA's runtime is the default there",
        ),
    ],
)  # fmt: skip
def test_a_fault_of_a_node(changes: dict[str, Any], level: str, says: str) -> None:
    found = [finding for finding in wrong(picture(**changes)) if says in finding.message]
    assert [(finding.level, finding.check, finding.subject) for finding in found] == [(level, "node", "a")]
    assert found[0].fix


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"job_namespaces": {"lab"}}, "lab: a privileged pod"),
        ({"resources_asked": {"lab": {"nvidia.com/gpu"}}}, "lab: a privileged pod"),
        ({"namespaces": [namespace("team", enforce="privileged")]}, "team: a privileged pod"),
        ({"job_namespaces": {f"n{at:02}" for at in range(12)}}, "n09 and 2 more: a privileged pod"),
        ({"job_namespaces": {"kube-system", "dovetail-system"}}, ""),
        (
            {
                "job_namespaces": {"gpu-operator"},
                "config": ConfigMap(data={"gpu_config.yaml": "exempt_namespaces: [gpu-operator]"}),
            },
            "",
        ),
        ({"job_namespaces": FORBIDDEN}, "not looked at: you may not"),
        ({"namespaces": FORBIDDEN}, "not looked at: you may not"),
    ],
)
def test_namespaces_where_pod_security_lets_a_gpu_pod_see_every_card(changes: dict[str, Any], named: str) -> None:
    found = [finding for finding in wrong(picture(**changes)) if finding.check == "pod-security"]
    assert [finding.level for finding in found] == (
        [] if not named else ["unknown" if "you may" in named else "warning"]
    )
    assert all(named in finding.message for finding in found)
    if found and found[0].level == "warning":
        shown = found[0].message.partition(":")[0].replace(" and ", ", ").split(", ")
        assert found[0].fix == f"kubectl label namespace {shown[0]} pod-security.kubernetes.io/enforce=baseline"


@pytest.mark.parametrize(
    ("runtime", "had_devices", "faults"),
    [("processes://local", False, 0), ("processes://local", True, 1), ("containerd://2.1", False, 1)],
)
def test_a_machine_of_ones_own_is_complete_without_a_gpu_unless_it_had_one(
    runtime: str, had_devices: bool, faults: int
) -> None:
    replaced = msgspec.structs.replace
    machine = replaced(node(), status=replaced(node().status, node_info=NodeInfo(container_runtime_version=runtime)))
    lacks = replaced(condition("Ready", "False", "no vendor's library can be loaded"), reason="NoLibrary")
    found = report(conditions=(lacks,))
    found = replaced(found, status=replaced(found.status, devices=found.status.devices if had_devices else []))
    said = [each for each in wrong(picture(nodes=[machine], gpunodes=[found])) if "cannot be read" in each.message]
    assert len(said) == faults


def test_a_managed_node_that_advertises_nothing_is_a_fault() -> None:
    bare = msgspec.structs.replace(node(), status=msgspec.convert({}, type(node().status)))
    assert [finding.message for finding in wrong(picture(nodes=[bare]))] == [
        "it has healthy GPUs, but dovetail.dev/gpu-milli is not advertised"
    ]


def test_what_is_enforced_is_told_with_reasons_said_once() -> None:
    enforcement = Enforcement(turns=True, reasons={"mps": "off", "mig": "off"})
    told = diagnosis.judge(picture(gpunodes=[report(enforcement=enforcement)]))
    assert [each.message for each in told if each.check == "enforcement"] == ["enforces turns (mig, mps: off)"]


def test_who_may_not_list_nodes_is_told_what_the_reports_say() -> None:
    found = wrong(picture(nodes=FORBIDDEN, gpunodes=[report(health="Unhealthy", health_reason="GpuIsLost")]))
    assert [(each.level, each.message) for each in found] == [
        ("unknown", "not looked at: you may not"), ("warning", "GPU 0 is unhealthy: GpuIsLost"),
    ]  # fmt: skip


def test_one_node_alone_may_be_looked_at() -> None:
    two = picture(nodes=[node("a"), node("b")], gpunodes=[])
    assert [finding.subject for finding in diagnosis.judge(two, node="b") if finding.check == "node"] == ["b"]


def test_a_plugin_that_the_configuration_names_needs_no_runtime_class() -> None:
    policies = [{"metadata": {"name": "p"}, "spec": {"cdi": {"nriPluginEnabled": True}}}]
    assert wrong(picture(cluster_policies=policies, config=BY_PLUGIN, runtime_class=GONE)) == []


@pytest.mark.parametrize("cdi", [{"enabled": True, "default": True}, {"enabled": True, "nriPluginEnabled": False}, {}])
def test_a_gpu_operator_that_keeps_its_runtime_class_is_in_order(cdi: dict[str, Any]) -> None:
    assert wrong(picture(cluster_policies=[{"metadata": {"name": "p"}, "spec": {"cdi": cdi}}])) == []


def test_a_dra_driver_on_a_managed_node_is_an_error_and_elsewhere_none() -> None:
    spec = {"driver": "gpu.nvidia.com", "nodeName": "a"}
    slices = [msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice)]
    (found,) = wrong(picture(slices=slices))
    assert (found.level, found.subject) == ("error", "a")
    assert "both Dovetail and the DRA driver gpu.nvidia.com hand out the node's GPUs" in found.message
    assert found.fix.endswith("or keep the DRA driver off the node")
    assert not [each for each in wrong(picture(slices=slices, nodes=[node(managed=False)])) if "DRA" in each.message]

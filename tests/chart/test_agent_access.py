"""What the agent's pod may do, feature by feature: as the table of docs/node-agent.md says."""

from typing import Any

import pytest
import yaml

from dovetail.query.doctor.control_plane import POLICIES
from tests.chart.conftest import Render
from tests.chart.test_chart import named

SOCKET_FOLDER = {"name": "pod-resources", "mountPath": "/kubelet/pod-resources", "readOnly": True}


def pod(render: Render, **values: Any) -> dict[str, Any]:
    found: dict[str, Any] = named(render(**values), "DaemonSet", "dovetail-agent")["spec"]["template"]["spec"]
    return found


def host_paths(spec: dict[str, Any]) -> dict[str, str]:
    return {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}


def test_by_default_it_has_nothing_of_its_node_and_no_privilege(render: Render) -> None:
    spec = pod(render)
    (container,) = spec["containers"]
    assert (host_paths(spec), spec.get("hostPID", False)) == ({}, False)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "pod-resources" not in str(container)


def test_to_ask_kubelet_it_is_user_0_without_capabilities_and_has_the_sockets_folder_to_read(render: Render) -> None:
    spec = pod(render, agent__podResources__enabled=True)
    (container,) = spec["containers"]
    assert host_paths(spec) == {"pod-resources": "/var/lib/kubelet/pod-resources"}
    assert SOCKET_FOLDER in container["volumeMounts"]
    assert "--pod-resources=/kubelet/pod-resources/kubelet.sock" in container["args"]
    context = container["securityContext"]
    assert (context["runAsUser"], context["capabilities"]) == (0, {"drop": ["ALL"]})


def test_kubelets_folder_may_be_elsewhere(render: Render) -> None:
    spec = pod(render, agent__podResources__enabled=True, agent__podResources__path="/data/kubelet/pod-resources")
    assert host_paths(spec) == {"pod-resources": "/data/kubelet/pod-resources"}


def test_one_agent_for_simulated_nodes_asks_no_kubelet(render: Render) -> None:
    chart = render(simulation__enabled=True, agent__podResources__enabled=True)
    spec = named(chart, "Deployment", "dovetail-agent")["spec"]["template"]["spec"]
    assert host_paths(spec) == {}
    assert "pod-resources" not in str(spec["containers"])


@pytest.mark.parametrize(("simulated", "there"), [(False, True), (True, False)])
def test_agents_with_a_node_of_their_own_are_fenced_by_a_policy(render: Render, simulated: bool, there: bool) -> None:
    kinds = {
        each["kind"] for each in render(simulation__enabled=simulated) if each["metadata"]["name"] == "dovetail-agents"
    }
    policies = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert kinds == (policies if there else set())


def test_an_agent_may_write_what_the_policy_fences_and_nothing_else(render: Render) -> None:
    rules = named(render(), "ClusterRole", "dovetail-agent")["rules"]
    written = {
        resource for rule in rules for resource in rule["resources"] if set(rule["verbs"]) - {"get", "list", "watch"}
    }
    policy = named(render(), "ValidatingAdmissionPolicy", "dovetail-agents")
    fenced = {
        resource for rule in policy["spec"]["matchConstraints"]["resourceRules"] for resource in rule["resources"]
    }
    assert written <= fenced, written - fenced


def test_the_policy_sees_each_group_and_version_in_which_a_program_of_a_node_may_write(render: Render) -> None:
    """It matches requests exactly, so one in another group or version than its rules name would pass it."""
    chart = render(mps__enabled=True)
    constraints = named(chart, "ValidatingAdmissionPolicy", "dovetail-agents")["spec"]["matchConstraints"]
    assert constraints["matchPolicy"] == "Exact"
    seen = {
        (group, resource): rule["apiVersions"]
        for rule in constraints["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    for account in ("agent", "mps"):
        for rule in named(chart, "ClusterRole", f"dovetail-{account}")["rules"]:
            if set(rule["verbs"]) - {"get", "list", "watch"}:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        # The core group has one version; of ours, several are served.
                        assert seen[group, resource] == (["v1"] if group == "" else ["*"]), (account, resource)


def test_the_doctor_looks_for_every_policy_of_the_chart(render: Render) -> None:
    made = {each["metadata"]["name"] for each in render() if each["kind"] == "ValidatingAdmissionPolicy"}
    assert made == {f"dovetail-{name}" for name in (*POLICIES, "agents")}


def reads_of(chart: list[dict[str, Any]], account: str) -> set[str]:
    """The resources that a cluster role reads."""
    rules = named(chart, "ClusterRole", f"dovetail-{account}")["rules"]
    return {name for rule in rules for name in rule["resources"] if {"list", "watch"} & set(rule["verbs"])}


def config_of(chart: list[dict[str, Any]], *, namespace: str = "dovetail-system") -> dict[str, Any]:
    (found,) = (
        each for each in chart
        if (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"))
        == ("ConfigMap", "dovetail-config", namespace)
    )  # fmt: skip
    config: dict[str, Any] = yaml.safe_load(found["data"]["gpu_config.yaml"])
    return config


@pytest.mark.parametrize("reads_pods", [False, True])
def test_what_runs_on_nodes_reads_pods_only_where_a_value_says_so(render: Render, reads_pods: bool) -> None:
    chart = render(agent__readPods=reads_pods, mps__enabled=True)
    mine, other = ("pods", "gpunodetenants") if reads_pods else ("gpunodetenants", "pods")
    for account in ("agent", "mps"):
        reads = reads_of(chart, account)
        assert (mine in reads, other in reads) == (True, False), account
    assert ("gpunodetenants" in reads_of(chart, "operator")) is not reads_pods
    assert config_of(chart)["agents_read_pods"] is reads_pods


ON_NODES = {"dovetail-agent", "dovetail-mps", "dovetail-mps-csi", "dovetail-thaw"}
WITH_ALL = {"mps__enabled": True, "agent__turns__enabled": True, "agent__hostPID": True,
            "agent__podResources__enabled": True}  # fmt: skip


def test_what_runs_on_nodes_has_a_namespace_of_its_own_where_one_is_named(render: Render) -> None:
    chart = render(agent__namespace="dovetail-nodes", **WITH_ALL)
    there = {
        (each["kind"], each["metadata"]["name"]) for each in chart
        if each["metadata"].get("namespace") == "dovetail-nodes"
    }  # fmt: skip
    assert {name for kind, name in there if kind == "DaemonSet"} == ON_NODES
    assert {name for kind, name in there if kind == "ServiceAccount"} == {"dovetail-agent", "dovetail-mps"}
    assert config_of(chart, namespace="dovetail-nodes") == config_of(chart)
    for account in ("agent", "mps"):
        (subject,) = named(chart, "ClusterRoleBinding", f"dovetail-{account}")["subjects"]
        assert subject["namespace"] == "dovetail-nodes"
    policy = named(chart, "ValidatingAdmissionPolicy", "dovetail-agents")["spec"]["matchConditions"]
    accounts = [f"system:serviceaccount:dovetail-nodes:dovetail-{name}" for name in ("agent", "mps")]
    assert policy[0]["expression"] == f"request.userInfo.username in ['{accounts[0]}', '{accounts[1]}']"
    assert "dovetail-nodes" in config_of(chart)["exempt_namespaces"]


def test_the_control_planes_namespace_can_be_restricted_then(render: Render) -> None:
    chart = render(agent__namespace="dovetail-nodes", **WITH_ALL)
    workloads = [
        each for each in chart
        if each["kind"] in {"Deployment", "DaemonSet"} and each["metadata"]["namespace"] == "dovetail-system"
    ]  # fmt: skip
    assert {each["metadata"]["name"] for each in workloads} & ON_NODES == set()
    assert len(workloads) >= 3
    for each in workloads:
        spec = each["spec"]["template"]["spec"]
        assert (host_paths(spec), spec.get("hostPID", False)) == ({}, False), each["metadata"]["name"]
        assert spec["securityContext"]["runAsNonRoot"] is True


def test_by_default_all_is_in_the_releases_namespace(render: Render) -> None:
    of_nodes = [each for each in render(**WITH_ALL) if each["metadata"]["name"] in ON_NODES]
    assert {each["metadata"].get("namespace", "dovetail-system") for each in of_nodes} == {"dovetail-system"}

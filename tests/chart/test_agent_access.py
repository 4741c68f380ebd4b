"""What the agent's pod may do, feature by feature: as the table of docs/node-agent.md says."""

from typing import Any

import pytest

from dovetail_cli.doctor.control_plane import POLICIES
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


def test_the_doctor_looks_for_every_policy_of_the_chart(render: Render) -> None:
    made = {each["metadata"]["name"] for each in render() if each["kind"] == "ValidatingAdmissionPolicy"}
    assert made == {f"dovetail-{name}" for name in (*POLICIES, "agents")}

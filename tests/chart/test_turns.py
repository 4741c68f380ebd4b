"""What turns and the memory guard take of a node, and that nothing of it is there while they are off."""

from typing import Any

import pytest

from tests.chart.conftest import Helm, Render
from tests.chart.generated import CHART

HOST_PATHS = {"/sys/fs/cgroup", "/run/dovetail/turns"}


def pods(chart: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    kinds = {"Deployment", "DaemonSet"}
    return {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in chart if each["kind"] in kinds}


def host_paths(pod: dict[str, Any]) -> set[str]:
    return {each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}


@pytest.mark.parametrize("values", [{}, {"simulation__enabled": True, "agent__turns__enabled": True}])
def test_without_turns_nothing_of_a_node_is_mounted_and_no_watchdog_runs(render: Render, values: Any) -> None:
    found = pods(render(**values))
    assert "dovetail-thaw" not in found
    assert not host_paths(found["dovetail-agent"])
    assert "--turns=/turns" not in found["dovetail-agent"]["containers"][0]["args"]


@pytest.mark.parametrize("name", ["dovetail-agent", "dovetail-thaw"])
def test_agent_and_watchdog_see_the_same_folders_as_user_0_without_a_capability(render: Render, name: str) -> None:
    pod = pods(render(agent__turns__enabled=True))[name]
    (container,) = pod["containers"]
    assert host_paths(pod) == HOST_PATHS
    assert {"/cgroup", "/turns"} <= {each["mountPath"] for each in container["volumeMounts"]}
    security = container["securityContext"]
    assert (security["runAsUser"], security["capabilities"]) == (0, {"drop": ["ALL"]})
    assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()


def test_the_watchdog_is_in_a_pod_of_its_own_on_the_same_nodes_and_asks_the_api_server_nothing(render: Render) -> None:
    chart = render(agent__turns__enabled=True, agent__nodeSelector={"gpu": "yes"})
    agent, thaw = (pods(chart)[f"dovetail-{name}"] for name in ("agent", "thaw"))
    assert [each["name"] for each in agent["containers"]] == ["agent"]
    assert thaw["nodeSelector"] == agent["nodeSelector"]
    assert thaw["tolerations"] == agent["tolerations"]
    assert thaw["automountServiceAccountToken"] is False


def test_the_agent_may_kill_only_where_the_configuration_says_so(render: Render, helm: Helm) -> None:
    chart = render(config={"memory_overuse": "Kill"}, agent__hostPID=True)
    security = pods(chart)["dovetail-agent"]["containers"][0]["securityContext"]
    assert (security["runAsUser"], security["capabilities"]) == (0, {"drop": ["ALL"], "add": ["KILL"]})
    done = helm("template", "dovetail", str(CHART), "--set=config.memory_overuse=Kill")
    assert "config.memory_overuse is Kill, but needs agent.hostPID=true" in done.stderr


def test_moving_and_killing_need_a_capability_each(render: Render) -> None:
    values = {"agent__turns__enabled": True, "agent__checkpoint__enabled": True, "agent__hostPID": True}
    chart = render(config={"memory_overuse": "Kill"}, **values)
    security = pods(chart)["dovetail-agent"]["containers"][0]["securityContext"]
    assert security["capabilities"]["add"] == ["SYS_PTRACE", "KILL"]


def test_a_pod_with_a_liveness_probe_is_warned_and_not_refused_where_turns_are_on(render: Render) -> None:
    def policies(**values: Any) -> dict[str, dict[str, Any]]:
        return {each["kind"]: each for each in render(**values) if each["metadata"]["name"] == "dovetail-turns"}

    assert policies() == {}
    binding = policies(agent__turns__enabled=True)["ValidatingAdmissionPolicyBinding"]
    assert binding["spec"]["validationActions"] == ["Warn"]

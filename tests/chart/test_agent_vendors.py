"""Agents of nodes that a vendor's device plugin serves: each has its vendor's libraries and nodes, and no other's."""

import json
from typing import Any

import pytest

from tests.chart.conftest import Helm, Render
from tests.chart.generated import CHART

Manifest = dict[str, Any]
# What belongs to each vendor: the folders, the provider, and the label of its nodes.
VENDORS = {
    "nvidia": ([], "nvml", "nvidia.com/gpu.present"),
    "amd": (["/opt/rocm"], "amd", "feature.node.kubernetes.io/amd-gpu"),
    "intel": (["/opt/level-zero"], "intel", "intel.feature.node.kubernetes.io/gpu"),
    "ascend": (["/usr/local/Ascend/driver", "/usr/local/dcmi"], "ascend", "workerselector"),
}


def enabled(*names: str) -> dict[str, Any]:
    values: dict[str, Any] = {f"agent__vendors__{name}__enabled": True for name in names}
    return values | ({"agent__vendors__intel__libraries": ["/opt/level-zero"]} if "intel" in names else {})


def daemon_sets(chart: list[Manifest]) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each for each in chart if each["kind"] == "DaemonSet"}


def pod(chart: list[Manifest], vendor: str) -> Manifest:
    found: Manifest = daemon_sets(chart)[f"dovetail-agent-{vendor}"]["spec"]["template"]["spec"]
    return found


def host_paths(spec: Manifest) -> list[str]:
    return [each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each]


def test_without_a_vendor_there_is_one_daemon_set(render: Render) -> None:
    assert set(daemon_sets(render())) == {"dovetail-agent"}


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_vendors_agent_has_its_own_library_and_nodes_and_no_others(render: Render, vendor: str) -> None:
    folders, provider, label = VENDORS[vendor]
    chart = render(**enabled(*VENDORS))
    spec = pod(chart, vendor)
    (container,) = spec["containers"]
    assert host_paths(spec) == folders
    assert f"--provider={provider}" in container["args"]
    assert list(spec["nodeSelector"]) == [label]
    assert all(each["readOnly"] for each in container["volumeMounts"])
    visible = {each["name"]: each.get("value") for each in container["env"]}["NVIDIA_VISIBLE_DEVICES"]
    assert (visible == "all") is (vendor == "nvidia")


def test_a_node_has_one_agent(render: Render) -> None:
    chart = render(**enabled(*VENDORS))
    for vendor in VENDORS:
        affinity = pod(chart, vendor)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = affinity["nodeSelectorTerms"]
        assert term["matchExpressions"] == [{"key": "dovetail.dev/managed", "operator": "NotIn", "values": ["true"]}]
    selectors = [json.dumps(each["spec"]["selector"]) for each in daemon_sets(chart).values()]
    assert len(set(selectors)) == len(selectors) == 5


def test_only_vendors_without_another_way_to_their_devices_run_privileged(render: Render) -> None:
    chart = render(**enabled(*VENDORS))
    privileged = {
        vendor: bool(pod(chart, vendor)["containers"][0]["securityContext"].get("privileged")) for vendor in VENDORS
    }
    assert privileged == {"nvidia": False, "amd": True, "intel": False, "ascend": True}
    limits = pod(chart, "intel")["containers"][0]["resources"]["limits"]
    assert limits["gpu.intel.com/i915_monitoring"] == 1
    assert "gpu.intel.com/i915_monitoring" not in pod(chart, "amd")["containers"][0]["resources"]["limits"]


def test_without_privileges_an_agent_runs_as_a_user_without_rights(render: Render) -> None:
    chart = render(**enabled("amd"), agent__vendors__amd__privileged=False)
    context = pod(chart, "amd")["containers"][0]["securityContext"]
    assert (context["runAsNonRoot"], context["capabilities"]) == (True, {"drop": ["ALL"]})
    root = render(**enabled("amd"), agent__vendors__amd__privileged=False, agent__podResources__enabled=True)
    assert pod(root, "amd")["containers"][0]["securityContext"]["runAsUser"] == 0
    assert host_paths(pod(root, "amd")) == ["/var/lib/kubelet/pod-resources", "/opt/rocm"]


def test_network_policies_and_monitors_cover_them(render: Render) -> None:
    chart = render(**enabled("amd"), monitoring__podMonitor__enabled=True, agent__namespace="dovetail-nodes")
    for kind in ("NetworkPolicy", "PodMonitor"):
        (found,) = [each for each in chart if each["kind"] == kind and each["metadata"]["name"] == "dovetail-agent-amd"]
        assert found["metadata"]["namespace"] == "dovetail-nodes"
        selector = found["spec"].get("podSelector") or found["spec"]["selector"]
        assert selector["matchLabels"]["app.kubernetes.io/component"] == "agent-amd"


def test_the_agent_of_simulated_nodes_is_alone(render: Render) -> None:
    assert not daemon_sets(render(**enabled("amd"), simulation__enabled=True))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["agent.vendors.intel.enabled=true"], "agent.vendors.intel.libraries is empty: name the folders"),
        (["agent.vendors.amd.libraries={rocm}"], "at '/agent/vendors/amd/libraries/0'"),
        (["agent.vendors.amd.devices={/dev/kfd}"], "at '/agent/vendors/amd': additional properties 'devices'"),
        (["agent.vendors.cerebras.enabled=true"], "at '/agent/vendors': additional properties 'cerebras'"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(helm: Helm, values: list[str], said: str) -> None:
    done = helm("template", "dovetail", str(CHART), *(f"--set={each}" for each in values))
    assert done.returncode != 0
    assert said in done.stderr

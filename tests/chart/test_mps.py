"""The chart with MPS switched on: its daemon, what it may, and how pods and the agent find it."""

import json
from typing import Any

import pytest
import yaml

from dovetail import names
from tests.chart.conftest import Helm, Render
from tests.chart.generated import CHART
from tests.chart.test_chart import named, of_kind, pods

MPS = "/run/dovetail/mps"


@pytest.fixture
def chart(render: Render) -> list[dict[str, Any]]:
    return render(mps__enabled=True, monitoring__podMonitor__enabled=True)


def mounts(container: dict[str, Any]) -> dict[str, Any]:
    return {each["mountPath"]: each for each in container["volumeMounts"]}


def test_without_it_there_is_no_daemon_and_pods_do_not_look_for_one(render: Render) -> None:
    objects = render()
    assert not {"dovetail-mps", "dovetail-mps-csi"} & pods(objects).keys()
    assert "CSIDriver" not in {each["kind"] for each in objects}
    config = named(objects, "ConfigMap", "dovetail-config")["data"]["gpu_config.yaml"]
    assert "mps_directory" not in (yaml.safe_load(config) or {})


def test_simulated_nodes_have_no_daemon(render: Render) -> None:
    objects = render(mps__enabled=True, simulation__enabled=True)
    assert not {"dovetail-mps", "dovetail-mps-csi"} & pods(objects).keys()
    assert "CSIDriver" not in {each["kind"] for each in objects}


def test_an_upgrade_waits_until_somebody_deletes_the_pod_and_no_probe_restarts_it(chart: list[dict[str, Any]]) -> None:
    daemon = named(chart, "DaemonSet", "dovetail-mps")
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    assert daemon["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert "livenessProbe" not in container


def test_a_changed_configuration_does_not_count_as_an_upgrade(render: Render) -> None:
    one, other = (
        named(render(mps__enabled=True, config__log_level=level), "DaemonSet", "dovetail-mps")["spec"]["template"]
        for level in ("info", "debug")
    )
    assert one == other


def test_the_daemon_has_three_capabilities_and_the_node_s_processes(chart: list[dict[str, Any]]) -> None:
    pod = pods(chart)["dovetail-mps"]
    (container,) = pod["containers"]
    assert pod["hostPID"]
    assert container["securityContext"]["capabilities"] == {
        "drop": ["ALL"],
        "add": ["SYS_ADMIN", "DAC_OVERRIDE", "FOWNER"],
    }
    assert "privileged" not in container["securityContext"]


def test_only_the_supervisor_has_a_token_and_the_privileged_container_has_none(chart: list[dict[str, Any]]) -> None:
    pod = pods(chart)["dovetail-mps"]
    (container,), (privileged,) = pod["containers"], pod["initContainers"]
    assert pod["automountServiceAccountToken"] is False
    (volume,) = [each["name"] for each in pod["volumes"] if "projected" in each]
    token = mounts(container)["/var/run/secrets/kubernetes.io/serviceaccount"]
    assert (token["name"], token["readOnly"]) == (volume, True)
    assert privileged["securityContext"]["privileged"]
    assert volume not in {each["name"] for each in privileged["volumeMounts"]}


def test_it_may_read_tenants_and_tell_events_and_nothing_else(chart: list[dict[str, Any]]) -> None:
    rules = named(chart, "ClusterRole", "dovetail-mps")["rules"]
    assert [(rule["resources"], rule["verbs"]) for rule in rules] == [
        (["gpunodetenants"], ["list", "watch"]),
        (["events"], ["create"]),
    ]


def test_all_find_it_in_the_same_folder(render: Render) -> None:
    objects = render(mps__enabled=True, mps__directory="/run/elsewhere")
    config = yaml.safe_load(named(objects, "ConfigMap", "dovetail-config")["data"]["gpu_config.yaml"])
    (daemon,) = pods(objects)["dovetail-mps"]["containers"]
    volumes = {
        each["name"]: each.get("hostPath", {}).get("path") for each in pods(objects)["dovetail-agent"]["volumes"]
    }
    assert config["mps_directory"] == "/run/elsewhere"
    assert "--directory=/run/elsewhere" in daemon["args"]
    assert set(mounts(daemon)) >= {"/run/elsewhere", "/dev/shm"}
    assert volumes["mps-state"] == "/run/elsewhere/state"


def test_the_agent_reads_its_state_and_cannot_write_it(chart: list[dict[str, Any]]) -> None:
    (agent,) = [each for each in pods(chart)["dovetail-agent"]["containers"] if each["name"] == "agent"]
    assert "--mps-state=/mps/mps.json" in agent["args"]
    assert mounts(agent)["/mps"]["readOnly"]


def test_its_metrics_are_scraped(chart: list[dict[str, Any]]) -> None:
    assert "dovetail-mps" in [each["metadata"]["name"] for each in of_kind(chart, "PodMonitor")]


def test_kubelet_tells_the_driver_whose_volume_it_is_and_lets_nobody_else_say_so(chart: list[dict[str, Any]]) -> None:
    (driver,) = of_kind(chart, "CSIDriver")
    assert driver["metadata"]["name"] == names.MPS_DRIVER
    assert driver["spec"] == {
        "attachRequired": False,
        "podInfoOnMount": True,
        "fsGroupPolicy": "None",
        "volumeLifecycleModes": ["Ephemeral"],
    }


def test_the_privileged_driver_has_no_account_no_network_port_and_no_processes(chart: list[dict[str, Any]]) -> None:
    pod = pods(chart)["dovetail-mps-csi"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostPID", "hostNetwork", "hostIPC", "serviceAccountName", "initContainers"} & pod.keys()
    assert "ports" not in container
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume} == {
        MPS,
        "/var/lib/kubelet/pods",
        "/var/lib/kubelet/plugins_registry",
    }


def test_the_driver_is_restarted_and_upgraded_apart_from_the_daemon(chart: list[dict[str, Any]]) -> None:
    driver = named(chart, "DaemonSet", "dovetail-mps-csi")["spec"]
    assert "type" not in driver["updateStrategy"]
    assert driver["template"]["spec"]["nodeSelector"] == pods(chart)["dovetail-mps"]["nodeSelector"]


def test_only_mounts_for_the_node_are_passed_on_to_it(chart: list[dict[str, Any]]) -> None:
    spread = {
        (name, each["mountPath"]): each["mountPropagation"]
        for name, pod in pods(chart).items()
        for container in [*pod["containers"], *pod.get("initContainers", [])]
        for each in container["volumeMounts"]
        if "mountPropagation" in each
    }
    assert spread == {
        ("dovetail-mps", MPS): "Bidirectional",
        ("dovetail-mps-csi", MPS): "HostToContainer",
        ("dovetail-mps-csi", "/var/lib/kubelet/pods"): "Bidirectional",
    }


def test_shared_memory_is_bounded_before_the_daemon_starts(render: Render) -> None:
    (shm,) = pods(render(mps__enabled=True, mps__sharedMemory="8g"))["dovetail-mps"]["initContainers"]
    assert (shm["command"], shm["args"]) == (["dovetail-mps-shm"], [f"--directory={MPS}", "--size=8g"])


def test_a_size_that_tmpfs_does_not_know_is_refused(helm: Helm) -> None:
    for size in ("0", "8Gi", "50", "101%", "8g,mode=777"):
        words = (f"--set-json=mps.sharedMemory={json.dumps(size)}", "--set=mps.enabled=true")
        assert helm("template", "dovetail", str(CHART), *words).returncode, size


def test_kubelets_folder_and_writable_pipes_are_values(render: Render) -> None:
    chart = render(mps__enabled=True, mps__kubelet="/data/kubelet", mps__pipeReadOnly=False)
    pod = pods(chart)["dovetail-mps-csi"]
    (container,) = pod["containers"]
    assert {"--kubelet=/data/kubelet", "--pipe-writable"} <= set(container["args"])
    assert {"/data/kubelet/pods", "/data/kubelet/plugins_registry"} <= mounts(container).keys()

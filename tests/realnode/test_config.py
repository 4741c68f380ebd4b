"""The files that the node's programs read."""

import json
import tomllib
from pathlib import Path

import pytest

from dovetail import names
from dovetail_sandbox.realnode import config, objects
from dovetail_sandbox.realnode.network import choose

NETWORK = choose(first=0, taken=[])


@pytest.fixture
def files() -> dict[str, str]:
    return config.files(
        network=NETWORK,
        cgroup="dovetail-test",
        cni_plugins=Path("/usr/lib/cni"),
        sandbox_image="pause:test",
        snapshotter="native",
    )


def test_containerd_runs_the_nvidia_class_as_plain_runc(files: dict[str, str]) -> None:
    runtimes = tomllib.loads(files["containerd.toml"])["plugins"]["io.containerd.cri.v1.runtime"]["containerd"][
        "runtimes"
    ]
    assert runtimes[objects.runtime_class()["handler"]] == runtimes["runc"]


def test_containerd_takes_the_sandbox_image_and_snapshotter_that_it_is_given(files: dict[str, str]) -> None:
    images = tomllib.loads(files["containerd.toml"])["plugins"]["io.containerd.cri.v1.images"]
    assert images["pinned_images"]["sandbox"] == "pause:test"
    assert images["snapshotter"] == "native"


def test_kubelet_answers_nobody_without_the_api_servers_consent(files: dict[str, str]) -> None:
    kubelet = json.loads(files["kubelet.yaml"])
    assert kubelet["authentication"]["anonymous"]["enabled"] is False
    assert kubelet["authorization"]["mode"] == "Webhook"
    assert kubelet["address"] == str(NETWORK.node_address)


def test_the_pods_fit_into_the_addresses_that_the_pod_network_hands_out(files: dict[str, str]) -> None:
    plugin = json.loads(files["cni/10-dovetail.conflist"])["plugins"][0]
    assert plugin["ipam"]["ranges"] == [[{"subnet": str(NETWORK.pods)}]]
    assert json.loads(files["kubelet.yaml"])["maxPods"] < NETWORK.pods.num_addresses - 3


def test_every_kernel_setting_that_kubelet_would_write_has_a_file_to_read_instead(files: dict[str, str]) -> None:
    for name, value in config.KERNEL_SETTINGS.items():
        assert files[f"sysctl/{name}"] == f"{value}\n"


def test_the_node_never_exists_without_its_taint_its_label_and_its_devices() -> None:
    node = objects.node()
    assert node["spec"]["taints"][0]["key"] == "dovetail.dev/real-node"
    assert node["metadata"]["labels"][names.LABEL_MANAGED] == "true"
    devices = json.loads(node["metadata"]["annotations"][names.SIMULATED_DEVICES])
    assert devices["model"] == node["metadata"]["labels"][names.LABEL_MODEL]


def test_dns_leads_to_the_process_on_the_node() -> None:
    assert objects.dns_endpoints(NETWORK)["endpoints"][0]["addresses"] == [str(NETWORK.node_address)]
    assert str(NETWORK.node_address) in config.corefile(NETWORK)
    kubelet = config.kubelet(NETWORK, cgroup="dovetail-test")
    assert kubelet["clusterDNS"] == [objects.dns_service()["spec"]["clusterIP"]]

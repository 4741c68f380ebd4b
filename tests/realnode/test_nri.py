"""NVIDIA's NRI plugin gives containers the devices that the Binding names, and a user cannot name any."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dovetail import names
from dovetail_sandbox import bringup, cluster, realnode
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import reporter
from dovetail_sandbox.realnode.layout import CDI_FOLDER, INNER, NRI_SOCKET, Layout
from tests.polling import until
from tests.realnode.conftest import NODES

pytestmark = [pytest.mark.cluster, pytest.mark.realnode, pytest.mark.slow]

IMAGE = {"image": "dovetail.local/env:dev", "imagePullPolicy": "Never"}
LOOK = "ls /dev | grep ^sim; cat /etc/sim-* 2>/dev/null; env; sleep 3600"
PATIENCE_SECONDS = 120
CDI = "nvidia.cdi.k8s.io"
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A sandbox with `delivery: NRI`, whose real node has the plugin."""

    sandbox: Cluster
    kubectl_path: Path

    def kubectl(self, *words: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.kubectl_path, f"--kubeconfig={self.sandbox.kubeconfig}", "--namespace=default", *words],
            input=stdin, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
        )  # fmt: skip

    def devices(self) -> list[str]:
        """The UUIDs of the node's devices."""
        found = self.kubectl("get", "gpunode", realnode.NODE_NAME, "--output=json")
        return [each["uuid"] for each in json.loads(found.stdout)["status"]["devices"]] if not found.returncode else []

    def pod(self, name: str) -> Manifest:
        found: Manifest = json.loads(self.kubectl("get", "pod", name, "--output=json").stdout)
        return found

    def logs(self, name: str, container: str) -> str:
        read = ("logs", name, f"--container={container}")
        until(
            lambda: "HOSTNAME=" in self.kubectl(*read).stdout,
            what=lambda: self.kubectl("describe", "pod", name).stdout, seconds=PATIENCE_SECONDS,
        )  # fmt: skip
        return self.kubectl(*read).stdout


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    if reason := realnode.capable():
        pytest.skip(reason)
    own = cluster.get(f"nri-{os.getpid()}-{uuid.uuid4().hex[:4]}")
    folder = tmp_path_factory.mktemp("nri")
    nodes = folder / "nodes.yaml"
    nodes.write_text(NODES)
    programs = locate.resolve(["kubectl", "nvidia-cdi-nri"], report=reporter(sys.stderr))
    try:
        up = bringup.up(
            own.name, report=reporter(sys.stderr), nodes_file=nodes, real_node=True, overrides=["config.delivery=NRI"]
        )
        root = Layout.for_state_dir(up.folder).root
        made = Node(sandbox=up, kubectl_path=programs["kubectl"])
        write_specification(root / CDI_FOLDER.relative_to(INNER), devices=until_devices(made))
        socket = root / NRI_SOCKET.relative_to(INNER)
        with (folder / "plugin.log").open("wb") as log:
            plugin = subprocess.Popen([programs["nvidia-cdi-nri"], f"--nri-socket={socket}"], stdout=log, stderr=log)
        try:
            until_registered(folder / "plugin.log")
            yield made
        finally:
            plugin.terminate()
            plugin.wait()
    finally:
        own.down()


def until_devices(node: Node) -> list[str]:
    found: list[str] = []

    def reported() -> bool:
        found[:] = node.devices()
        return bool(found)

    until(reported, seconds=PATIENCE_SECONDS)
    return found


def until_registered(log: Path) -> None:
    until(lambda: "registered" in log.read_text(), what=log.read_text, seconds=PATIENCE_SECONDS)


def write_specification(folder: Path, *, devices: list[str]) -> None:
    """What `nvidia-ctk cdi generate` writes for real devices: here a variable, a file and a node for each UUID."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for index, device in enumerate(devices):
        file = folder / f"sim-{index}"
        file.write_text(f"file of {device}\n")
        mount = {
            "hostPath": str(CDI_FOLDER / file.name),
            "containerPath": f"/etc/{file.name}",
            "options": ["ro", "bind"],
        }
        edits = {
            "env": [f"SIM_{index}={device}"],
            "mounts": [mount],
            "deviceNodes": [{"path": f"/dev/sim{index}", "hostPath": "/dev/null", "type": "c"}],
        }
        entries.append({"name": device, "containerEdits": edits})
    whole = {"cdiVersion": "0.6.0", "kind": names.CDI_NVIDIA, "devices": entries}
    (folder / "nvidia.json").write_text(json.dumps(whole))


def make_pod(name: str, *, request: str = "1(T4)", annotations: dict[str, str] | None = None) -> str:
    """A pod of two containers, of which the first has the devices."""
    containers = [{"name": each, **IMAGE, "command": ["sh", "-c", LOOK]} for each in ("main", "other")]
    spec = {
        "terminationGracePeriodSeconds": 0, "containers": containers,
        "tolerations": [{"key": "dovetail.dev/real-node", "operator": "Exists"}],
    }  # fmt: skip
    texts = {names.REQUEST: request} | (annotations or {})
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": texts}, "spec": spec}
    )


def test_the_container_with_devices_gets_them_and_the_other_gets_none(node: Node) -> None:
    created = node.kubectl("create", "-f", "-", stdin=make_pod("one"))
    assert created.returncode == 0, created.stderr
    seen, other = node.logs("one", "main"), node.logs("one", "other")
    pod = node.pod("one")
    assert "runtimeClassName" not in pod["spec"]
    annotations = pod["metadata"]["annotations"]
    device = annotations["dovetail.dev/visible-devices.0"]
    assert {key: text for key, text in annotations.items() if CDI in key} == {
        f"{CDI}/container.main": f"nvidia.com/gpu={device}"
    }
    index = node.devices().index(device)
    assert f"sim{index}\n" in seen
    assert f"file of {device}" in seen
    assert f"SIM_{index}={device}" in seen
    assert seen.count("file of") == 1
    assert "sim" not in other.lower().replace("dovetail.dev", "")
    node.kubectl("delete", "pod", "one", "--grace-period=0", "--force")


def test_a_gpujob_of_two_devices_gets_both_and_names_no_runtime_class(node: Node) -> None:
    template = {"spec": json.loads(make_pod("x"))["spec"]}
    job = {
        "apiVersion": names.API_VERSION, "kind": "GPUJob", "metadata": {"name": "two"},
        "spec": {"gpu": "2(T4)", "template": template},
    }  # fmt: skip
    created = node.kubectl("create", "-f", "-", stdin=json.dumps(job))
    assert created.returncode == 0, created.stderr
    node.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "gpujob/two", f"--timeout={PATIENCE_SECONDS - 5}s")
    selector = f"--selector={names.LABEL_JOB}=two"
    (pod,) = json.loads(node.kubectl("get", "pods", selector, "--output=json").stdout)["items"]
    assert "runtimeClassName" not in pod["spec"]
    seen = node.logs(pod["metadata"]["name"], "main")
    assert all(f"file of {device}" in seen for device in node.devices())
    node.kubectl("delete", "gpujob", "two")


@pytest.mark.parametrize("key", [f"{CDI}/pod", f"{CDI}/container.main", CDI, "cdi.k8s.io/x"])
def test_a_user_cannot_name_devices(node: Node, key: str) -> None:
    refused = node.kubectl("create", "-f", "-", stdin=make_pod("forged", annotations={key: "nvidia.com/gpu=all"}))
    assert refused.returncode != 0
    assert f"annotation {key} would give the pod devices past Dovetail" in refused.stderr


@pytest.mark.parametrize("text", ["nvidia.com/gpu=all", None])
def test_the_names_of_a_bound_pod_do_not_change(node: Node, text: str | None) -> None:
    node.kubectl("create", "-f", "-", stdin=make_pod("bound"))
    node.logs("bound", "main")
    patch = {"metadata": {"annotations": {f"{CDI}/container.main": text}}}
    refused = node.kubectl("patch", "pod", "bound", f"--patch={json.dumps(patch)}", "--type=merge")
    assert f"annotation {CDI}/container.main would give" in refused.stderr
    other = node.kubectl("annotate", "pod", "bound", f"{CDI}/container.other=nvidia.com/gpu=all")
    assert f"annotation {CDI}/container.other would give" in other.stderr
    allowed = node.kubectl("annotate", "pod", "bound", "team=vision")
    assert allowed.returncode == 0, allowed.stderr
    node.kubectl("delete", "pod", "bound", "--grace-period=0", "--force")


def test_only_the_extender_names_them_in_a_binding(node: Node) -> None:
    node.kubectl("create", "-f", "-", stdin=make_pod("waits", request="1(H100)"))
    binding = {
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": "waits", "annotations": {f"{CDI}/container.main": "nvidia.com/gpu=all"}},
        "target": {"kind": "Node", "name": realnode.NODE_NAME},
    }  # fmt: skip
    path = "/api/v1/namespaces/default/pods/waits/binding"
    refused = node.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    assert refused.returncode != 0
    assert f"annotation {CDI}/container.main would give the pod devices past Dovetail" in refused.stderr
    node.kubectl("delete", "pod", "waits", "--grace-period=0", "--force")

"""MPS's folders in pods under Pod Security `baseline`, with kubelet, driver and supervisor as a node has them.

MPS's control program and NVIDIA's libraries are stand-ins; the mounts, the driver's registration and what a container
can do with its mounts are real.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import yaml

from dovetail.api.builtin import Pod
from dovetail.pods.containers import parts_of
from dovetail.pods.injection import completed
from dovetail.pods.mps_client import with_mps
from dovetail_sandbox import realnode
from dovetail_sandbox.installed import chart
from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import Lines
from dovetail_sandbox.realnode import cgroups
from dovetail_sandbox.realnode.errors import CommandError
from dovetail_sandbox.realnode.layout import Layout
from tests.agent import cuda_stub, nvml_stub
from tests.agent.mps_stub import SOURCE, MpsStub
from tests.agent.nvml_stub import Scenario
from tests.realnode.conftest import RealSandbox
from tests.realnode.host_python import pod_of
from tests.realnode.test_turns import processes_of

pytestmark = [pytest.mark.cluster, pytest.mark.realnode]

DRIVER, SUPERVISOR = "dovetail-mps-csi", "dovetail-mps"
VOLUME = re.compile("/var/lib/kubelet/pods/[^/]+/volumes/kubernetes.io~csi/")
# What a tenant that is root in its container can do to what it shares, one fact a line; then it stays.
TRIES = """
pipe=$CUDA_MPS_PIPE_DIRECTORY
touch $pipe/new 2>/dev/null && echo wrote in pipe
rm -f $pipe/control 2>/dev/null; test -e $pipe/control || echo removed the socket
mv $pipe/control $pipe/other 2>/dev/null && echo moved the socket
mount -o remount,rw,bind $pipe 2>/dev/null && echo remounted
touch /dev/shm/mine || echo no shared memory
test -e /dev/shm/mine && echo tried
sleep 3600
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The real node with MPS at work, and a namespace of tenants that enforces `baseline`."""

    sandbox: RealSandbox
    namespace: str
    folder: Path
    manifests: dict[str, dict[str, Any]]

    def start(self, name: str) -> None:
        self.sandbox.kubectl("create", "-f", "-", stdin=json.dumps(self.manifests[name]))
        ready = ("--for=jsonpath={.status.phase}=Running", "--timeout=60s")
        self.sandbox.kubectl("wait", *ready, f"pod/{name}", f"--namespace={chart.NAMESPACE}")

    def remove(self, name: str) -> None:
        self.sandbox.kubectl("delete", "pod", name, f"--namespace={chart.NAMESPACE}", "--ignore-not-found")

    def create(self, pod: dict[str, Any], *options: str) -> None:
        self.sandbox.kubectl("create", "-f", "-", f"--namespace={self.namespace}", *options, stdin=json.dumps(pod))

    def delete(self, name: str, *options: str) -> None:
        self.sandbox.kubectl("delete", "pod", name, f"--namespace={self.namespace}", *options)

    def pod(self, name: str) -> dict[str, Any]:
        words = ("get", "pod", name, f"--namespace={self.namespace}", "--output=json")
        found: dict[str, Any] = json.loads(self.sandbox.kubectl(*words))
        return found

    def running(self, name: str) -> None:
        ready = ("--for=condition=Ready", f"pod/{name}", "--timeout=90s")
        self.sandbox.kubectl("wait", *ready, f"--namespace={self.namespace}")

    def printed(self, name: str) -> str:
        return self.sandbox.kubectl("logs", name, f"--namespace={self.namespace}")

    def events(self, name: str) -> str:
        path = "--output=jsonpath={.items[*].message}"
        selector = f"--field-selector=involvedObject.name={name}"
        return self.sandbox.kubectl("get", "events", selector, path, f"--namespace={self.namespace}")

    @property
    def proc(self) -> Path:
        """The node's first process, by which its files are seen."""
        return Path(f"/proc/{cgroups.first(Layout.for_state_dir(self.sandbox.folder).cgroup)}")

    def mounts(self) -> list[str]:
        """Options of what our driver has mounted, as kubelet sees it."""
        lines = [line.split() for line in (self.proc / "mountinfo").read_text().splitlines()]
        return sorted(line[5] for line in lines if VOLUME.match(line[4]))


def tenant(name: str, *, gpu: str, mps: bool = True, command: str = TRIES, user: int = 0) -> dict[str, Any]:
    """A pod as the webhook completes it where MPS is on."""
    annotations = {"dovetail.dev/gpu": gpu}
    spec: dict[str, Any] = {
        "containers": [
            {
                "name": "main",
                "image": "dovetail.local/env:dev",
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", command],
                "securityContext": {"runAsUser": user},
            }
        ],
        "tolerations": [{"key": "dovetail.dev/real-node", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": "Never",
    }
    pod = msgspec.convert({"metadata": {"annotations": annotations}, "spec": spec}, Pod)
    whole = completed(spec, asked=parts_of(pod))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": with_mps(whole, directory="/mps") if mps else whole,
    }


def with_driver(pod: dict[str, Any], *, folder: str = "pipe", **attributes: str) -> dict[str, Any]:
    """The pod with a volume of our driver that its author wrote in by hand."""
    said = {"folder": folder} | attributes
    volume = {"name": "dovetail-mps-pipe", "csi": {"driver": "mps.dovetail.dev", "volumeAttributes": said}}
    spec = pod["spec"]
    (container,) = spec["containers"]
    container = container | {"volumeMounts": [{"name": "dovetail-mps-pipe", "mountPath": "/forged"}]}
    return pod | {"spec": spec | {"containers": [container], "volumes": [volume]}}


@pytest.fixture(scope="module")
def node(sandbox: RealSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("mps")
    stub = MpsStub(folder)
    for built, library in ((nvml_stub.built(), nvml_stub.LIBRARY), (cuda_stub.built(), cuda_stub.LIBRARY)):
        shutil.copy(built / library, folder / library)
    (folder / "nvml").write_text(Scenario(model="Tesla T4").text())
    values = {
        "image.registry": chart.BUILT_IMAGES,
        "mps.enabled": True,
        "mps.directory": str(folder),
        "mps.sharedMemory": "8m",
    }
    helm = locate.resolve(["helm"], report=Lines(sys.stderr))["helm"]
    rendered = chart.render(helm=helm, values=values)
    workloads = {each["metadata"]["name"]: each for each in rendered.workloads}
    supervisor = pod_of(
        workloads[SUPERVISOR],
        module="dovetail_agent.mps.main",
        init_module="dovetail_agent.mps.volume_driver.shared_memory_main",
        environment={"LD_LIBRARY_PATH": str(folder), "NVML_STUB_SCENARIO": str(folder / "nvml")},
    )
    supervisor["spec"]["containers"][0]["args"].append(f"--program={stub.program}")
    objects = [each for each in rendered.objects if each["metadata"]["name"] in {SUPERVISOR, "mps.dovetail.dev"}]
    manifests = {
        SUPERVISOR: supervisor,
        DRIVER: pod_of(workloads[DRIVER], module="dovetail_agent.mps.volume_driver.main"),
    }
    namespace = f"baseline-{uuid4().hex[:6]}"
    node = Node(sandbox=sandbox, namespace=namespace, folder=folder, manifests=manifests)
    sandbox.kubectl("create", "namespace", namespace)
    sandbox.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=baseline")
    sandbox.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={namespace}", "--timeout=30s")
    sandbox.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
    try:
        for name in (SUPERVISOR, DRIVER):
            node.start(name)
        yield node
        sandbox.kubectl("delete", "pods", "--all", f"--namespace={namespace}", "--timeout=60s")
        sandbox.wait_until(lambda: node.mounts() == [])
        sandbox.dovetail("audit")
    finally:
        sandbox.kubectl("delete", "namespace", namespace, "--wait=false")
        for name in (DRIVER, SUPERVISOR):
            print(sandbox.kubectl("logs", name, f"--namespace={chart.NAMESPACE}", "--tail=50"))
            node.remove(name)
        sandbox.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=yaml.safe_dump_all(objects))


def mounted_at_paths(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with the same folders by their paths on the node."""
    volumes = [
        {"name": each["name"], "hostPath": {"path": f"/mps/{each['csi']['volumeAttributes']['folder']}"}}
        for each in pod["spec"]["volumes"]
    ]
    return pod | {"spec": pod["spec"] | {"volumes": volumes}}


def test_a_share_starts_under_baseline_and_can_spoil_nothing_that_others_use(node: Node) -> None:
    pod = tenant("share", gpu="4G,0.25(T4)")
    with pytest.raises(CommandError, match='violates PodSecurity "baseline'):
        node.create(mounted_at_paths(pod), "--dry-run=server")
    restricted(node, pod)
    node.create(pod)
    node.running("share")
    node.sandbox.wait_until(lambda: "tried" in node.printed("share"))
    assert node.printed("share").splitlines() == ["tried"]
    assert [options.split(",")[0] for options in node.mounts()] == ["ro", "rw"]
    shared = node.sandbox.kubectl("exec", "share", f"--namespace={node.namespace}", "--", "df", "-k", "/dev/shm")
    assert shared.splitlines()[-1].split()[1] == "8192"
    assert asked_from_within(node, "share").returncode == 0
    for command in ("set_default_active_thread_percentage 7", "quit"):
        assert "Insufficient privileges" in asked_from_within(node, "share", command).stdout
    assert asked_from_within(node, "share", "get_default_active_thread_percentage").stdout == "100.0\n"


def restricted(node: Node, pod: dict[str, Any]) -> None:
    """The same pod, as a user who is not root, is let into a namespace that enforces `restricted`."""
    name = f"{node.namespace}-restricted"
    (container,) = pod["spec"]["containers"]
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    user = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = pod["spec"] | {"securityContext": user, "containers": [container | {"securityContext": context}]}
    node.sandbox.kubectl("create", "namespace", name)
    try:
        node.sandbox.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
        words = ("create", "-f", "-", f"--namespace={name}", "--dry-run=server")
        account = ("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=30s")
        node.sandbox.kubectl(*account)
        node.sandbox.kubectl(*words, stdin=json.dumps(pod | {"spec": spec}))
    finally:
        node.sandbox.kubectl("delete", "namespace", name, "--wait=false")


def asked_from_within(node: Node, name: str, command: str = "get_server_list") -> subprocess.CompletedProcess[str]:
    """MPS's control program by the pipes that a pod's container has, through that container's mount."""
    pids = processes_of(node.pod(name)["metadata"]["uid"])
    pipe = next(path for pid in pids if (path := Path(f"/proc/{pid}/root/mps/pipe")).is_dir())
    return subprocess.run(
        [sys.executable, "-S", "-E", SOURCE],
        input=f"{command}\n",
        env={"CUDA_MPS_PIPE_DIRECTORY": str(pipe)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_pod_that_names_the_driver_without_a_share_does_not_start_and_is_told_why(node: Node) -> None:
    plain = tenant("plain", gpu="1(T4)", mps=False)
    for key in ("schedulerName", "runtimeClassName"):
        del plain["spec"][key]
    plain = {**plain, "metadata": {"name": "plain"}, "spec": plain["spec"] | {"nodeName": realnode.NODE_NAME}}
    (container,) = plain["spec"]["containers"]
    for key in ("resources", "env"):
        del container[key]
    # The author says that the volume is for another pod, which has a share; kubelet knows better.
    forged = {"csi.storage.k8s.io/pod.uid": node.pod("share")["metadata"]["uid"]}
    node.create(with_driver(plain, **forged))
    node.create(with_driver(tenant("whole", gpu="1(T4)", mps=False)))
    for name in ("plain", "whole"):
        said = f"pod {node.namespace}/{name} has no share of a device on this node: "
        node.sandbox.wait_until(lambda name=name, said=said: said in node.events(name))  # type: ignore[misc]
        assert node.pod(name)["status"]["phase"] == "Pending"
        node.delete(name)
    assert len(node.mounts()) == 2


def test_a_pod_that_asks_for_nothing_and_brings_an_allocation_is_refused(node: Node) -> None:
    annotations = node.pod("share")["metadata"]["annotations"]
    pod = with_driver(tenant("forger", gpu="4G,0.25(T4)", mps=False))
    pod["metadata"]["annotations"] = {"dovetail.dev/allocation": annotations["dovetail.dev/allocation"]}
    for field in ("schedulerName", "runtimeClassName"):
        del pod["spec"][field]
    for field in ("env", "resources"):
        del pod["spec"]["containers"][0][field]
    with pytest.raises(CommandError, match="allocation"):
        node.create(pod)


def reasons(node: Node, name: str) -> str:
    path = "--output=jsonpath={.items[*].reason}"
    selector = f"--field-selector=involvedObject.name={name}"
    return node.sandbox.kubectl("get", "events", selector, path, f"--namespace={node.namespace}")


def test_while_the_driver_is_away_mounts_stay_and_pods_end_and_start_when_it_is_back(node: Node) -> None:
    node.remove(DRIVER)
    assert len(node.mounts()) == 2
    assert asked_from_within(node, "share").returncode == 0
    node.create(tenant("next", gpu="4G,0.25(T4)"))
    node.delete("share", "--wait=false")
    node.sandbox.wait_until(lambda: "FailedMount" in reasons(node, "next"))
    node.start(DRIVER)
    gone = ("--for=delete", "pod/share", "--timeout=90s", f"--namespace={node.namespace}")
    node.sandbox.kubectl("wait", *gone)
    node.running("next")
    assert [options.split(",")[0] for options in node.mounts()] == ["ro", "rw"]


def test_what_tenants_left_in_shared_memory_is_freed_once_the_last_is_gone(node: Node) -> None:
    litter = "mkdir -m 700 /dev/shm/kept && cd /dev/shm/kept && chmod +t . && seq 1500 | xargs touch && sleep 3600"
    node.create(tenant("litter", gpu="4G,0.25(T4)", command=litter, user=65532))
    shm = node.proc / f"root{node.folder}" / "shm"
    node.sandbox.wait_until((shm / "kept" / "1500").exists)
    node.sandbox.kubectl("delete", "pods", "--all", f"--namespace={node.namespace}", "--timeout=60s")
    node.sandbox.wait_until(lambda: not list(shm.iterdir()))

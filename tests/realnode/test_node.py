"""A sandbox with a real node, as a user meets it: what runs there, what it may do, and what is left afterwards."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from dovetail_sandbox import realnode
from dovetail_sandbox.realnode import cgroups
from dovetail_sandbox.realnode.commands import call
from dovetail_sandbox.realnode.errors import CommandError
from dovetail_sandbox.realnode.layout import Layout
from tests.realnode.conftest import RealSandbox

pytestmark = [pytest.mark.cluster, pytest.mark.realnode]

IMAGE = "dovetail.local/env:dev"
DEVICES = "test.dovetail.dev/devices"  # a Binding's annotation that is nobody's but this test's


def container(name: str, *, command: str, env: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", command],
        "env": env or [],
    }


def make_pod(name: str, *containers: dict[str, Any], **spec: Any) -> str:
    """A pod for the real node that is done when its containers are."""
    body = {
        "restartPolicy": "Never",
        "nodeName": realnode.NODE_NAME,
        "tolerations": [{"key": "dovetail.dev/real-node", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": list(containers),
    }
    metadata = {"name": name, "labels": {"app": name}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body | spec})


@pytest.fixture
def namespace(sandbox: RealSandbox) -> Iterator[str]:
    name = f"real-{uuid4().hex[:6]}"
    sandbox.kubectl("create", "namespace", name)
    sandbox.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=30s")
    yield name
    sandbox.kubectl("delete", "namespace", name, "--wait=false")


def run(sandbox: RealSandbox, pod: str, *, namespace: str) -> str:
    """Runs a pod to its end; returns what its first container printed."""
    name = json.loads(pod)["metadata"]["name"]
    sandbox.kubectl("create", "-f", "-", f"--namespace={namespace}", stdin=pod)
    return finished(sandbox, name, namespace=namespace)


def finished(sandbox: RealSandbox, name: str, *, namespace: str) -> str:
    done = ("--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    sandbox.kubectl("wait", *done, f"pod/{name}", f"--namespace={namespace}")
    return sandbox.kubectl("logs", name, f"--namespace={namespace}")


def environment(output: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in output.splitlines())


def test_the_node_is_ready_with_its_label_its_taint_and_its_devices(sandbox: RealSandbox) -> None:
    node = json.loads(sandbox.kubectl("get", "node", realnode.NODE_NAME, "--output=json"))
    assert node["metadata"]["labels"]["dovetail.dev/managed"] == "true"
    assert json.loads(node["metadata"]["annotations"]["dovetail.dev/simulated-devices"])["count"] == 2
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["dovetail.dev/real-node"]
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")


def test_a_container_finds_what_the_binding_said_and_nothing_where_it_said_nothing(
    sandbox: RealSandbox, namespace: str
) -> None:
    variables = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}}
        for name, annotation in (("SAID", DEVICES), ("ABSENT", "test.dovetail.dev/absent"))
    ]
    pod = make_pod(
        "bound",
        container("devices", command="env", env=variables),
        nodeName=None,
        schedulerName="nobody",
        runtimeClassName="nvidia",
    )
    sandbox.kubectl("create", "-f", "-", f"--namespace={namespace}", stdin=pod)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "bound", "annotations": {DEVICES: "GPU-aaa,GPU-bbb"}},
        "target": {"kind": "Node", "name": realnode.NODE_NAME},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/bound/binding"
    sandbox.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    printed = environment(finished(sandbox, "bound", namespace=namespace))
    assert printed["SAID"] == "GPU-aaa,GPU-bbb"
    assert printed["ABSENT"] == ""
    # On the runtime class that gives devices, and with no allocation: the webhook sees to that.
    assert printed["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_a_container_resolves_names_of_the_cluster_and_reaches_the_api_server(
    sandbox: RealSandbox, namespace: str
) -> None:
    tried = "nslookup kubernetes.default.svc.cluster.local && nc -w 5 kubernetes.default 443 </dev/null"
    # Its answer may be late while the node has just come up.
    command = f"until {tried}; do sleep 1; done; echo reached"
    printed = run(sandbox, make_pod("dns", container("dns", command=command)), namespace=namespace)
    assert "Server:\t\t10.0.0.10" in printed
    assert "Address: 10.0.0.1" in printed
    assert printed.endswith("reached\n")


def test_a_container_reaches_another_by_the_name_of_its_service(sandbox: RealSandbox, namespace: str) -> None:
    serve = "mkdir /tmp/w && echo hello > /tmp/w/index.html && exec httpd -f -p 8080 -h /tmp/w"
    ready = {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1}
    server = container("server", command=serve) | {"readinessProbe": ready}
    sandbox.kubectl("create", "-f", "-", f"--namespace={namespace}", stdin=make_pod("server", server))
    sandbox.kubectl("expose", "pod", "server", "--port=80", "--target-port=8080", f"--namespace={namespace}")
    sandbox.kubectl("wait", "--for=condition=Ready", "pod/server", "--timeout=60s", f"--namespace={namespace}")
    # The service may know of the server a moment after kubectl does.
    fetch = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 server 80 2>/dev/null | tail -n 1"
    wait = f"until {fetch} | grep hello; do sleep 1; done"
    assert run(sandbox, make_pod("client", container("client", command=wait)), namespace=namespace) == "hello\n"


def test_kubectl_exec_runs_in_the_container(sandbox: RealSandbox, namespace: str) -> None:
    pod = make_pod("shell", container("shell", command="sleep 600"))
    sandbox.kubectl("create", "-f", "-", f"--namespace={namespace}", stdin=pod)
    sandbox.kubectl("wait", "--for=condition=Ready", "pod/shell", "--timeout=60s", f"--namespace={namespace}")
    assert sandbox.kubectl("exec", "shell", f"--namespace={namespace}", "--", "hostname") == "shell\n"


def test_kubelet_answers_nobody_without_credentials(sandbox: RealSandbox) -> None:
    address = sandbox.kubectl("get", "node", realnode.NODE_NAME, "--output=jsonpath={.status.addresses[0].address}")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"https://{address}:10250/pods", context=insecure(), timeout=60)


def insecure() -> Any:
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


AS_THE_NODE = ("--as=system:node:real-0", "--as-group=system:nodes", "--as-group=system:authenticated")


def test_the_nodes_user_may_not_make_another_node(sandbox: RealSandbox) -> None:
    other = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "real-other"}})
    with pytest.raises(CommandError, match="is not allowed to modify node"):
        sandbox.kubectl("create", "-f", "-", *AS_THE_NODE, stdin=other)


def test_the_nodes_user_may_not_read_secrets_that_no_pod_of_it_names(sandbox: RealSandbox) -> None:
    with pytest.raises(CommandError, match="Forbidden"):
        sandbox.kubectl("get", "secrets", "--all-namespaces", *AS_THE_NODE)


def test_nothing_of_a_stopped_node_is_left_and_it_comes_back(sandbox: RealSandbox, namespace: str) -> None:
    layout = Layout.for_state_dir(sandbox.folder)
    realnode.stop(sandbox.folder)
    assert not realnode.running(sandbox.folder)
    assert leftovers(layout) == []
    realnode.stop(sandbox.folder)  # a second time is no error
    realnode.start(sandbox.folder, control_plane=sandbox.control_plane, say=lambda _: None)
    assert realnode.trouble(sandbox.folder) is None
    pod = make_pod("again", container("again", command="echo back"))
    assert run(sandbox, pod, namespace=namespace) == "back\n"


def leftovers(layout: Layout) -> list[str]:
    """Whatever the host still has of a node: cgroups, the interface, mounts, namespaces' processes, files."""
    groups = [str(root / layout.cgroup) for root in cgroups.hierarchies() if (root / layout.cgroup).exists()]
    links = [link["ifname"] for link in json.loads(call("ip", "-json", "link", "show"))]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    root = str(layout.root)
    processes = [path for path in Path("/proc").glob("[0-9]*/cmdline") if root in reading(path)]
    return [
        *groups,
        *(link for link in links if link == layout.host_interface),
        *(mount for mount in mounts if root in mount or "/run/dovetail" in mount),
        *map(str, processes),
        *([root] if layout.root.exists() else []),
    ]


def reading(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def test_a_start_that_fails_halfway_says_which_program_and_leaves_nothing(sandbox: RealSandbox, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "kubelet"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no such flag; exit 7\n")
    broken.chmod(0o755)
    control_plane = sandbox.with_binary("kubelet", broken)
    # Else its kubelet would call the node Ready, whose name is the same.
    realnode.stop(sandbox.folder)
    with pytest.raises(
        realnode.NodeFailedError, match=r"(?s)kubelet ended with status 7; .* kubelet\.log:.*no such flag"
    ):
        realnode.start(tmp_path, control_plane=control_plane, say=lambda _: None)
    assert leftovers(Layout.for_state_dir(tmp_path)) == []
    sandbox.restart()


def test_a_program_of_the_node_that_is_killed_is_named(sandbox: RealSandbox) -> None:
    killed = next(
        pid for pid in cgroups.pids(Layout.for_state_dir(sandbox.folder).cgroup) if command_of(pid) == "kubelet"
    )
    os.kill(killed, 9)
    sandbox.wait_until(lambda: not realnode.running(sandbox.folder))
    assert "kubelet ended with status -9" in str(realnode.trouble(sandbox.folder))
    sandbox.restart()
    assert realnode.trouble(sandbox.folder) is None


def command_of(pid: int) -> str:
    return reading(Path(f"/proc/{pid}/comm")).strip()

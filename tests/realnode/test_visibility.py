"""`tests/visibility.py` knows what kubelet does with a container's variables: a real kubelet does the same."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail_sandbox import realnode
from tests.realnode.conftest import RealSandbox
from tests.realnode.device_plugin import RESOURCE, DevicePlugin
from tests.realnode.test_podresources import plugin, read
from tests.visibility import SAFE, VARIABLE, Manifest, Sight, sight

__all__ = ["plugin"]
pytestmark = [pytest.mark.cluster, pytest.mark.realnode]

NAMESPACE = "default"
NODE = realnode.NODE_NAME
FROM_MAP = {"configMapRef": {"name": "mine"}}
ONE = {"resources": {"limits": {RESOURCE: "1"}}}
VOID, ALL = ({"name": VARIABLE, "value": value} for value in ("void", "all"))
OF_THE_POD = {
    "name": VARIABLE,
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['dovetail.dev/visible-devices.0']"}},
}
TRIED: dict[str, Manifest] = {
    "plugin": ONE,
    "plugin-env": {**ONE, "env": [ALL]},
    "plugin-map": {**ONE, "envFrom": [FROM_MAP]},
    "plugin-map-prefix": {**ONE, "envFrom": [{**FROM_MAP, "prefix": "APP_"}]},
    "plugin-map-split": {**ONE, "envFrom": [{"configMapRef": {"name": "split"}, "prefix": "NVIDIA_"}]},
    "plugin-void": {**ONE, "env": [VOID]},
    "zero-env": {"resources": {"limits": {RESOURCE: "0"}}, "env": [ALL]},
    "zero": {"resources": {"limits": {RESOURCE: "0"}}},
    "absent": {},
    "map-void": {"envFrom": [FROM_MAP], "env": [VOID]},
    "void-all": {"env": [VOID, ALL]},
    "all-void": {"env": [ALL, VOID]},
    "unbound": {"env": [OF_THE_POD]},
}


@pytest.fixture
def maps(sandbox: RealSandbox) -> Iterator[None]:
    """What `envFrom` brings: the variable itself, and one that a prefix makes it."""
    sandbox.kubectl("create", "configmap", "mine", f"--namespace={NAMESPACE}", f"--from-literal={VARIABLE}=all")
    sandbox.kubectl("create", "configmap", "split", f"--namespace={NAMESPACE}", "--from-literal=VISIBLE_DEVICES=all")
    yield
    sandbox.kubectl(
        "delete", "pods,configmaps", "seen", "named", "mine", "split", "--ignore-not-found", f"--namespace={NAMESPACE}"
    )


def container(name: str, more: Manifest) -> Manifest:
    image = {"image": "dovetail.local/env:dev", "imagePullPolicy": "Never", "command": ["env"]}
    return {"name": name, **image, **more}


def run(sandbox: RealSandbox, name: str, **spec: Any) -> None:
    """Create a pod and wait until it has succeeded."""
    spec |= {"tolerations": [{"operator": "Exists"}], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
    sandbox.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    done = ("--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", "--timeout=90s")
    sandbox.kubectl("wait", *done, f"--namespace={NAMESPACE}")


def seen(sandbox: RealSandbox, pod: str, name: str, *, given: list[str]) -> Sight:
    """What NVIDIA's runtime would make of the variable that the container had."""
    printed = sandbox.kubectl("logs", pod, f"--container={name}", f"--namespace={NAMESPACE}")
    said = dict(line.split("=", 1) for line in printed.splitlines()).get(VARIABLE)
    if said in given:
        return "the plugin's"
    return "nothing" if said in {"", "void"} else "anything"


def test_kubelet_gives_a_container_the_variables_that_the_model_says(
    sandbox: RealSandbox, plugin: DevicePlugin, maps: None
) -> None:
    """Init containers run one by one, so one device does for all that ask the plugin."""
    sandbox.wait_until(lambda: read(sandbox, "node", NODE)["status"]["allocatable"].get(RESOURCE) == "2")
    one_by_one = [container(name, more) for name, more in TRIED.items() if name.startswith("plugin")]
    at_once = [container(name, more) for name, more in TRIED.items() if not name.startswith("plugin")]
    where = {"nodeSelector": {"kubernetes.io/hostname": NODE}}
    run(sandbox, "seen", initContainers=one_by_one, containers=at_once, **where)
    given = [uuid for uuids in plugin.allocated for uuid in uuids]
    found = {name: seen(sandbox, "seen", name, given=given) for name in TRIED}
    expected = {name: sight(more, nvidia=True, advertised=(RESOURCE,)) for name, more in TRIED.items()}
    # The pod is bound by another scheduler, so its annotation is missing and it sees nothing.
    assert found == {name: "nothing" if each == "its own" else each for name, each in expected.items()}


def test_kubelet_admits_a_pod_by_name_that_asks_what_its_node_does_not_advertise(
    sandbox: RealSandbox, maps: None
) -> None:
    """So dovetail-pods refuses `spec.nodeName` for a container that only a plugin is to close."""
    asks = {"resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}
    run(sandbox, "named", containers=[container("main", asks)], nodeName=NODE)
    assert seen(sandbox, "named", "main", given=[]) == sight(asks, nvidia=True, advertised=()) == "anything"
    assert "anything" not in SAFE

"""A kube-scheduler outside the release: a pod with the printed configuration and the Secret that the release issues."""

import base64
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from dovetail import names
from dovetail_sandbox import realnode
from tests.installation.machine import RELEASE, SCHEDULER_IMAGE, Machine

OUTSIDE: Final = "kube-system"
FOLDER: Final = "/etc/kubernetes/dovetail"
BEGIN, END = "# --- KubeSchedulerConfiguration: begin ---\n", "# --- KubeSchedulerConfiguration: end ---"
_NAME: Final = "outside-scheduler"
_ROLES: Final = ("system:kube-scheduler", "system:volume-scheduler")
Files = Mapping[str, bytes]


def printed_configuration(machine: Machine) -> str:
    """The configuration in the notes of the release, to the letter."""
    notes = machine.helm("get", "notes", RELEASE).stdout
    return notes.partition(BEGIN)[2].partition(END)[0]


def secret(machine: Machine, name: str) -> dict[str, bytes]:
    """The content of a Secret of the release's namespace."""
    data: dict[str, str] = machine.get("secret", name).get("data", {})
    return {key: base64.b64decode(text) for key, text in data.items()}


def give(machine: Machine, files: Files) -> None:
    """Copy the client's files to where the outside kube-scheduler reads them."""
    data = {key: base64.b64encode(text).decode() for key, text in files.items()}
    copy = _object("Secret", name=_NAME, data=data)
    machine.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(copy))


@contextmanager
def scheduler(machine: Machine, files: Files, *, configuration: str = "") -> Iterator[None]:
    """Run it with these files of the client, and the printed configuration unless another one is given."""
    give(machine, files)
    text = configuration or printed_configuration(machine)
    config = _object("ConfigMap", name=_NAME, data={"scheduler.yaml": text})
    parts = [config, _object("ServiceAccount", name=_NAME), *_bindings(), _pod()]
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": parts})
    machine.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)
    try:
        yield
    finally:
        machine.kubectl("delete", "pod", _NAME, f"--namespace={OUTSIDE}", "--grace-period=0", "--force")


def scheduler_log(machine: Machine) -> str:
    return machine.kubectl("logs", _NAME, f"--namespace={OUTSIDE}", "--tail=200")


@dataclass(slots=True)
class Load:
    """Pods with a share of a device, one after the other."""

    machine: Machine
    made: list[str] = field(default_factory=list)

    def make(self) -> str:
        name = f"load-{uuid.uuid4().hex[:8]}"
        container = {
            "name": "main", "image": "dovetail.local/env:dev", "imagePullPolicy": "Never",
            "command": ["sleep", "3600"],
        }  # fmt: skip
        pod = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": {names.REQUEST: "0.1(T4)"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
        }  # fmt: skip
        self.machine.kubectl("create", "-f", "-", stdin=json.dumps(pod))
        self.made.append(name)
        return name

    def is_bound(self, name: str) -> bool:
        return bool(self.machine.get("pod", name, namespace="default")["spec"].get("nodeName"))

    def bind_one(self) -> None:
        """Make one pod, wait until it has a node, and delete it."""
        name = self.make()
        self.machine.until(lambda: self.is_bound(name), what=f"{name} has a node: {self.events(name)}")
        self.delete(name)

    def delete(self, name: str) -> None:
        self.machine.kubectl("delete", "pod", name, "--namespace=default", "--grace-period=0", "--force")

    def events(self, name: str) -> str:
        selector = f"--field-selector=involvedObject.name={name}"
        path = "{range .items[*]}{.reason}: {.message}\n{end}"
        return self.machine.kubectl("get", "events", "--namespace=default", selector, f"--output=jsonpath={path}")

    def failures(self) -> str:
        """What kube-scheduler has said of binds that failed."""
        said = "\n".join(self.events(name) for name in self.made)
        return "\n".join(line for line in said.splitlines() if line.startswith("FailedScheduling"))


def endpoint(machine: Machine) -> list[str]:
    """The addresses behind the extender's Service."""
    found = machine.get("endpointslice", "dovetail-extender").get("endpoints") or []
    return [address for each in found for address in each["addresses"]]


def _object(kind: str, *, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": OUTSIDE}, **content}


def _bindings() -> Iterator[dict[str, Any]]:
    subjects = [{"kind": "ServiceAccount", "name": _NAME, "namespace": OUTSIDE}]
    group = "rbac.authorization.k8s.io"
    for role in _ROLES:
        yield {
            "apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": f"outside-{role}"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role}, "subjects": subjects,
        }  # fmt: skip
    yield {
        "apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": _NAME, "namespace": OUTSIDE},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "extension-apiserver-authentication-reader"},
        "subjects": subjects,
    }  # fmt: skip


def _pod() -> dict[str, Any]:
    container = {
        "name": "kube-scheduler", "image": f"{SCHEDULER_IMAGE}:dev", "imagePullPolicy": "Never",
        "command": ["/bin/kube-scheduler", "--config=/etc/outside/scheduler.yaml"],
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/outside"},
            {"name": "client", "mountPath": FOLDER, "readOnly": True},
        ],
    }  # fmt: skip
    spec = {
        "serviceAccountName": _NAME, "nodeName": realnode.NODE_NAME, "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": _NAME}},
            {"name": "client", "secret": {"secretName": _NAME}},
        ],
    }  # fmt: skip
    return _object("Pod", name=_NAME, spec=spec)

"""What a sandbox adds for its local node: files, rights and the component. Writes below the sandbox's folder only."""

import getpass
import os
import shutil
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from dovetail import names
from dovetail.jobs.local_submission import Folders
from dovetail_agent.devices import discovery
from dovetail_local_node.limits import choice
from dovetail_local_node.runs import Runs
from dovetail_sandbox import access
from dovetail_sandbox.localnode import credentials
from dovetail_sandbox.localnode.credentials import Subject
from dovetail_sandbox.processes.processes import MARK
from dovetail_sandbox.state import DEFAULT_NAME, Component

NODE_NAME: Final = "local"
COMPONENT: Final = "local-node"
PORTS: Final = ("local-node", "local-node.metrics")
_ADDRESS: Final = "127.0.0.1"
_NODE_USER: Final = f"system:node:{NODE_NAME}"
_ROLE: Final = "dovetail-local-node"
_PROVIDER: Final = "--provider="


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """The local node of the sandbox in `folder`, whose control plane has its certificates in `pki`."""

    sandbox: str
    folder: Path
    pki: Path

    @property
    def data(self) -> Path:
        """The folder of the user's logs and environments. It outlives the sandbox."""
        return _data(self.sandbox)

    @property
    def _files(self) -> Path:
        return _files(self.folder)

    def write_certificates(self) -> None:
        """Write the certificates of the node, of its log server, and of the user as administrator."""
        self._files.mkdir(mode=0o700, exist_ok=True)
        self._sign("client", subject=Subject(user=_NODE_USER, group="system:nodes"))
        self._sign("server", subject=Subject(user=_NODE_USER, address=_ADDRESS))
        self._sign("user", subject=Subject(user=user(), group="system:masters"))

    def _sign(self, name: str, *, subject: Subject) -> None:
        credentials.sign(subject, pki=self.pki, certificate=self.certificate(name), key=self.key(name))

    def certificate(self, name: str) -> Path:
        """The file of a certificate: `client`, `server` or `user`."""
        return self._files / f"{name}.crt"

    def key(self, name: str) -> Path:
        """The file of its key."""
        return self._files / f"{name}.key"

    def component(self, *, ports: dict[str, int], kubeconfig: Path, credential: Path, umask: int) -> Component:
        """The node's process, for the supervisor. Its jobs get `umask`."""
        port, metrics = (ports[name] for name in PORTS)
        options = {
            "node": NODE_NAME,
            "user": user(),
            "state": self._files,
            "data": self.data,
            "mark": f"{MARK}={self.folder}",
            "certificate": self.certificate("server"),
            "key": self.key("server"),
            "client-ca": self.pki / "ca.crt",
            "port": port,
            "metrics-port": metrics,
            "metrics-certificates": credential,
            "umask": f"{umask:03o}",
            "kubeconfig": kubeconfig,
        }
        return Component(
            name=COMPONENT,
            argv=[
                *(sys.executable, "-P", "-m", "dovetail_local_node.main"),
                *(f"--{name}={value}" for name, value in options.items()),
                f"--account={access.SCRIPTS_ACCOUNT}",
            ],
            log=str(self.folder / "logs" / f"{COMPONENT}.log"),
            ready_url=f"https://{_ADDRESS}:{metrics}/readyz",
        )


def purge(sandbox: str) -> Path:
    """Remove the environments and files that submissions left for a sandbox's local node; return the logs' new folder.

    The next queue begins at number 1, so the logs move out of the way of its own. Raises `OSError`.
    """
    data = Folders(_data(sandbox))
    for folder in (data.environments, data.files, data.calls):
        shutil.rmtree(folder, ignore_errors=True)
    if not data.logs.is_dir() or not any(data.logs.iterdir()):
        return data.logs
    kept = (data.logs.with_name(f"{data.logs.name}-{number}") for number in count(1))
    return data.logs.rename(next(folder for folder in kept if not folder.exists()))


def _data(sandbox: str) -> Path:
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / ("gflow" if sandbox == DEFAULT_NAME else f"gflow-{sandbox}")


def runs(folder: Path) -> Runs:
    """The runs of jobs on the local node of the sandbox in `folder`."""
    return Runs.below(_files(folder))


def limits(folder: Path) -> str:
    """What the local node of the sandbox in `folder` says of limits of CPU and memory; empty without one."""
    try:
        return choice.sentence_file(_files(folder)).read_text(encoding="utf-8")
    except OSError:
        return ""


def _files(folder: Path) -> Path:
    return folder / "local-node"


def user() -> str:
    """The name of the user whose jobs run."""
    return getpass.getuser()


def with_real_devices(component: Component) -> Component:
    """The agent of a sandbox with a local node: it reports this machine's devices, and no simulated ones.

    One that loads a vendor's library has a process of its own, which the library may hang or end.
    """
    if not any(word.startswith(_PROVIDER) for word in component.argv):
        return component
    words = [word for word in component.argv if not word.startswith(_PROVIDER)]
    return structs.replace(
        component, argv=[*words, f"{_PROVIDER}auto", f"--node={NODE_NAME}"], apart=discovery.has_library()
    )


def rights() -> list[dict[str, Any]]:
    """What the node may do beyond a kubelet's rights: read the GPUJobs of its pods, to check who submitted them."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _ROLE}
    rule = {"apiGroups": [names.GROUP], "resources": ["gpujobs"], "verbs": ["get"]}
    subject = {"apiGroup": role["apiGroup"], "kind": "User", "name": _NODE_USER}
    version = f"{role['apiGroup']}/v1"
    return [
        {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": _ROLE}, "rules": [rule]},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _ROLE},
            "roleRef": role,
            "subjects": [subject],
        },
    ]

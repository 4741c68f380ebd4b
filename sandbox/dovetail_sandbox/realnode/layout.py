"""The files and addresses of a real node. Data only.

The node runs in mount and network namespaces of its own, so inside it every path is the standard one
(`/run/containerd`, `/var/lib/kubelet`, ...). On the host all its files are in `<state_dir>/realnode`.
"""

import hashlib
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

NODE_NAME = "real-0"
INNER = Path("/run/dovetail")  # the node's own files, as the node itself sees them
# Below INNER, so that plugins of the container runtime and CDI specifications may come from this machine.
NRI_SOCKET = INNER / "nri" / "nri.sock"
CDI_FOLDER = INNER / "cdi"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CLUSTER_DOMAIN = "cluster.local"
CLUSTER_DNS = IPv4Address("10.0.0.10")  # in kube-apiserver's default service network, 10.0.0.0/24


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The files, the cgroup and the network interface of one sandbox's real node."""

    root: Path
    ident: str

    @classmethod
    def for_state_dir(cls, state_dir: Path) -> "Layout":
        """Return the layout of a sandbox. The same state directory always gives the same names."""
        path = state_dir.resolve()
        return cls(root=path / "realnode", ident=hashlib.sha256(str(path).encode()).hexdigest()[:8])

    @property
    def etc(self) -> Path:
        return self.root / "etc"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def images(self) -> Path:
        """Image archives that the node loads before its kubelet starts."""
        return self.root / "images"

    @property
    def cgroup(self) -> str:
        """The cgroup, below each hierarchy's root, of the node's processes and pods."""
        return f"dovetail-{self.ident}"

    @property
    def host_interface(self) -> str:
        return f"dvt{self.ident}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNetwork:
    """One /24: a link between host and node at its start, the pods in its upper half."""

    block: IPv4Network

    @property
    def host_address(self) -> IPv4Address:
        return self.block[1]

    @property
    def node_address(self) -> IPv4Address:
        return self.block[2]

    @property
    def link_prefix(self) -> int:
        return 30

    @property
    def pods(self) -> IPv4Network:
        return list(self.block.subnets(prefixlen_diff=1))[1]

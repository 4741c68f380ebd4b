"""What a sandbox is to have, and the ports that it takes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail_sandbox import state
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.installed import neighbours
from dovetail_sandbox.installed.neighbours import Neighbour
from dovetail_sandbox.localnode import setup as localnode
from dovetail_sandbox.localnode.setup import LocalNode
from dovetail_sandbox.nodes import kwok
from dovetail_sandbox.nodes.node_sets import SimulatedNode
from dovetail_sandbox.processes import ports
from dovetail_sandbox.progress import Reporter
from dovetail_sandbox.state import State

# Values of the chart that are ports. Each sandbox has its own.
PORT_VALUES: Final = (
    "operator.metricsPort", "operator.livenessPort", "extender.port", "extender.metricsPort", "agent.metricsPort",
    "scheduler.securePort", "webhook.port", "webhook.metricsPort", "certificates.metricsPort", "gateway.metricsPort",
)  # fmt: skip
# Scripts of the systems that Dovetail replaces call this port.
GATEWAY_PORT: Final = "gateway.port"
FIRST_GATEWAY_PORT: Final = 8000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The content of a sandbox.

    nodes           the simulated nodes
    local_node      this machine is a node of it
    real_node       a node with kubelet and containerd
    bare            nothing of the chart
    values_file     a YAML file with values of the chart
    overrides       values of the chart, as `key=value`; they count more than the file's
    without         components of the chart that the user runs by hand
    neighbours      other projects' controllers
    request_log     the API server records each request of the chart's accounts
    kubernetes      minor version of the control plane
    authentication  the API server's AuthenticationConfiguration
    feature_gates   those of the control plane, as `A=true,B=true`
    runtime_config  the API server's, such as `scheduling.k8s.io/v1beta1=true`
    umask           that of the user's shell, which jobs on a local node get
    """

    nodes: Sequence[SimulatedNode]
    local_node: bool = False
    real_node: bool = False
    bare: bool = False
    values_file: Path | None = None
    overrides: Sequence[str] = ()
    without: Collection[str] = ()
    neighbours: Sequence[Neighbour] = ()
    request_log: bool = False
    kubernetes: str = ""
    authentication: Path | None = None
    feature_gates: str = ""
    runtime_config: str = ""
    umask: int = 0o022


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One sandbox that comes up: its handle, its plan, the programs by name, and where progress is reported."""

    cluster: Cluster
    plan: Plan
    programs: dict[str, Path]
    report: Reporter

    @property
    def api_port(self) -> int:
        """The port of the API server."""
        return self.cluster.state().ports["kube-apiserver"]

    def local_node(self) -> LocalNode:
        """This machine as a node of the sandbox."""
        return LocalNode(sandbox=self.cluster.name, folder=self.cluster.folder, pki=self.cluster.pki)

    def kubeconfig_of(self, component: str) -> Path:
        """Where the kubeconfig of a component is."""
        return self.cluster.folder / "kubeconfigs" / component

    def note(self, **changes: Any) -> None:
        """Change the sandbox's state on disk."""
        state.write(self.cluster.folder, state=msgspec.structs.replace(self.cluster.state(), **changes))


def choose_ports(plan: Plan, *, earlier: State | None, taken: list[int]) -> dict[str, int]:
    """The port of each component: that of the earlier sandbox if it is still free, else a new one."""
    names = _ports_of(plan)
    known = {} if earlier is None else earlier.ports
    kept = {name: port for name, port in known.items() if port not in taken and ports.is_free(port)}
    # A port that this process has reserved before stays: the same sandbox had it. Two may want a gateway's.
    not_reserved = {name for name, port in kept.items() if not ports.reserve(port)}
    if GATEWAY_PORT in not_reserved:
        del kept[GATEWAY_PORT]
    fresh = ports.choose([name for name in names if name not in kept], taken=[*taken, *kept.values()])
    if GATEWAY_PORT not in kept:
        fresh[GATEWAY_PORT] = ports.first_from(FIRST_GATEWAY_PORT, taken=[*taken, *kept.values()])
    return {name: port for name, port in {**kept, **fresh}.items() if name in {*names, GATEWAY_PORT}}


def _ports_of(plan: Plan) -> list[str]:
    local = localnode.PORTS if plan.local_node else ()
    return [*kwok.PORTS, *PORT_VALUES, *local, *neighbours.ports_of(plan.neighbours)]

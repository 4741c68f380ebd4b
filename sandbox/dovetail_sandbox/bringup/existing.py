"""The sandboxes that are already there, and a new one's place among them: its folder, name and ports.

A module of its own: it judges what is on the disk already, where `start` has the steps of a new sandbox.
"""

import os
from datetime import UTC, datetime

from dovetail.process import identity
from dovetail_sandbox import state
from dovetail_sandbox.bringup.plan import Plan, choose_ports
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.errors import SandboxError
from dovetail_sandbox.localnode import queue
from dovetail_sandbox.programs import catalog
from dovetail_sandbox.progress import Reporter
from dovetail_sandbox.state import State


def is_up(cluster: Cluster, *, report: Reporter) -> bool:
    """Whether it already runs. Raises `SandboxError` for a sandbox that is starting or only partly running."""
    known = state.read(cluster.folder)
    if known and known.phase == "starting" and identity.alive(known.starter):
        raise SandboxError(f"Sandbox {cluster.name!r} is being started by process {known.starter.pid}.")  # type: ignore[union-attr]  # alive
    if known and known.phase == "ready" and identity.alive(known.supervisor):
        cluster.check_format()
        for component in cluster.observed().values():
            if component.state in {"exited", "waiting"}:
                raise cluster.failure(component)
        if not known.local_node:
            report.say(f"Sandbox {cluster.name!r} is up already.")
        return True
    return False


def find_earlier(cluster: Cluster, *, local_node: bool, report: Reporter) -> State | None:
    """The state of the sandbox whose queue continues, if there is one. Removes what any other ended sandbox left.

    Raises `SandboxError` for a queue that cannot be continued; it stays as it is.
    """
    if not cluster.folder.exists():
        return None
    known = state.read(cluster.folder)
    if not queue.is_kept(cluster.folder, known=known):
        report.say(f"Removing what an earlier sandbox {cluster.name!r} left.")
        cluster.down()
        return None
    queue.check(cluster.folder, known=known)
    check_kind(cluster, local_node=local_node)
    cluster.end_processes(jobs=False)
    queue.prepare(cluster.folder, control_plane=cluster.kwok_folder)
    return known


def withdraw(cluster: Cluster) -> None:
    """End a sandbox that does not come up, and remove it, unless it continues a queue."""
    if cluster.state().kept is None:
        cluster.down()
    else:
        cluster.halt(jobs=False)


def reserve(cluster: Cluster, *, plan: Plan, earlier: State | None) -> None:
    """Create the folder and choose the ports. From here on, the name and the ports are taken."""
    with state.locked():
        others = [found for name in state.names() if (found := state.read(state.directory(name)))]
        taken = [port for other in others if other.name != cluster.name for port in other.ports.values()]
        if cluster.folder.exists() if earlier is None else identity.alive(cluster.state().starter):
            raise SandboxError(f"Sandbox {cluster.name!r} is being started by another process.")
        cluster.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        began = State(
            name=cluster.name,
            format=state.FORMAT,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            ports=choose_ports(plan, earlier=earlier, taken=taken),
            kept=earlier.kept if earlier else None,
            starter=identity.identify(os.getpid()),
            nodes=len(plan.nodes),
            devices=sum(node.devices for node in plan.nodes),
            local_node=plan.local_node,
            real_node=plan.real_node,
            kubernetes=catalog.tool("kube-apiserver", kubernetes=plan.kubernetes).version,
        )
        state.write(cluster.folder, state=began)


def check_kind(cluster: Cluster, *, local_node: bool) -> None:
    """Raise `SandboxError` for a sandbox whose nodes are of the other kind."""
    name, has_local_node = cluster.name, cluster.state().local_node
    if has_local_node and not local_node:
        raise SandboxError(
            f"Sandbox {name!r} has the queue of this machine. For simulated nodes, use another name "
            f"(dovetail sandbox up --name simulated), or remove the queue: dovetail sandbox down --purge --name {name}"
        )
    if local_node and not has_local_node:
        hint = f"dovetail sandbox down --name {name}"
        raise SandboxError(f"Sandbox {name!r} is up with simulated nodes. For a local node, end it first: {hint}")

"""Creates a sandbox step by step, its real nodes last, and takes back what does not come up."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from dovetail_sandbox import access, errors, realnode, state
from dovetail_sandbox.bringup import control_plane, existing, install
from dovetail_sandbox.bringup.plan import Plan, Work
from dovetail_sandbox.cluster import Cluster, get
from dovetail_sandbox.errors import InvalidInputError
from dovetail_sandbox.installed import neighbours, scraping, workloads
from dovetail_sandbox.localnode import queue
from dovetail_sandbox.localnode import setup as localnode
from dovetail_sandbox.nodes import kwok, node_sets
from dovetail_sandbox.nodes.node_sets import SimulatedNode
from dovetail_sandbox.programs import catalog, locate, versions
from dovetail_sandbox.progress import Reporter
from dovetail_sandbox.realnode.node import BINARIES as REAL_NODE_TOOLS
from dovetail_sandbox.state import State


def start_local_node(work: Work) -> None:
    """Start to make this machine a node, whose jobs run as the user's processes.

    It loads its modules while the chart is installed, and repeats what it may not do before that.
    """
    cluster, node = work.cluster, work.local_node()
    access.write_certificate_kubeconfig(
        work.kubeconfig_of(localnode.COMPONENT),
        context=localnode.COMPONENT,
        ca=cluster.pki / "ca.crt",
        certificate=node.certificate("client"),
        key=node.key("client"),
        port=work.api_port,
    )
    kubeconfig = work.kubeconfig_of(localnode.COMPONENT)
    component = node.component(
        ports=cluster.state().ports, kubeconfig=kubeconfig, credential=cluster.credential, umask=work.plan.umask
    )
    desired = state.read_desired(cluster.folder)
    cluster.desire(msgspec.structs.replace(desired, components=[*desired.components, component]))


def start_real_node(work: Work) -> None:
    """Start kubelet and containerd as a node whose pods are containers."""
    cluster = work.cluster
    plane = realnode.ControlPlane(
        kubeconfig=cluster.kubeconfig,
        ca_cert=cluster.pki / "ca.crt",
        ca_key=cluster.pki / "ca.key",
        api_port=work.api_port,
        binaries=work.programs,
    )
    realnode.start(cluster.folder, control_plane=plane, say=work.report.say)


def up(
    name: str = state.DEFAULT_NAME,
    *,
    report: Reporter,
    nodes_file: Path | None = None,
    limit_nodes: int | None = None,
    local_node: bool = False,
    real_node: bool = False,
    bare: bool = False,
    values_file: Path | None = None,
    overrides: Sequence[str] = (),
    without: Collection[str] = (),
    with_: Collection[str] = (),
    request_log: bool = False,
    kubernetes: str | None = None,
    authentication: Path | None = None,
    feature_gates: str = "",
    runtime_config: str = "",
) -> Cluster:
    """Create a sandbox, and return when everything in it is ready.

    With `local_node`, this machine is its one node, and jobs run as the user's processes; otherwise its nodes are
    simulated. A `bare` sandbox has nothing of the chart, so that Helm can install it. A running one stays
    unchanged, and a queue that a local node has left continues. `kubernetes` is a minor version, such as 1.34;
    `feature_gates` and `runtime_config` are what its components' options of these names take. If it fails, its
    processes end, and its folder stays for `logs` until the next `up` or `down`. Raises `SandboxError`.
    """
    _check_files({"authentication-config": authentication, "values": values_file})
    if bare and (local_node or values_file or overrides or without or request_log):
        raise InvalidInputError("bare", value="with options of the chart", allowed="--nodes, --real-node and --with")
    cluster = get(name)
    minor = versions.chosen(kubernetes, local_node=local_node, real_node=real_node)
    plan = Plan(
        nodes=_nodes(nodes_file, limit=limit_nodes, local_node=local_node),
        local_node=local_node,
        real_node=real_node,
        bare=bare,
        values_file=values_file and values_file.resolve(),
        overrides=overrides,
        without=without,
        neighbours=neighbours.chosen(with_),
        request_log=request_log,
        kubernetes=minor,
        authentication=authentication and authentication.resolve(),
        feature_gates=feature_gates,
        runtime_config=runtime_config,
    )
    # Another `up` may begin between the two: what it starts is nothing that an earlier one has left.
    with state.locked():
        if existing.is_up(cluster, report=report):
            existing.check_kind(cluster, local_node=local_node)
            versions.check_running(name, running=catalog.minor_of(cluster.state().kubernetes), wanted=kubernetes)
            return cluster
        earlier = existing.find_earlier(cluster, local_node=local_node, report=report)
    _start_new(cluster, plan=plan, earlier=earlier, report=report)
    return cluster


def _check_files(files: Mapping[str, Path | None]) -> None:
    """Raise `InvalidInputError` for an option's file that is none."""
    for option, path in files.items():
        if path is not None and not path.is_file():
            raise InvalidInputError(option, value=str(path), allowed="a file")


def _start_new(cluster: Cluster, *, plan: Plan, earlier: State | None, report: Reporter) -> None:
    """Bring up what is not there: its programs, its place among other sandboxes, and then all of it."""
    plan = replace(plan, real_node=plan.real_node and _can_have_a_real_node(report))
    programs = _programs(
        *(each.name for each in plan.neighbours),
        real_node=plan.real_node,
        report=report,
        kubernetes=plan.kubernetes,
        simulation=not plan.local_node,
    )
    with state.private_files() as umask:
        existing.reserve(cluster, plan=plan, earlier=earlier)
        work = Work(cluster=cluster, plan=replace(plan, umask=umask), programs=programs, report=report)
        _bring_up(work, earlier=earlier)


def fetch(programs: Sequence[str], *, real_node: bool, report: Reporter, kubernetes: str | None = None) -> list[str]:
    """Put a sandbox's programs and `programs` into the cache.

    Return the names of all that are there. Raises `InvalidInputError` for an unknown program or version.
    """
    minor = versions.chosen(kubernetes, real_node=real_node)
    unknown = sorted(set(programs) - set(catalog.table()))
    if unknown:
        raise InvalidInputError("program", value=unknown[0], allowed=f"one of {', '.join(sorted(catalog.table()))}")
    real_node = real_node and _can_have_a_real_node(report)
    found = _programs(*programs, real_node=real_node, report=report, kubernetes=minor)
    return sorted(found)


def _nodes(file: Path | None, *, limit: int | None, local_node: bool) -> list[SimulatedNode]:
    if local_node and (file is not None or limit is not None):
        raise InvalidInputError("local", value="with simulated nodes", allowed="--local, or --nodes and --limit-nodes")
    return [] if local_node else node_sets.read(file, limit=limit)


def _can_have_a_real_node(report: Reporter) -> bool:
    reason = realnode.capable()
    if reason:
        report.say(f"No real node: {reason}")
    return not reason


def _programs(
    *more: str, real_node: bool, report: Reporter, kubernetes: str, simulation: bool = True
) -> dict[str, Path]:
    plane = [name for name in catalog.CONTROL_PLANE if simulation or name != "kwok"]
    names = dict.fromkeys([*plane, *(REAL_NODE_TOOLS if real_node else ()), *more])
    return locate.resolve(list(names), report=report, kubernetes=kubernetes)


def _bring_up(work: Work, *, earlier: State | None) -> None:
    """Start everything; if that fails, end what was started."""
    cluster, report = work.cluster, work.report
    try:
        _start(work)
    except KeyboardInterrupt:
        report.say("Interrupted: ending what was started.")
        existing.withdraw(cluster)
        raise
    except InvalidInputError:
        existing.withdraw(cluster)
        raise
    except Exception as error:
        cluster.end_processes(jobs=earlier is None)
        if earlier is not None:
            report.say(f"The queue in {cluster.folder} stays as it is. {errors.how_to_purge(cluster.name)}")
        state.write(cluster.folder, state=msgspec.structs.replace(cluster.state(), phase="failed", error=str(error)))
        raise


def _start(work: Work) -> None:
    # First: both are quick, and reject wrong values.
    rendered = None if work.plan.bare else install.render(work)
    if rendered is not None:
        workloads.check_names(rendered, names=work.plan.without, option="without")
    plane = "Store and API" if work.plan.local_node else "Control plane: etcd, kube-apiserver, controllers, kwok"
    with work.report.task(plane):
        control_plane.start(work)
    if work.plan.nodes:
        with work.report.task(f"{len(work.plan.nodes)} simulated nodes"):
            access.create_nodes(work.cluster.kubeconfig, manifests=[kwok.manifest(node) for node in work.plan.nodes])
    if work.plan.local_node:
        start_local_node(work)
    if rendered is not None:
        install.install(work, rendered=rendered)
    if work.plan.local_node:
        with work.report.task("This machine"):
            work.cluster.wait_ready([localnode.COMPONENT])
    for each in work.plan.neighbours:
        with work.report.task(f"Another project's controller: {each.name}"):
            install.install_neighbour(work, neighbour=each)
    if work.plan.real_node:
        with work.report.task("Real node"):
            start_real_node(work)
    text = scraping.configuration(
        state.read_desired(work.cluster.folder).components, credential=work.cluster.credential
    )
    work.cluster.prometheus.write_text(text, encoding="utf-8")
    work.cluster.desire(msgspec.structs.replace(state.read_desired(work.cluster.folder), settled=True))
    work.note(phase="ready", starter=None, kept=queue.current() if work.plan.local_node else None)

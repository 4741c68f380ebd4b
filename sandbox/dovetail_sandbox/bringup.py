"""Creates a sandbox: programs, control plane, nodes, chart objects, deployables, real node."""

import os
import shutil
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.process import identity
from dovetail_local_node.launch import MARK as JOB_MARK
from dovetail_sandbox import access, errors, realnode, state
from dovetail_sandbox.cluster import KWOK_CLUSTER, Cluster, get, tail
from dovetail_sandbox.errors import ChartError, ComponentFailedError, InvalidInputError, SandboxError
from dovetail_sandbox.installed import chart, neighbours, workloads
from dovetail_sandbox.installed import neighbour_webhooks as beside
from dovetail_sandbox.installed.chart import Rendered
from dovetail_sandbox.installed.neighbours import Neighbour
from dovetail_sandbox.localnode import queue
from dovetail_sandbox.localnode import setup as localnode
from dovetail_sandbox.localnode.setup import LocalNode
from dovetail_sandbox.nodes import kwok, node_sets
from dovetail_sandbox.nodes.node_sets import SimulatedNode
from dovetail_sandbox.processes import ports, processes
from dovetail_sandbox.programs import catalog, locate, versions
from dovetail_sandbox.progress import Reporter
from dovetail_sandbox.realnode.node import BINARIES as REAL_NODE_TOOLS
from dovetail_sandbox.state import Component, Desired, State

# Values of the chart that are ports. Each sandbox has its own.
PORT_VALUES: Final = (
    "operator.metricsPort", "operator.livenessPort", "extender.port", "extender.metricsPort", "agent.metricsPort",
    "scheduler.securePort", "webhook.port", "webhook.metricsPort", "certificates.metricsPort", "gateway.metricsPort",
)  # fmt: skip
# Scripts of the systems that Dovetail replaces call this port.
GATEWAY_PORT: Final = "gateway.port"
FIRST_GATEWAY_PORT: Final = 8000
_KWOKCTL: Final = "kwokctl"
_CONTROL_PLANE_SECONDS: Final = 120.0
_NEIGHBOUR_SECONDS: Final = 120.0  # they take longer than our components
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The content of a sandbox.

    With `local_node`, this machine is a node of it. A `bare` one has nothing of the chart. `without` names components
    of the chart that the user runs by hand, `beside` the neighbours. With `request_log`, the API server records each
    request of the chart's accounts. `kubernetes` is the minor version of the control plane, `authentication` the API
    server's AuthenticationConfiguration.
    """

    nodes: Sequence[SimulatedNode]
    local_node: bool = False
    real_node: bool = False
    bare: bool = False
    overrides: Sequence[str] = ()
    without: Collection[str] = ()
    beside: Sequence[Neighbour] = ()
    request_log: bool = False
    kubernetes: str = ""
    authentication: Path | None = None


def up(
    name: str = state.DEFAULT_NAME,
    *,
    report: Reporter,
    nodes_file: Path | None = None,
    limit_nodes: int | None = None,
    local_node: bool = False,
    real_node: bool = False,
    bare: bool = False,
    overrides: Sequence[str] = (),
    without: Collection[str] = (),
    with_: Collection[str] = (),
    request_log: bool = False,
    kubernetes: str | None = None,
    authentication: Path | None = None,
) -> Cluster:
    """Create a sandbox, and return when everything in it is ready.

    With `local_node`, this machine is its one node, and jobs run as the user's processes; otherwise its nodes are
    simulated. A `bare` sandbox has nothing of the chart, so that Helm can install it. A running one stays
    unchanged, and a queue that a local node has left continues. `kubernetes` is a minor version, such as 1.34. If
    it fails, its processes end, and its folder stays for `logs` until the next `up` or `down`. Raises
    `SandboxError`.
    """
    if authentication is not None and not authentication.is_file():
        raise InvalidInputError("authentication-config", value=str(authentication), allowed="a file")
    if bare and (local_node or overrides or without or request_log):
        raise InvalidInputError("bare", value="with options of the chart", allowed="--nodes, --real-node and --with")
    cluster = get(name)
    nodes = _nodes(nodes_file, limit=limit_nodes, local_node=local_node)
    others = neighbours.chosen(with_)
    minor = versions.chosen(kubernetes, local_node=local_node, real_node=real_node)
    if _is_up(cluster, report=report):
        _check_kind(cluster, local_node=local_node)
        versions.check_running(name, running=catalog.minor_of(cluster.state().kubernetes), wanted=kubernetes)
        return cluster
    earlier = _earlier(cluster, local_node=local_node, report=report)
    real_node = real_node and _can_have_a_real_node(report)
    plan = Plan(
        nodes=nodes,
        local_node=local_node,
        real_node=real_node,
        bare=bare,
        overrides=overrides,
        without=without,
        beside=others,
        request_log=request_log,
        kubernetes=minor,
        authentication=authentication and authentication.resolve(),
    )
    more = [each.name for each in others]
    programs = _programs(*more, real_node=real_node, report=report, kubernetes=minor, simulation=not local_node)
    _begin(cluster, plan=plan, earlier=earlier)
    try:
        _Bringup(cluster=cluster, plan=plan, programs=programs, report=report).run()
    except KeyboardInterrupt:
        report.say("Interrupted: ending what was started.")
        _withdraw(cluster)
        raise
    except InvalidInputError:
        _withdraw(cluster)
        raise
    except Exception as error:
        cluster.end_processes(jobs=earlier is None)
        if earlier is not None:
            report.say(f"The queue in {cluster.folder} stays as it is. {errors.how_to_purge(name)}")
        state.write(cluster.folder, state=msgspec.structs.replace(cluster.state(), phase="failed", error=str(error)))
        raise
    return cluster


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


def _check_kind(cluster: Cluster, *, local_node: bool) -> None:
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


def _is_up(cluster: Cluster, *, report: Reporter) -> bool:
    """Whether it already runs. Raises `SandboxError` for a sandbox that is starting or only partly running."""
    known = state.read(cluster.folder)
    if known and known.phase == "starting" and identity.alive(known.starter):
        raise SandboxError(f"Sandbox {cluster.name!r} is being started by process {known.starter.pid}.")  # type: ignore[union-attr]  # alive
    if known and known.phase == "ready" and identity.alive(known.supervisor):
        for component in cluster.observed().values():
            if component.state in {"exited", "waiting"}:
                raise cluster.failure(component)
        report.say(f"Sandbox {cluster.name!r} is up already.")
        return True
    return False


def _earlier(cluster: Cluster, *, local_node: bool, report: Reporter) -> State | None:
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
    _check_kind(cluster, local_node=local_node)
    cluster.end_processes(jobs=False)
    queue.prepare(cluster.folder, control_plane=cluster.kwok_folder)
    return known


def _withdraw(cluster: Cluster) -> None:
    """End a sandbox that does not come up, and remove it, unless it continues a queue."""
    if cluster.state().kept is None:
        cluster.down()
    else:
        cluster.halt(jobs=False)


def _begin(cluster: Cluster, *, plan: Plan, earlier: State | None) -> None:
    """Create the folder and choose the ports. From here on, the name and the ports are reserved."""
    with state.locked():
        others = [found for name in state.names() if (found := state.read(state.directory(name)))]
        taken = [port for other in others if other.name != cluster.name for port in other.ports.values()]
        if cluster.folder.exists() if earlier is None else identity.alive(cluster.state().starter):
            raise SandboxError(f"Sandbox {cluster.name!r} is being started by another process.")
        cluster.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        began = State(
            name=cluster.name,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            ports=_ports(plan, earlier=earlier, taken=taken),
            kept=earlier.kept if earlier else None,
            starter=identity.identify(os.getpid()),
            nodes=len(plan.nodes),
            devices=sum(node.devices for node in plan.nodes),
            local_node=plan.local_node,
            real_node=plan.real_node,
            kubernetes=catalog.tool("kube-apiserver", kubernetes=plan.kubernetes).version,
        )
        state.write(cluster.folder, state=began)


def _ports(plan: Plan, *, earlier: State | None, taken: list[int]) -> dict[str, int]:
    """The port of each component: that of the earlier sandbox if it is still free, else a new one."""
    names = _ports_of(plan)
    known = {} if earlier is None else earlier.ports
    kept = {name: port for name, port in known.items() if port not in taken and ports.is_free(port)}
    if GATEWAY_PORT in kept and not ports.reserve(kept[GATEWAY_PORT]):
        del kept[GATEWAY_PORT]
    fresh = ports.choose([name for name in names if name not in kept], taken=[*taken, *kept.values()])
    if GATEWAY_PORT not in kept:
        fresh[GATEWAY_PORT] = ports.first_from(FIRST_GATEWAY_PORT, taken=[*taken, *kept.values()])
    return {name: port for name, port in {**kept, **fresh}.items() if name in {*names, GATEWAY_PORT}}


def _ports_of(plan: Plan) -> list[str]:
    local = localnode.PORTS if plan.local_node else ()
    return [*kwok.PORTS, *PORT_VALUES, *local, *neighbours.ports_of(plan.beside)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bringup:
    cluster: Cluster
    plan: Plan
    programs: dict[str, Path]
    report: Reporter

    def run(self) -> None:
        # First: both are quick, and reject wrong values.
        rendered = None if self.plan.bare else self._render()
        if rendered is not None:
            workloads.check_names(rendered, names=self.plan.without, option="without")
        simulation = "" if self.plan.local_node else ", kwok"
        with self.report.task(f"Control plane: etcd, kube-apiserver, controllers{simulation}"):
            self._start_control_plane()
        if self.plan.nodes:
            with self.report.task(f"{len(self.plan.nodes)} simulated nodes"):
                access.create_nodes(
                    self.cluster.kubeconfig, manifests=[kwok.manifest(node) for node in self.plan.nodes]
                )
        if rendered is not None:
            self._install(rendered)
        if self.plan.local_node:
            with self.report.task("This machine as a node: local"):
                self._start_local_node()
        for each in self.plan.beside:
            with self.report.task(f"Another project's controller: {each.name}"):
                self._start_neighbour(each)
        if self.plan.real_node:
            with self.report.task("Real node"):
                self._start_real_node()
        self._note(phase="ready", starter=None, kept=queue.current() if self.plan.local_node else None)

    def _install(self, rendered: Rendered) -> None:
        with self.report.task("What the chart installs: CRDs, roles, classes, configuration"):
            access.apply(rendered, kubectl=self.programs["kubectl"], kubeconfig=self.cluster.kubeconfig)
        started = self._start_deployables(rendered)
        with self.report.task(f"Dovetail: {', '.join(started) or 'nothing, as asked'}"):
            self.cluster.wait_ready(started)

    def _start_control_plane(self) -> None:
        """Start the supervisor, with kwokctl as its first program."""
        cluster, folder = self.cluster, self.cluster.kwok_folder
        known = cluster.state()
        configuration = kwok.configuration(
            ports=known.ports,
            binaries={**self.programs, "kube-controller-manager": self._patient_controllers()},
            kube_version=known.kubernetes,
            pki=cluster.pki,
            real_node=self.plan.real_node,
            requests=self._request_log() if self.plan.request_log else None,
            authentication=self.plan.authentication,
            lasting=queue.etcd_data(cluster.folder) if self.plan.local_node else None,
        )
        settings = cluster.folder / "kwokctl.yaml"
        settings.write_text(configuration, encoding="utf-8")
        arguments = [
            "create",
            "cluster",
            f"--name={KWOK_CLUSTER}",
            f"--config={settings}",
            "--kubeconfig=",
            "--wait=60s",
        ]
        kwokctl = Component(
            name=_KWOKCTL,
            argv=[str(self.programs["kwokctl"]), *arguments],
            env={"KWOK_WORKDIR": str(cluster.folder / "kwok")},
            log=str(cluster.folder / "logs" / "kwokctl.log"),
            once=True,
        )
        desired = Desired(components=[kwokctl], adopt=str(folder / "pids"), adopt_logs=str(folder / "logs"))
        state.write_desired(cluster.folder, desired=desired)
        self._start_supervisor()
        self._wait_for_control_plane()
        self._write_admin_kubeconfig(port=known.ports["kube-apiserver"])

    def _patient_controllers(self) -> Path:
        """Write the script that starts kube-controller-manager, and return its path."""
        script = self.cluster.folder / "kube-controller-manager"
        port = self.cluster.state().ports["kube-apiserver"]
        program = self.programs["kube-controller-manager"]
        text = kwok.starter(program, kubectl=self.programs["kubectl"], port=port, pki=self.cluster.pki)
        script.write_text(text, encoding="utf-8")
        script.chmod(0o700)
        return script

    def _write_admin_kubeconfig(self, *, port: int) -> None:
        cluster = self.cluster
        if not self.plan.local_node:
            access.write_admin_kubeconfig(
                cluster.kubeconfig,
                name=cluster.name,
                ca=cluster.pki / "ca.crt",
                certificate=cluster.pki / "admin.crt",
                key=cluster.pki / "admin.key",
                port=port,
                simulated=not self.plan.real_node,
            )
            return
        node = self._local_node()
        node.write_certificates()
        access.write_admin_kubeconfig(
            cluster.kubeconfig,
            name=cluster.name,
            ca=cluster.pki / "ca.crt",
            certificate=node.certificate("user"),
            key=node.key("user"),
            port=port,
            local_data=node.data,
        )

    def _local_node(self) -> LocalNode:
        return LocalNode(sandbox=self.cluster.name, folder=self.cluster.folder, pki=self.cluster.pki)

    def _start_local_node(self) -> None:
        cluster, node = self.cluster, self._local_node()
        rights = Rendered(text="", workloads=(), objects=tuple(localnode.rights()))
        access.apply(rights, kubectl=self.programs["kubectl"], kubeconfig=cluster.kubeconfig)
        access.write_certificate_kubeconfig(
            self._kubeconfig(localnode.COMPONENT),
            context=localnode.COMPONENT,
            ca=cluster.pki / "ca.crt",
            certificate=node.certificate("client"),
            key=node.key("client"),
            port=cluster.state().ports["kube-apiserver"],
        )
        component = node.component(ports=cluster.state().ports, kubeconfig=self._kubeconfig(localnode.COMPONENT))
        desired = state.read_desired(cluster.folder)
        cluster.desire(msgspec.structs.replace(desired, components=[*desired.components, component]))
        cluster.wait_ready([component.name])

    def _request_log(self) -> kwok.RequestLog:
        policy = self.cluster.folder / "audit-policy.yaml"
        policy.write_text(kwok.audit_policy(namespace=chart.NAMESPACE), encoding="utf-8")
        return kwok.RequestLog(policy=policy, log=self.cluster.request_log)

    def _start_supervisor(self) -> None:
        folder = self.cluster.folder
        (folder / "logs").mkdir()
        # A sandbox that a job starts is not the job's.
        own = {name: value for name, value in os.environ.items() if name != JOB_MARK}
        log = str(folder / "logs" / "supervisor.log")
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", "dovetail_sandbox.processes.supervisor", str(folder)],
            {**own, processes.MARK: str(folder)},
            file_actions=processes.output_to(log),
            setsid=True,
        )
        self._note(supervisor=identity.identify(pid))

    def _wait_for_control_plane(self) -> None:
        limit = time.monotonic() + _CONTROL_PLANE_SECONDS
        plane = set(kwok.control_plane(local_node=self.plan.local_node, real_node=self.plan.real_node))
        while True:
            observed = self.cluster.observed()
            if dead := next((each for each in observed.values() if each.state == "exited"), None):
                raise self.cluster.failure(dead)
            if observed.get(_KWOKCTL) and observed[_KWOKCTL].state == "done" and observed.keys() >= plane:
                return
            if not identity.alive(self.cluster.state().supervisor) or time.monotonic() > limit:
                log = self.cluster.folder / "logs" / "supervisor.log"
                what = f"did not bring the control plane up in {_CONTROL_PLANE_SECONDS:g} s"
                raise ComponentFailedError("supervisor", what=what, log=log, tail=tail(log))
            time.sleep(_POLL_SECONDS)

    def _render(self) -> Rendered:
        cluster = self.cluster
        values: dict[str, object] = {key: cluster.state().ports[key] for key in PORT_VALUES}
        values |= {
            GATEWAY_PORT: cluster.state().ports[GATEWAY_PORT],
            "gateway.enabled": True,
            "gateway.host": "127.0.0.1",
        }
        # No image is pulled, and volumes are folders: each has its place without a claim.
        values |= {"image.registry": chart.BUILT_IMAGES, "history.persistence.enabled": False}
        values |= {"simulation.enabled": True, "scheduler.kubeconfig": str(self._kubeconfig("kube-scheduler"))}
        # Here the API server is a local process and reaches the webhook by an address.
        values |= {"webhook.url": f"https://127.0.0.1:{values['webhook.port']}", "webhook.replicas": 1}
        rendered = chart.render(helm=self.programs["helm"], values=values, overrides=self.plan.overrides)
        (cluster.folder / "rendered.yaml").write_text(rendered.text, encoding="utf-8")
        return rendered

    def _start_neighbour(self, neighbour: Neighbour) -> None:
        rendered, namespace = (
            beside.prepared(neighbour, cluster=self.cluster, programs=self.programs),
            neighbour.namespace,
        )
        kubectl, kubeconfig = self.programs["kubectl"], self.cluster.kubeconfig
        access.apply(rendered, kubectl=kubectl, kubeconfig=kubeconfig, namespace=namespace)
        self.cluster.wait_ready(self._start_deployables(rendered, namespace=namespace), seconds=_NEIGHBOUR_SECONDS)

    def _start_deployables(self, rendered: Rendered, *, namespace: str = chart.NAMESPACE) -> list[str]:
        """Write files and accounts and start processes for the chart's containers.

        Return their names.
        """
        cluster = self.cluster
        place = workloads.Place(folder=cluster.folder, program=self._program, kubeconfig=self._kubeconfig)
        for path, text in workloads.files(rendered, place=place).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        found = [
            (account, localnode.with_real_devices(component) if self.plan.local_node else component)
            for account, component in workloads.components(rendered, place=place, without=self.plan.without)
        ]
        accounts = [account for account, _ in found]
        tokens = access.tokens(cluster.kubeconfig, accounts=accounts, namespace=namespace)
        for account, component in found:
            access.write_account_kubeconfig(
                self._kubeconfig(component.name),
                account=account,
                token=tokens[account],
                pki=cluster.pki,
                port=cluster.state().ports["kube-apiserver"],
                namespace=namespace,
            )
        desired = state.read_desired(cluster.folder)
        followed = [
            self._secret_volume(each, namespace=namespace)
            for each in workloads.secrets_of_others(rendered, place=place)
        ]
        components = [*desired.components, *followed, *(component for _, component in found)]
        cluster.desire(msgspec.structs.replace(desired, components=components))
        return [component.name for _, component in found]

    def _secret_volume(self, mounted: workloads.MountedSecret, *, namespace: str) -> Component:
        """Do what kubelet does for a mounted Secret, but with the administrator's rights."""
        module, name = "dovetail_sandbox.installed.secret_volume", f"volume-{mounted.name}"
        options = [f"--secret={mounted.name}", f"--namespace={namespace}", f"--folder={mounted.folder}"]
        return Component(
            name=name,
            argv=[sys.executable, "-P", "-m", module, *options],
            env={"KUBECONFIG": str(self.cluster.kubeconfig)},
            log=str(self.cluster.folder / "logs" / f"{name}.log"),
        )

    def _start_real_node(self) -> None:
        cluster = self.cluster
        plane = realnode.ControlPlane(
            kubeconfig=cluster.kubeconfig,
            ca_cert=cluster.pki / "ca.crt",
            ca_key=cluster.pki / "ca.key",
            api_port=cluster.state().ports["kube-apiserver"],
            binaries=self.programs,
        )
        realnode.start(cluster.folder, control_plane=plane, say=self.report.say)

    def _kubeconfig(self, component: str) -> Path:
        return self.cluster.folder / "kubeconfigs" / component

    def _program(self, command: str) -> Path:
        """Find a program of the sandbox, then one next to this Python, then one on PATH.

        Raises `ChartError` if there is none.
        """
        beside = Path(sys.executable).parent / command
        found = self.programs.get(command) or (beside if beside.exists() else shutil.which(command))
        if found is None:
            raise ChartError(
                f"The chart runs {command}, which is neither in the folder of {sys.executable} nor on PATH."
            )
        return Path(found)

    def _note(self, **changes: Any) -> None:
        state.write(self.cluster.folder, state=msgspec.structs.replace(self.cluster.state(), **changes))

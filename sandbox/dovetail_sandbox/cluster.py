"""A handle to a sandbox: its components, their state and its end.

`bringup` creates sandboxes.
"""

import shutil
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from dovetail.process import identity
from dovetail_sandbox import credential, realnode, state
from dovetail_sandbox.errors import (
    ComponentFailedError,
    InvalidInputError,
    NotRunningError,
    OtherVersionError,
    SandboxError,
)
from dovetail_sandbox.localnode import setup as localnode
from dovetail_sandbox.localnode import stopping
from dovetail_sandbox.nodes import kwok
from dovetail_sandbox.processes import processes
from dovetail_sandbox.state import Component, Desired, Observed, State

KWOK_CLUSTER: Final = "kwok"
TAIL_LINES: Final = 15
_CRASHES_TO_GIVE_UP: Final = 3
_POLL_SECONDS: Final = 0.1
# On two cores with 40 runnable processes, some programs took longer than 60 s. One that crashes is found long before.
READY_SECONDS: Final = 180.0
_SUPERVISOR_GRACE_SECONDS: Final = 12.0


class ComponentStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One program. `log_tail` is set if the program does not run."""

    name: str
    state: str
    pid: int | None = None
    restarts: int = 0
    last_exit: str = ""
    log: str = ""
    log_tail: str = ""


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A sandbox as `status` shows it.

    - `name`: the sandbox's name.
    - `phase`: `Degraded` means that it came up, but a part of it does not run now; `Stopped`, that its queue is kept.
    - `message`: why it failed or does not run; empty otherwise.
    - `kubeconfig`: path of the administrator's kubeconfig.
    - `context`: that kubeconfig's context.
    - `gateway`: the URL of its REST API; empty without one.
    - `nodes`: number of simulated nodes.
    - `devices`: number of their devices.
    - `local_node`: whether this machine is its node.
    - `limits`: a sentence about limits of CPU and memory on the local node; empty without one.
    - `real_node`: whether a real node runs.
    - `components`: its programs.
    """

    name: str
    phase: Literal["Ready", "Starting", "Degraded", "Stopped", "Failed"]
    message: str = ""
    kubeconfig: str
    context: str
    gateway: str = ""
    nodes: int
    devices: int
    local_node: bool
    limits: str = ""
    real_node: bool
    components: list[ComponentStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A handle to a sandbox by name.

    It holds only the folder, so it is always as current as the files.
    """

    name: str
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def kwok_folder(self) -> Path:
        """The folder of the control plane's files, which kwokctl writes."""
        return self.folder / "kwok" / "clusters" / KWOK_CLUSTER

    @property
    def request_log(self) -> Path:
        """The API server's record of the chart's accounts, if requested: one audit event per line."""
        return self.folder / "logs" / "requests.log"

    @property
    def credential(self) -> Path:
        """The folder of the credential that the sandbox's servers ask for: see `dovetail_sandbox.credential`."""
        return self.folder / "credential"

    @property
    def user_token(self) -> Path:
        """The file with the token of the kubeconfig's user: see `dovetail_sandbox.user_token`."""
        return self.folder / "user-token.csv"

    @property
    def prometheus(self) -> Path:
        """The configuration of a Prometheus that scrapes the sandbox, with its credential."""
        return self.folder / "prometheus.yml"

    @property
    def pki(self) -> Path:
        """Certificates and keys of the control plane."""
        return self.kwok_folder / "pki"

    def state(self) -> State:
        """Return the recorded state. Raises `NotRunningError` if there is none."""
        found = state.read(self.folder)
        if found is None:
            raise NotRunningError(self.name)
        return found

    def observed(self) -> dict[str, Observed]:
        """Return the components by name, as the supervisor reports them.

        If the supervisor has ended, only components that still run count as running.
        """
        seen = state.read_observed(self.folder)
        known = state.read(self.folder)
        if known is None or identity.alive(known.supervisor):
            return seen
        return {name: each if identity.alive(each.process) else _gone(each) for name, each in seen.items()}

    def pid(self, component: str) -> int:
        """Return the PID of a running component.

        Raises `InvalidInputError` for an unknown component, and `ComponentFailedError` for one that does not run.
        """
        self.state()
        found = self.observed().get(component)
        if found is None:
            raise InvalidInputError("component", value=component, allowed=", ".join(sorted(self.observed())))
        if found.process is None:
            raise self.failure(found)
        return found.process.pid

    def check_format(self) -> None:
        """Raise `OtherVersionError` for a sandbox that another version of Dovetail has started."""
        known = self.state()
        if known.format != state.FORMAT:
            raise OtherVersionError(self.name, kept=known.local_node)

    def status(self) -> Status:
        """Return the sandbox's status. Raises `NotRunningError`."""
        known = self.state()
        observed = [each for each in self.observed().values() if each.state != "done"]
        plane = kwok.control_plane(local_node=known.local_node, real_node=known.real_node)
        missing = [name for name in plane if known.phase == "ready" and name not in self.observed()]
        running = all(each.state in {"running", "resting"} for each in observed) and not missing
        phase: Literal["Ready", "Starting", "Degraded", "Stopped", "Failed"]
        if known.phase == "failed" or (known.phase == "starting" and not identity.alive(known.starter)):
            phase = "Failed"
        elif known.phase == "starting":
            phase = "Starting"
        elif known.phase == "stopped":
            phase = "Stopped"
        else:
            phase = "Ready" if running and identity.alive(known.supervisor) else "Degraded"
        return Status(
            name=self.name,
            phase=phase,
            message=_message(known),
            kubeconfig=str(self.kubeconfig),
            context=f"dovetail-{self.name}",
            gateway=_gateway(known, observed=observed),
            nodes=known.nodes,
            devices=known.devices,
            local_node=known.local_node,
            limits=localnode.limits(self.folder) if phase == "Ready" else "",
            real_node=known.real_node and realnode.running(self.folder),
            components=[_component_status(each, with_tail=phase == "Degraded") for each in observed],
        )

    def restart(self, component: str) -> None:
        """End a component and start it again. Return when it is ready. Raises `OtherVersionError`."""
        self.check_format()
        self._change(component, change=lambda each: msgspec.structs.replace(each, epoch=each.epoch + 1, stopped=False))
        self._wait(lambda: self._is_current(component), what=f"{component} does not restart")
        self.wait_ready([component])

    def stop(self, component: str) -> None:
        """End a component. It does not run until `start`."""
        self._change(component, change=lambda each: msgspec.structs.replace(each, stopped=True))
        self._wait(lambda: self.observed()[component].state == "stopped", what=f"{component} does not end")

    def start(self, component: str) -> None:
        """Start a component that `stop` ended. Return when it is ready. Raises `OtherVersionError`."""
        self.check_format()
        self._change(component, change=lambda each: msgspec.structs.replace(each, stopped=False))
        self.wait_ready([component])

    def desire(self, desired: Desired) -> None:
        """Set the wanted components, and wake the supervisor. Raises `ComponentFailedError`."""
        state.write_desired(self.folder, desired=desired)
        supervisor = self.state().supervisor
        if supervisor is None or not identity.send(supervisor, signal_number=signal.SIGHUP):
            raise self._unsupervised()

    def wait_ready(self, components: Iterable[str], *, seconds: float = READY_SECONDS) -> None:
        """Return when the components run and report that they are ready.

        Raises `ComponentFailedError` for a component that keeps crashing, or is not ready within `seconds`.
        """
        specs = {each.name: each for each in state.read_desired(self.folder).components}
        limit = time.monotonic() + seconds
        for name in components:
            while not self._ready(specs[name]):
                found = self.observed().get(name)
                if found and found.state == "waiting" and found.crashes >= _CRASHES_TO_GIVE_UP:
                    raise self.failure(found)
                if not identity.alive(self.state().supervisor):
                    raise self._unsupervised()
                if time.monotonic() > limit:
                    raise self._late(specs[name], found=found, seconds=seconds)
                time.sleep(_POLL_SECONDS)

    def failure(self, observed: Observed) -> ComponentFailedError:
        """Describe how a component failed, with the tail of its log."""
        times = f" after {observed.restarts} restarts" if observed.restarts else ""
        what = f"ended with {observed.last_exit}{times}"
        return ComponentFailedError(observed.name, what=what, log=Path(observed.log), tail=tail(Path(observed.log)))

    def log_file(self, component: str) -> Path:
        """Return a component's log file. Raises `InvalidInputError` for an unknown component."""
        self.state()
        logs = {name: Path(each.log) for name, each in self.observed().items()}
        logs |= {path.stem: path for path in (self.folder / "logs").glob("*.log")}
        logs |= {f"real-node/{path.stem}": path for path in (self.folder / "realnode" / "log").glob("*.log")}
        if component not in logs:
            raise InvalidInputError("component", value=component, allowed=", ".join(sorted(logs)))
        return logs[component]

    def end_processes(self, *, jobs: bool = True) -> None:
        """End every process of the sandbox, whatever started it; without `jobs`, a local node's jobs go on."""
        realnode.stop(self.folder)
        known = state.read(self.folder)
        if known and known.supervisor:
            processes.end([known.supervisor], grace_seconds=_SUPERVISOR_GRACE_SECONDS)
            processes.forget(known.supervisor)
        # A supervisor that ended by itself leaves no process. After kill -9, or an incomplete start, there can be some.
        left = processes.of_sandbox(self.folder) if jobs else processes.programs_of(self.folder)
        processes.end(left, grace_seconds=2.0)

    def halt(self, *, jobs: bool = True) -> int:
        """End everything and keep the queue, which the next `up` continues; without `jobs`, jobs go on meanwhile.

        Return the number of jobs that this ended.
        """
        known = state.read(self.folder)
        if known and identity.alive(known.supervisor) and localnode.COMPONENT in self.observed():
            self.stop(localnode.COMPONENT)
        ended = stopping.stop_jobs(localnode.runs(self.folder)) if jobs else 0
        self.end_processes(jobs=jobs)
        # Commands find the sandbox by this file, and say how to start it if there is none.
        self.kubeconfig.unlink(missing_ok=True)
        (self.folder / "observed.json").unlink(missing_ok=True)
        if known:
            stopped = msgspec.structs.replace(known, phase="stopped", starter=None, supervisor=None, error="")
            state.write(self.folder, state=stopped)
        return ended

    def down(self) -> bool:
        """End everything and remove every file. Return False if there was nothing."""
        was_there = self.folder.exists()
        if localnode.runs(self.folder).folder.exists():
            # Jobs have processes and cgroups that only their runs know.
            self.halt()
        self.end_processes()
        shutil.rmtree(self.folder, ignore_errors=True)
        return was_there

    def _change(self, component: str, *, change: Callable[[Component], Component]) -> None:
        self.state()
        desired = state.read_desired(self.folder)
        names = [each.name for each in desired.components if not each.once]
        if component not in names:
            raise InvalidInputError("component", value=component, allowed=", ".join(names))
        changed = [change(each) if each.name == component else each for each in desired.components]
        self.desire(msgspec.structs.replace(desired, components=changed))

    def _is_current(self, component: str) -> bool:
        wanted = {each.name: each.epoch for each in state.read_desired(self.folder).components}
        found = self.observed().get(component)
        return bool(found and found.process and found.epoch == wanted[component])

    def _ready(self, spec: Component) -> bool:
        found = self.observed().get(spec.name)
        return bool(found and found.process and found.epoch == spec.epoch and self._answers(spec.ready_url))

    def _answers(self, url: str) -> bool:
        """Whether a readiness URL returns 200. A component without one is ready when it runs."""
        with suppress(OSError):
            return not url or bool(credential.read(url, folder=self.credential))
        return False

    def _wait(self, condition: Callable[[], bool], *, what: str, seconds: float = 30.0) -> None:
        limit = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > limit:
                raise SandboxError(f"{what} within {seconds:g} s.")
            time.sleep(_POLL_SECONDS)

    def _late(self, spec: Component, *, found: Observed | None, seconds: float) -> ComponentFailedError:
        ended = f"; it ended with {found.last_exit}" if found and found.last_exit else ""
        what = f"is not ready after {seconds:g} s ({spec.ready_url or 'it does not run'}){ended}"
        return ComponentFailedError(spec.name, what=what, log=Path(spec.log), tail=tail(Path(spec.log)))

    def _unsupervised(self) -> ComponentFailedError:
        log = self.folder / "logs" / "supervisor.log"
        return ComponentFailedError("supervisor", what="does not run", log=log, tail=tail(log))


def get(name: str = state.DEFAULT_NAME) -> Cluster:
    """Return the handle of a sandbox, whether the sandbox exists or not."""
    return Cluster(name=name, folder=state.directory(name))


def tail(log: Path, *, lines: int = TAIL_LINES) -> str:
    """Return the end of a log; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 32_768))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def _gone(each: Observed) -> Observed:
    if each.state != "running":
        return each
    return msgspec.structs.replace(each, state="exited", process=None, last_exit="the supervisor's end")


def _message(known: State) -> str:
    again = "`gflowd up` continues the queue" if known.kept else "`dovetail sandbox up` starts afresh"
    if known.phase == "failed":
        return known.error
    if known.phase == "stopped":
        return f"{again}."
    if known.phase == "starting" and not identity.alive(known.starter):
        return f"`up` ended before it was done; {again}."
    if known.phase == "ready" and not identity.alive(known.supervisor):
        return f"The supervisor does not run; {again}."
    return ""


def _gateway(known: State, *, observed: Iterable[Observed]) -> str:
    runs = any(each.name == "gateway" for each in observed)
    return f"http://127.0.0.1:{known.ports['gateway.port']}" if runs else ""


def _component_status(each: Observed, *, with_tail: bool) -> ComponentStatus:
    return ComponentStatus(
        name=each.name,
        state=each.state,
        pid=each.process.pid if each.process else None,
        restarts=each.restarts,
        last_exit=each.last_exit,
        log=each.log,
        log_tail=tail(Path(each.log)) if with_tail and each.state in {"waiting", "exited"} else "",
    )

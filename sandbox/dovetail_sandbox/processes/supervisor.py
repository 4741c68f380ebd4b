"""The process that runs a sandbox's programs.

Start it with `python -m dovetail_sandbox.processes.supervisor <folder>`.
It reads desired.json (again at every SIGHUP), starts the wanted programs, restarts those that end, with a growing delay
as kubelet does, and writes observed.json. It is a subreaper: processes that kwokctl leaves behind become its children,
so that it learns how each of them ends. SIGTERM ends everything. It is single-threaded and waits in sigtimedwait, where
no signal can be missed between a check and a sleep.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_sandbox import state
from dovetail_sandbox.processes import one_process, processes
from dovetail_sandbox.processes.one_process import OneProcess
from dovetail_sandbox.state import Component, Observed

GRACE_SECONDS: Final = 5.0
# A program that shares a process ends with all of it if it takes longer. It cancels its own work before that.
SHARED_GRACE_SECONDS: Final = 25.0
AWAKE_SECONDS: Final = 60.0  # how long a program runs that then rests
STEADY_SECONDS: Final = 60.0  # after this time a program counts as stable: its next restart is immediate
MAX_BACKOFF_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 3600.0
_STARTING_SECONDS: Final = 0.5  # between checks while kwokctl runs
_SIGNALS: Final = (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
_PR_SET_CHILD_SUBREAPER: Final = 36


@dataclass(slots=True, kw_only=True)
class Child:
    """A component and its process.

    - `spec`: the component.
    - `adopted`: another program started it, and it is not restarted.
    - `process`: its process; None if it does not run.
    - `restarts`: number of restarts.
    - `crashes`: number of crashes in a row.
    - `last_exit`: how it last ended; empty if it has not.
    - `done`: a `once` program that ended with 0.
    - `started_at`: its last start, in seconds of the monotonic clock.
    - `start_at`: earliest next start, in seconds of the monotonic clock.
    - `rests`: it was ended because it has nothing to do.
    - `kill_at`: when SIGKILL follows SIGTERM, on the same clock; None if no end was requested.
    """

    spec: Component
    adopted: bool = False
    process: ProcessId | None = None
    restarts: int = 0
    crashes: int = 0
    last_exit: str = ""
    done: bool = False
    started_at: float = 0.0
    start_at: float = 0.0
    rests: bool = False
    kill_at: float | None = None

    def observed(self) -> Observed:
        """The component's state for observed.json."""
        if self.process is not None:
            word = "running"
        elif self.done:
            word = "done"
        elif self.spec.stopped:
            word = "stopped"
        elif self.rests:
            word = "resting"
        else:
            word = "exited" if self.adopted or self.spec.once else "waiting"
        return Observed(
            name=self.spec.name,
            state=word,  # type: ignore[arg-type]  # one of the literals, by the lines above
            process=self.process,
            epoch=self.spec.epoch,
            restarts=self.restarts,
            crashes=self.crashes,
            last_exit=self.last_exit,
            log=self.spec.log,
        )

    def ended(self, how: str, *, success: bool, now: float) -> None:
        """Record the end, and when to start again."""
        asked = self.kill_at is not None
        steady = now - self.started_at >= STEADY_SECONDS
        self.process, self.kill_at = None, None
        self.last_exit = how
        self.done = self.spec.once and success
        self.crashes = 0 if asked or steady else self.crashes + 1
        self.start_at = now + (self.spec.rest_seconds if self.rests else backoff_seconds(self.crashes))

    @property
    def is_awake(self) -> bool:
        """Whether it runs, and will rest."""
        return bool(self.spec.rest_seconds) and self.process is not None

    @property
    def startable(self) -> bool:
        """Whether the supervisor starts it when it does not run."""
        once_over = self.spec.once and bool(self.last_exit)
        return self.process is None and not (self.adopted or self.spec.stopped or once_over)


def backoff_seconds(crashes: int) -> float:
    """Return the delay after the n-th crash in a row: 0, 1, 2, 4 … 30 s."""
    return 0.0 if crashes <= 1 else min(MAX_BACKOFF_SECONDS, 2.0 ** (crashes - 2))


def describe_exit(status: int) -> str:
    """Describe how a process ended, from waitpid's status."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


@dataclass(slots=True, kw_only=True)
class Supervisor:
    """The children, and the folder that says which ones to run."""

    folder: Path
    children: dict[str, Child] = field(default_factory=dict)
    _reported: list[Observed] | None = None
    _one_process: OneProcess | None = None
    _settled: bool = False
    _unclaimed: dict[int, str] = field(default_factory=dict)  # how children ended before they were adopted

    def run(self) -> None:
        """Run until SIGTERM or SIGINT. At the end, no process of the sandbox runs but those of jobs."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        _become_subreaper()
        if state.read_desired(self.folder).one_process:
            # Before its first program: its imports take as long as the control plane's start. A failure is that of each
            # program, which tries again.
            with suppress(OSError):
                self._one_process = OneProcess.started(self.folder)
        while True:
            now = time.monotonic()
            self.reconcile(now=now)
            self._report()
            info = signal.sigtimedwait(_SIGNALS, self._idle_seconds(now=now))
            if info is not None and info.si_signo in {signal.SIGTERM, signal.SIGINT}:
                break
            self.reap()
        self._end_all()

    def _end_all(self) -> None:
        """End all processes but those of jobs, which the next local node finds.

        Deployables get a grace period; the control plane gets none: its data is temporary, or etcd has written it.
        """
        ours = {child.process for child in self.children.values() if child.process and not child.adopted}
        processes.end(ours, grace_seconds=GRACE_SECONDS)
        processes.end(processes.programs_of(self.folder), grace_seconds=0)

    def reconcile(self, *, now: float) -> None:
        """Compare the wanted with the running programs once; start, or ask to end, what differs."""
        desired = state.read_desired(self.folder)
        self._settled = desired.settled
        wanted = {component.name: component for component in desired.components}
        for name, child in list(self.children.items()):
            if child.adopted or child.spec == wanted.get(name):
                continue
            if child.process is not None:
                self._ask_to_end(child, now=now)
            elif name in wanted:
                self.children[name] = Child(spec=wanted[name], restarts=child.restarts, last_exit=child.last_exit)
            else:
                del self.children[name]
        for name, component in wanted.items():
            child = self.children.setdefault(name, Child(spec=component))
            if child.spec == component and child.startable and child.start_at <= now:
                self._start(child, now=now, shared=desired.one_process)
            if desired.settled and child.is_awake and child.started_at + AWAKE_SECONDS <= now:
                child.rests = True
                self._ask_to_end(child, now=now)
        if desired.adopt:
            self._adopt(Path(desired.adopt), logs=Path(desired.adopt_logs), now=now)

    def reap(self) -> None:
        """Reap every child that has ended, known or not."""
        now = time.monotonic()
        self._reap_shared(now=now)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                how = describe_exit(status)
                owners = [child for child in self.children.values() if child.process and child.process.pid == pid]
                if not owners:
                    self._unclaimed[pid] = how
                for child in owners:
                    child.ended(how, success=status == 0, now=now)
                    _print_line(f"{child.spec.name} ended: {how}")
        if self._one_process and not identity.alive(self._one_process.process):
            # All its programs have ended with it. The first that starts again starts another one.
            self._one_process.close()
            self._one_process = None
        for child in self.children.values():
            # As long as kwokctl runs, what it started is its child, so we get no signal.
            if child.adopted and child.process and not identity.alive(child.process):
                child.ended(self._how_ended(child.process.pid), success=False, now=now)

    def _reap_shared(self, *, now: float) -> None:
        """Note which programs of the shared process have ended."""
        for ended in self._one_process.ended() if self._one_process else []:
            how = f"exit code {ended.code}"
            self.children[ended.name].ended(how, success=ended.code == 0, now=now)
            _print_line(f"{ended.name} ended: {how}")

    def _start(self, child: Child, *, now: float, shared: bool) -> None:
        spec = child.spec
        Path(spec.log).parent.mkdir(parents=True, exist_ok=True)
        try:
            process = self._spawned(spec, shared=shared)
        except OSError as error:
            child.started_at = now
            child.ended(f"not started: {error.strerror}", success=False, now=now)
            return
        if child.last_exit:
            child.restarts += 1
        child.rests = False
        child.process, child.started_at = process, now
        _print_line(f"{spec.name} started as {process.pid}")

    def _spawned(self, spec: Component, *, shared: bool) -> ProcessId:
        """A new process of the component, or the one that it shares. Raises `OSError`."""
        if shared and one_process.module_of(spec):
            self._one_process = self._one_process or OneProcess.started(self.folder)
            self._one_process.start(spec)
            return self._one_process.process
        # Unlike us, the children start with no signal blocked.
        pid = os.posix_spawn(
            spec.argv[0],
            spec.argv,
            {**os.environ, **spec.env},
            file_actions=processes.output_to(spec.log),
            setsid=True,
            setsigmask=[],
        )
        return identity.identify(pid) or ProcessId(pid, 0)

    def _ask_to_end(self, child: Child, *, now: float) -> None:
        assert child.process
        if child.kill_at is None:
            if self._one_process and child.process == self._one_process.process:
                child.kill_at = now + SHARED_GRACE_SECONDS
                self._one_process.end(child.spec.name)
            else:
                child.kill_at = now + GRACE_SECONDS
                identity.send(child.process, signal_number=signal.SIGTERM)
        elif child.kill_at <= now:
            identity.send(child.process, signal_number=signal.SIGKILL)

    def _adopt(self, folder: Path, *, logs: Path, now: float) -> None:
        for file in sorted(folder.glob("*.pid")):
            name = _ADOPTED_NAMES.get(file.stem, file.stem)
            with suppress(OSError, ValueError):
                if name in self.children:
                    continue
                pid = int(file.read_text())
                process = identity.identify(pid)
                how = "" if process else self._how_ended(pid)
                spec = Component(name=name, argv=[], log=str(logs / f"{file.stem}.log"))
                child = Child(spec=spec, adopted=True, process=process, started_at=now, last_exit=how)
                self.children[name] = child

    def _how_ended(self, pid: int) -> str:
        status = identity.exit_status(pid)
        return self._unclaimed.get(pid, "unknown") if status is None else describe_exit(status)

    def _idle_seconds(self, *, now: float) -> float:
        times = [child.start_at for child in self.children.values() if child.startable]
        if self._settled:
            awake = [child for child in self.children.values() if child.is_awake and child.kill_at is None]
            times += [child.started_at + AWAKE_SECONDS for child in awake]
        times += [child.kill_at for child in self.children.values() if child.kill_at is not None]
        starting = any(child.spec.once and child.process for child in self.children.values())
        return max(0.01, min([now + (_STARTING_SECONDS if starting else _IDLE_SECONDS), *times]) - now)

    def _report(self) -> None:
        observed = [child.observed() for child in self.children.values()]
        if observed != self._reported:
            state.write_observed(self.folder, observed=observed)
            self._reported = observed


# The control plane's own scheduler, for pods of other schedulers than ours. Its name here is its schedulerName.
_ADOPTED_NAMES: Final = {"kube-scheduler": "default-scheduler"}


def _become_subreaper() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _print_line(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def main() -> None:
    """Run the supervisor; the folder is the only argument."""
    os.umask(state.PRIVATE_UMASK)  # logs and data of all components are this user's alone
    os.chdir("/")  # the folder in which `up` was called can be removed
    Supervisor(folder=Path(sys.argv[1])).run()


if __name__ == "__main__":
    main()

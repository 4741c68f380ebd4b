"""Check what MPS lets a root client in a container do, and what its clients need: for `hardware.py`, on real devices.

`unshare` and `setpriv` create a container's position: its own mount, process and IPC namespaces, the
capabilities that Kubernetes gives a container by default, and the folder of the pipes read-only, as the volume driver
mounts it. Two results are questions rather than requirements (`QUESTIONS`): only a real device answers them.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail_agent.mps import probe
from dovetail_agent.mps.client_folder import ClientFolder
from dovetail_agent.mps.control import Control, ControlError, environment
from dovetail_agent.mps.daemon import Daemon
from dovetail_agent.mps.devices import NvmlDevices
from dovetail_agent.mps.probe import LARGEST_MIB

_READ_ONLY: Final = 'mount --bind "$PIPES" "$PIPES" && mount -o remount,bind,ro "$PIPES"'
_OWN_SHM: Final = "mount -t tmpfs tmpfs /dev/shm"
# Those of containerd and CRI-O for a container that asks for none.
_CAPABILITIES: Final = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,sys_chroot,mknod,audit_write,"
    "setfcap"
)
_SPOIL: Final = """
import json, os, sys
done, folder = [], sys.argv[1]
def tried(what, step):
    try:
        step()
    except OSError:
        return
    done.append(what)
tried("create a file", lambda: open(f"{folder}/dovetail-new", "x").close())
for name in sorted(os.listdir(folder)):
    tried(f"rename {name}", lambda: os.rename(f"{folder}/{name}", f"{folder}/{name}.away"))
    tried(f"remove {name}", lambda: os.unlink(f"{folder}/{name}"))
print(json.dumps(done))
"""
_READ: Final = """
import json, os
done = []
for name in sorted(os.listdir("/dev/shm")):
    try:
        os.close(os.open(f"/dev/shm/{name}", os.O_RDWR))
    except OSError:
        continue
    done.append(name)
print(json.dumps(done))
"""
_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A daemon on pipes of its own, and the folder that its clients see of them."""

    daemon: Daemon
    control: Control
    program: str
    variables: Mapping[str, str]  # of its clients

    @property
    def pipes(self) -> Path:
        return Path(self.variables["CUDA_MPS_PIPE_DIRECTORY"])


@contextmanager
def running(program: str) -> Iterator[Running]:
    """One that answers, and ends with this. Raises `RuntimeError`, `ControlError`."""
    folder = Path(tempfile.mkdtemp(prefix="dovetail-mps-"))
    for name in ("pipe", "log", "clients"):
        (folder / name).mkdir()
    variables = environment(pipe=folder / "pipe", log=folder / "log")
    daemon = Daemon([program, "-f", "-multiuser-server"], variables=variables, clock=time.monotonic)
    try:
        if problem := daemon.tend():
            raise RuntimeError(problem)
        control = Control(variables, program=program)
        _answering(control)
        ClientFolder(folder / "clients", pipes=folder / "pipe").renew()
        seen = environment(pipe=folder / "clients", log=folder / "log")
        yield Running(daemon=daemon, control=control, program=program, variables=seen)
    finally:
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)


def limited(program: str) -> tuple[bool, str]:
    """The supervisor's own probe."""
    with running(program) as mps:
        return _probed(mps, command=_client())


def read_only_pipes(program: str) -> tuple[bool, str]:
    """The same by clients that cannot write in the folder of the pipes."""
    with running(program) as mps:
        return _probed(mps, command=_inside(_READ_ONLY, _client()))


def own_shared_memory(program: str) -> tuple[bool, str]:
    """The same by clients with a private `/dev/shm`, apart from the server's too."""
    with running(program) as mps:
        return _probed(mps, command=_inside(_OWN_SHM, _client()))


def pipes_unspoiled(program: str) -> tuple[bool, str]:
    """Whether a root client can create, rename or remove anything in the folder of the pipes."""
    with running(program) as mps:
        said = _contained(mps, [sys.executable, "-c", _SPOIL, str(mps.pipes)])
        done = json.loads(said.stdout or "null")
        mps.control.servers()
    if done is None:
        return False, f"it could not be tried: {_last(said)}"
    return not done, f"a root client could {', '.join(done)}" if done else "a root client could change nothing there"


def commands_refused(program: str) -> tuple[bool, str]:
    """Whether a root client can change the daemon's limits, or end it."""
    with running(program) as mps:
        asked = _contained(mps, [mps.program], said="get_server_list\n")
        before = mps.control.ask("get_default_active_thread_percentage").strip()
        _contained(mps, [mps.program], said="set_default_active_thread_percentage 7\n")
        after = mps.control.ask("get_default_active_thread_percentage").strip()
        _contained(mps, [mps.program], said="quit\n")
        alive = _alive(mps)
    changed = f"changed the default share of threads from {before} to {after}" if after != before else ""
    done = [each for each in (changed, "" if alive else "ended the daemon with quit") if each]
    heard = "it was answered" if asked.returncode == 0 else f"it was not answered ({_last(asked)})"
    return (
        not done,
        f"a root client asked who is served: {heard}; it {' and '.join(done) or 'changed and ended nothing'}",
    )


def neighbours_memory(program: str) -> tuple[bool, str]:
    """Whether a root client can open what another one has in `/dev/shm`."""
    with running(program) as mps, tempfile.TemporaryDirectory(prefix="dovetail-busy-") as folder:
        before = set(os.listdir("/dev/shm"))  # noqa: PTH208 - names alone
        counted = Path(folder) / "passes"
        counted.write_bytes(bytes(8))
        computing = [sys.executable, str(Path(__file__).with_name("hardware.py")), "--compute", str(counted)]
        child = subprocess.Popen(computing, env=dict(mps.variables), stdin=subprocess.PIPE)
        try:
            end = time.monotonic() + _SECONDS
            while counted.read_bytes() == bytes(8) and time.monotonic() < end and child.poll() is None:
                time.sleep(0.1)
            said = _contained(mps, [sys.executable, "-c", _READ])
        finally:
            child.communicate(timeout=30)
    opened = [name for name in json.loads(said.stdout or "[]") if name not in before]
    if said.returncode:
        return False, f"it could not be tried: {_last(said)}"
    return not opened, f"a root client could open {', '.join(opened)} to write" if opened else "there was none to open"


CHECKS: Final = {
    "an MPS client is refused beyond its limit": limited,
    "MPS clients work with a read-only pipe folder": read_only_pipes,
    "a root client of MPS cannot spoil the pipe folder": pipes_unspoiled,
    "a root client of MPS can neither change its limits nor quit it": commands_refused,
}
QUESTIONS: Final = {
    "a root client of MPS cannot open its neighbours' shared memory": neighbours_memory,
    "MPS clients work with a /dev/shm of their own": own_shared_memory,
}


def _client() -> list[str]:
    return [sys.executable, "-m", "dovetail_agent.mps.probe"]


def _inside(setup: str, command: Sequence[str]) -> list[str]:
    """The command in a mount namespace of its own that was set up so."""
    return ["unshare", "--mount", "--propagation=private", "--", "sh", "-ec", f'{setup}; exec "$@"', "sh", *command]


def _probed(mps: Running, *, command: Sequence[str]) -> tuple[bool, str]:
    free = {uuid: card.free_mib for uuid, card in NvmlDevices().list_devices().items()}
    chosen = max(free, key=lambda uuid: free[uuid])
    variables = {**mps.variables, "PIPES": str(mps.pipes)}
    verdict = probe.probed(chosen, size=LARGEST_MIB, variables=variables, command=command)
    return verdict.live, verdict.message


def _contained(mps: Running, command: Sequence[str], *, said: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command as root of a container, with `said` on its standard input. Raises `CalledProcessError`."""
    bounds = ",".join(["-all", *(f"+{name}" for name in _CAPABILITIES.split(","))])
    kept = ["setpriv", f"--bounding-set={bounds}", "--inh-caps=-all", "--no-new-privs", "--", *command]
    fenced = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--mount-proc", "--propagation=private", "--"]
    fenced += ["sh", "-ec", f'{_READ_ONLY}; exec "$@"', "sh"]
    # Where the position cannot be taken, a refusal would say nothing of the daemon.
    subprocess.run([*fenced, "true"], env={**mps.variables, "PIPES": str(mps.pipes)}, timeout=_SECONDS, check=True)
    return subprocess.run(
        [*fenced, *kept],
        env={**mps.variables, "PIPES": str(mps.pipes)},
        input=said,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_SECONDS,
        check=False,
    )


def _alive(mps: Running) -> bool:
    """Whether the daemon still answers a few seconds later: one that ends may take a moment."""
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        try:
            mps.control.servers()
        except ControlError:
            return False
        time.sleep(0.5)
    return True


def _answering(control: Control) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        try:
            control.servers()
        except ControlError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
        else:
            return


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
    return f"exit code {done.returncode}, {lines[-1]}"

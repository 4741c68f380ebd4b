"""The paths and files in a sandbox's folder. Nothing here starts or ends anything.

A sandbox is a folder, `${XDG_STATE_HOME:-~/.local/state}/dovetail/sandboxes/<name>/`:

    kubeconfig      the administrator's, context `dovetail-<name>`
    state.json      ports, phase and supervisor; written by `up`
    desired.json    what the supervisor runs; written by `up`, `restart`, `stop`
    observed.json   what runs, and how programs ended; written by the supervisor
    rendered.yaml   the chart as this sandbox uses it
    task_templates.yaml  what v2's tasks run, which the gateway reads for each
    prometheus.yml  what a Prometheus needs that scrapes this sandbox
    credential/     what the sandbox's servers and their clients show each other
    logs/           one file for each component
    queue/          with a local node: etcd's data, which outlive the processes
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from dovetail.decoding import UnreadableError, decode
from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_sandbox.errors import InvalidInputError

Phase = Literal["starting", "ready", "stopped", "failed"]
Struct = TypeVar("Struct", bound=msgspec.Struct)
# Goes up when this Dovetail cannot work with what another one has left in a folder, or still runs there.
FORMAT: Final = 3
DEFAULT_NAME: Final = "default"
PRIVATE_UMASK: Final = 0o077
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The queue that a sandbox keeps: the Kubernetes version that last wrote it."""

    kubernetes: str


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a sandbox, as `up` writes it.

    - `name`: its name.
    - `format`: the format of its folder and of the API objects in it: `FORMAT` of the Dovetail that created it.
    - `phase`: starting, ready, stopped (its queue is kept) or failed.
    - `boot_id`: the boot of this machine in which it was written.
    - `created_at`: its creation time, in ISO 8601 and UTC.
    - `ports`: port numbers by component or chart value.
    - `starter`: the process of `up`, as long as it runs.
    - `supervisor`: the supervisor's process.
    - `nodes`: number of simulated nodes.
    - `devices`: number of their devices.
    - `local_node`: whether this machine is its node.
    - `kept`: the queue that the next `up` continues; None if there is none.
    - `real_node`: whether it has a real node.
    - `kubernetes`: the version of its control plane.
    - `error`: why it failed; empty otherwise.
    """

    name: str
    format: int = 0
    phase: Phase = "starting"
    boot_id: str = ""
    created_at: str = ""
    ports: dict[str, int] = {}
    starter: ProcessId | None = None
    supervisor: ProcessId | None = None
    nodes: int = 0
    devices: int = 0
    local_node: bool = False
    kept: Kept | None = None
    real_node: bool = False
    kubernetes: str = ""
    error: str = ""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A program that the supervisor runs.

    With `once`, it is done when it ends with 0. `epoch` increases with each restart. `stopped` keeps it from running.
    With `rest_seconds`, it has nothing to do most of the time: once all is settled, it runs a minute and rests so long.
    `apart` gives it a process of its own where Dovetail's programs share one.
    """

    name: str
    argv: list[str]
    env: dict[str, str] = {}
    log: str
    ready_url: str = ""
    once: bool = False
    epoch: int = 0
    stopped: bool = False
    rest_seconds: float = 0.0
    apart: bool = False


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """The wanted components.

    `adopt` is a folder of PID files of programs that a component leaves behind. With `one_process`, Dovetail's own
    programs share one, as `dovetail_sandbox.processes.one_process` has it. `settled`: all are ready, and nothing waits
    for a component any more.
    """

    components: list[Component] = []
    one_process: bool = False
    settled: bool = False
    adopt: str = ""
    adopt_logs: str = ""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """A component's observed state. `waiting`: it ended and restarts after a delay. `resting`: it has nothing to do."""

    name: str
    state: Literal["running", "waiting", "resting", "stopped", "done", "exited"]
    process: ProcessId | None = None
    epoch: int = 0
    restarts: int = 0
    crashes: int = 0  # in a row
    last_exit: str = ""
    log: str = ""


def root() -> Path:
    """The folder of all sandboxes."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "dovetail" / "sandboxes"


def directory(name: str = DEFAULT_NAME) -> Path:
    """Return the folder of one sandbox, whether it exists or not. Raises `InvalidInputError`."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError("name", value=name, allowed="at most 30 of a-z, 0-9 and - (not at an end)")
    return root() / name


def kubeconfig_path(name: str = DEFAULT_NAME) -> Path:
    """The path of the administrator's kubeconfig while a sandbox is up."""
    return directory(name) / "kubeconfig"


def names() -> list[str]:
    """The names of all sandboxes with a state file."""
    return sorted(path.parent.name for path in root().glob("*/state.json"))


def read(folder: Path) -> State | None:
    """Return the state in a sandbox's folder; None if it is missing or unreadable.

    Processes of another boot have ended: a later process can have their PID and start time.
    """
    found = _read(folder / "state.json", shape=State)
    if found is None or found.boot_id in {"", identity.boot_id()}:
        return found
    return msgspec.structs.replace(found, starter=None, supervisor=None)


def write(folder: Path, *, state: State) -> None:
    """Replace the state atomically: a reader sees the old or the new one."""
    _write(folder / "state.json", value=msgspec.structs.replace(state, boot_id=identity.boot_id()))


def read_desired(folder: Path) -> Desired:
    """Return the wanted components; none before the first write."""
    return _read(folder / "desired.json", shape=Desired) or Desired()


def write_desired(folder: Path, *, desired: Desired) -> None:
    """Write the wanted components. The supervisor reads them at SIGHUP."""
    _write(folder / "desired.json", value=desired)


def read_observed(folder: Path) -> dict[str, Observed]:
    """Return what the supervisor runs, by name."""
    try:
        listed = decode((folder / "observed.json").read_bytes(), as_type=list[Observed])
    except (OSError, UnreadableError):
        return {}
    return {each.name: each for each in listed}


def write_observed(folder: Path, *, observed: list[Observed]) -> None:
    """Write what the supervisor runs."""
    _write(folder / "observed.json", value=observed)


@contextmanager
def private_files() -> Iterator[int]:
    """Whatever this process and those that it starts create is for its user alone. Yields the umask of before."""
    before = os.umask(PRIVATE_UMASK)
    try:
        yield before
    finally:
        os.umask(before)


@contextmanager
def locked() -> Iterator[None]:
    """Lock: only one process at a time chooses ports and creates a sandbox's folder."""
    root().mkdir(parents=True, exist_ok=True)
    lock = os.open(root(), os.O_RDONLY)  # the folder itself, so that no file is left
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _read(path: Path, *, shape: type[Struct]) -> Struct | None:
    try:
        return decode(path.read_bytes(), as_type=shape)
    except (OSError, UnreadableError):
        return None


def _write(path: Path, *, value: Any) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with private_files():
        fresh.write_text(json.dumps(msgspec.to_builtins(value), indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)

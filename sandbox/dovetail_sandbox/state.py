"""What is remembered of a sandbox, and where: paths and the files in its folder. Nothing here starts or ends anything.

A sandbox is a folder, `${XDG_STATE_HOME:-~/.local/state}/dovetail/sandboxes/<name>/`:

    kubeconfig      an administrator's, context `dovetail-<name>`
    state.json      ports, phase and who is supervising; written by `up`
    desired.json    what the supervisor shall run; written by `up`, `restart`, `stop`
    observed.json   what it runs, and how things ended; written by the supervisor
    rendered.yaml   the chart as this sandbox uses it
    logs/           one file a component
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
from dovetail_sandbox.errors import InvalidInputError

Phase = Literal["starting", "ready", "failed"]
Struct = TypeVar("Struct", bound=msgspec.Struct)
DEFAULT_NAME: Final = "default"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?")


class ProcessId(msgspec.Struct, frozen=True):
    """A process for certain: its number, and the clock ticks since boot at which it began."""

    pid: int
    started: int


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What `up` knows of its sandbox. `starter` is the `up` itself, as long as it is at work."""

    name: str
    phase: Phase = "starting"
    created_at: str = ""
    ports: dict[str, int] = {}
    starter: ProcessId | None = None
    supervisor: ProcessId | None = None
    nodes: int = 0
    devices: int = 0
    real_node: bool = False
    error: str = ""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A program that the supervisor runs.

    `once`: it is done when it ends with 0. `epoch` grows with each restart.
    `stopped`: it is kept from running for now.
    """

    name: str
    argv: list[str]
    env: dict[str, str] = {}
    log: str
    ready_url: str = ""
    once: bool = False
    epoch: int = 0
    stopped: bool = False


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """What shall run. `adopt` is a folder of PID files: programs that a component starts and leaves behind."""

    components: list[Component] = []
    adopt: str = ""
    adopt_logs: str = ""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one component. `waiting`: it ended and is started again after a while."""

    name: str
    state: Literal["running", "waiting", "stopped", "done", "exited"]
    process: ProcessId | None = None
    epoch: int = 0
    restarts: int = 0
    crashes: int = 0  # one after the other
    last_exit: str = ""
    log: str = ""


def root() -> Path:
    """The folder of all sandboxes."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "dovetail" / "sandboxes"


def directory(name: str = DEFAULT_NAME) -> Path:
    """The folder of one sandbox, there or not. Raises `InvalidInputError` for a name that cannot be one."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError("name", value=name, allowed="at most 30 of a-z, 0-9 and - (not at an end)")
    return root() / name


def kubeconfig_path(name: str = DEFAULT_NAME) -> Path:
    """Where the administrator's kubeconfig of a sandbox lies while it is up."""
    return directory(name) / "kubeconfig"


def names() -> list[str]:
    """Every sandbox that has a state file."""
    return sorted(path.parent.name for path in root().glob("*/state.json"))


def read(folder: Path) -> State | None:
    """The state in a sandbox's folder; None where there is none, or only a broken one."""
    return _read(folder / "state.json", shape=State)


def write(folder: Path, state: State) -> None:
    """Replaces the state at once: a reader sees the old or the new one."""
    _write(folder / "state.json", state)


def read_desired(folder: Path) -> Desired:
    """What shall run; nothing as long as nobody has said."""
    return _read(folder / "desired.json", shape=Desired) or Desired()


def write_desired(folder: Path, desired: Desired) -> None:
    """Says what shall run; the supervisor looks when it gets SIGHUP."""
    _write(folder / "desired.json", desired)


def read_observed(folder: Path) -> dict[str, Observed]:
    """What the supervisor runs, by name."""
    try:
        listed = decode((folder / "observed.json").read_bytes(), as_type=list[Observed])
    except (OSError, UnreadableError):
        return {}
    return {each.name: each for each in listed}


def write_observed(folder: Path, observed: list[Observed]) -> None:
    """The supervisor's word on what runs."""
    _write(folder / "observed.json", observed)


@contextmanager
def locked() -> Iterator[None]:
    """Only one process at a time chooses ports and makes a sandbox's folder."""
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


def _write(path: Path, value: Any) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(msgspec.to_builtins(value), indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)

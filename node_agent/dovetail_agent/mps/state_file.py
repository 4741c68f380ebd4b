"""The state that MPS's supervisor writes for the agent: one small file, replaced atomically."""

import os
from pathlib import Path
from typing import Final

import msgspec

from dovetail.decoding import UnreadableError, decode

# The supervisor writes every 5 s: after this silence it may have ended.
OLD_SECONDS: Final = 60.0


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of MPS on this node.

    `at` is the time of writing in seconds since 1970. `clients` counts clients by pod UID, with "" for those outside
    pods. `exclusive` lists the devices that the supervisor keeps in EXCLUSIVE_PROCESS.
    """

    at: float
    live: bool = False
    reason: str = ""
    message: str = ""
    clients: dict[str, int] = {}
    exclusive: list[str] = []
    starts_total: int = 0
    crashes_total: int = 0


def write(path: Path, *, state: State) -> None:
    """Write the state atomically. Raises `OSError`."""
    replace_file(path, body=msgspec.json.encode(state), mode=0o644)


def replace_file(path: Path, *, body: bytes, mode: int) -> None:
    """Replace a file atomically: a reader sees the old or the new content. Raises `OSError`."""
    new = path.with_suffix(".new")
    new.write_bytes(body)
    new.chmod(mode)
    os.replace(new, path)  # noqa: PTH105 - the atomic one, by its name


def clients_in(path: Path | None) -> frozenset[str]:
    """UIDs of the pods that were clients of MPS when the file was written."""
    state = None if path is None else read(path)
    return frozenset() if state is None else frozenset(state.clients)


def read(path: Path) -> State | None:
    """Return the last state; None if it is missing or unreadable."""
    try:
        return decode(path.read_bytes(), as_type=State)
    except (OSError, UnreadableError):
        return None

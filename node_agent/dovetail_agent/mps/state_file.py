"""What the supervisor of MPS leaves for the agent of its node: one small file, replaced as a whole."""

import os
from pathlib import Path
from typing import Final

import msgspec

from dovetail.decoding import UnreadableError, decode

# The supervisor writes every few seconds; one that is silent for so long may be gone.
OLD_SECONDS: Final = 60.0


class State(msgspec.Struct, frozen=True, kw_only=True):
    """How MPS is on this node. `at` is the time of writing (seconds since 1970); `clients` counts by pod UID, with ""
    for those of no pod; `exclusive` are the cards that we keep in EXCLUSIVE_PROCESS."""

    at: float
    live: bool = False
    reason: str = ""
    message: str = ""
    clients: dict[str, int] = {}
    exclusive: list[str] = []
    starts_total: int = 0
    crashes_total: int = 0


def write(path: Path, state: State) -> None:
    """Leave it there, so that a reader sees the old or the new. Raises `OSError`."""
    replace_file(path, msgspec.json.encode(state), mode=0o644)


def replace_file(path: Path, body: bytes, *, mode: int) -> None:
    """Write a file that a reader sees whole, as it was or as it is now. Raises `OSError`."""
    new = path.with_suffix(".new")
    new.write_bytes(body)
    new.chmod(mode)
    os.replace(new, path)  # noqa: PTH105 - the atomic one, by its name


def clients_in(path: Path | None) -> frozenset[str]:
    """The UIDs of the pods that were clients of MPS when the file was written."""
    state = None if path is None else read(path)
    return frozenset() if state is None else frozenset(state.clients)


def read(path: Path) -> State | None:
    """What was left last; None if there is nothing, or nothing that can be read."""
    try:
        return decode(path.read_bytes(), as_type=State)
    except (OSError, UnreadableError):
        return None

"""Chooses free ports for the components of a sandbox that no other sandbox has."""

import random
import socket
from collections.abc import Iterable, Sequence
from typing import Final

from dovetail_sandbox.errors import SandboxError

# Below Linux's range for outgoing connections (32768 and up), above the well-known ports.
RANGE: Final = range(21000, 32000)
_NEXT: Final = 100


def choose(components: Sequence[str], *, taken: Iterable[int]) -> dict[str, int]:
    """Choose a port for each component, and reserve it. `taken` has other sandboxes' ports, used or not.

    The caller holds `state.locked` until the choice is recorded. Raises `SandboxError` if too few are free.
    """
    used = set(taken)
    # A random start: sandboxes of other users and state directories are not in `taken`, and see only reservations.
    first = random.SystemRandom().randrange(len(RANGE))
    free = (port for port in (*RANGE[first:], *RANGE[:first]) if port not in used and is_free(port) and reserve(port))
    # The components are first: `zip` must not take, and so reserve, one port too many.
    chosen = dict(zip(components, free, strict=False))
    if len(chosen) < len(components):
        raise SandboxError(f"No {len(components)} free ports between {RANGE.start} and {RANGE.stop}.")
    return chosen


def first_from(first: int, *, taken: Iterable[int]) -> int:
    """Choose the first free port from `first` on, and reserve it on this machine while this process runs.

    All sandboxes begin at the same port, also those of other state directories and users, which are not in `taken`. A
    reservation keeps two of them that start at the same moment from the same port. Raises `SandboxError` if none of a
    hundred ports is free.
    """
    used = set(taken)
    candidates = (port for port in range(first, first + _NEXT) if port not in used and is_free(port))
    found = next((port for port in candidates if reserve(port)), None)
    if found is None:
        raise SandboxError(f"No free port between {first} and {first + _NEXT - 1}.")
    return found


def reserve(port: int) -> bool:
    """Reserve a port on this machine while this process runs. Return False if another process has reserved it.

    The reservation is a name of Linux's abstract namespace, which has no file and ends with the process.
    """
    reservation = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        reservation.bind(f"\0dovetail-port-{port}")
    except OSError:
        reservation.close()
        return False
    # The descriptor stays open. When this process ends, its components are up, and no other program can bind the port.
    reservation.detach()
    return True


def is_free(port: int) -> bool:
    """Whether no program listens on the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a port whose last connection is still in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - nothing listens; some components will on all
        except OSError:
            return False
    return True

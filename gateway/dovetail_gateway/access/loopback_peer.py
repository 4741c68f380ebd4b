"""Whose process is at the other end of a connection on this machine, from the kernel's table of TCP sockets."""

import socket
import struct
from pathlib import Path
from typing import Any, Final

_TABLES: Final = {2: Path("/proc/net/tcp"), 4: Path("/proc/net/tcp6")}
# Once a socket is closed, the kernel reports it as root's: only an established one has its owner.
_ESTABLISHED: Final = "01"


def uid_of(peer: tuple[Any, ...] | None, *, own: tuple[Any, ...] | None) -> int | None:
    """The user at the address `peer` of a connection to our address `own`, both as `socket` has them.

    None if the kernel names none: the peer is on another machine, or has closed the connection.
    """
    if peer is None or own is None or len(peer) not in _TABLES:
        return None
    try:
        wanted, rows = [_row(peer), _row(own)], _TABLES[len(peer)].read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return None
    for fields in map(str.split, rows):
        if fields[1:3] == wanted and fields[3] == _ESTABLISHED:
            return int(fields[7])
    return None


def _row(address: tuple[Any, ...]) -> str:
    """An address as the table has it: each four bytes as a number of this machine, and the port."""
    packed = socket.inet_pton(socket.AF_INET if len(address) == 2 else socket.AF_INET6, address[0])
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"

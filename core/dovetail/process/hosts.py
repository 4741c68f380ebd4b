"""The names by which a server may be called: a page of another site must not reach it."""

from collections.abc import Collection
from typing import Final

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Hosts:
    """The names by which a server may be called: those of loopback, and `names`.

    A page of another site can point its own name to this address (DNS rebinding); its requests then carry that name.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = _LOOPBACK | {name.lower() for name in names}

    def admits(self, header: str) -> bool:
        """Whether the Host header, with or without a port, names the server."""
        host, separator, port = header.lower().rpartition(":")
        return header.lower() in self._names or (bool(separator) and port.isdecimal() and host in self._names)

"""A TCP proxy in front of the API server, whose connections can be delayed, dropped and stalled.

TLS passes through it, so clients check the API server's certificate as they do without it.
"""

import asyncio
from contextlib import suppress
from typing import Final, Literal

Fault = Literal["", "delay", "drop", "stall"]

DELAY_SECONDS: Final = 0.3
_CHUNK_BYTES: Final = 65_536


class Proxy:
    """One client's way to the API server."""

    def __init__(self, *, port: int) -> None:
        self._port = port
        self._fault: Fault = ""
        self._healthy = asyncio.Event()
        self._healthy.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen on a free port of loopback; the URL."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Close all connections."""
        self.set_fault("drop")
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def set_fault(self, fault: Fault) -> None:
        """Begin or end a fault. `drop` closes what is open, and accepts nothing until the fault ends."""
        self._fault = fault
        if fault == "stall":
            self._healthy.clear()
        else:
            self._healthy.set()
        if fault == "drop":
            for writer in self._writers:
                writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._connected(reader, writer=writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connected(self, reader: asyncio.StreamReader, *, writer: asyncio.StreamWriter) -> None:
        if self._fault == "drop":
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, back}
        self._writers |= both
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_on(reader, writer=back))
                tasks.create_task(self._pass_on(there, writer=writer))
        finally:
            self._writers -= both

    async def _pass_on(self, reader: asyncio.StreamReader, *, writer: asyncio.StreamWriter) -> None:
        # An end of one direction ends the other: HTTP clients of Kubernetes half-close no connection.
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if self._fault == "delay":
                    await asyncio.sleep(DELAY_SECONDS)
                await self._healthy.wait()
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()

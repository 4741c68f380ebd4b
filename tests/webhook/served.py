"""`dovetail-webhook` as a process of a test, and clients that speak to it over TLS: well, badly and slowly."""

import asyncio
import io
import json
import os
import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.background import free_ports
from tests.core.process.test_certificate import write_pair

PROGRAM = (sys.executable, "-c", "from dovetail_webhook.main import main; raise SystemExit(main())")


@dataclass(frozen=True, kw_only=True)
class Served:
    """A webhook that is ready."""

    process: asyncio.subprocess.Process
    port: int
    metrics_port: int
    trust: ssl.SSLContext
    http: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/mutate"

    async def post(self, body: Any, **options: Any) -> tuple[int, str]:
        """Status and text of the answer to a body, which is JSON unless it is bytes or a stream."""
        data = json.dumps(body) if isinstance(body, dict) else body
        data = io.BytesIO(data) if isinstance(data, bytes) else data
        async with self.http.post(self.url, data=data, ssl=self.trust, **options) as response:
            return response.status, await response.text()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection past its handshake that has sent nothing."""
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)

    async def say(self, text: bytes) -> bytes:
        """What comes back on a connection of its own until the server closes it."""
        reader, writer = await self.connect()
        writer.write(text)
        try:
            return await reader.read()
        finally:
            writer.transport.abort()

    def peak_mib(self) -> float:
        """The most memory that the process has had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024


@asynccontextmanager
async def webhook(folder: Path) -> AsyncIterator[Served]:
    """The program with a certificate in that folder, ready."""
    authority = write_pair(folder)
    port, metrics = free_ports(count=2)
    options = (f"--certificates={folder}", f"--port={port}", f"--metrics-port={metrics}", "--host=127.0.0.1")
    process = await asyncio.create_subprocess_exec(*PROGRAM, *options, env=dict(os.environ))
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            await until_ready(http, f"http://127.0.0.1:{metrics}/readyz")
            trust = ssl.create_default_context(cadata=authority.decode())
            yield Served(process=process, port=port, metrics_port=metrics, trust=trust, http=http)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until_ready(http: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                async with http.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)

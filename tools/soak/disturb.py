"""Carries out the disturbances on a sandbox."""

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail.api.resources import SECRETS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.process import identity
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.processes import processes
from tools.soak.proxy import Fault, Proxy
from tools.soak.schedule import CLIENTS, Disturbance

_FAULTS: Final[dict[str, Fault]] = {"delay": "delay", "drop": "drop", "stall": "stall"}
_API_SERVER: Final = "kube-apiserver"
_END_SECONDS: Final = 30.0
_PORT_POLL_SECONDS: Final = 0.05
_LIBRARIES: Final = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
)


def faketime() -> Path | None:
    """libfaketime, which Debian has as a package of that name; None if it is not installed."""
    return next((path for path in map(Path, _LIBRARIES) if path.exists()), None)


def clock_environment(clock: Path) -> dict[str, str]:
    """The variables by which Python programs read the step of their clock from a file, which is empty before.

    Programs in Go make system calls of their own, so the control plane keeps the real time.
    """
    library = faketime()
    if library is None:
        return {}
    clock.write_text("+0\n", encoding="ascii")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


@dataclass(kw_only=True)
class Disturber:
    """The disturbances of one sandbox; what it starts ends with `open`."""

    sandbox: Cluster
    clock: Path
    proxies: dict[str, Proxy] = field(default_factory=dict)
    _server: subprocess.Popen[bytes] | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Put a proxy between each client and the API server."""
        port = self.sandbox.state().ports[_API_SERVER]
        try:
            for name in CLIENTS:
                self.proxies[name] = proxy = Proxy(port=port)
                url = await proxy.start()
                await asyncio.to_thread(self._lead, name, url=url)
            yield
        finally:
            for proxy in self.proxies.values():
                await proxy.close()

    def close(self) -> None:
        """End the API server, if this started the present one."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    async def carry_out(self, disturbance: Disturbance) -> None:
        """Begin it, wait for its end, and undo it."""
        match disturbance.kind:
            case "kill":
                self._signal(disturbance.target, number=signal.SIGKILL)
            case "pause":
                await self._pause(disturbance.target, seconds=disturbance.seconds)
            case "api-server":
                await asyncio.to_thread(self._restart_api_server)
            case "clock":
                await self._step(disturbance.step, seconds=disturbance.seconds)
            case "certificate":
                await self._delete_certificate()
            case kind:
                proxy = self.proxies[disturbance.target]
                proxy.set_fault(_FAULTS[kind])
                await asyncio.sleep(disturbance.seconds)
                proxy.set_fault("")

    def _lead(self, component: str, *, url: str) -> None:
        """Let a program reach the API server by that URL."""
        path = self.sandbox.folder / "kubeconfigs" / component
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        document["clusters"][0]["cluster"]["server"] = url
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.sandbox.restart(component)

    def _signal(self, component: str, *, number: int) -> None:
        process = self.sandbox.observed()[component].process
        if process is not None:
            identity.send(process, signal_number=number)

    async def _pause(self, component: str, *, seconds: float) -> None:
        process = self.sandbox.observed()[component].process
        if process is None or not identity.send(process, signal_number=signal.SIGSTOP):
            return
        try:
            await asyncio.sleep(seconds)
        finally:
            identity.send(process, signal_number=signal.SIGCONT)

    def _restart_api_server(self) -> None:
        """Kill the API server, and start it again as it was; the sandbox itself restarts only Dovetail's programs."""
        pid = self._server.pid if self._server is not None else self.sandbox.pid(_API_SERVER)
        proc = Path("/proc") / str(pid)
        argv = proc.joinpath("cmdline").read_text(encoding="utf-8").split("\0")[:-1]
        pairs = proc.joinpath("environ").read_text(encoding="utf-8").split("\0")[:-1]
        folder = proc.joinpath("cwd").readlink()
        process = identity.identify(pid)
        assert process is not None, "an API server that has ended stays a child until it is replaced"
        identity.send(process, signal_number=signal.SIGKILL)
        if self._server is not None:
            self._server.wait()
        processes.wait_gone([process], seconds=_END_SECONDS)
        port = self.sandbox.state().ports[_API_SERVER]
        wait_port_free(port, seconds=_END_SECONDS)
        environment = dict(pair.split("=", 1) for pair in pairs)
        path = self.sandbox.folder / "logs" / "kube-apiserver-again.log"
        with path.open("ab") as log:
            self._server = subprocess.Popen(argv, env=environment, cwd=folder, stdout=log, stderr=log)
        wait_listening(self._server, port=port, log=path)

    async def _step(self, step: float, *, seconds: float) -> None:
        if not self.clock.exists():
            return
        self.clock.write_text(f"{step:+.0f}\n", encoding="ascii")
        await asyncio.sleep(seconds)
        self.clock.write_text("+0\n", encoding="ascii")

    async def _delete_certificate(self) -> None:
        connection = load_connection(self.sandbox.kubeconfig)
        with suppress(KubeError, OSError):
            async with Client(connection) as client:
                await client.delete(SECRETS, name="dovetail-webhook", namespace="dovetail-system")


def wait_port_free(port: int, *, seconds: float) -> None:
    """Return when a server may listen on this port of loopback. Raises `TimeoutError`.

    A killed process counts as gone when its main thread has ended; its sockets close with its last thread.
    """
    until = time.monotonic() + seconds
    while True:
        with socket.socket() as probe:
            # As Go's servers do: closed connections of the port's last user do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return
        if time.monotonic() > until:
            raise TimeoutError(f"port {port} is still in use after {seconds:g} s")
        time.sleep(_PORT_POLL_SECONDS)


def wait_listening(server: subprocess.Popen[bytes], *, port: int, log: Path) -> None:
    """Return when the server accepts connections. Raises `RuntimeError` if it ends instead."""
    while server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(_PORT_POLL_SECONDS)
    last = (log.read_text(encoding="utf-8").splitlines() or [""])[-1]
    raise RuntimeError(f"the API server ended with code {server.returncode}: {last}")


def programs(sandbox: Cluster, *, names: Sequence[str]) -> dict[str, Any]:
    """The processes of these programs that run now, by name."""
    observed = sandbox.observed()
    return {name: each.process for name in names if (each := observed.get(name)) and each.process is not None}


def inherit(environment: dict[str, str]) -> None:
    """Give programs that this process starts these variables."""
    os.environ.update(environment)

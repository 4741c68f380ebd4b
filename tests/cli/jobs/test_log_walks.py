"""A log that is followed for hours of virtual time, from a kubelet that fails at times: each line is written once.

The client, its informers and the follower are the real ones. While the pod runs, nothing ends the following; once it
has ended, some tries are left for its last lines.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from dovetail import names
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.errors import Unreachable
from dovetail.kube.http_session import Answer, Request
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.jobs.log_follow import LogFollower
from tests import virtual_time
from tests.world.api import as_typed
from tests.world.http import HttpServer, MemorySession, Weather, target_of
from tests.world.operator import START


class Kubelet(MemorySession):
    """The API server, and behind it a kubelet with the log of one container."""

    def __init__(self, server: HttpServer, *, rng: Random) -> None:
        super().__init__(server, weather=Weather(), died=lambda: None)
        self.rng = rng
        # Each with its time, as the kubelet keeps it.
        self.lines: list[tuple[str, str]] = []
        self.has_ended = False
        self.is_away = False

    def print(self, count: int) -> None:
        """Let the container print lines, of which several may have one time."""
        at = f"{START + timedelta(seconds=virtual_time.clock()):%Y-%m-%dT%H:%M:%S.%f}000Z"
        self.lines += [(at, f"line {len(self.lines) + number}\n") for number in range(count)]

    def begin(self) -> None:
        """Let the container start again, with a log of its own."""
        self.lines, self.has_ended = [], False

    @asynccontextmanager
    async def stream(
        self, request: Request, *, silence_seconds: float | None
    ) -> AsyncIterator[Answer | AsyncIterator[bytes]]:
        if target_of(request.path).subresource != "log":
            async with super().stream(request, silence_seconds=silence_seconds) as found:
                yield found
        elif self.is_away and self.rng.random() < 0.3:
            raise Unreachable("memory", problem="it is away")
        elif self.is_away:
            body = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "kubelet is away"}
            yield Answer(status=500, retry_after="", body=json.dumps(body).encode())
        else:
            yield self._log(request)

    async def _log(self, request: Request) -> AsyncIterator[bytes]:
        since = request.query.get("sinceTime", "")
        lines = self.lines
        # A kubelet knows whole seconds there.
        sent = sum(at[:19] < since[:19] for at, _ in lines)
        while True:
            text = "".join(f"{at} {line}" for at, line in lines[sent:]).encode()
            sent = len(lines)
            cut = self.rng.randint(0, len(text))
            for part in (text[:cut], text[cut:]):
                if part:
                    yield part
            if self.is_away:
                raise Unreachable("memory", problem="the connection broke")
            if self.has_ended or lines is not self.lines:
                return
            await asyncio.sleep(0.25)


class Job:
    """A job of one pod in the API server."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
        job = {"metadata": {"name": "train", "namespace": "default"}, "spec": {"gpu": 1, "template": template}}
        server.create("gpujobs", job | {"status": {"phase": "Running", "number": 7}})
        metadata = {"name": "train-0", "namespace": "default", "labels": {names.LABEL_JOB: "train"}}
        server.create("pods", {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": {}})
        self.set_container(running={})

    def set_container(self, *, phase: str = "Running", restarts: int = 0, **state: Any) -> None:
        status = {"name": "main", "state": state, "restartCount": restarts}
        self._server.change(
            "pods", "default/train-0", lambda pod: pod.update(status={"phase": phase, "containerStatuses": [status]})
        )

    def end(self) -> None:
        self._server.change("gpujobs", "default/train", lambda job: job["status"].update(phase="Succeeded"))


async def walk(seed: int) -> tuple[str, str]:
    """Follow a log, and return what was printed and what was written."""
    rng, written = Random(seed), bytearray()
    server = HttpServer(lambda: "2026-01-01T12:00:00Z", kinds=frozenset({"gpujobs", "pods"}))
    kubelet, job, printed = Kubelet(server, rng=rng), Job(server), ""
    async with Client(Connection(server="http://memory"), make_session=lambda _connection: kubelet) as client:
        follower = LogFollower(
            Cluster(client=client, namespace="default"),
            job=as_typed("gpujobs", server.all("gpujobs")[0]),
            worker=None,
            tail=None,
            write=written.extend,
            prefix=lambda _worker: "",
        )
        following = asyncio.create_task(follower.run())
        for restarts in range(3):
            for _ in range(30):
                kubelet.print(rng.choice([0, 1, 3]))
                kubelet.is_away = rng.random() < 0.4
                await asyncio.sleep(rng.choice([0.0, 0.4, 3.0, 60.0, 900.0]))
            kubelet.print(2)
            kubelet.has_ended = True
            # Of a container that runs again, the kubelet has the lines of before no more.
            await asyncio.sleep(0.0 if restarts == 2 else 60.0)
            kubelet.is_away = False
            await asyncio.sleep(0.0 if restarts == 2 else 60.0)
            printed += "".join(line for _, line in kubelet.lines)
            if restarts < 2:
                kubelet.begin()
                job.set_container(restarts=restarts + 1, running={})
        kubelet.is_away = rng.random() < 0.5
        job.set_container(phase="Succeeded", restarts=2, terminated={"exitCode": 0})
        await asyncio.sleep(rng.choice([0.0, 2.5]))
        kubelet.is_away = False
        job.end()
        await following
    return printed, written.decode()


@pytest.mark.parametrize("seed", range(8))
def test_each_line_is_written_once_however_often_the_kubelet_fails(seed: int) -> None:
    printed, written = virtual_time.run(walk(seed))
    assert written == printed
    assert printed.count("\n") > 60

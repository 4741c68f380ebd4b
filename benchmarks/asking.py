"""kube-scheduler's side of a benchmark: one client on one connection that filters and then prioritizes each pod."""

import json
import re
import socket
import ssl
import statistics
import sys
import time
from dataclasses import dataclass
from random import Random
from typing import Any

from dovetail import names
from dovetail_extender.decide.filter_score import FILTER_LIMIT

WARM_UP = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The measurements of one kind of request."""

    request: str
    p50_ms: float
    p99_ms: float
    answer_bytes: int


class Asker:
    """A client of the extender at a port of loopback, with one persistent connection.

    It writes and reads bytes without an HTTP library, so that it measures the extender: kube-scheduler's
    client is compiled, and a Python client would cost as much as the answer.
    """

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
        self.took: dict[str, list[float]] = {}
        self.bytes: dict[str, int] = {}

    def ask(self, verb: str, body: bytes, *, as_: str) -> Any:
        """Send a request and decode the answer; the time until its last byte is recorded under `as_`."""
        head = f"POST /{verb} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        request = f"{head}{len(body)}\r\n\r\n".encode() + body
        started = time.perf_counter()
        self._socket.sendall(request)
        status, answer = self._read()
        self.took.setdefault(as_, []).append(time.perf_counter() - started)
        self.bytes[as_] = len(answer)
        if status != 200:
            sys.exit(f"{verb}: {status} {answer[:200]!r}")
        return json.loads(answer)

    def _read(self) -> tuple[int, bytes]:
        read = bytearray()
        while (end := read.find(b"\r\n\r\n")) < 0:
            read += self._socket.recv(1 << 18)
        length = re.search(rb"(?i)content-length: (\d+)", read[:end])
        assert length, "the extender's answers say how long they are"
        total = end + 4 + int(length[1])
        while len(read) < total:
            read += self._socket.recv(1 << 18)
        return int(read[9:12]), bytes(read[end + 4 : total])

    def figures(self) -> list[Figure]:
        """The measurements of each kind, without the first `WARM_UP` requests."""
        return [
            Figure(
                request=name,
                p50_ms=round(statistics.median(warm), 3),
                p99_ms=round(warm[min(len(warm) - 1, int(len(warm) * 0.99))], 3),
                answer_bytes=self.bytes[name],
            )
            for name, took in self.took.items()
            if (warm := sorted(seconds * 1000 for seconds in took[WARM_UP:]))
        ]


def measure(port: int, *, nodes: list[str], requests: int, tls: ssl.SSLContext | None = None) -> list[Figure]:
    """Filter over all `nodes` and prioritize over the answer, pod after pod, and measure two rarer kinds.

    A pod's hold, from filter or from prioritize, is a change that the next filter must process, like every bind.
    Prioritize gets at most as many nodes as filter names. The other requests are: the same pod again, when nothing has
    changed except its own hold; prioritize over all nodes, for pods with their own preferences; and a model that no
    node has, which every node refuses.
    """
    asker = Asker(port, tls=tls)
    random = Random(0)
    nowhere = _body(pod("nowhere", gpu="0.5(A100)", milli=500), json.dumps(nodes))
    pods = [pod(f"asking-{at}", gpu="0.5", milli=500) for at in range(requests + WARM_UP)]
    bodies = [_body(asking, json.dumps(_as_found(nodes, random=random))) for asking in pods]
    few = json.dumps(nodes[:FILTER_LIMIT])
    for asking, body in zip(pods, bodies, strict=True):
        asker.ask("filter", body, as_="filter")
        asker.ask("prioritize", _body(asking, few), as_="prioritize")
    fresh = _body(pod("fresh", gpu="0.5", milli=500), json.dumps(nodes))
    for _ in bodies:
        asker.ask("filter", fresh, as_="filter, no change")
    for body in bodies[: requests // 3 + WARM_UP]:
        asker.ask("prioritize", body, as_="prioritize all nodes")
        asker.ask("filter", nowhere, as_="filter, none fits")
    return asker.figures()


def pod(name: str, *, gpu: str, milli: int) -> dict[str, Any]:
    """A pod as kube-scheduler sends it."""
    limits = {names.GPU_MILLI: str(milli), "cpu": "4", "memory": "16Gi"}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "resourceVersion": "1",
            "annotations": {names.REQUEST: gpu},
        },
        "spec": {"containers": [{"name": "main", "image": "train:1", "resources": {"limits": limits}}]},
        "status": {"phase": "Pending"},
    }


def _as_found(nodes: list[str], *, random: Random) -> list[str]:
    """The nodes in another order each time, as kube-scheduler's workers take them in small chunks."""
    chunks = [nodes[at : at + 16] for at in range(0, len(nodes), 16)]
    random.shuffle(chunks)
    return [name for chunk in chunks for name in chunk]


def _body(asking: dict[str, Any], nodes: str) -> bytes:
    return f'{{"Pod": {json.dumps(asking)}, "Nodes": null, "NodeNames": {nodes}}}'.encode()


def table(figures: list[Figure]) -> str:
    """The results as lines of text."""
    return "\n".join(
        f"  {at.request:<22} p50 {at.p50_ms:7.2f} ms   p99 {at.p99_ms:7.2f} ms   {at.answer_bytes / 1000:7.1f} kB"
        for at in figures
    )

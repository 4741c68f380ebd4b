"""Measure the gateway on a large cluster: status, lists, a snapshot, dry runs, and changes that reach streams.

The cluster comes from the tests' API server in a separate process: nodes of 4 V100, pods of which some hold devices,
and jobs in 100 namespaces. The gateway is its own program on one core. Requests come from this process over kept
connections.

    python benchmarks/gateway.py [--nodes 1000] [--jobs 10000] [--pods 40000] [--streams 200] [--json FILE]
"""

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.counts import count
from tests.extender.builders import make_gpunode, make_node
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.builders import make_bound_pod, make_job

DEVICES = 4
NAMESPACES = 100
TENANTS = 8
HEADERS = {"Authorization": "Bearer admin-token"}
PORT = 18200
# What is asked, with the number of requests.
REQUESTS = (
    ("v1 status", "/api/v1/gpu/status", 2000),
    ("v3 jobs, a page of 100", "/api/v3/jobs?limit=100", 100),
    ("v3 nodes, a page of 100", "/api/v3/nodes?limit=100", 100),
    ("v3 snapshot", "/api/v3/snapshot", 16),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One kind of request: times in milliseconds one after the other, and the rate with eight at once.

    `cpu_ms` is the gateway's own CPU for each, which does not depend on what else the machine does.
    """

    request: str
    p50_ms: float
    p99_ms: float
    per_second: float
    cpu_ms: float
    kib: float

    def row(self) -> str:
        """For people."""
        times = f"p50 {self.p50_ms:8.2f} ms   p99 {self.p99_ms:8.2f} ms"
        return f"{self.request:26} {times}   {self.per_second:8.0f}/s   CPU {self.cpu_ms:6.2f} ms   {self.kib:8.0f} KiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRuns:
    """Dry runs one after the other, in seconds: the first, which prepares the queue, and those after it."""

    first_seconds: float
    median_seconds: float
    slowest_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Changes that reach streams: seconds until the last stream has one, and the gateway's CPU meanwhile."""

    streams: int
    changes_per_second: int
    median_seconds: float
    slowest_seconds: float
    cpu_percent: float


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=1000)
    options.add_argument("--jobs", type=count, default=10_000)
    options.add_argument("--pods", type=count, default=40_000)
    options.add_argument("--streams", type=count, default=200)
    options.add_argument("--json", type=Path, default=Path("out/gateway.json"), help="where it is written too")
    args = options.parse_args()
    with own_process(serve, args.nodes, args.jobs, args.pods) as (url, pipe):
        result = asyncio.run(measure(url, pipe=pipe, streams=args.streams))
    write(result, to=args.json)


@contextmanager
def own_process(serve: Callable[..., None], *args: int) -> Iterator[tuple[str, Pipe]]:
    """The URL of the API server that `serve` runs in a process of its own, and the pipe to it."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs, *args), daemon=True)
    server.start()
    try:
        yield ours.recv(), ours
    finally:
        server.terminate()


def write(result: Mapping[str, Any], *, to: Path) -> None:
    """Write the result as JSON."""
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(result, indent=2) + "\n")


def serve(pipe: Pipe, nodes: int, jobs: int, pods: int) -> None:
    """The API server; each message through the pipe changes that many jobs."""

    async def run() -> None:
        async with GatewayApiServer().running() as api:
            fill(api, nodes=nodes, jobs=jobs, pods=pods)
            pipe.send(api.connection.server)
            loop, at = asyncio.get_running_loop(), 0
            while (count := await loop.run_in_executor(None, pipe.recv)) is not None:
                for _ in range(count):
                    at += 1
                    job = api.objects["gpujobs"][f"ns-{at % NAMESPACES}/job-{at % NAMESPACES}"]
                    job["metadata"]["labels"]["bench"] = str(at)
                    api.put("gpujobs", job)

    asyncio.run(run())


def fill(api: GatewayApiServer, *, nodes: int, jobs: int, pods: int) -> None:
    """Half of the devices are held; the other pods ask for no GPU."""
    api.users |= {f"stream-{at}": User(f"stream-{at}", {"*": EDIT}) for at in range(1000)}
    api.users |= {f"tenant-{at}": User(f"tenant-{at}", {f"ns-{at}": EDIT}) for at in range(TENANTS)}
    for at in range(nodes):
        api.put("nodes", make_node(f"node-{at}"))
        api.put("gpunodes", make_gpunode(f"node-{at}", gpus=DEVICES))
    for at in range(jobs):
        status = {"phase": "Queued", "number": at, "reason": "Resources", "message": "Need 8 GPUs", "gpus": 8}
        api.put("gpujobs", make_job(f"job-{at}", namespace=f"ns-{at % NAMESPACES}", number=at, status=status, gpu=8))
    for at in range(pods):
        node, device = f"node-{at % nodes}", at // nodes
        pod = make_bound_pod(f"pod-{at}", namespace=f"ns-{at % NAMESPACES}", job="x", number=at, device=f"d-{device}")
        pod["spec"]["nodeName"] = node
        if device < DEVICES // 2:
            allocation = json.loads(pod["metadata"]["annotations"]["dovetail.dev/allocation"])
            allocation["node"] = node
            allocation["containers"][0]["devices"][0]["uuid"] = f"{node}-{device}"
            pod["metadata"]["annotations"]["dovetail.dev/allocation"] = json.dumps(allocation)
        else:
            pod["metadata"] |= {"annotations": {}, "labels": {}}
            pod["spec"]["containers"] = [{"name": "main"}]
        api.put("pods", pod)


async def measure(server: str, *, pipe: Pipe, streams: int) -> dict[str, Any]:
    """Everything that is measured, printed as it comes."""
    async with program(server) as process, aiohttp.ClientSession(headers=HEADERS) as session:
        synced = await until_synced(session)
        print(f"synced after {synced:.1f} s, {memory_mib(process.pid)} MiB")
        figures = []
        for name, path, requests in REQUESTS:
            figures.append(await ask(session, name, path=path, requests=requests, pid=process.pid))
            print(figures[-1].row(), flush=True)
        dry_runs = await ask_dry_runs(session)
        print(dry_runs, f"peak {memory_mib(process.pid, peak=True)} MiB", flush=True)
        live = await follow(pipe=pipe, pid=process.pid, streams=streams)
        peak = memory_mib(process.pid, peak=True)
        print(live, f"peak {peak} MiB", flush=True)
        asking = asyncio.create_task(ask_for_ever(session))
        busy = await follow(pipe=pipe, pid=process.pid, streams=streams)
        asking.cancel()
        print("while dry runs are asked for:", busy)
        busy_peak = memory_mib(process.pid, peak=True)
        print(f"peak {busy_peak} MiB")
    return {
        "synced_seconds": synced,
        "peak_mib": peak,
        "peak_while_asked_mib": busy_peak,
        "requests": list(map(asdict, figures)),
        "dry_runs": asdict(dry_runs),
        "live": asdict(live),
        "live_while_asked": asdict(busy),
    }


async def ask_dry_runs(session: aiohttp.ClientSession, *, requests: int = 60) -> DryRuns:
    """Where jobs of one GPU and of eight would start."""
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    taken = []
    for at in range(requests):
        body = {"namespace": "ns-0", "spec": {"gpu": (1, 8)[at % 2], "template": template}}
        began = time.perf_counter()
        async with session.post(f"http://127.0.0.1:{PORT}/api/v3/dry-run", json=body) as response:
            await response.read()
            assert response.status == 200, await response.text()
        taken.append(round(time.perf_counter() - began, 3))
    first, *others = taken
    return DryRuns(first_seconds=first, median_seconds=median(others), slowest_seconds=max(others))


async def ask_for_ever(session: aiohttp.ClientSession) -> None:
    """Dry runs of users who see one namespace: each time, the queue is prepared for another of them."""
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    for at in itertools.count():
        headers = {"Authorization": f"Bearer tenant-{at % TENANTS}"}
        body = {"namespace": f"ns-{at % TENANTS}", "spec": {"gpu": 8, "template": template}}
        async with session.post(f"http://127.0.0.1:{PORT}/api/v3/dry-run", json=body, headers=headers) as response:
            assert response.status == 200, await response.text()


def write_kubeconfig(folder: Path, *, server: str) -> Path:
    path = folder / "kubeconfig"
    content = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": server}}],
        "users": [{"name": "x", "user": {"token": "admin-token"}}],
    }
    path.write_text(json.dumps(content))
    return path


@asynccontextmanager
async def program(server: str) -> Any:
    """The gateway as its own process, on one core."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = write_kubeconfig(Path(folder), server=server)
        ports = [f"--port={PORT}", f"--metrics-port={PORT + 1}"]
        command = [Path(sys.executable).parent / "dovetail-gateway", "--rate=0", *ports]
        log = Path(folder, "log").open("w")  # noqa: SIM115, ASYNC230 - until the process ends
        process = subprocess.Popen([*command, f"--kubeconfig={kubeconfig}"], stdout=log, stderr=log)  # noqa: ASYNC220
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(process.pid, cores[:1])
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=30)
            log.close()


async def until_synced(session: aiohttp.ClientSession) -> float:
    began = time.monotonic()
    while True:
        with suppress(aiohttp.ClientError):
            async with session.get(f"http://127.0.0.1:{PORT}/api/v1/gpu/health") as response:
                if response.status == 200:
                    return round(time.monotonic() - began, 1)
        await asyncio.sleep(0.2)


async def ask(session: aiohttp.ClientSession, name: str, *, path: str, requests: int, pid: int) -> Figure:
    """One after the other for the times, then eight at once for the rate."""
    url, size = f"http://127.0.0.1:{PORT}{path}", 0

    async def once() -> float:
        nonlocal size
        began = time.perf_counter()
        async with session.get(url) as response:
            assert response.status == 200, await response.text()
            size = len(await response.read())
        return (time.perf_counter() - began) * 1000

    await once()
    times = [await once() for _ in range(max(5, requests // 4))]
    used = cpu_seconds(pid)
    rate = await per_second(once, requests=requests)
    used = cpu_seconds(pid) - used
    return Figure(
        request=name,
        p50_ms=round(median(times), 2),
        p99_ms=round(quantiles(times, n=100)[-1], 2),
        per_second=round(rate, 1),
        cpu_ms=round(1000 * used / (8 * max(1, requests // 8)), 2),
        kib=round(size / 1024, 1),
    )


async def per_second(once: Callable[[], Awaitable[float]], *, requests: int) -> float:
    async def several() -> None:
        for _ in range(max(1, requests // 8)):
            await once()

    began = time.perf_counter()
    await asyncio.gather(*(several() for _ in range(8)))
    return 8 * max(1, requests // 8) / (time.perf_counter() - began)


async def follow(*, pipe: Pipe, pid: int, streams: int) -> Live:
    """Ten seconds of 50 changes a second, and when each second's first change has reached all streams."""
    ready, seen = asyncio.Event(), dict[str, list[float]]()
    opened = 0
    connector = aiohttp.TCPConnector(limit=0)

    async def read(client: aiohttp.ClientSession) -> None:
        nonlocal opened
        async with client.get(f"http://127.0.0.1:{PORT}/api/v3/stream") as response:
            opened += 1
            if opened == streams:
                ready.set()
            async for line in response.content:
                if line.startswith(b"data: ") and b'"jobs":[{' in line:
                    seen.setdefault(line[:40].decode(), []).append(time.monotonic())

    # A user has sixteen streams, so each eight come as a user of their own; the API server knows them all.
    tokens = [f"Bearer stream-{at}" for at in range(0, streams, 8)]
    clients = [
        aiohttp.ClientSession(headers={"Authorization": token}, connector=connector, connector_owner=False)
        for token in tokens
    ]
    tasks = [asyncio.create_task(read(clients[at // 8])) for at in range(streams)]
    try:
        async with asyncio.timeout(60):
            await ready.wait()
        began, sent, cpu = time.monotonic(), list[float](), cpu_seconds(pid)
        for _ in range(40):
            sent.append(time.monotonic())
            pipe.send(50 // 4)
            await asyncio.sleep(0.25)
        used = (cpu_seconds(pid) - cpu) / (time.monotonic() - began)
        await asyncio.sleep(1.5)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.close()
        await connector.close()
    delays = sorted(min(last - at for at in sent if at <= last) for last in (max(times) for times in seen.values()))
    return Live(
        streams=streams,
        changes_per_second=50,
        median_seconds=round(median(delays), 3),
        slowest_seconds=round(delays[-1], 3),
        cpu_percent=round(100 * used, 1),
    )


def memory_mib(pid: int, *, peak: bool = False) -> int:
    field = "VmHWM" if peak else "VmRSS"
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) // 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()

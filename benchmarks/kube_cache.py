"""Measure the cost of a cache of pods: time to list it over HTTP, time to decode it, and the memory that it keeps.

    python benchmarks/kube_cache.py --pods 10000

A separate process serves the pods in pages, as the API server does, so that only the reader's cost is measured. The
same pages are also read into plain dictionaries for comparison.
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from aiohttp import web
from counts import count

from dovetail.api.builtin import Pod
from dovetail.api.resources import PODS
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import PAGE_SIZE, Client
from dovetail.kube.reflector import Reflector


def make_pod(number: int) -> dict[str, Any]:
    """A pod of about 5 kB, as a running one is: what the cache drops is most of it."""
    noise = {f"f:field-{index}": {"f:value": {}, ".": {}} for index in range(70)}
    return {
        "metadata": {
            "name": f"train-{number}", "namespace": f"team-{number % 20}", "uid": f"{number:08d}-0000-4000-8000",
            "resourceVersion": str(number), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "train", "dovetail.dev/job": f"job-{number}"},
            "annotations": {"dovetail.dev/gpu": "8G,0.5"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}],
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": noise}],
        },
        "spec": {
            "nodeName": f"node-{number % 1000}", "schedulerName": "dovetail", "priority": 0,
            "containers": [
                {
                    "name": "train", "image": "registry.example.com/train:1", "command": ["python", "train.py"] * 20,
                    "resources": {"requests": {"cpu": "4", "memory": "16Gi", "dovetail.dev/gpu-milli": "500"}},
                    "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}],
                }
            ],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {
            "phase": "Running", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "containerStatuses": [
                {
                    "name": "train", "ready": True, "restartCount": 0, "state": {"running": {}},
                    "image": "registry.example.com/train:1", "imageID": "registry.example.com/train@sha256:0",
                }
            ],
        },
    }  # fmt: skip


def make_pages(pods: int) -> list[bytes]:
    """The list as pages of JSON."""
    starts = range(0, pods, PAGE_SIZE)
    return [
        json.dumps(
            {
                "metadata": {"resourceVersion": str(pods), "continue": str(page + 1) if page + 1 < len(starts) else ""},
                "items": [make_pod(number) for number in range(start, min(start + PAGE_SIZE, pods))],
            }
        ).encode()
        for page, start in enumerate(starts)
    ]


def serve(pipe: Pipe, pods: int) -> None:
    """The serving process: tells its port and the size of the list, then answers until it is ended."""
    pages = make_pages(pods)

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await asyncio.Event().wait()
        return web.Response(body=pages[int(request.query.get("continue", "0"))])

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/api/v1/pods", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        pipe.send((runner.addresses[0][1], sum(map(len, pages))))
        await asyncio.Event().wait()

    asyncio.run(run())


async def follow(client: Client) -> object:
    """The cache as the deployables have it: a reflector that has listed."""
    reflector = Reflector(client, resource=PODS, as_type=Pod)
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    task.cancel()
    return dict(reflector.store)


async def typed(client: Client) -> object:
    """One typed list."""
    return (await client.list(PODS, as_type=Pod)).items


async def untyped(client: Client) -> object:
    """One list of plain dictionaries."""
    return (await client.list(PODS, as_type=dict)).items


READERS: dict[str, Callable[[Client], Any]] = {"reflector": follow, "list of Pod": typed, "list of dict": untyped}


def measure(pipe: Pipe, reader: str, port: int) -> None:
    """In a fresh process: seconds, seconds of CPU and MiB that a reader takes."""

    async def run() -> tuple[float, float, float]:
        async with Client(Connection(server=f"http://127.0.0.1:{port}")) as client:
            before, start, start_cpu = resident_mib(), time.perf_counter(), time.process_time()
            kept = await READERS[reader](client)
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
            assert kept
            return seconds, cpu_seconds, resident_mib() - before

    pipe.send(asyncio.run(run()))


def resident_mib() -> float:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    """Measure each reader in a process of its own and print a table."""
    options = argparse.ArgumentParser(description="What a cache of pods costs.")
    options.add_argument("--pods", type=count, default=10_000)
    arguments = options.parse_args()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(there, arguments.pods), daemon=True)
    server.start()
    port, size = here.recv()
    print(f"{arguments.pods} pods, {size / 2**20:.0f} MiB of JSON")
    print(f"{'reader':<14}{'seconds':>9}{'of CPU':>9}{'MiB kept':>10}")
    for reader in READERS:
        child = context.Process(target=measure, args=(there, reader, port))
        child.start()
        seconds, cpu_seconds, mib = here.recv()
        child.join()
        print(f"{reader:<14}{seconds:>9.2f}{cpu_seconds:>9.2f}{mib:>10.0f}")
    server.terminate()


if __name__ == "__main__":
    main()

"""Measure memory and time to read large GPUJobs, with kopf's watch and with the project's reflector.

A server on loopback serves `--jobs` GPUJobs of 1 MiB in pages, as the API server does. `--template` chooses their
content: one long text, or many empty objects, which take the most memory as dictionaries.

    python benchmarks/job_source.py [--jobs 200] [--template text|objects]
"""

import argparse
import asyncio
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import kopf
import msgspec
from aiohttp import web
from counts import count

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail_operator.state.state import State, build_state

SIZE = 1 << 20
GROUP = "/apis/dovetail.dev"
VERBS = ["list", "watch"]
NAMESPACES = {
    "name": "namespaces",
    "singularName": "namespace",
    "namespaced": False,
    "kind": "Namespace",
    "verbs": VERBS,
}
RESOURCE = {"name": "gpujobs", "singularName": "gpujob", "namespaced": True, "kind": "GPUJob", "verbs": VERBS}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--jobs", type=count, default=200, help="GPUJobs of 1 MiB (default: %(default)s)")
    options.add_argument("--template", choices=["text", "objects"], default="text", help="default: %(default)s")
    options.add_argument("--source", choices=["kopf", "reflector"], help=argparse.SUPPRESS)
    options.add_argument("--server", help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.source:
        print(json.dumps(asyncio.run(taken(args.source, args.server, jobs=args.jobs))))
    else:
        asyncio.run(compare(args))


async def compare(args: argparse.Namespace) -> None:
    server, port = await serve(jobs=args.jobs, template=args.template)
    for source in ("kopf", "reflector"):
        command = [sys.executable, __file__, f"--source={source}", f"--server=http://127.0.0.1:{port}"]
        child = await asyncio.create_subprocess_exec(*command, f"--jobs={args.jobs}", stdout=subprocess.PIPE)
        out, _ = await child.communicate()
        print(f"{source:10}", out.decode().strip() or f"ended with {child.returncode}")
    await server.cleanup()


async def serve(*, jobs: int, template: str) -> tuple[web.AppRunner, int]:
    """Serve what kopf and the reflector request from an API server."""
    filling = "x" * SIZE if template == "text" else [{}] * (SIZE // 3)
    pod = {"containers": [{"name": "main"}], "filling": filling}
    spec = json.dumps({"template": {"spec": pod}}, separators=(",", ":"))

    def item(number: int) -> str:
        meta = {"name": f"job-{number}", "namespace": "team", "uid": str(number), "generation": 1}
        meta |= {"resourceVersion": str(number + 1)}
        return f'{{"apiVersion":"dovetail.dev/v1beta1","kind":"GPUJob","metadata":{json.dumps(meta)},"spec":{spec}}}'

    async def listed(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if request.query.get("watch") == "true":
            await asyncio.sleep(3600)
        begin, limit = int(request.query.get("continue", "0")), int(request.query.get("limit", "500"))
        end = min(jobs, begin + limit)
        meta = {"resourceVersion": "9999", "continue": str(end) if end < jobs else ""}
        await response.write(f'{{"kind":"GPUJobList","metadata":{json.dumps(meta)},"items":['.encode())
        for number in range(begin, end):
            await response.write(("," if number > begin else "").encode() + item(number).encode())
        await response.write(b"]}")
        return response

    def answering(body: Any) -> Any:
        async def answer(_: web.Request) -> web.Response:
            return web.json_response(body)

        return answer

    versions = [{"groupVersion": "dovetail.dev/v1beta1", "version": "v1beta1"}]
    group = {"name": "dovetail.dev", "versions": versions, "preferredVersion": versions[0]}
    app = web.Application()
    app.router.add_get("/api", answering({"versions": ["v1"]}))
    app.router.add_get("/api/v1", answering({"resources": [NAMESPACES]}))
    app.router.add_get("/apis", answering({"groups": [group]}))
    app.router.add_get(f"{GROUP}/v1beta1", answering({"resources": [RESOURCE]}))
    app.router.add_get(f"{GROUP}/v1beta1/gpujobs", listed)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, int(runner.addresses[0][1])


async def taken(source: str, server: str, *, jobs: int) -> dict[str, Any]:
    """Seconds until all jobs are known, and the memory of this process then and at its peak."""
    state, stop = build_state(ClusterView(ledger=Ledger())), asyncio.Event()
    before, began = resident_mib(), time.monotonic()
    await {"kopf": by_kopf, "reflector": by_reflector}[source](server, state, jobs=jobs, stop=stop)
    seconds = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "jobs": len(state.store.jobs), "seconds": round(seconds, 2), "before_mib": round(before),
        "after_mib": round(resident_mib()), "peak_mib": round(peak),
    }  # fmt: skip


async def by_kopf(server: str, state: State, *, jobs: int, stop: asyncio.Event) -> None:
    registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=server)

    @kopf.on.event("dovetail.dev", "v1beta1", "gpujobs", registry=registry)
    async def changed(*, event: Any, **_: Any) -> None:
        state.store.job_changed(msgspec.json.decode(msgspec.json.encode(event["object"]), type=GPUJob))
        if len(state.store.jobs) == jobs:
            stop.set()

    await kopf.operator(registry=registry, settings=settings, standalone=True, clusterwide=True, stop_flag=stop)


async def by_reflector(server: str, state: State, *, jobs: int, stop: asyncio.Event) -> None:
    async with Client(Connection(server=server)) as client:
        reflector = Reflector(
            client,
            resource=GPUJOBS,
            as_type=GPUJob,
            on_event=lambda _, job: state.store.job_changed(job),
            transform=state.store.lean,
            rng=random.Random(7),
        )
        following = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        assert len(state.store.jobs) == jobs
        stop.set()
        following.cancel()


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / (1 << 20)


if __name__ == "__main__":
    main()

"""What each Python client library for Kubernetes costs: its import, and a list of pods that stays in memory.

    uv venv /tmp/libraries && uv pip install --python /tmp/libraries -e . kubernetes kubernetes_asyncio lightkube kr8s
    /tmp/libraries/bin/python benchmarks/kube_libraries.py --pods 10000

A process of its own serves the pods in pages, as the API server does. Each library reads them in a fresh process, by
the calls that its documentation gives. A library that is not installed is left out.
"""

import argparse
import asyncio
import importlib
import importlib.metadata
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

PAGE = 500


def serve(pipe: Pipe, pods: int) -> None:
    """The serving process: sends its port, then answers until it is terminated."""
    # Imported here, so that a process that measures one library has none of another.
    from aiohttp import web  # noqa: PLC0415
    from kube_cache import make_pages  # noqa: PLC0415

    pages = make_pages(pods)
    found: dict[str, Any] = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "groups": []},
        "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.3"},
        "/api/v1": {
            "kind": "APIResourceList",
            "groupVersion": "v1",
            "resources": [
                {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["list", "get"]}
            ],
        },
    }

    async def discovery(request: web.Request) -> web.Response:
        return web.json_response(found[request.path.rstrip("/")])

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await asyncio.Event().wait()
        number = int(request.query.get("continue") or 0)
        if "limit" in request.query:
            return web.Response(body=pages[number], content_type="application/json")
        whole = {"metadata": {"resourceVersion": "1"}, "items": [one for page in pages for one in items(page)]}
        return web.Response(body=json.dumps(whole).encode(), content_type="application/json")

    def items(page: bytes) -> list[Any]:
        decoded: list[Any] = json.loads(page)["items"]
        return decoded

    async def run() -> None:
        app = web.Application()
        for path in found:
            app.router.add_get(path, discovery)
            app.router.add_get(path + "/", discovery)
        app.router.add_get("/api/v1/pods", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


def dovetail() -> Callable[[str], Any]:
    """The cache that the deployables have: a reflector that has listed."""
    client = importlib.import_module("dovetail.kube.client")
    connection = importlib.import_module("dovetail.kube.auth.connection")
    objects = importlib.import_module("dovetail.api.builtin")
    reflector = importlib.import_module("dovetail.kube.reflector")
    resources = importlib.import_module("dovetail.api.resources")

    async def follow(server: str) -> object:
        async with client.Client(connection.Connection(server=server)) as api:
            followed = reflector.Reflector(api, resources.PODS, objects.Pod)
            task = asyncio.create_task(followed.run())
            await followed.synced.wait()
            task.cancel()
            return dict(followed.store)

    return lambda server: asyncio.run(follow(server))


def kubernetes() -> Callable[[str], Any]:
    """The official client: models, in pages."""
    client = importlib.import_module("kubernetes.client")

    def read(server: str) -> object:
        pods = client.CoreV1Api(client.ApiClient(client.Configuration(host=server)))
        kept, token = [], None
        while True:
            page = pods.list_pod_for_all_namespaces(limit=PAGE, **({"_continue": token} if token else {}))
            kept += page.items
            token = page.metadata._continue  # noqa: SLF001 - the model's own name for `continue`
            if not token:
                return kept

    return read


def kubernetes_asyncio() -> Callable[[str], Any]:
    """The same on aiohttp: models, in pages."""
    client = importlib.import_module("kubernetes_asyncio.client")

    async def read(server: str) -> object:
        async with client.ApiClient(client.Configuration(host=server)) as api:
            kept, token = [], None
            while True:
                page = await client.CoreV1Api(api).list_pod_for_all_namespaces(
                    limit=PAGE, **({"_continue": token} if token else {})
                )
                kept += page.items
                token = page.metadata._continue  # noqa: SLF001 - the model's own name for `continue`
                if not token:
                    return kept

    return lambda server: asyncio.run(read(server))


def lightkube() -> Callable[[str], Any]:
    """Dataclasses, in pages."""
    library = importlib.import_module("lightkube")
    pod = importlib.import_module("lightkube.resources.core_v1").Pod

    def read(server: str) -> object:
        config = library.KubeConfig.from_one(
            cluster=library.config.kubeconfig.Cluster(server=server), user=library.config.kubeconfig.User()
        )
        return list(library.Client(config=config, trust_env=False).list(pod, namespace="*", chunk_size=PAGE))

    return read


def kr8s() -> Callable[[str], Any]:
    """Objects around dictionaries."""
    library = importlib.import_module("kr8s")

    def read(server: str) -> object:
        api = library.api(url=server, kubeconfig=False, serviceaccount="")
        return list(api.get("pods", namespace=library.ALL))

    return read


LIBRARIES: dict[str, Callable[[], Callable[[str], Any]]] = {
    "dovetail-gpu": dovetail,
    "kubernetes": kubernetes,
    "kubernetes-asyncio": kubernetes_asyncio,
    "lightkube": lightkube,
    "kr8s": kr8s,
}


def measure(pipe: Pipe, library: str, server: str) -> None:
    """In a fresh process: seconds of CPU and MiB of the import, then of the list; and the process's peak."""
    base, start = resident_mib(), time.process_time()
    read = LIBRARIES[library]()
    imported, begun, began_at = time.process_time() - start, resident_mib(), time.process_time()
    clock = time.perf_counter()
    kept = read(server)
    seconds = time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cpu = time.process_time() - began_at
    pipe.send((len(kept), imported, begun - base, seconds, cpu, resident_mib() - begun, peak))


def resident_mib() -> float:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 2**20


def version(library: str) -> str | None:
    """The version that is installed, or None."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> None:
    """Measure each library in a process of its own and print a table."""
    options = argparse.ArgumentParser(description="What each client library costs.")
    options.add_argument("--pods", type=int, default=10_000)
    arguments = options.parse_args()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(there, arguments.pods), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}"
    print(f"{'library':<28}{'import':>9}{'MiB':>6}{'list':>9}{'CPU':>9}{'MiB kept':>10}{'peak MiB':>10}")
    for library in LIBRARIES:
        if (installed := version(library)) is None:
            continue
        child = context.Process(target=measure, args=(there, library, url))
        child.start()
        while not here.poll(1):
            if not child.is_alive():
                raise SystemExit(f"{library} failed")
        count, imported, import_mib, seconds, cpu, mib, peak = here.recv()
        child.join()
        assert count == arguments.pods, (library, count)
        print(
            f"{library + ' ' + installed:<28}{imported:>7.2f} s{import_mib:>6.0f}{seconds:>7.1f} s{cpu:>7.1f} s"
            f"{mib:>10.0f}{peak:>10.0f}"
        )
    server.terminate()


if __name__ == "__main__":
    main()

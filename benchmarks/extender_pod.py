"""Measure the extender's CPU for one pod: filter, prioritize if kube-scheduler asks for it, bind, and the pod's events.

The extender runs as its own process on the tests' API server, over HTTP without TLS. Each pod is created, filtered over
all nodes in kube-scheduler's order, prioritized if several nodes are left, bound, and seen as bound and as running. CPU
is that of the extender's process, from /proc, with its threads and its work in the background.

With `--other` the extender of another checkout runs in turns with this one on the same pods, so that the ratio does not
depend on what else the machine does.

    python benchmarks/extender_pod.py [--nodes 1000] [--pods 1500] [--rounds 5] [--other CHECKOUT] [--json FILE]
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import aiohttp
import uvloop
import yaml
from counts import count
from plane import free_port

from dovetail import names
from dovetail_cli.demo.workload import classes

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.extender.api_server import ApiServer
from tests.extender.builders import asking, binding, make_gpunode, make_node

PROGRAM: Final = "from dovetail_extender.main import main; raise SystemExit(main())"
ROOTS: Final = ("core", "scheduler_extender")
DEVICES: Final = 8
# kube-scheduler's workers take nodes in chunks of about the square root of their number.
CHUNK: Final = 31


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=1_000, help="nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument("--pods", type=count, default=1_500, help="pods of all rounds (default: %(default)s)")
    options.add_argument("--rounds", type=count, default=5, help="turns of each checkout (default: %(default)s)")
    options.add_argument("--other", type=Path, help="another checkout, whose extender runs in turns with this one")
    options.add_argument("--json", type=Path, default=Path("out/extender_pod.json"), help="where it is written too")
    args = options.parse_args()
    here = Path(__file__).resolve().parent.parent
    checkouts = {"this": here} | ({} if args.other is None else {"other": args.other.resolve()})
    found = uvloop.run(measure(checkouts, nodes=args.nodes, pods=args.pods, rounds=args.rounds))
    for name, each in found.items():
        print(f"{name}: {statistics.median(each):.2f} ms of CPU for a pod ({', '.join(f'{ms:.2f}' for ms in each)})")
    if "other" in found:
        ratio = statistics.median(one / two for one, two in zip(found["this"], found["other"], strict=True))
        print(f"this takes {100 * ratio:.0f} % of the other")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"nodes": args.nodes, "pods": args.pods, "ms": found}, indent=2) + "\n")


async def measure(checkouts: dict[str, Path], *, nodes: int, pods: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of CPU for a pod, one value for each round, by checkout."""
    found: dict[str, list[float]] = {name: [] for name in checkouts}
    async with AsyncExitStack() as stack:
        clusters = {
            name: await stack.enter_async_context(_cluster(checkout, nodes=nodes))
            for name, checkout in checkouts.items()
        }
        made, size = _pods(pods), pods // (rounds + 1)
        for at in range(rounds + 1):
            batch = made[at * size : (at + 1) * size]
            for name, cluster in clusters.items():
                taken = await cluster.schedule(json.loads(json.dumps(batch)))
                if at:  # the first round warms up
                    found[name].append(round(taken, 3))
    return found


@dataclass(kw_only=True)
class Running:
    """One extender, its API server, and the client that plays kube-scheduler."""

    api: ApiServer
    http: aiohttp.ClientSession
    pid: int
    nodes: list[str]
    random: Random

    async def schedule(self, pods: Sequence[dict[str, Any]]) -> float:
        """Schedule these pods one after the other; the milliseconds of CPU that one of them took."""
        before = _cpu_ms(self.pid)
        for pod in pods:
            await self._one(pod)
        await asyncio.sleep(0.2)
        return (_cpu_ms(self.pid) - before) / len(pods)

    async def _one(self, pod: dict[str, Any]) -> None:
        self.api.put("pods", pod)
        left = (await self._ask("filter", asking(pod, *self._as_found())))["NodeNames"]
        assert left, "the cluster has room for all pods"
        best = left[0]
        if len(left) > 1:
            scores = await self._ask("prioritize", asking(pod, *left))
            best = max(scores, key=lambda score: score["Score"])["Host"]
        answer = await self._ask("bind", binding(pod, best))
        assert not answer["Error"], answer
        bound = self.api.objects["pods"][f"default/{pod['metadata']['name']}"]
        self.api.put("pods", bound | {"status": _running(pod)})

    async def _ask(self, verb: str, body: Any) -> Any:
        # Compact, as Go writes it.
        data = json.dumps(body, separators=(",", ":"))
        async with self.http.post(f"/{verb}", data=data, headers={"Content-Type": "application/json"}) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    def _as_found(self) -> list[str]:
        chunks = [self.nodes[at : at + CHUNK] for at in range(0, len(self.nodes), CHUNK)]
        # Two workers: neighbours change places.
        for at in range(0, len(chunks) - 1, 2):
            if self.random.random() < 0.5:
                chunks[at : at + 2] = reversed(chunks[at : at + 2])
        return [name for chunk in chunks for name in chunk]


@asynccontextmanager
async def _cluster(checkout: Path, *, nodes: int) -> AsyncIterator[Running]:
    shapes = [f"gpu-pool-a-node-{at:05d}" for at in range(nodes)]
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        async with ApiServer().running() as api:
            for name in shapes:
                allocatable = {"cpu": "96", "memory": "768Gi", "pods": "250"}
                api.put("nodes", make_node(name, allocatable=allocatable))
                api.put("gpunodes", make_gpunode(name, gpus=DEVICES))
            kubeconfig = _kubeconfig(Path(folder), server=api.connection.server)
            path = os.pathsep.join(str(checkout / root) for root in ROOTS)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", PROGRAM, f"--kubeconfig={kubeconfig}", f"--port={port}",
                env=os.environ | {"PYTHONPATH": path}, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            try:
                async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
                    await _until_ready(http)
                    yield Running(api=api, http=http, pid=process.pid, nodes=shapes, random=Random(0))
            finally:
                process.terminate()
                await process.wait()


async def _until_ready(http: aiohttp.ClientSession) -> None:
    while True:
        try:
            async with http.get("/readyz") as response:
                if response.status == 200:
                    return
        except aiohttp.ClientConnectionError:
            pass
        await asyncio.sleep(0.1)


def _kubeconfig(folder: Path, *, server: str) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "x", "cluster": {"server": server}}],
        "users": [{"name": "x"}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def _pods(count: int) -> list[dict[str, Any]]:
    """Pods of the one-GPU classes of a published trace, by their frequencies, as the API server writes them."""
    table = [one for one in classes() if one.gpus == 1]
    drawn = Random(0).choices(table, weights=[one.pods for one in table], k=count)
    made = []
    for at, one in enumerate(drawn):
        amounts = {
            "cpu": f"{one.cpu_milli}m", "memory": f"{one.memory_mib}Mi", names.GPU_MILLI: str(one.gpu_milli)
        }  # fmt: skip
        made.append(_pod(f"p-{at}", request=f"{one.gpu_milli / 1000:g}", amounts=amounts))
    return made


def _pod(name: str, *, request: str, amounts: dict[str, str]) -> dict[str, Any]:
    """A pod with what defaults and admission add to it."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name, "namespace": "default", "uid": f"0b1c2d3e-0000-4000-8000-{name:>012}",
            "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "training"}, "annotations": {names.REQUEST: request},
            "managedFields": [_managed("dovetail-bench")],
        },
        "spec": {
            "containers": [{
                "name": "main", "image": "train:1", "resources": {"limits": amounts, "requests": amounts},
                "env": [{
                    "name": "NVIDIA_VISIBLE_DEVICES",
                    "valueFrom": {"fieldRef": {
                        "apiVersion": "v1", "fieldPath": "metadata.annotations['dovetail.dev/visible-devices.0']"
                    }},
                }],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "automountServiceAccountToken": False,
            "securityContext": {}, "schedulerName": "dovetail",
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
                 "tolerationSeconds": 300}
                for key in ("not-ready", "unreachable")
            ],
            "priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }  # fmt: skip


def _managed(by: str) -> dict[str, Any]:
    fields = {f"f:{field}": {} for field in ("image", "imagePullPolicy", "name", "resources", "env", "volumeMounts")}
    return {
        "manager": by, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:annotations": {".": {}, f"f:{names.REQUEST}": {}}, "f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                'f:containers': {'k:{"name":"main"}': {".": {}, **fields}},
                "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {},
                "f:securityContext": {}, "f:terminationGracePeriodSeconds": {},
            },
        },
    }  # fmt: skip


def _running(pod: dict[str, Any]) -> dict[str, Any]:
    """The status that kubelet writes."""
    at = "2026-01-01T00:00:01Z"
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return pod["status"] | {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": at} for kind in kinds
        ],
        "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "startTime": at,
        "containerStatuses": [{
            "name": "main", "state": {"running": {"startedAt": at}}, "lastState": {}, "ready": True,
            "restartCount": 0, "image": "train:1", "imageID": "train@sha256:0", "containerID": "containerd://0",
            "started": True,
        }],
    }  # fmt: skip


def _cpu_ms(pid: int) -> float:
    """CPU of a process so far, of all its threads. In nanoseconds, where /proc/<pid>/stat counts hundredths of seconds,
    so that rounds may be short and many."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text(encoding="utf-8").split()[0]) for task in tasks) / 1e6


if __name__ == "__main__":
    main()

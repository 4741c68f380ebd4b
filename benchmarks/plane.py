"""A control plane for measurements: real etcd, kube-apiserver, kube-scheduler and extender, and bulk objects.

Nodes are objects only. Programs that would keep updating them or that follow pods too (kwok, kube-controller-manager,
the cluster's own scheduler) are stopped by a signal during a measurement, so that two cores do only the measured work;
the ratios are then those of the pair alone.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import yaml

from dovetail import names
from dovetail.api.resources import GPUNODES, NODES, PODS, SERVICEACCOUNTS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail_sandbox import bringup, progress, state
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import locate

AT_ONCE = 64
QPS = 5000  # the client limit of every kube-scheduler that is compared
PAUSED = ("kwok-controller", "kube-controller-manager", "default-scheduler")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """One node of the benchmark: `devices` whole devices of `model`."""

    name: str
    cpu_milli: int = 96_000
    memory_mib: int = 786_432
    devices: int = 8
    model: str = "V100"
    device_memory_mib: int = 32_768

    def uuid(self, index: int) -> str:
        """The UUID of a device."""
        return f"GPU-{self.name}-{index}"


@contextmanager
def plane() -> Iterator[Cluster]:
    """A separate sandbox with only the control plane, kube-scheduler and the extender; removed at the end."""
    name = f"bench-{uuid.uuid4().hex[:6]}"
    with tempfile.TemporaryDirectory() as folder:
        nodes = Path(folder) / "nodes.yaml"
        nodes.write_text("- {name: none, count: 1}\n", encoding="utf-8")
        up = bringup.up(
            name,
            report=progress.reporter(),
            nodes_file=nodes,
            # Pods are made here complete, some as they are after their bind: policies rightly refuse those.
            overrides=[
                f"scheduler.qps={QPS}",
                f"scheduler.burst={2 * QPS}",
                "webhook.enabled=false",
                "users.required=false",
                "policies.enabled=false",
            ],
            without=["agent", "operator", "gateway"],
        )
        try:
            asyncio.run(_until_pods_can_be_made(up))
            for component in PAUSED:
                os.kill(up.pid(component), signal.SIGSTOP)
            yield up
        finally:
            for component in PAUSED:
                os.kill(up.pid(component), signal.SIGCONT)
            up.down()


async def _until_pods_can_be_made(made: Cluster) -> None:
    async with client_of(made) as client:
        while True:
            with suppress(NotFound):
                await client.get(SERVICEACCOUNTS, name="default", as_type=dict[str, Any], namespace="default")
                return
            await asyncio.sleep(0.1)


@asynccontextmanager
async def client_of(made: Cluster) -> AsyncIterator[Client]:
    """An administrator's client."""
    async with Client(load_connection(made.kubeconfig), deadline_seconds=60.0) as client:
        yield client


async def each(subjects: Iterable[Any], act: Callable[[Any], Awaitable[Any]], *, what: str) -> None:
    """`act` on all of `subjects`, `AT_ONCE` at a time, with a line on a terminal for how far it is."""
    queue = list(subjects)
    total, done = len(queue), 0
    pending = iter(queue)

    async def work() -> None:
        nonlocal done
        for subject in pending:
            await act(subject)
            done += 1
            if sys.stderr.isatty() and done % 100 == 0:
                print(f"\r{what}: {done} of {total}", end="", file=sys.stderr)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    if sys.stderr.isatty():
        print(f"\r{what}: {total} of {total}", file=sys.stderr)


async def add_nodes(client: Client, shapes: Iterable[NodeShape]) -> None:
    """Create ready Nodes with the sums that an agent advertises, and their GPUNodes."""

    async def add(shape: NodeShape) -> None:
        node = node_manifest(shape)
        await client.create(NODES, body=node, as_type=dict[str, Any])
        await client.patch(
            NODES, name=shape.name, patch={"status": node["status"]}, as_type=dict[str, Any], subresource="status"
        )
        # Admission marks a new node as not ready; who takes that away is paused.
        await client.patch(NODES, name=shape.name, patch={"spec": {"taints": None}}, as_type=dict[str, Any])
        gpunode = gpunode_manifest(shape)
        await client.create(GPUNODES, body=gpunode, as_type=dict[str, Any])
        status = {"status": gpunode["status"]}
        await client.patch(GPUNODES, name=shape.name, patch=status, as_type=dict[str, Any], subresource="status")

    await each(shapes, add, what="nodes")


def node_manifest(shape: NodeShape) -> dict[str, Any]:
    amounts = {
        "cpu": f"{shape.cpu_milli}m",
        "memory": f"{shape.memory_mib}Mi",
        "ephemeral-storage": "1Ti",
        "pods": "250",
    }
    labels = {"kubernetes.io/hostname": shape.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    if shape.devices:
        labels |= {names.LABEL_MANAGED: "true", names.LABEL_MODEL: shape.model}
        amounts |= {
            names.GPU_MILLI: str(1000 * shape.devices),
            names.GPU_MEMORY_MIB: str(shape.devices * shape.device_memory_mib),
        }
    return {
        "metadata": {"name": shape.name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": ""}],
        },
    }


def gpunode_manifest(shape: NodeShape) -> dict[str, Any]:
    devices = [
        {
            "index": index, "uuid": shape.uuid(index), "vendor": "nvidia", "model": shape.model, "utilization": 0.0,
            "memoryMiB": shape.device_memory_mib, "reservedMiB": 0, "usedMiB": 0, "foreignMiB": 0,
            "health": "Healthy", "healthReason": "",
        }
        for index in range(shape.devices)
    ]  # fmt: skip
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUNode",
        "metadata": {"name": shape.name},
        "status": {
            "observedAt": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "provider": "simulated",
            "devices": devices,
        },
    }


def pod(
    name: str,
    *,
    gpu: str,
    milli: int,
    cpu: str = "1",
    memory: str = "1Gi",
    scheduler: str = names.SCHEDULER_NAME,
    policy: str = "",
    plan: str = "",
) -> dict[str, Any]:
    """A pod with a request; with `plan`, its template names the node, as the operator's plans do."""
    limits = {"cpu": cpu, "memory": memory, **({names.GPU_MILLI: str(milli)} if milli else {})}
    annotations = {names.REQUEST: gpu} if milli else {}
    if policy:
        annotations[names.POLICY] = policy
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
    }
    if plan:
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [plan]}]}]
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
    return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}


async def add_pods(client: Client, bodies: Iterable[dict[str, Any]], *, what: str = "pods") -> None:
    """Creates pods in the namespace `default`."""

    async def add(body: dict[str, Any]) -> None:
        await client.create(PODS, body=body, as_type=dict[str, Any], namespace="default")

    await each(bodies, add, what=what)


async def clear_pods(client: Client) -> None:
    """Deletes all pods of the namespace `default` at once."""
    found = await client.list(PODS, as_type=dict[str, Any], namespace="default")

    async def delete(body: dict[str, Any]) -> None:
        await client.delete(PODS, name=body["metadata"]["name"], namespace="default", grace_period_seconds=0)

    await each(found.items, delete, what="tidying")


class StockScheduler:
    """A kube-scheduler of the same build, configuration and client limits as the sandbox's, but without an extender."""

    NAME = "stock"

    def __init__(self, made: Cluster) -> None:
        self._folder = Path(tempfile.mkdtemp())
        document = yaml.safe_load(_scheduler_config(made).read_text(encoding="utf-8"))
        document.pop("extenders", None)
        document["leaderElection"] = {"leaderElect": False}
        document["profiles"][0]["schedulerName"] = self.NAME
        path = self._folder / "config.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        program = locate.resolve(["kube-scheduler"], report=progress.reporter())["kube-scheduler"]
        self._log = (self._folder / "log").open("w")
        self._argv = [str(program), f"--config={path}", "--secure-port=0"]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._argv, stdout=self._log, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._log.close()
        shutil.rmtree(self._folder)


def _scheduler_config(made: Cluster) -> Path:
    """The configuration file of the sandbox's kube-scheduler."""
    components = state.read_desired(made.folder).components
    argv = next(each.argv for each in components if each.name == "kube-scheduler")
    return Path(next(word.removeprefix("--config=") for word in argv if word.startswith("--config=")))


def free_port() -> int:
    """A free port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def memory_mib(pid: int) -> tuple[int, int]:
    """Resident memory of a process in MiB: now, and at its peak."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) // 1024, int(fields["VmHWM"].split()[0]) // 1024

"""Kubernetes' HPA next to a sandbox: prometheus-adapter serves the metrics APIs, and a node has work for a service."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import CLUSTERROLEBINDINGS, GPUNODES, NODES, PODS, ROLEBINDINGS, SERVICES, Resource
from dovetail.jobs.guests.replicas import DEPLOYMENTS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.nodes import kwok
from dovetail_sandbox.nodes.node_sets import SimulatedNode
from tests.background import free_ports
from tests.cluster.projects import Project, at_work
from tests.cluster.prometheus import Prometheus
from tests.cluster.test_agent import until

Body = dict[str, Any]
EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "autoscaling"
ADAPTER: Final = Project(
    name="prometheus-adapter",
    module="sigs.k8s.io/prometheus-adapter",
    folder="prometheus-adapter",
    crds=(),
    role="deploy/manifests/cluster-role.yaml",
)
AUTOSCALERS: Final = Resource(
    group="autoscaling", version="v2", plural="horizontalpodautoscalers", kind="HorizontalPodAutoscaler"
)
APISERVICES: Final = Resource(group="apiregistration.k8s.io", plural="apiservices", kind="APIService", namespaced=False)
_GROUPS: Final = ("custom.metrics.k8s.io", "external.metrics.k8s.io")
_NODE: Final = "serving"
_MODEL: Final = "L40S"
_DEVICES: Final = 4


@asynccontextmanager
async def metrics_apis(
    client: Client, *, cluster: Cluster, namespace: str, prometheus: Prometheus, folder: Path
) -> AsyncIterator[None]:
    """prometheus-adapter with the configuration of the examples, behind the API server."""
    rules = yaml.safe_load((EXAMPLES / "prometheus-adapter.yaml").read_text(encoding="utf-8"))["rules"]
    configuration, (port,) = folder / "adapter.yaml", free_ports(count=1)
    # As the project's chart puts its values into the program's file.
    configuration.write_text(yaml.safe_dump({"rules": rules["custom"], "externalRules": rules["external"]}))
    kubeconfig = folder / f"{ADAPTER.name}.kubeconfig"
    arguments = (
        *(f"--{user}-kubeconfig={kubeconfig}" for user in ("lister", "authentication", "authorization")),
        f"--config={configuration}", f"--prometheus-url={prometheus.url}", "--metrics-relist-interval=5s",
        # The rules record every 15 s: of a shorter time, their series would be missing now and then.
        "--metrics-max-age=1m",
        "--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={folder / 'certificates'}",
    )  # fmt: skip
    async with (
        _delegating(client, namespace=namespace),
        at_work(
            ADAPTER, client, cluster=cluster, namespace=namespace, arguments=arguments, environment={}, folder=folder
        ) as log,
        _aggregated(client, namespace=namespace, port=port),
    ):
        try:
            yield
        except BaseException as error:
            error.add_note(log.read_text()[-4000:])
            raise


@asynccontextmanager
async def _delegating(client: Client, *, namespace: str) -> AsyncIterator[None]:
    """The adapter may ask the API server who calls it and what they may do, as its manifests bind it."""
    name = f"{namespace}-{ADAPTER.name}-callers"
    subjects = [{"kind": "ServiceAccount", "name": ADAPTER.name, "namespace": namespace}]
    named: Body = {"metadata": {"name": name}, "subjects": subjects}
    group = "rbac.authorization.k8s.io"
    delegator = {"apiGroup": group, "kind": "ClusterRole", "name": "system:auth-delegator"}
    reader = {"apiGroup": group, "kind": "Role", "name": "extension-apiserver-authentication-reader"}
    await client.create(CLUSTERROLEBINDINGS, body=named | {"roleRef": delegator}, as_type=Body)
    await client.create(ROLEBINDINGS, body=named | {"roleRef": reader}, as_type=Body, namespace="kube-system")
    try:
        yield
    finally:
        await client.delete(CLUSTERROLEBINDINGS, name=name)
        await client.delete(ROLEBINDINGS, name=name, namespace="kube-system")


@asynccontextmanager
async def _aggregated(client: Client, *, namespace: str, port: int) -> AsyncIterator[None]:
    """The API server passes the metrics APIs on. Without an answer they would keep namespaces from being deleted."""
    service = {"metadata": {"name": ADAPTER.name}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    await client.create(SERVICES, body=service, as_type=Body, namespace=namespace)
    for group in _GROUPS:
        spec = {
            "group": group,
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": ADAPTER.name, "namespace": namespace, "port": port},
        }
        await client.create(APISERVICES, body={"metadata": {"name": f"v1beta1.{group}"}, "spec": spec}, as_type=Body)
    try:
        for group in _GROUPS:
            await reached(partial(_is_available, client, group=group), seconds=60)
        yield
    finally:
        for group in _GROUPS:
            await client.delete(APISERVICES, name=f"v1beta1.{group}")


async def _is_available(client: Client, *, group: str) -> bool:
    found = await client.get(APISERVICES, name=f"v1beta1.{group}", as_type=Body)
    conditions = (found.get("status") or {}).get("conditions") or []
    return any((each["type"], each["status"]) == ("Available", "True") for each in conditions)


async def reached(holds: Callable[[], Awaitable[bool]], *, seconds: float) -> None:
    """Wait until an asynchronous question is answered with yes."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.5)


@asynccontextmanager
async def serving_node(client: Client, *, namespace: str) -> AsyncIterator[Callable[[float], Awaitable[None]]]:
    """A node for a service of the namespace. What it gives sets how many devices' work the service has there."""
    simulated = SimulatedNode(
        name=_NODE,
        cpu_milli=64_000,
        memory_mib=262_144,
        model=_MODEL,
        devices=_DEVICES,
        device_memory_mib=46_068,
    )
    node = kwok.manifest(simulated)
    declared = json.loads(node["metadata"]["annotations"][names.SIMULATED_DEVICES])

    async def demand(devices: float) -> None:
        value = json.dumps(declared | {"demand": {namespace: devices}})
        patch = {"metadata": {"annotations": {names.SIMULATED_DEVICES: value}}}
        await client.patch(NODES, name=_NODE, patch=patch, as_type=Node)

    await client.create(NODES, body=node, as_type=Body)
    try:
        yield demand
    finally:
        await client.delete(NODES, name=_NODE)
        await until(lambda: client.get(GPUNODES, name=_NODE, as_type=GPUNode), lambda gpunode: gpunode is None)


def on_the_serving_node(body: Body) -> None:
    """Let the pods of an example go where their work is."""
    if body["kind"] == "Deployment":
        body["spec"]["template"]["spec"]["nodeSelector"] = {names.LABEL_MODEL: _MODEL}


@asynccontextmanager
async def applied(
    client: Client, example: str, *, namespace: str, changes: Callable[[Body], None] | None = None
) -> AsyncIterator[None]:
    """The objects of an example; they and their pods are gone after the block."""
    kinds = {"Deployment": DEPLOYMENTS.resource, "HorizontalPodAutoscaler": AUTOSCALERS}
    bodies = list(yaml.safe_load_all((EXAMPLES / example).read_text(encoding="utf-8")))
    for body in bodies:
        if changes is not None:
            changes(body)
        await client.create(kinds[body["kind"]], body=body, as_type=Body, namespace=namespace)
    try:
        yield
    finally:
        for body in reversed(bodies):
            name = body["metadata"]["name"]
            await client.delete(kinds[body["kind"]], name=name, namespace=namespace, propagation="Background")
        label = ",".join(f"app={body['metadata']['name']}" for body in bodies if body["kind"] == "Deployment")
        await reached(partial(_are_gone, client, namespace=namespace, label=label), seconds=60)


async def _are_gone(client: Client, *, namespace: str, label: str) -> bool:
    return not (await client.list(PODS, as_type=Pod, namespace=namespace, label_selector=label)).items


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What holds at one moment: seconds since the start, wanted and bound replicas, and the metric that the HPA saw."""

    seconds: float
    demand: float
    wanted: int
    bound: int
    seen: float | None


@dataclass(slots=True, kw_only=True)
class Trace:
    """Moments of an autoscaler and its Deployment, one a second while somebody waits."""

    client: Client
    namespace: str
    name: str
    demand: float = 0.0
    began: float = field(default_factory=time.monotonic)
    moments: list[Moment] = field(default_factory=list)

    async def until_bound(self, replicas: int, *, seconds: float = 240) -> None:
        """Wait until the autoscaler wants so many replicas, and exactly these are bound."""

        async def holds() -> bool:
            self.moments.append(await self._look())
            return (self.moments[-1].wanted, self.moments[-1].bound) == (replicas, replicas)

        await reached(holds, seconds=seconds)

    async def stays(self, replicas: int, *, seconds: float) -> None:
        """Check for so long that it wants no other number."""
        until_ = time.monotonic() + seconds
        while time.monotonic() < until_:
            self.moments.append(await self._look())
            assert self.moments[-1].wanted == replicas, self.moments[-1]
            await asyncio.sleep(1)

    async def _look(self) -> Moment:
        found = await self.client.get(AUTOSCALERS, name=self.name, as_type=Body, namespace=self.namespace)
        status = found.get("status") or {}
        metrics = [
            source["current"]["averageValue"]
            for each in status.get("currentMetrics") or []
            if (source := each.get("pods") or each.get("external"))
        ]
        pods = await self.client.list(PODS, as_type=Pod, namespace=self.namespace, label_selector=f"app={self.name}")
        return Moment(
            seconds=round(time.monotonic() - self.began, 1),
            demand=self.demand,
            wanted=status.get("desiredReplicas") or 0,
            bound=sum(1 for pod in pods.items if pod.spec.node_name and not pod.metadata.deletion_timestamp),
            seen=_number(metrics[0]) if metrics else None,
        )


def _number(quantity: str) -> float:
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)

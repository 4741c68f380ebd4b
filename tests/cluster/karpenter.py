"""The real Karpenter with its provider for simulated nodes, as a process next to a sandbox's API server."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail import names
from dovetail.api.resources import CRDS, NODEPOOLS, Resource
from dovetail.kube.client import Client
from dovetail_sandbox import progress
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import locate
from tests.background import free_ports

NODECLASSES: Final = Resource(
    group="karpenter.kwok.sh", version="v1alpha1", plural="kwoknodeclasses", kind="KWOKNodeClass", namespaced=False
)
POOL_LABEL: Final = "karpenter.sh/nodepool"
# The chart has Karpenter's own CRDs; the one of the provider is only in its sources.
_NODECLASS_CRD: Final = {
    "apiVersion": CRDS.api_version,
    "kind": CRDS.kind,
    "metadata": {"name": f"{NODECLASSES.plural}.{NODECLASSES.group}"},
    "spec": {
        "group": NODECLASSES.group,
        "names": {"kind": NODECLASSES.kind, "listKind": f"{NODECLASSES.kind}List", "plural": NODECLASSES.plural,
                  "singular": "kwoknodeclass"},
        "scope": "Cluster",
        "versions": [
            {
                "name": NODECLASSES.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}  # fmt: skip


def instance_type(name: str, *, cpu: str, memory: str, gpus: int, gpu_memory_mib: int) -> dict[str, Any]:
    """An instance type of the provider's file, with Dovetail's resources."""
    where = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "zone-a"}
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in where.items()]
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "offerings": [{"Price": 10.0, "Available": True, "Requirements": requirements}],
        "resources": {
            "cpu": cpu,
            "memory": memory,
            "ephemeral-storage": "1Ti",
            names.GPU_MILLI: str(1000 * gpus),
            names.GPU_MEMORY_MIB: str(gpus * gpu_memory_mib),
        },
    }


def node_pool(name: str, *, instance: str, model: str, gpus: int, gpu_memory_mib: int, limit: int) -> dict[str, Any]:
    """A NodePool of managed nodes with simulated devices, at most `limit` of them; empty ones go after 5 s."""
    devices = {"model": model, "count": gpus, "memoryMiB": gpu_memory_mib, "reservedMiB": 0, "vendor": "nvidia"}
    return {
        "metadata": {"name": name},
        "spec": {
            "limits": {names.GPU_MILLI: str(1000 * gpus * limit)},
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "5s",
                "budgets": [{"nodes": "100%"}],
            },
            "template": {
                "metadata": {
                    "labels": {names.LABEL_MANAGED: "true", names.LABEL_MODEL: model},
                    "annotations": {names.SIMULATED_DEVICES: json.dumps(devices)},
                },
                "spec": {
                    "nodeClassRef": {"group": NODECLASSES.group, "kind": NODECLASSES.kind, "name": "simulated"},
                    "requirements": [
                        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [instance]}
                    ],
                    "expireAfter": "Never",
                },
            },
        },
    }


async def install(client: Client) -> None:
    """Install Karpenter's CRDs and the class of simulated nodes, and wait until they are served."""
    program = locate.resolve(["karpenter"], report=progress.reporter())["karpenter"]
    crds = [yaml.safe_load(path.read_text()) for path in sorted((locate.chart_of(program) / "crds").glob("*.yaml"))]
    for body in [*crds, _NODECLASS_CRD]:
        await client.apply(CRDS, name=body["metadata"]["name"], body=body, as_type=dict[str, Any], field_manager="test")
    async with asyncio.timeout(30):
        while not await _is_served(client):  # noqa: ASYNC110 - the API server gives no event
            await asyncio.sleep(0.1)
    await client.create(NODECLASSES, body={"metadata": {"name": "simulated"}, "spec": {}}, as_type=dict[str, Any])
    # No controller of the provider does this.
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    await client.patch(
        NODECLASSES,
        name="simulated",
        patch={"status": {"conditions": [ready]}},
        as_type=dict[str, Any],
        subresource="status",
    )


async def _is_served(client: Client) -> bool:
    try:
        for resource in (NODEPOOLS, NODECLASSES):
            await client.list(resource, as_type=dict[str, Any])
    except Exception:  # noqa: BLE001 - whatever it is, it is asked again
        return False
    return True


@asynccontextmanager
async def running(cluster: Cluster, *, folder: Path, instance_types: list[dict[str, Any]]) -> AsyncIterator[Path]:
    """Karpenter runs while the context lasts, with its log in the file that this gives."""
    program = locate.resolve(["karpenter"], report=progress.reporter())["karpenter"]
    types, log = folder / "instance-types.json", folder / "karpenter.log"
    types.write_text(json.dumps(instance_types))
    metrics, health = free_ports(count=2)
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "INSTANCE_TYPES_FILE_PATH": str(types),
        "DISABLE_LEADER_ELECTION": "true",
        "SYSTEM_NAMESPACE": "kube-system",
        "KUBERNETES_MIN_VERSION": "1.19.0-0",
        "METRICS_PORT": str(metrics),
        "HEALTH_PROBE_PORT": str(health),
        "BATCH_IDLE_DURATION": "500ms",
        "BATCH_MAX_DURATION": "2s",
        "LOG_LEVEL": "debug",
    }
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(str(program), env=environment, stdout=output, stderr=output)
        try:
            yield log
        finally:
            process.terminate()
            await process.wait()

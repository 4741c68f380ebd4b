"""Kueue's own objects, as the people who look after a cluster make them."""

from typing import Any, Final

from dovetail.api.resources import Resource
from dovetail.kube.client import Client

_VERSION: Final = "v1beta2"
_GROUP: Final = "kueue.x-k8s.io"
CLUSTERQUEUES: Final = Resource(
    group=_GROUP, version=_VERSION, plural="clusterqueues", kind="ClusterQueue", namespaced=False
)
LOCALQUEUES: Final = Resource(group=_GROUP, version=_VERSION, plural="localqueues", kind="LocalQueue")
FLAVORS: Final = Resource(
    group=_GROUP, version=_VERSION, plural="resourceflavors", kind="ResourceFlavor", namespaced=False
)
PRIORITIES: Final = Resource(
    group=_GROUP, version=_VERSION, plural="workloadpriorityclasses", kind="WorkloadPriorityClass", namespaced=False
)
WORKLOADS: Final = Resource(group=_GROUP, version=_VERSION, plural="workloads", kind="Workload")
QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
PRIORITY: Final = "kueue.x-k8s.io/priority-class"


async def make_queue(client: Client, *, namespace: str, gpus: int, name: str = "team") -> None:
    """A LocalQueue of the namespace, with so many whole GPUs of its own that Dovetail manages."""
    unlimited = {"nominalQuota": "1000"}
    covered = {"dovetail.dev/gpu-milli": {"nominalQuota": str(1000 * gpus)}, "cpu": unlimited, "memory": unlimited}
    flavor = {"metadata": {"name": namespace}, "spec": {"nodeLabels": {"dovetail.dev/managed": "true"}}}
    await client.create(FLAVORS, body=flavor, as_type=dict[str, Any])
    resources = [{"name": resource, **quota} for resource, quota in covered.items()]
    spec = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "resourceGroups": [
            {"coveredResources": list(covered), "flavors": [{"name": namespace, "resources": resources}]}
        ],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    await client.create(CLUSTERQUEUES, body={"metadata": {"name": namespace}, "spec": spec}, as_type=dict[str, Any])
    local = {"metadata": {"name": name}, "spec": {"clusterQueue": namespace}}
    await client.create(LOCALQUEUES, body=local, as_type=dict[str, Any], namespace=namespace)

"""Objects as the API server has them, and requests as kube-scheduler sends them: a test names only what matters."""

from typing import Any

from dovetail import names
from dovetail.api.devices import AllocatedDevice
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of

MEMORY_MIB = {"V100": 32768, "T4": 16384, "A100": 81920}


def make_node(name: str = "a", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"node-{name}", "labels": {names.LABEL_MANAGED: "true"}},
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        | status,
    }


def make_gpunode(name: str = "a", *, gpus: int = 8, model: str = "V100", **device: Any) -> dict[str, Any]:
    devices = [
        {"index": at, "uuid": f"{name}-{at}", "vendor": "nvidia", "model": model, "memoryMiB": MEMORY_MIB.get(model, 0)}
        | device
        for at in range(gpus)
    ]
    # A time that is still to come counts as now: the tests' reports are new whenever they run.
    status = {"devices": devices, "observedAt": "2100-01-01T00:00:00Z"}
    return {"metadata": {"name": name, "uid": f"gpunode-{name}"}, "status": status}


def make_pod(name: str = "p", gpu: str = "1", *, milli: int = 1000, **changes: Any) -> dict[str, Any]:
    """A pod with a request text and the resources that go with it; `changes` go into its spec."""
    limits = changes.pop("limits", {names.GPU_MILLI: str(milli)})
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": changes.pop("uid", f"uid-{name}"),
            "annotations": {names.REQUEST: gpu},
        },
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]} | changes,
        "status": {"phase": "Pending"},
    }


def make_share(name: str = "p", milli: int = 500, **changes: Any) -> dict[str, Any]:
    """A pod that asks for a share of one device."""
    return make_pod(name, f"{milli / 1000:g}", milli=milli, **changes)


def make_bound(pod: dict[str, Any], *, node: str, at: int = 0) -> dict[str, Any]:
    """The pod as it runs on the node, with the whole device of this index."""
    device = AllocatedDevice(uuid=f"{node}-{at}", index=at, share_milli=1000, memory_mib=MEMORY_MIB["V100"])
    allocation = Allocation(node=node, mode="Exclusive", containers=[ContainerAllocation(index=0, devices=[device])])
    annotations = pod["metadata"]["annotations"] | annotations_of(allocation)
    return pod | {
        "metadata": pod["metadata"] | {"annotations": annotations},
        "spec": pod["spec"] | {"nodeName": node},
        "status": {"phase": "Running"},
    }


def asking(pod: dict[str, Any], *nodes: str) -> dict[str, Any]:
    """The body of filter and prioritize."""
    return {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)}


def binding(pod: dict[str, Any], node: str) -> dict[str, Any]:
    """The body of bind."""
    meta = pod["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}

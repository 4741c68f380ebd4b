"""Jobs, devices and holders, and what v1 and v2 have to answer, counted again from the objects.

`sees` are the namespaces that the reader may list; None stands for all.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from dovetail import names
from tests.gateway.canary.objects import NOMINAL_GB
from tests.gateway.canary.rbac import RbacApiServer

Values = dict[str, Any]
Sees = frozenset[str] | None
ENDED: Final = frozenset({"Succeeded", "Failed", "Cancelled", "TimedOut"})
TASKS: Final = "dovetail.dev/task-type"
_STATES: Final = {
    "Running": "running",
    "Suspended": "running",
    "Succeeded": "completed",
    "Cancelled": "cancelled",
    "Failed": "failed",
    "TimedOut": "failed",
}


def sees_(sees: Sees, namespace: str) -> bool:
    return sees is None or namespace in sees


# --- objects -------------------------------------------------------------------------------------------------------


def jobs(api: RbacApiServer, sees: Sees) -> list[Values]:
    """The jobs that can be read and seen, by namespace and name."""
    found = [
        each for _, each in sorted(api.objects["gpujobs"].items()) if isinstance(each["spec"].get("workers", 1), int)
    ]
    return [each for each in found if sees_(sees, each["metadata"]["namespace"])]


def devices(api: RbacApiServer) -> Iterator[tuple[str, Values]]:
    for name in sorted(api.objects["gpunodes"]):
        for each in sorted(api.objects["gpunodes"][name]["status"]["devices"], key=lambda each: each["index"]):
            yield name, each


def holders(api: RbacApiServer, node: str, uuid: str) -> list[Values]:
    """Who holds a device, with pod, share and memory."""
    found = []
    for pod in api.objects["pods"].values():
        text = pod["metadata"]["annotations"].get(names.ALLOCATION, "")
        if (
            pod["status"]["phase"] in {"Succeeded", "Failed"}
            or pod["spec"]["nodeName"] != node
            or not text.endswith("}")
        ):
            continue
        allocation = json.loads(text)
        held = [each for part in allocation["containers"] for each in part["devices"] if each["uuid"] == uuid]
        found += [(pod, each["shareMilli"], each["memoryMiB"], allocation.get("workload")) for each in held]
    gpunode = api.objects["gpunodes"][node]
    by_uid = {pod["metadata"]["uid"]: pod for pod in api.objects["pods"].values()}
    memory = {each["uuid"]: each["memoryMiB"] for each in gpunode["status"]["devices"]}
    for each in gpunode["status"].get("assignments", ()):
        if uuid in each["devices"] and each["uid"] in by_uid:
            found.append((by_uid[each["uid"]], 1000, memory[uuid], None))
    return [
        {"pod": pod, "shareMilli": share, "memoryMiB": mib, "workload": workload} for pod, share, mib, workload in found
    ]


def why_node(api: RbacApiServer, node: str) -> tuple[str, str]:
    """The cause why a node takes no new work, and its sentence; empty where it does."""
    found = api.objects["nodes"].get(node)
    if found is None:
        return "NodeGone", f"node {node} is gone"
    return ("NodeCordoned", f"node {node} is cordoned") if found["spec"]["unschedulable"] else ("", "")


def why(api: RbacApiServer, node: str, device: Values) -> tuple[str, str]:
    """The cause why a device takes no new work, and its sentence; empty where it does."""
    called, of_node = f"GPU {device['index']} on node {node} is", why_node(api, node)
    if of_node[0]:
        return of_node
    if device.get("health", "Healthy") != "Healthy":
        return "Unhealthy", ": ".join(filter(None, (f"{called} unhealthy", device.get("healthReason", ""))))
    if device["uuid"] in api.objects["gpunodes"][node]["spec"]["cordoned"]:
        return "Cordoned", f"{called} cordoned"
    return ("Strangers", f"{called} used by processes without an allocation") if device.get("taint") else ("", "")


def figure(api: RbacApiServer, node: str, device: Values, *, name: str, none: Any = None) -> Any:
    """A measured value of a device; None of one that cannot report."""
    cannot = node not in api.objects["nodes"] or device.get("healthReason") == "GpuIsLost"
    return None if cannot else device.get(name, none)


def available(api: RbacApiServer, node: str, device: Values) -> bool:
    foreign = device.get("foreignMiB", 0) > device["memoryMiB"] / 20
    return not (why(api, node, device)[0] or foreign or holders(api, node, device["uuid"]))


def _means(api: RbacApiServer) -> Values:
    """The means over the devices that can report."""
    own = [each for node, each in devices(api) if figure(api, node, each, name="usedMiB", none=0) is not None]
    used, total = (sum(each.get(key, 0) for each in own) for key in ("usedMiB", "memoryMiB"))
    return {
        "gpu_utilization": mean([each.get("utilization", 0.0) for each in own]),
        "gpu_memory_usage": round(used / total, 4) if total else 0.0,
    }


def mean(numbers: list[float]) -> float:
    return round(sum(numbers) / len(numbers), 4) if numbers else 0.0


# --- v1 ------------------------------------------------------------------------------------------------------------


def v1_nodes(api: RbacApiServer, _sees: Sees) -> list[Values]:
    found = []
    for name in sorted(api.objects["gpunodes"]):
        own = [each for node, each in devices(api) if node == name]
        whole = [each for each in own if not each.get("migProfile")]
        found.append(
            {
                "node_name": name,
                "gpu_type": own[0]["model"].partition("-")[0] if own else "",
                "memory_per_gpu": NOMINAL_GB[name] if own else 0,
                "available_gpus": sum(available(api, name, each) for each in whole),
                "utilization": mean(
                    [
                        load
                        for each in own
                        if (load := figure(api, name, each, name="utilization", none=0.0)) is not None
                    ]
                ),
            }
        )
    return found


def v1_status(api: RbacApiServer, sees: Sees) -> Values:
    return {
        "utilization": _means(api),
        "available_nodes": [each for each in v1_nodes(api, sees) if each["available_gpus"]],
        "total_nodes": len(api.objects["gpunodes"]),
        "timestamp": "2026-11-01T12:00:00Z",
    }


def v1_monitoring(api: RbacApiServer, sees: Sees) -> Values:
    def held(node: str, uuid: str) -> Iterator[Values]:
        for each in holders(api, node, uuid):
            meta = each["pod"]["metadata"]
            shown = sees_(sees, meta["namespace"])
            yield {
                "namespace": meta["namespace"] if shown else None,
                "pod": meta["name"] if shown else None,
                "share": each["shareMilli"] / 1000,
                "memory_mib": each["memoryMiB"],
            }

    def rows(name: str) -> Iterator[Values]:
        for node, each in devices(api):
            if node == name:
                yield {
                    "index": each["index"],
                    "uuid": each["uuid"],
                    "gpu_type": each["model"].partition("-")[0],
                    "name": each["model"],
                    "utilization": figure(api, node, each, name="utilization", none=0.0),
                    "memory_used_mib": figure(api, node, each, name="usedMiB", none=0),
                    "memory_total_mib": each["memoryMiB"],
                    "temperature_celsius": figure(api, node, each, name="temperatureCelsius"),
                    "power_watts": figure(api, node, each, name="powerWatts"),
                    "stale": False,
                    "health": each.get("health", "Healthy"),
                    "message": why(api, node, each)[1],
                    "allocations": list(held(name, each["uuid"])),
                }

    nodes = [{"node_name": name, "devices": list(rows(name))} for name in sorted(api.objects["gpunodes"])]
    return {"utilization": _means(api), "nodes": nodes, "timestamp": "2026-11-01T12:00:00Z"}


# --- v2 ------------------------------------------------------------------------------------------------------------


def numbered(api: RbacApiServer) -> list[tuple[int, str, Values]]:
    """The devices with a number over the cluster."""
    data = api.objects["configmaps"][_key(api)]["data"]
    at = {f"{node}/cuda:{each['index']}": (node, each) for node, each in devices(api)}
    return [
        (int(number), *at[place])
        for number, place in sorted(data.items(), key=lambda each: int(each[0]))
        if place in at
    ]


def _key(api: RbacApiServer) -> str:
    return next(key for key in api.objects["configmaps"] if key.endswith("dovetail-device-indexes"))


def _places(job: Values) -> set[tuple[str, int]]:
    status = job["status"]
    return (
        set() if status.get("phase") in ENDED else {(each["node"], each["index"]) for each in status.get("devices", ())}
    )


def _counts(api: RbacApiServer, node: str, index: int) -> Values:
    here = [each["spec"].get("workload") for each in jobs(api, None) if (node, index) in _places(each)]
    return {"training": here.count("Training"), "inference": here.count("Inference")}


def v2_resources(api: RbacApiServer, sees: Sees) -> Values:
    usage, active, limits = {}, {}, {}
    for number, node, device in numbered(api):
        name = f"cuda:{number}"
        usage[name] = _counts(api, node, device["index"])
        active[name] = [
            {"id": job["metadata"]["name"], "type": job["metadata"]["labels"][TASKS]}
            for job in jobs(api, sees)
            if TASKS in job["metadata"]["labels"] and (node, device["index"]) in _places(job)
        ]
        # The configuration has 1 and 3.
        own = api.objects["gpunodes"][node]["spec"]["tenantLimits"].get(device["uuid"], {})
        limits[name] = {"training": 1, "inference": 3} | own
    return {"device_usage": usage, "active_tasks": active, "limits": limits}


def v2_gpus(api: RbacApiServer, _sees: Sees) -> Values:
    def gib(mib: int) -> float:
        return round(mib / 1024, 2)

    rows = []
    for number, node, each in numbered(api):
        promised = sum(holder["memoryMiB"] for holder in holders(api, node, each["uuid"]))
        used, load = (figure(api, node, each, name=name, none=0) for name in ("usedMiB", "utilization"))
        rows.append(
            {
                "id": number,
                "device_name": f"cuda:{number}",
                "node": node,
                "index": each["index"],
                "name": each["model"],
                "compute_capability": None,
                "total_memory_gb": gib(each["memoryMiB"]),
                "allocated_memory_gb": gib(promised),
                "cached_memory_gb": None,
                "free_memory_gb": None if used is None else gib(max(0, each["memoryMiB"] - max(promised, used))),
                "utilization": None if load is None else round(load * 100, 2),
                "temperature": figure(api, node, each, name="temperatureCelsius"),
                "power": figure(api, node, each, name="powerWatts"),
                "stale": False,
                "message": why(api, node, each)[1],
                "current_tasks": _counts(api, node, each["index"]),
            }
        )
    works = any(not why(api, node, each)[0] for _, node, each in numbered(api))
    return {"available": works, "count": len(rows), "cuda_version": None, "pytorch_version": None, "devices": rows}


def tasks(api: RbacApiServer, sees: Sees, *, namespace: str) -> list[Values]:
    name_of = {(node, each["index"]): f"cuda:{number}" for number, node, each in numbered(api)}
    found = []
    for job in jobs(api, sees):
        meta, status = job["metadata"], job["status"]
        if meta["namespace"] != namespace or TASKS not in meta["labels"]:
            continue
        held = status.get("devices", ())
        found.append(
            {
                "task_id": meta["name"],
                "type": meta["labels"][TASKS],
                "status": _STATES.get(status.get("phase", ""), "pending"),
                "device": name_of[held[0]["node"], held[0]["index"]] if held else "cuda",
                "node": next(iter(status.get("nodes", ())), None),
                "message": status.get("message", ""),
                "created_at": meta["creationTimestamp"],
                "started_at": status.get("startTime"),
                "finished_at": status.get("completionTime"),
            }
        )
    return found

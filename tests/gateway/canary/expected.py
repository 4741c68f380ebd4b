"""What v3 has to answer, counted again from the objects: no code is shared with the gateway.

`sees` are the namespaces that the reader may list; None stands for all.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from dovetail import names
from tests.gateway.canary.counted import (
    ENDED,
    Sees,
    Values,
    available,
    devices,
    figure,
    holders,
    jobs,
    sees_,
    why,
    why_node,
)
from tests.gateway.canary.objects import RACK, TENANTS
from tests.gateway.canary.rbac import RbacApiServer


def ends_by(job: Values) -> str | None:
    status, limit = job["status"], job["spec"].get("activeDeadlineSeconds")
    if "lease" in status:
        return str(status["lease"]["expirationTime"])
    start = status.get("startTime") or status.get("queue", {}).get("estimatedStart")
    if limit is None or start is None:
        return None
    ends = datetime.strptime(start, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) + timedelta(seconds=limit)
    return ends.strftime("%Y-%m-%dT%H:%M:%SZ")


def _job_devices(job: Values) -> list[Values]:
    return [dict(each) for each in job["status"].get("devices", ())]


def job_row(job: Values) -> Values:
    meta, spec, status = job["metadata"], job["spec"], job["status"]
    queue = status.get("queue", {})
    idle = [
        each["message"] for each in status.get("conditions", ()) if each["type"] == "Idle" and each["status"] == "True"
    ]
    met = {each["name"]: each["state"] for each in status.get("dependencies", ())}
    return {
        "namespace": meta["namespace"],
        "name": meta["name"],
        "displayName": meta["annotations"].get(names.DISPLAY_NAME, meta["name"]),
        "uid": meta["uid"],
        "number": status.get("number"),
        "user": meta["annotations"][names.USER],
        "project": meta["labels"][names.LABEL_PROJECT],
        "phase": status.get("phase", "Queued"),
        "reason": status.get("reason", ""),
        "message": status.get("message", ""),
        "details": status.get("details", []),
        "request": status.get("request") or str(spec.get("gpu", "")),
        "gpus": status.get("gpus", 0),
        "device": status.get("device"),
        "simulated": status.get("simulated", False),
        "workers": spec.get("workers", 1),
        "priority": spec.get("priority", 10),
        "reservation": "reservation" in spec,
        "position": queue.get("position"),
        "estimatedStart": queue.get("estimatedStart"),
        "earliest": queue.get("estimatedStartEarliest"),
        "latest": queue.get("estimatedStartLatest"),
        "basis": queue.get("basis", ""),
        "basisDetails": queue.get("basisDetails", []),
        "dependencies": [
            {"name": each["name"], "condition": each.get("condition", "Succeeded"), "state": met.get(each["name"])}
            for each in spec.get("dependencies", ())
        ],
        "nodes": status.get("nodes", []),
        "devices": _job_devices(job),
        "timeLimitSeconds": spec.get("activeDeadlineSeconds"),
        "submittedAt": meta["creationTimestamp"],
        "startedAt": status.get("startTime"),
        "completedAt": status.get("completionTime"),
        "leaseEndsAt": status.get("lease", {}).get("expirationTime"),
        "endsBy": ends_by(job),
        "idle": "".join(idle),
    }


def position(job: Values) -> Values:
    status = job["status"]
    queue = status.get("queue", {})
    return {
        "phase": status.get("phase", "Queued"),
        "reason": status.get("reason", ""),
        "message": status.get("message", ""),
        "details": status.get("details", []),
        "position": queue.get("position"),
        "estimatedStart": queue.get("estimatedStart"),
        "earliest": queue.get("estimatedStartEarliest"),
        "latest": queue.get("estimatedStartLatest"),
        "boundsHeld": queue.get("boundsHeld"),
        "basis": queue.get("basis", ""),
        "basisDetails": queue.get("basisDetails", []),
    }


def device_row(api: RbacApiServer, sees: Sees, node: str, each: Values) -> Values:
    used = {tenant["uid"]: tenant["usedMiB"] for tenant in each.get("tenants", ())}
    tenants, hidden = [], []
    for held in holders(api, node, each["uuid"]):
        meta = held["pod"]["metadata"]
        number = meta["labels"].get(names.LABEL_JOB_NUMBER)
        if not sees_(sees, meta["namespace"]):
            hidden.append(held)
            continue
        tenants.append(
            {
                "namespace": meta["namespace"],
                "pod": meta["name"],
                "job": None if number is None else int(number),
                "shareMilli": held["shareMilli"],
                "memoryMiB": held["memoryMiB"],
                "workload": held["workload"],
                "usedMiB": used.get(meta["uid"]),
            }
        )
    others = {
        "tenants": len(hidden),
        "shareMilli": sum(each["shareMilli"] for each in hidden),
        "memoryMiB": sum(each["memoryMiB"] for each in hidden),
    }
    return {
        "node": node,
        "index": each["index"],
        "uuid": each["uuid"],
        "vendor": each["vendor"],
        "model": each["model"],
        "migProfile": each.get("migProfile", ""),
        "computeCapability": "",
        "memoryMiB": each["memoryMiB"],
        "usedMiB": figure(api, node, each, name="usedMiB", none=0),
        "utilization": figure(api, node, each, name="utilization", none=0.0),
        "temperatureCelsius": figure(api, node, each, name="temperatureCelsius"),
        "powerWatts": figure(api, node, each, name="powerWatts"),
        "measuredAt": figure(api, node, {"measuredAt": "2100-01-01T00:00:00Z"} | each, name="measuredAt"),
        "stale": False,
        "health": each.get("health", "Healthy"),
        "healthReason": each.get("healthReason", ""),
        "cordoned": each["uuid"] in api.objects["gpunodes"][node]["spec"]["cordoned"],
        "takesWork": not why(api, node, each)[0],
        "cause": why(api, node, each)[0],
        "message": why(api, node, each)[1],
        "available": available(api, node, each),
        "strangers": len(each.get("strangers", ())),
        "tenants": tenants,
        "others": others if hidden else None,
    }


def node_row(api: RbacApiServer, sees: Sees, name: str) -> Values:
    status = api.objects["gpunodes"][name]["status"]
    labels = api.objects["nodes"].get(name, {"metadata": {"labels": {}}})["metadata"]["labels"]
    return {
        "name": name,
        "takesWork": any(not why(api, name, each)[0] for node, each in devices(api) if node == name),
        "message": why_node(api, name)[1],
        "stale": "",
        "pool": labels.get(names.LABEL_POOL, ""),
        "rack": labels.get(RACK, ""),
        "driverVersion": status.get("driverVersion", ""),
        "runtimeVersion": status.get("runtimeVersion", ""),
        "runs": "Containers",
        "cpus": 64 if name in api.objects["nodes"] else None,
        "hostMemoryMiB": (256 << 10) if name in api.objects["nodes"] else None,
        "enforcement": {
            each: each == "mps" and name == "one" for each in ("mps", "turns", "timeSlicing", "mig", "checkpoint")
        }
        | {"reasons": {}},
        "enforces": "mps" if status["enforcement"]["mps"] else "none",
        "observedAt": status["observedAt"],
        "devices": [device_row(api, sees, node, each) for node, each in devices(api) if node == name],
    }


def node_rows(api: RbacApiServer, sees: Sees) -> list[Values]:
    return [node_row(api, sees, name) for name in sorted(api.objects["gpunodes"])]


def plan(api: RbacApiServer, sees: Sees) -> Values:
    waiting = [each for each in jobs(api, None) if "reserved" in each["status"].get("queue", {})]

    def named(job: Values) -> Values | None:
        meta = job["metadata"]
        shown = {"namespace": meta["namespace"], "name": meta["name"], "number": job["status"]["number"]}
        return shown if sees_(sees, meta["namespace"]) else None

    def fills(job: Values) -> list[Values]:
        """Every gap that the job may fill."""
        ends = ends_by(job)
        if "startTime" not in job["status"] or ends is None:
            return []
        found = []
        for other in waiting:
            room = other["status"]["queue"]["reserved"]
            on = {each["name"] for each in room["nodes"]} & set(job["status"].get("nodes", ()))
            is_later = job["metadata"]["creationTimestamp"] > other["metadata"]["creationTimestamp"]
            if on and is_later and ends <= room["time"] and other is not job:
                found.append({"job": named(other), "until": room["time"]})
        return found

    rows = []
    for job in jobs(api, sees):
        status, queue = job["status"], job["status"].get("queue", {})
        start = status.get("startTime") or queue.get("estimatedStart")
        start = start or (status.get("admittedTime") if "placement" in status else None)
        if start is None or status.get("phase") in ENDED:
            continue
        source = status.get("placement") or queue.get("reserved") or {"nodes": []}
        row = job_row(job)
        rows.append(
            {
                **{
                    key: row[key]
                    for key in (
                        "namespace",
                        "name",
                        "number",
                        "user",
                        "phase",
                        "request",
                        "workers",
                        "position",
                        "endsBy",
                        "nodes",
                        "devices",
                    )
                },
                "startsAt": start,
                "earliest": None if status.get("startTime") else queue.get("estimatedStartEarliest"),
                "latest": None if status.get("startTime") else queue.get("estimatedStartLatest"),
                "leavesAt": status.get("preemption", {}).get("at"),
                "planned": []
                if status.get("devices")
                else [{"node": each["name"], "workers": each["workers"]} for each in source["nodes"]],
                "fills": fills(job),
            }
        )
    kept = []
    for job in waiting:
        room = job["status"]["queue"]["reserved"]
        keeps = {each["name"]: each["keeps"] for each in room["kept"]}
        kept += [
            {
                "job": named(job),
                "node": each["name"],
                "at": room["time"],
                "workers": each["workers"],
                "keeps": keeps.get(each["name"], []),
            }
            for each in room["nodes"]
        ]
    return {"items": rows, "kept": kept, "windows": _windows(api, sees), "drains": _drains(api), "next": None}


def _windows(api: RbacApiServer, sees: Sees) -> list[Values]:
    found = []
    for quota in api.objects["gpuquotas"].values():
        spec = quota["spec"]
        mine = not spec.get("namespaces") or any(sees_(sees, each) for each in spec["namespaces"])
        shown = sees is None or (mine and not spec.get("users"))
        for each in spec.get("advanceReservations", ()):
            named = (
                {"quota": quota["metadata"]["name"], "name": each["name"]} if shown else {"quota": None, "name": None}
            )
            found.append(
                named
                | {"start": each["startTime"], "end": each["endTime"], "gpus": each["gpus"], "pool": each.get("pool")}
            )
    return sorted(found, key=lambda each: str(each["start"]))


def _drains(api: RbacApiServer) -> list[Values]:
    found = []
    for name in sorted(api.objects["gpunodes"]):
        whole = {"node": name, "index": None, "restarts": False}
        if why_node(api, name)[0]:
            found.append(whole | {"why": why_node(api, name)[1]})
        else:
            own = [each for node, each in devices(api) if node == name and why(api, node, each)[0]]
            found += [whole | {"index": each["index"], "why": why(api, name, each)[1]} for each in own]
    return found


def quotas(api: RbacApiServer, sees: Sees) -> list[Values]:
    users = {each["metadata"]["annotations"][names.USER] for each in jobs(api, sees)}
    projects = {each["metadata"]["labels"][names.LABEL_PROJECT] for each in jobs(api, sees)}
    found = []
    for name, quota in sorted(api.objects["gpuquotas"].items()):
        spec, status = quota["spec"], quota["status"]
        shown = {
            "namespaces": [each for each in spec.get("namespaces", ()) if sees_(sees, each)],
            "users": [each for each in spec.get("users", ()) if sees is None or each in users],
            "projects": [each for each in spec.get("projects", ()) if sees is None or each in projects],
        }
        if any(spec.get(kind) and not shown[kind] for kind in shown):
            continue
        found.append(
            _quota_row(name, spec, status, shown=shown, is_shown=_shown_uses(spec, sees=sees, users=users), sees=sees)
        )
    return [_with_borrowers(row, api=api, rows=found) for row in found]


def _shown_uses(spec: Values, *, sees: Sees, users: set[str]) -> Callable[[str], bool]:
    if sees is None or spec.get("per", "Together") == "Together":
        return lambda who: sees is None or who == ""
    return (lambda who: who in sees) if spec["per"] == "Namespace" else (lambda who: who in users)


def _quota_row(
    name: str, spec: Values, status: Values, *, shown: Values, is_shown: Callable[[str], bool], sees: Sees
) -> Values:
    most = spec.get("limit", {})
    guaranteed = spec.get("guaranteed", {})
    guarantee = status.get("guarantee")
    told = [{"reason": each["reason"], "message": each["message"]} for each in status.get("conditions", ())]
    return {
        "name": name,
        "generation": 0,
        "per": spec.get("per", "Together"),
        "parent": spec.get("parent"),
        "projects": shown["projects"],
        "guaranteed": guaranteed.get("gpus"),
        "guaranteedMemoryMiB": _mib(guaranteed.get("memory")),
        "guarantee": None
        if guarantee is None
        else {key: guarantee.get(key, 0) for key in ("gpus", "used", "lent", "borrowed", "waiting")}
        | {"memory": None, "would_give": []},
        "problems": told if sees is None else [],
        "gpusLimit": most.get("gpus"),
        "memoryMiBLimit": _mib(most.get("memory")),
        "modelsLimit": most.get("models", {}),
        "runningJobsLimit": most.get("runningJobs"),
        "queuedJobsLimit": most.get("queuedJobs"),
        "shares": spec.get("shares"),
        "pools": spec.get("pools", []),
        "maxPriority": spec.get("maxPriority"),
        "preemptionPolicy": spec.get("preemptionPolicy", "PreemptLowerPriority"),
        "advanceReservations": [{"pool": None, **each} for each in spec.get("advanceReservations", ())],
        "guaranteeWindows": [],
        "reserve": None,
        "ready": None,
        "forecast": None,
        "demand": None,
        "gpus": status["gpus"],
        "memoryMiB": status["memoryMiB"],
        "runningJobs": status["runningJobs"],
        "queuedJobs": status["queuedJobs"],
        "namespaces": shown["namespaces"],
        "users": shown["users"],
        "otherNamespaces": len(spec.get("namespaces", ())) - len(shown["namespaces"]),
        "otherUsers": len(spec.get("users", ())) - len(shown["users"]),
        "uses": [each for each in status["uses"] if is_shown(each["who"])],
        "asOf": status.get("asOf"),
    }


def _mib(text: str | None) -> int | None:
    return None if text is None else int(text.removesuffix("Gi")) * 1024


def _with_borrowers(row: Values, *, api: RbacApiServer, rows: list[Values]) -> Values:
    """In this cluster, what waits in the tree waits for its branches, and for jobs of its root itself."""
    guarantee = row["guarantee"]
    if guarantee is None:
        return row
    branches = [each for each in rows if each["parent"] == "tree" and each is not row and guarantee["waiting"]]
    gives = [{"name": each["name"], "gpus": each["guarantee"]["borrowed"]} for each in branches]
    quotas = api.objects["gpuquotas"]
    used = [each["status"]["guarantee"]["used"] for each in quotas.values() if each["spec"].get("parent") == "tree"]
    own = quotas["tree"]["status"]["guarantee"]["used"] - sum(used)
    if row["parent"] == "tree" and own > 0:
        gives.append({"name": "tree", "gpus": own})
    del guarantee["would_give"]
    return row | {"guarantee": guarantee | {"wouldGive": sorted(gives, key=lambda each: -each["gpus"])}}


def me(api: RbacApiServer, sees: Sees, *, token: str) -> Values:
    user = api.users[token]
    return {
        "username": user.name,
        "groups": ["system:authenticated", *user.groups],
        "everywhere": sees is None,
        "namespaces": sorted(sees or ()),
        "expiresAt": None,
    }


def differences(have: Any, want: Any, *, at: str = "") -> list[str]:
    """Where two answers differ, such as `.items[3].gpus is 2, and the objects say 3`."""
    if isinstance(have, dict) and isinstance(want, dict) and have.keys() == want.keys():
        return [each for key in have for each in differences(have[key], want[key], at=f"{at}.{key}")]
    if isinstance(have, list) and isinstance(want, list) and len(have) == len(want):
        pairs = enumerate(zip(have, want, strict=True))
        return [each for number, pair in pairs for each in differences(*pair, at=f"{at}[{number}]")]
    return [] if have == want else [f"{at} is {have}, and the objects say {want}"]


def words_hidden_from(sees: Sees) -> list[str]:
    """Each word that no answer to the reader may contain."""
    return [each.word for each in TENANTS if not sees_(sees, each.namespace)]

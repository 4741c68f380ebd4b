"""GPUJobs and pods as the API server has them."""

import json
import uuid
from typing import Any

from dovetail import names


def uid_of(*names: str) -> str:
    """A UID that contains no name."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(names)))


def make_job(
    name: str, *, namespace: str, number: int = 1, user: str = "", status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "dovetail.dev/v1beta1",
        "kind": "GPUJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid_of(namespace, name),
            "creationTimestamp": "2026-11-01T00:00:00Z",
            "annotations": {names.USER: user},
            "labels": {names.LABEL_PROJECT: f"{namespace}-project"},
        },
        "spec": {"gpu": 1, "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}} | spec,
        "status": status or {"phase": "Running", "number": number, "gpus": 1, "request": "1", "nodes": ["a"]},
    }


def make_bound_pod(name: str, *, namespace: str, job: str, number: int, device: str, node: str = "a") -> dict[str, Any]:
    held = {"uuid": device, "index": int(device.split("-")[1]), "shareMilli": 1000, "memoryMiB": 32768}
    allocation = {
        "version": 1,
        "node": node,
        "mode": "Exclusive",
        "job": job,
        "priority": 10,
        "containers": [{"index": 0, "devices": [held]}],
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid_of("batch", job), "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid_of("pod", namespace, name),
            "creationTimestamp": "2026-11-01T00:00:00Z",
            "annotations": {names.REQUEST: "1", names.ALLOCATION: json.dumps(allocation)},
            "labels": {names.LABEL_JOB: job, names.LABEL_JOB_NUMBER: str(number)},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": node,
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [{"name": "main", "resources": {"limits": {names.GPU_MILLI: "1000"}}}],
        },
        "status": {"phase": "Running"},
    }


def make_batch_job(job: dict[str, Any]) -> dict[str, Any]:
    """The batch Job of a job, as the operator makes it."""
    meta = job["metadata"]
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
    named = {"name": meta["name"], "namespace": meta["namespace"], "uid": uid_of("batch", meta["name"])}
    labels = {"dovetail.dev/job": meta["name"]}
    return {"metadata": named | {"labels": labels, "ownerReferences": [owner | {"controller": True}]}, "spec": {}}

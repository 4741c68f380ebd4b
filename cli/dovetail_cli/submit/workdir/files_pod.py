"""A short-lived pod with a job's claims: files go through it to a volume, or back."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from dovetail import names
from dovetail.api.gpujob import GPUJob, spec_of
from dovetail.api.resources import GPUJOBS, PODS
from dovetail.kube.errors import NotFound
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui.errors import CommandError

CONTAINER: Final = "files"
START_SECONDS: Final = 180.0
# If gbatch or gjob is killed, kubelet ends the pod by itself.
_MOST_SECONDS: Final = 3600
_POLL_SECONDS: Final = 0.5
# What decides whether a pod of this user may run there and read these files.
_KEPT: Final = ("imagePullSecrets", "nodeSelector", "securityContext", "tolerations")
_WAIT: Final = f"sleep {_MOST_SECONDS} & wait"


@asynccontextmanager
async def files_pod(cluster: Cluster, *, job: GPUJob, seconds: float = START_SECONDS) -> AsyncIterator[str]:
    """A running pod with the job's claims at the job's paths, deleted at the end; its name.

    Raises `CommandError` if it does not start in time, with the reason.
    """
    made = await cluster.client.create(PODS, body=manifest(job), as_type=dict[str, Any], namespace=cluster.namespace)
    name = str(made["metadata"]["name"])
    try:
        await _until_running(cluster, name=name, seconds=seconds)
        yield name
    finally:
        await _drop(cluster, name=name)


def manifest(job: GPUJob) -> dict[str, Any]:
    """The pod: the job's image, claims and rights, without devices. An existing job owns it."""
    spec = spec_of(job.spec.template)
    first = spec["containers"][0]
    volumes = [each for each in spec.get("volumes") or () if each.get("persistentVolumeClaim")]
    claims = {each["name"] for each in volumes}
    container = {
        "name": CONTAINER,
        "image": first["image"],
        "command": ["sh", "-c", _WAIT],
        "volumeMounts": [each for each in first.get("volumeMounts") or () if each["name"] in claims],
    }
    if "securityContext" in first:
        container["securityContext"] = first["securityContext"]
    return {
        "metadata": {"generateName": f"{job.metadata.name}-files-", **_owned(job)},
        "spec": {
            **{key: spec[key] for key in _KEPT if key in spec},
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _MOST_SECONDS,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": volumes,
        },
    }


def _owned(job: GPUJob) -> dict[str, Any]:
    if not job.metadata.uid:
        return {}
    owner = {"apiVersion": names.API_VERSION, "kind": GPUJOBS.kind, "name": job.metadata.name, "uid": job.metadata.uid}
    return {"ownerReferences": [owner]}


async def _until_running(cluster: Cluster, *, name: str, seconds: float) -> None:
    seen: Mapping[str, Any] = {}
    try:
        async with asyncio.timeout(seconds):
            while True:
                seen = await cluster.client.get(PODS, name=name, as_type=dict[str, Any], namespace=cluster.namespace)
                phase = seen.get("status", {}).get("phase")
                if phase == "Running":
                    return
                if phase in {"Failed", "Succeeded"}:
                    raise CommandError(f"the pod that copies files has ended before it began: {why_not(seen)}")
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise CommandError(f"the pod that copies files did not start within {seconds:g} s: {why_not(seen)}") from error


def why_not(pod: Mapping[str, Any]) -> str:
    """Why a pod does not run, as its status says it."""
    status = pod.get("status", {})
    states = [state for each in status.get("containerStatuses") or () for state in (each.get("state") or {}).values()]
    conditions = [each for each in status.get("conditions") or () if each.get("status") == "False"]
    said = [f"{each.get('reason', '')}: {each['message']}" for each in [*states, *conditions] if each.get("message")]
    return said[0] if said else status.get("message") or status.get("reason") or "its status says no more"


async def _drop(cluster: Cluster, *, name: str) -> None:
    try:
        await cluster.client.delete(PODS, name=name, namespace=cluster.namespace)
    except NotFound:
        return

"""Kinds of other projects on a sandbox: their own CRDs, and a controller that keeps their contracts.

What a kind's controller does is written from the project's documentation, not from Dovetail's adapters: it creates no
pod of a suspended object, creates those of all templates once it is let go, and says in the status how far it is.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from dovetail.api.builtin import Pod
from dovetail.api.resources import PODS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, NotFound

JOBSETS: Final = Resource(group="jobset.x-k8s.io", version="v1alpha2", plural="jobsets", kind="JobSet")
RAYJOBS: Final = Resource(group="ray.io", plural="rayjobs", kind="RayJob")
RAYCLUSTERS: Final = Resource(group="ray.io", plural="rayclusters", kind="RayCluster")
MPIJOBS: Final = Resource(group="kubeflow.org", version="v2beta1", plural="mpijobs", kind="MPIJob")
KINDS: Final = {each.kind: each for each in (JOBSETS, RAYJOBS, RAYCLUSTERS, MPIJOBS)}
# What the controllers of all kinds need in a namespace.
RULES: Final = (
    *(
        {"apiGroups": [kind.group], "resources": [kind.plural, f"{kind.plural}/status"], "verbs": ["*"]}
        for kind in KINDS.values()
    ),
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
)
OWNED_BY: Final = "test/owned-by"
# Six lists each time.
_POLL_SECONDS: Final = 0.3

Body = dict[str, Any]


def templates(found: Body) -> Iterator[tuple[Body, int]]:
    """The pod templates of an object, and how many pods there are of each."""
    spec = found["spec"]
    match found["kind"]:
        case "JobSet":
            for each in spec["replicatedJobs"]:
                job = each["template"]["spec"]
                yield job["template"], each["replicas"] * job.get("parallelism", 1)
        case "MPIJob":
            for each in spec["mpiReplicaSpecs"].values():
                yield each["template"], each["replicas"]
        case "RayCluster":
            yield spec["headGroupSpec"]["template"], 1
            for each in spec["workerGroupSpecs"]:
                yield each["template"], each["replicas"]


def is_suspended(found: Body) -> bool:
    """Whether the object may have no pods."""
    spec = found["spec"]
    where = spec.get("runPolicy", {}) if found["kind"] == "MPIJob" else spec
    return bool(where.get("suspend", False))


def status_of(kind: str, *, suspended: bool = False, ended: bool = False) -> Body:
    """What the kind's controller says of an object that is suspended, has ended well, or runs."""
    if kind == "RayJob":
        now = "Suspended" if suspended else "Complete" if ended else "Running"
        return {"jobDeploymentStatus": now, "jobStatus": "SUCCEEDED" if ended else ""}
    over = {"JobSet": "Completed", "MPIJob": "Succeeded"}.get(kind)
    held = "RayClusterSuspended" if kind == "RayCluster" else "Suspended"
    said = {held: suspended} | ({over: ended} if over else {})
    at = "2026-01-01T00:00:00Z"
    return {
        "conditions": [
            {"type": type_, "status": str(value), "reason": "Test", "message": "", "lastTransitionTime": at}
            for type_, value in said.items()
        ]
    }


class Controller:
    """Keeps the objects of all kinds of a namespace, as each kind's own controller does."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        # By UID: their pods are not created again.
        self._ended: set[str] = set()

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Keep them until the end of the block."""
        task = asyncio.create_task(self._run())
        try:
            yield
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def end(self, kind: Resource, *, name: str) -> None:
        """Say that an object has ended well."""
        found = await self._client.get(kind, name=name, as_type=Body, namespace=self._namespace)
        self._ended.add(uid := found["metadata"]["uid"])
        await self._say(kind, name=name, status=status_of(kind.kind, ended=True))
        if kind == RAYJOBS:
            await self._delete_cluster(name)
        await self._delete_pods(of=uid)

    async def _run(self) -> None:
        while True:
            owners = set()
            for kind in KINDS.values():
                found, _ = await self._client.list(kind, as_type=Body, namespace=self._namespace)
                for each in found:
                    owners.add(each["metadata"]["uid"])
                    # Items of a list do not say their kind.
                    await self._keep(kind, found={**each, "apiVersion": kind.api_version, "kind": kind.kind})
            await self._delete_pods(but_of=owners)
            await asyncio.sleep(_POLL_SECONDS)

    async def _keep(self, kind: Resource, *, found: Body) -> None:
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        if is_suspended(found):
            if kind == RAYJOBS:
                await self._delete_cluster(name)
            await self._delete_pods(of=uid)
            await self._say(kind, name=name, status=status_of(kind.kind, suspended=True), before=found.get("status"))
            return
        if uid in self._ended:
            return
        await self._say(kind, name=name, status=status_of(kind.kind), before=found.get("status"))
        if kind == RAYJOBS:
            await self._make_cluster(found)
            return
        numbered = [(template, number) for template, count in templates(found) for number in range(count)]
        for index, (template, _) in enumerate(numbered):
            await self._make_pod(found, template=template, name=f"{name}-{index}")

    async def _make_cluster(self, job: Body) -> None:
        """KubeRay copies the labels and annotations of a RayJob to its RayCluster."""
        meta = job["metadata"]
        copied = {key: meta.get(key, {}) for key in ("labels", "annotations")}
        name = f"{meta['name']}-cluster"
        body = {"metadata": {"name": name, **copied, **_owned_by(job)}, "spec": job["spec"]["rayClusterSpec"]}
        await self._make(RAYCLUSTERS, body=body)

    async def _delete_cluster(self, job: str) -> None:
        with contextlib.suppress(NotFound):
            await self._client.delete(RAYCLUSTERS, name=f"{job}-cluster", namespace=self._namespace)

    async def _make_pod(self, owner: Body, *, template: Body, name: str) -> None:
        found = template.get("metadata", {})
        labels = {**found.get("labels", {}), OWNED_BY: owner["metadata"]["uid"]}
        metadata = {"name": name, "labels": labels, "annotations": found.get("annotations", {}), **_owned_by(owner)}
        await self._make(PODS, body={"metadata": metadata, "spec": template["spec"]})

    async def _make(self, resource: Resource, *, body: Body) -> None:
        with contextlib.suppress(AlreadyExists):
            await self._client.create(resource, body=body, as_type=Body, namespace=self._namespace)

    async def _delete_pods(self, *, of: str | None = None, but_of: set[str] | None = None) -> None:
        pods, _ = await self._client.list(PODS, as_type=Pod, namespace=self._namespace, label_selector=OWNED_BY)
        for pod in pods:
            owner = pod.metadata.labels[OWNED_BY]
            if owner == of or (but_of is not None and owner not in but_of):
                with contextlib.suppress(NotFound):
                    await self._client.delete(PODS, name=pod.metadata.name, namespace=self._namespace)

    async def _say(self, kind: Resource, *, name: str, status: Body, before: Body | None = None) -> None:
        if status == before:
            return
        with contextlib.suppress(NotFound):
            await self._client.patch(
                kind, name=name, patch={"status": status}, as_type=Body, namespace=self._namespace, subresource="status"
            )


def _owned_by(owner: Body) -> Body:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {"ownerReferences": [reference]}

"""Writes of batch Jobs and of GPUJobs, including their status."""

from contextlib import suppress
from typing import Any

import msgspec

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import GPUJOBS, JOBS, Resource
from dovetail.gpu.device_plugins import Delivery
from dovetail.jobs.batch_job import is_child
from dovetail.jobs.obstacle import Obstacle
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, NotFound, StatusError
from dovetail.names import KUEUE_QUEUE, LABEL_JOB, TERM
from dovetail.pods.delivery import of_job
from dovetail.pods.mps_client import job_with_mps
from dovetail_operator.job.actions import CreateJob, PatchJob
from dovetail_operator.manifests.batch_job import Manifest
from dovetail_operator.writes import services


async def create_job(
    client: Client,
    *,
    job: GPUJob,
    action: CreateJob,
    term: int | None = None,
    mps_directory: str = "",
    delivery: Delivery = "RuntimeClass",
) -> Job | Obstacle:
    """Create the batch Job, or return the one that we created before.

    Returns why it cannot exist.

    With a `term` the chart's policy refuses it once a later term has begun. `mps_directory` is where its pods find MPS,
    and `delivery` how they get devices.
    """
    if action.service is not None and (obstacle := await services.ensure(client, job=job, manifest=action.service)):
        return obstacle
    wanted = job_with_mps(of_job(action.manifest, delivery=delivery), directory=mps_directory)
    wanted = wanted if term is None else _of_term(wanted, term=term)
    try:
        # Strict: a pod would run without a misspelled field of the template, and no message would say so.
        return await client.create(JOBS, body=wanted, as_type=Job, namespace=job.metadata.namespace, strict=True)
    except AlreadyExists:
        return await _existing(client, job=job)
    except StatusError as error:
        return services.refusal(error, kind="Job")


def _of_term(manifest: Manifest, *, term: int) -> Manifest:
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), TERM: str(term)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


async def _existing(client: Client, *, job: GPUJob) -> Job | Obstacle:
    """The batch Job that has our name already: our own, or an obstacle.

    A foreign one is never adopted.
    """
    name = job.metadata.name
    found = await client.get(JOBS, name=name, as_type=Job, namespace=job.metadata.namespace)
    if not is_child(found, job=job):
        return services.in_the_way(found.metadata, kind="Job", of=job)
    return await labelled(client, job=job, child=found)


async def find_child(client: Client, *, job: GPUJob) -> Job | None:
    """Get the job's own batch Job, and restore the label by which it is watched.

    None without one.
    """
    try:
        found = await client.get(JOBS, name=job.metadata.name, as_type=Job, namespace=job.metadata.namespace)
    except NotFound:
        return None
    return await labelled(client, job=job, child=found) if is_child(found, job=job) else None


async def labelled(client: Client, *, job: GPUJob, child: Job) -> Job:
    """Restore our label on the job's own batch Job if it is missing: the watch selects by it."""
    if child.metadata.labels.get(LABEL_JOB) == job.metadata.name:
        return child
    labels = {LABEL_JOB: job.metadata.name}
    patch = {
        "metadata": {"uid": child.metadata.uid, "resourceVersion": child.metadata.resource_version, "labels": labels}
    }
    return await client.patch(
        JOBS, name=child.metadata.name, patch=patch, as_type=Job, namespace=child.metadata.namespace
    )


async def patch_job(client: Client, *, child: Job, action: PatchJob) -> Job:
    """Change some fields of the batch Job's spec.

    Raises `Conflict` if it has changed since it was read.
    """
    precondition = {"uid": child.metadata.uid, "resourceVersion": child.metadata.resource_version}
    patch = {"metadata": precondition, "spec": dict(action.spec)}
    return await client.patch(
        JOBS, name=child.metadata.name, patch=patch, as_type=Job, namespace=child.metadata.namespace
    )


async def delete_job(client: Client, *, child: Job) -> None:
    """Delete the batch Job, and with it its pods. A missing one is no error. Raises `Conflict`."""
    await _delete(client, resource=JOBS, meta=child.metadata)


async def join_queue(client: Client, *, job: GPUJob, queue: str) -> GPUJob:
    """Add the label of a Kueue queue to a GPUJob.

    Raises `Conflict` if it has changed since it was read.
    """
    labels = {KUEUE_QUEUE: queue}
    patch = {"metadata": {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version, "labels": labels}}
    return await client.patch(
        GPUJOBS, name=job.metadata.name, patch=patch, as_type=GPUJob, namespace=job.metadata.namespace
    )


async def delete_gpujob(client: Client, *, job: GPUJob) -> None:
    """Delete the GPUJob and what it owns. Raises `Conflict` if it has changed since it was read."""
    await _delete(client, resource=GPUJOBS, meta=job.metadata)


async def _delete(client: Client, *, resource: Resource, meta: ObjectMeta) -> None:
    with suppress(NotFound):
        await client.delete(
            resource, name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        )


async def write_status(client: Client, *, job: GPUJob, status: GPUJobStatus) -> GPUJob:
    """Write the status of a GPUJob. Raises `Conflict` if it has changed since `job` was read.

    This writes the whole status, because only the operator writes any of it: an update costs the API server less than a
    patch.
    """
    meta = job.metadata
    read = {
        "name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "resourceVersion": meta.resource_version
    }  # fmt: skip
    body = {"metadata": read, "status": status}
    return await client.update(
        GPUJOBS, name=meta.name, body=body, as_type=GPUJob, namespace=meta.namespace, subresource="status"
    )


def difference(before: msgspec.Struct, *, after: msgspec.Struct) -> dict[str, Any]:
    """The differing fields as a merge patch, null for removed ones; empty if nothing changed."""
    if before == after:
        return {}
    old: dict[str, Any] = msgspec.to_builtins(before)
    new: dict[str, Any] = msgspec.to_builtins(after)
    return {name: new.get(name) for name in old.keys() | new.keys() if old.get(name) != new.get(name)}

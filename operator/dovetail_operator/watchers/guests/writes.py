"""Writes for guests: their records, whether they are held, and the gates of their pods."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import OwnerReference
from dovetail.api.reasons.start import RECORD_NAME_TAKEN
from dovetail.api.resources import GPUJOBS, PODS, Resource
from dovetail.formats.timestamps import timestamp
from dovetail.jobs import plan
from dovetail.jobs.guests.gangs import Gang, scheduled_patch
from dovetail.jobs.guests.kind import Guest, suspend_patch
from dovetail.jobs.guests.pod_group import PodGroup
from dovetail.jobs.guests.record import Manifest, is_record_of
from dovetail.jobs.guests.registry import kind_of
from dovetail.jobs.obstacle import Obstacle
from dovetail.jobs.seat import Seat, text_of
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, Conflict, NotFound, StatusError
from dovetail_operator.watchers.guests.directory import Known
from dovetail_operator.writes import evictions, services


async def create_record(client: Client, *, found: Known, manifest: Manifest) -> GPUJob | Obstacle:
    """Create a guest's record, or return the one that was created before. Returns why it cannot exist."""
    name, namespace = manifest["metadata"]["name"], found.guest.metadata.namespace
    try:
        return await client.create(GPUJOBS, body=manifest, as_type=GPUJob, namespace=namespace)
    except AlreadyExists:
        made = await client.get(GPUJOBS, name=name, as_type=GPUJob, namespace=namespace)
    except StatusError as error:
        return services.refusal(error, kind=f"GPUJob {name}")
    if is_record_of(made, guest=found.guest):
        return made
    return Obstacle.of(RECORD_NAME_TAKEN(name=name))


async def newest(client: Client, *, record: GPUJob) -> GPUJob:
    """The record as it is at the API server. Raises `NotFound`."""
    meta = record.metadata
    return await client.get(GPUJOBS, name=meta.name, as_type=GPUJob, namespace=meta.namespace)


async def has_owner(client: Client, *, record: GPUJob) -> bool:
    """Whether an object that a record is of still exists. Its owner references decide, not the caches."""
    for owner in record.metadata.owner_references:
        group = owner.api_version.rpartition("/")[0]
        kind = kind_of(group=group, kind=owner.kind)
        resource = PODS if (group, owner.kind) == ("", PODS.kind) else None if kind is None else kind.resource
        if resource is not None and await _exists(
            client, resource=resource, owner=owner, namespace=record.metadata.namespace
        ):
            return True
    return False


async def _exists(client: Client, *, resource: Resource, owner: OwnerReference, namespace: str) -> bool:
    named = f"metadata.name={owner.name}"
    try:
        found, _ = await client.list(resource, as_type=Guest, namespace=namespace, field_selector=named)
    except NotFound:
        # The kind is not installed any more.
        return False
    return any(each.metadata.uid == owner.uid for each in found)


async def change_record(client: Client, *, record: GPUJob, spec: Manifest) -> Obstacle | None:
    """Change fields of exactly this record. Returns why they cannot change. Raises `Conflict` and `NotFound`."""
    meta = record.metadata
    patch = {"metadata": {"uid": meta.uid}, "spec": spec}
    try:
        await client.patch(GPUJOBS, name=meta.name, patch=patch, as_type=GPUJob, namespace=meta.namespace)
    except NotFound:
        raise
    except StatusError as error:
        return services.refusal(error, kind="change")
    return None


async def hold(client: Client, *, found: Known, suspend: bool) -> Guest:
    """Hold a guest or let it go. Raises `Conflict` if it has changed since it was read."""
    meta = found.guest.metadata
    precondition = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    patch = {"metadata": precondition, **suspend_patch(found.kind, suspend=suspend)}
    return await client.patch(found.kind.resource, name=meta.name, patch=patch, as_type=Guest, namespace=meta.namespace)


async def change_owners(client: Client, *, record: GPUJob, owners: Sequence[OwnerReference]) -> None:
    """Let a record go with the last of these. Raises `Conflict` and `NotFound`."""
    meta = record.metadata
    patch = {"metadata": {"uid": meta.uid, "ownerReferences": [values_of(owner) for owner in owners]}}
    await client.patch(GPUJOBS, name=meta.name, patch=patch, as_type=GPUJob, namespace=meta.namespace)


async def say_scheduled(client: Client, *, gang: Gang, is_scheduled: bool, message: str, at: datetime) -> None:
    """Say on the object of a gang whether its pods are scheduled."""
    patch = scheduled_patch(gang, is_scheduled=is_scheduled, message=message, at=timestamp(at))
    if patch is None:
        return
    meta = gang.metadata
    # The watch brings an object that has changed since.
    with suppress(NotFound, Conflict):
        await client.patch(
            gang.resource, name=meta.name, patch=patch, as_type=Guest, namespace=meta.namespace, subresource="status"
        )


async def evict(client: Client, *, group: PodGroup) -> None:
    """End the pods of a group. Raises `TooManyRequests` if a disruption budget forbids it."""
    for pod in group.going:
        with suppress(NotFound, Conflict):
            await evictions.evict(client, name=pod.name, namespace=group.metadata.namespace, uid=pod.uid)


async def open_gate(client: Client, *, pod: Pod, record: GPUJob, seat: Seat | None) -> Pod:
    """Open a pod's gate: with its seat in the record's plan, or without one for a pod that is no worker.

    Raises `Conflict` if the pod has changed since it was read, and `NotFound`.
    """
    meta = pod.metadata
    metadata: dict[str, Any] = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    if seat is not None:
        metadata["labels"] = {names.LABEL_JOB: record.metadata.name}
        metadata["annotations"] = {names.SEAT: text_of(seat)}
        if record.status.placement is not None:
            said = plan.annotation_of(record.status.placement, job_uid=record.metadata.uid)
            metadata["annotations"][names.PLAN] = said
    left = [{"name": gate.name} for gate in pod.spec.scheduling_gates if gate.name != names.QUEUE_GATE]
    patch = {"metadata": metadata, "spec": {"schedulingGates": left or None}}
    return await client.patch(PODS, name=meta.name, patch=patch, as_type=Pod, namespace=meta.namespace)

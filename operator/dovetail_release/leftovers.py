"""Remove what the components created and Helm does not know of; say what stays.

Every step is an iterator of sentences about what it did, and can be repeated. What people own stays: GPUJobs with their
pods, GPUQuotas, the history, and GPUNodes with cordoned devices. Errors are those of `dovetail.kube.errors`; a kind
whose CRD is missing counts as empty.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode, GPUNodeSpec
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import (
    CONFIGMAPS,
    GPUJOBS,
    GPUNODES,
    GPUNODETENANTS,
    HISTORYQUERIES,
    JOBS,
    LEASES,
    NODES,
    PODS,
    PROVISIONINGREQUESTS,
    SECRETS,
    Resource,
)
from dovetail.engine.score.mix_record import EXTENDER_CONFIGMAP, QUEUE_CONFIGMAP
from dovetail.gpu import device_indexes
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound

# The pod of the hook itself, and that of a failed `helm test`, which Helm keeps for its log.
_HOOKS: Final = "cleanup,test"
TEST_POD: Final = "dovetail-test"
LEASE_NAMES: Final = (names.OPERATOR_LEASE, names.SCHEDULER_LEASE, names.EXTENDER_LEASE)
CONFIGMAP_NAMES: Final = (
    names.ESTIMATES,
    names.MOVES,
    device_indexes.CONFIGMAP_NAME,
    QUEUE_CONFIGMAP,
    EXTENDER_CONFIGMAP,
)
_ACTIVE: Final = frozenset({"Starting", "Running"})
_POLL_SECONDS: Final = 1.0
# Of 5,000 nodes, none should wait for a slow one.
_AT_ONCE: Final = 16
_NAMED: Final = 3


class Named(Described, frozen=True, kw_only=True):
    """An object of which only the metadata is read."""

    metadata: ObjectMeta


async def wait_for_pods(
    client: Client, *, namespaces: Iterable[str], release: str, seconds: float
) -> AsyncIterator[str]:
    """Wait until the release's pods have ended, because a running one may write again what is removed.

    Pods that remain after `seconds` are named. Their accounts are gone, so they can write nothing.
    """
    selector = (
        f"app.kubernetes.io/name=dovetail,app.kubernetes.io/instance={release},"
        f"app.kubernetes.io/component notin ({_HOOKS})"
    )
    limit = time.monotonic() + seconds
    while True:
        found = [
            f"{pod.metadata.namespace}/{pod.metadata.name}"
            for namespace in namespaces
            for pod in (await client.list(PODS, as_type=Named, namespace=namespace, label_selector=selector)).items
        ]
        if not found:
            return
        if time.monotonic() >= limit:
            yield f"Pods of the release still exist after {seconds:g} s, perhaps on a lost node: {_listed(found)}."
            return
        await asyncio.sleep(_POLL_SECONDS)


def capacity_removal(node: Node) -> dict[str, Any] | None:
    """The merge patch on `nodes/status` that removes all resources of Dovetail; None if the node has none."""
    status = {
        field: dict.fromkeys(ours)
        for field, amounts in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable))
        if (ours := sorted(key for key in amounts if key.startswith(f"{names.GROUP}/")))
    }
    return {"status": status} if status else None


async def remove_capacity(client: Client) -> AsyncIterator[str]:
    """Remove what agents advertised on nodes. Pods that run keep running; no new pod can request it."""
    patches = {
        node.metadata.name: patch
        for node in (await client.list(NODES, as_type=Node)).items
        if (patch := capacity_removal(node))
    }
    limit = asyncio.Semaphore(_AT_ONCE)

    async def remove(name: str) -> None:
        async with limit:
            try:
                await client.patch(NODES, name=name, patch=patches[name], as_type=Node, subresource="status")
            except NotFound:
                return

    await asyncio.gather(*(remove(name) for name in patches))
    if patches:
        yield f"Removed the capacity {names.GROUP}/… of {_count(len(patches), 'node')}."


async def delete_reports(client: Client) -> AsyncIterator[str]:
    """Delete the objects that agents and operator publish. A GPUNode with a person's `spec` stays."""
    gpunodes = await _listed_all(client, resource=GPUNODES, as_type=GPUNode)
    kept = [each.metadata.name for each in gpunodes if each.spec != GPUNodeSpec()]
    reports = [Named(metadata=each.metadata) for each in gpunodes if each.spec == GPUNodeSpec()]
    async for sentence in _delete_all(client, resource=GPUNODES, objects=reports):
        yield sentence
    if kept:
        yield f"Kept {_count(len(kept), 'GPUNode')} with cordoned devices or limits of their own: {_listed(kept)}."
    for resource in (GPUNODETENANTS, HISTORYQUERIES):
        found = await _listed_all(client, resource=resource, as_type=Named)
        async for sentence in _delete_all(client, resource=resource, objects=found):
            yield sentence


async def delete_placeholders(client: Client) -> AsyncIterator[str]:
    """Delete what requests nodes: without the operator, an autoscaler would serve it for ever."""
    for resource in (JOBS, PROVISIONINGREQUESTS):
        found = await _listed_all(client, resource=resource, as_type=Named, label=names.LABEL_PLACEHOLDER)
        async for sentence in _delete_all(client, resource=resource, objects=found):
            yield sentence


async def delete_records(client: Client, *, namespace: str, keep_numbers: bool) -> AsyncIterator[str]:
    """Delete the Leases and ConfigMaps of the release's namespace, and the pod of a failed `helm test`.

    The job numbers stay with jobs or a history that have them: a later installation must not give one twice.
    """
    numbers = () if keep_numbers or await _exist(client, resource=GPUJOBS) else (names.JOB_NUMBERS,)
    wanted = [(LEASES, name) for name in LEASE_NAMES] + [(CONFIGMAPS, name) for name in (*CONFIGMAP_NAMES, *numbers)]
    wanted.append((PODS, TEST_POD))
    for resource, name in wanted:
        if await _delete(client, resource=resource, name=name, namespace=namespace):
            yield f"Deleted {resource.kind} {name}."


async def delete_certificates(client: Client, *, namespace: str, secrets: Iterable[str]) -> AsyncIterator[str]:
    """Delete those of the `secrets` that dovetail-certificates issued; a Secret of anyone else stays."""
    for name in secrets:
        try:
            found = await client.get(SECRETS, name=name, as_type=Named, namespace=namespace)
        except NotFound:
            continue
        if found.metadata.labels.get(names.LABEL_MANAGED_BY) != names.CERTIFICATES_MANAGER:
            yield f"Kept Secret {name}: dovetail-certificates has not issued it."
        elif await _delete(client, resource=SECRETS, name=name, namespace=namespace, uid=found.metadata.uid):
            yield f"Deleted Secret {name}."


async def count_jobs(client: Client) -> AsyncIterator[str]:
    """Say how many GPUJobs stay, and what happens to those that are active."""
    jobs = await _listed_all(client, resource=GPUJOBS, as_type=GPUJob)
    if not jobs:
        return
    yield f"Kept {_count(len(jobs), 'GPUJob')}, which a new installation continues."
    if active := sum(job.status.phase in _ACTIVE for job in jobs):
        yield f"{active} of them are active: their pods continue to their end. Nothing retries or preempts them."


async def _exist(client: Client, *, resource: Resource) -> bool:
    try:
        async for page in client.pages(resource, as_type=Named, page_size=1):
            return bool(page.items)
    except NotFound:  # its CRD is gone
        return False
    return False


async def _listed_all(client: Client, *, resource: Resource, as_type: type[Any], label: str | None = None) -> list[Any]:
    try:
        found = await client.list(resource, as_type=as_type, label_selector=label, on_unreadable=lambda *_: None)
        return list(found.items)
    except NotFound:  # its CRD is gone, or was never there
        return []


async def _delete_all(client: Client, *, resource: Resource, objects: Sequence[Named]) -> AsyncIterator[str]:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def delete(meta: ObjectMeta) -> bool:
        async with limit:
            return await _delete(
                client, resource=resource, name=meta.name, namespace=meta.namespace or None, uid=meta.uid
            )

    deleted = sum(await asyncio.gather(*(delete(each.metadata) for each in objects)))
    if deleted:
        yield f"Deleted {deleted} {resource.plural}."


async def _delete(
    client: Client, *, resource: Resource, name: str, namespace: str | None, uid: str | None = None
) -> bool:
    try:
        await client.delete(resource, name=name, namespace=namespace, uid=uid)
    except NotFound:
        return False
    return True


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listed(found: Sequence[str]) -> str:
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more

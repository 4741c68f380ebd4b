"""Another tenant, whose names no one else may read, and the tokens of users."""

import asyncio
import uuid
from asyncio import to_thread
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from dovetail.api.resources import GPUJOBS, NAMESPACES, PODS, SERVICEACCOUNTS
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail_sandbox import access, user_token
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import PATIENCE_SECONDS

CANARY: Final = "canary"


@asynccontextmanager
async def new_namespace(client: Client, *, prefix: str, labels: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """A namespace with a name of its own, in which pods can be made; deleted at the end."""
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    body = {"metadata": {"name": name, "labels": dict(labels or {})}}
    await client.create(NAMESPACES, body=body, as_type=dict[str, Any])
    await _until_pods_are_taken(client, namespace=name)
    yield name
    await client.delete(NAMESPACES, name=name)
    await _empty(client, namespace=name)


async def _until_pods_are_taken(client: Client, *, namespace: str) -> None:
    """Pods are refused until the namespace has its default account, which a controller makes in its own time."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await client.get(SERVICEACCOUNTS, name="default", as_type=dict[str, Any], namespace=namespace)
            except NotFound:
                await asyncio.sleep(0.01)
            else:
                return


async def _empty(client: Client, *, namespace: str) -> None:
    """Delete the jobs and pods of a namespace that nothing owns: Kubernetes does so only after five seconds.

    No controller makes another one, because the namespace is being deleted.
    """
    for resource in (GPUJOBS, PODS):
        found, _ = await client.list(resource, as_type=dict[str, Any], namespace=namespace)
        for each in (one["metadata"] for one in found):
            if not each.get("ownerReferences"):
                with suppress(NotFound):
                    await client.delete(resource, name=each["name"], namespace=namespace)


async def token_of(sandbox: Cluster, *, namespace: str = "") -> str:
    """The token of a user with the role `edit` in the namespace; without one, of an administrator."""
    if not namespace:
        return user_token.read(sandbox.user_token)
    return await to_thread(access.tenant_token, sandbox.kubeconfig, namespace=namespace)

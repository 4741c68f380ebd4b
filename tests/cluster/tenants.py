"""Another tenant, whose names no one else may read, and the tokens of users."""

import uuid
from asyncio import to_thread
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from dovetail.api.resources import NAMESPACES
from dovetail.kube.client import Client
from dovetail_sandbox import access, user_token
from dovetail_sandbox.cluster import Cluster

CANARY: Final = "canary"


@asynccontextmanager
async def new_namespace(client: Client, *, prefix: str) -> AsyncIterator[str]:
    """A namespace with a name of its own, deleted at the end."""
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, body={"metadata": {"name": name}}, as_type=dict[str, Any])
    yield name
    await client.delete(NAMESPACES, name=name)


async def token_of(sandbox: Cluster, *, namespace: str = "") -> str:
    """The token of a user with the role `edit` in the namespace; without one, of an administrator."""
    if not namespace:
        return user_token.read(sandbox.user_token)
    return await to_thread(access.tenant_token, sandbox.kubeconfig, namespace=namespace)

"""Service accounts on the sandbox, and clients that act as they."""

import asyncio
from dataclasses import replace
from typing import Any

from dovetail.api.builtin import Pod
from dovetail.api.resources import PODS, SERVICEACCOUNTS, Resource
from dovetail.kube.auth.connection import Connection, load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail_sandbox.cluster import Cluster

PATIENCE_SECONDS = 60
ROLES = Resource(group="rbac.authorization.k8s.io", plural="roles", kind="Role")
ROLE_BINDINGS = Resource(group="rbac.authorization.k8s.io", plural="rolebindings", kind="RoleBinding")
Manifest = dict[str, Any]


async def until_the_rights_count(account: Client, *, namespace: str) -> None:
    """The API server hears of new roles and bindings by a watch of its own."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await account.list(PODS, as_type=Pod, namespace=namespace)
            except KubeError:
                await asyncio.sleep(0.05)
            else:
                return


async def connection_of(
    account: str, client: Client, *, namespace: str, sandbox: Cluster, spec: Manifest | None = None
) -> Connection:
    """The API server as a service account reaches it; `spec` is that of the request for its token."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec or {}}
    answer = await client.create(
        SERVICEACCOUNTS, body=request, as_type=Manifest, namespace=namespace, name=account, subresource="token"
    )
    connection = load_connection(sandbox.kubeconfig)
    return replace(connection, client_certificate=None, client_key=None, token=answer["status"]["token"])

"""A sandbox's API server: its users and its content. The only module here that talks to it."""

import asyncio
import base64
import json
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from dovetail.api.builtin import Node
from dovetail.api.resources import NODES, ROLEBINDINGS, SERVICEACCOUNTS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.auth.kubeconfig import GATEWAY, LOCAL_NODE, SIMULATED_NODES
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists
from dovetail_sandbox.errors import ChartError, SandboxError
from dovetail_sandbox.installed.chart import NAMESPACE, Manifest, Rendered

TOKEN_SECONDS: Final = 365 * 24 * 3600
# The account of `dovetail sandbox token --namespace`.
USER: Final = "sandbox-user"
USER_SECONDS: Final = 8 * 3600
# The account of scripts that send no token, on a local node.
SCRIPTS: Final = "scripts"
SCRIPTS_ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:{SCRIPTS}"
_AT_ONCE: Final = 32
_POLL_SECONDS: Final = 0.5
_POLL_PAUSE: Final = 4.0  # times as long as the last list took
_READY_SECONDS: Final = 60.0
_READY_PER_SECOND: Final = 10.0  # far below the slowest rate seen, on a busy machine


def write_admin_kubeconfig(
    path: Path,
    *,
    name: str,
    ca: Path,
    certificate: Path,
    key: Path,
    port: int,
    token: str,
    local_data: Path | None = None,
    simulated: bool = False,
    gateway: str = "",
) -> None:
    """Write a self-contained administrator's kubeconfig; its context is `dovetail-<name>`.

    `local_data` is the folder in which the local node of this cluster finds what `gbatch` leaves for it; `simulated`
    says that all its nodes are simulated. `gateway` is the URL of its gateway, which takes the user's `token`.
    """
    extensions = [{"name": LOCAL_NODE, "extension": {"data": str(local_data)}}] if local_data is not None else []
    extensions += [{"name": SIMULATED_NODES, "extension": {}}] if simulated else []
    if gateway:
        extensions.append({"name": GATEWAY, "extension": {"url": gateway}})
    write_certificate_kubeconfig(
        path,
        context=f"dovetail-{name}",
        ca=ca,
        certificate=certificate,
        key=key,
        port=port,
        token=token,
        of_context={"extensions": extensions} if extensions else {},
    )


def write_certificate_kubeconfig(
    path: Path,
    *,
    context: str,
    ca: Path,
    certificate: Path,
    key: Path,
    port: int,
    token: str = "",
    of_context: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write a self-contained kubeconfig for the user of a certificate, who may have a token too."""
    user = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
    user |= {"token": token} if token else {}
    _write_kubeconfig(path, context=context, ca=ca, port=port, user=user, of_context=of_context)


def write_account_kubeconfig(
    path: Path, *, account: str, token: str, pki: Path, port: int, namespace: str = NAMESPACE
) -> None:
    """Write the kubeconfig of a service account, by default in the chart's namespace."""
    _write_kubeconfig(path, context=account, ca=pki / "ca.crt", port=port, user={"token": token}, namespace=namespace)


def create_nodes(kubeconfig: Path, *, manifests: Sequence[Manifest]) -> None:
    """Create Node objects, up to 32 at a time, and return when kwok has made all of them Ready.

    Raises `SandboxError` if they are not Ready in time.
    """
    asyncio.run(_create_nodes(kubeconfig, manifests=manifests))


def tokens(kubeconfig: Path, *, accounts: Iterable[str], namespace: str = NAMESPACE) -> dict[str, str]:
    """Return a token for each service account of a namespace, by default the chart's."""
    return asyncio.run(_tokens(kubeconfig, accounts=sorted(set(accounts)), namespace=namespace))


def apply(rendered: Rendered, *, kubectl: Path, kubeconfig: Path, namespace: str = NAMESPACE) -> None:
    """Apply the namespace and all objects but the workloads, server-side.

    Raises `ChartError` with the API server's message.
    """
    around = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    # Its validation asks for the OpenAPI document of all APIs, and the API server keeps what it builds for that: 30 MB.
    # In a server-side apply, the API server refuses fields that it does not know without it.
    how = ("apply", "--server-side", "--force-conflicts", "--field-manager=dovetail-sandbox", "--validate=false")
    _kubectl(*how, manifests=[around, *rendered.objects], kubectl=kubectl, kubeconfig=kubeconfig)


def delete(manifests: Sequence[Manifest], *, kubectl: Path, kubeconfig: Path) -> None:
    """Delete these objects. Raises `ChartError` with the API server's message."""
    how = ("delete", "--ignore-not-found", "--wait=false")
    _kubectl(*how, manifests=manifests, kubectl=kubectl, kubeconfig=kubeconfig)


def _kubectl(*how: str, manifests: Sequence[Manifest], kubectl: Path, kubeconfig: Path) -> None:
    # Its cache would stay in ~/.kube when the sandbox is gone, and has files that a group may write.
    with tempfile.TemporaryDirectory(prefix="dovetail-kubectl-") as cache:
        done = subprocess.run(
            [str(kubectl), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}", *how, "--filename=-"],
            input=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    if done.returncode != 0:
        raise ChartError(f"The API server refuses the chart: {done.stderr.strip()}")


def tenant_token(kubeconfig: Path, *, namespace: str) -> str:
    """Return a token of a service account with the role `edit` in `namespace` alone, for `USER_SECONDS`."""
    return asyncio.run(_tenant_token(kubeconfig, namespace=namespace))


async def _tenant_token(kubeconfig: Path, *, namespace: str) -> str:
    subject = {"kind": "ServiceAccount", "name": USER, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    async with Client(load_connection(kubeconfig)) as client:
        with suppress(AlreadyExists):
            await client.create(
                SERVICEACCOUNTS, body={"metadata": {"name": USER}}, as_type=dict[str, Any], namespace=namespace
            )
        binding = {"metadata": {"name": USER}, "roleRef": reference, "subjects": [subject]}
        with suppress(AlreadyExists):
            await client.create(ROLEBINDINGS, body=binding, as_type=dict[str, Any], namespace=namespace)
        return await token_of(client, account=USER, namespace=namespace, seconds=USER_SECONDS)


async def token_of(client: Client, *, account: str, namespace: str, seconds: int) -> str:
    """Return a token of a service account that is valid for `seconds`, 600 at least."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds},
    }
    answer = await client.create(
        SERVICEACCOUNTS, body=request, as_type=dict[str, Any], namespace=namespace, name=account, subresource="token"
    )
    return str(answer["status"]["token"])


async def _create_nodes(kubeconfig: Path, *, manifests: Sequence[Manifest]) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)
    async with Client(load_connection(kubeconfig)) as client:

        async def create(manifest: Manifest) -> None:
            async with gate:
                try:
                    await client.create(NODES, body=manifest, as_type=dict[str, Any])
                except AlreadyExists:
                    return

        async with asyncio.TaskGroup() as group:
            for manifest in manifests:
                group.create_task(create(manifest))
        await _until_ready(client, count=len(manifests))


async def _until_ready(client: Client, *, count: int) -> None:
    limit = _READY_SECONDS + count / _READY_PER_SECOND
    try:
        async with asyncio.timeout(limit):
            while True:
                began = time.monotonic()
                if await _ready(client) >= count:
                    return
                # A list of thousands of nodes keeps the API server busy that the nodes need to become Ready.
                await asyncio.sleep(max(_POLL_SECONDS, _POLL_PAUSE * (time.monotonic() - began)))
    except TimeoutError as error:
        raise SandboxError(f"Not all of {count} simulated nodes are Ready after {limit:g} s.") from error


async def _ready(client: Client) -> int:
    nodes = await client.list(NODES, as_type=Node)
    return sum(
        any(each.type == "Ready" and each.status == "True" for each in node.status.conditions) for node in nodes.items
    )


async def _tokens(kubeconfig: Path, *, accounts: Sequence[str], namespace: str) -> dict[str, str]:
    found = {}
    async with Client(load_connection(kubeconfig)) as client:
        for account in accounts:
            found[account] = await token_of(client, account=account, namespace=namespace, seconds=TOKEN_SECONDS)
    return found


def _write_kubeconfig(
    path: Path,
    *,
    context: str,
    ca: Path,
    port: int,
    user: dict[str, str],
    namespace: str = "default",
    of_context: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    server = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": _base64(ca)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": server}],
        "users": [{"name": context, "user": user}],
        "contexts": [
            {"name": context, "context": {"cluster": context, "user": context, "namespace": namespace, **of_context}}
        ],
        "current-context": context,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()

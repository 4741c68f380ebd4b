"""Every way to log in, tried on the real API server: it says itself who it takes the client for."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.api.resources import SERVICEACCOUNTS, Resource
from dovetail.kube.auth.connection import Connection, load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeconfigError, KubeError, Unauthorized, Unreachable
from dovetail.kube.transport import MakeSession, aiohttp_session, brief_session
from dovetail_sandbox.cluster import Cluster
from tests.cluster.test_chart import run
from tests.core.kube.auth.kubeconfigs import make_kubeconfig, make_plugin

pytestmark = pytest.mark.cluster

REVIEWS = Resource(
    group="authentication.k8s.io", plural="selfsubjectreviews", kind="SelfSubjectReview", namespaced=False
)


@pytest.fixture(scope="module")
def admin(sandbox: Cluster) -> dict[str, dict[str, Any]]:
    """The administrator's cluster and user, as the sandbox's kubeconfig has them: all of it data."""
    document = yaml.safe_load(sandbox.kubeconfig.read_text())
    return {"cluster": document["clusters"][0]["cluster"], "user": document["users"][0]["user"]}


@pytest.fixture
async def token(client: Client, namespace: str) -> str:
    """A token of the namespace's default account."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = await client.create(
        SERVICEACCOUNTS, body=request, as_type=dict[str, Any], namespace=namespace, name="default", subresource="token"
    )
    return str(answer["status"]["token"])


SESSIONS = (aiohttp_session, brief_session)


async def who(connection: Connection, *, sessions: Sequence[MakeSession] = SESSIONS) -> str:
    """The name that the API server knows the client by, whichever way the client speaks HTTP."""
    body, names = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind}, set()
    for make_session in sessions:
        async with Client(connection, deadline_seconds=10, make_session=make_session) as client:
            review = await client.create(REVIEWS, body=body, as_type=dict[str, Any])
        names.add(str(review["status"]["userInfo"]["username"]))
    (name,) = names
    return name


async def is_refused(connection: Connection, error: type[KubeError], *, match: str | None = None) -> None:
    """The API server does not know the client, or the client the API server."""
    for make_session in SESSIONS:
        with pytest.raises(error, match=match):
            await who(connection, sessions=[make_session])


def whoami(*options: str) -> str:
    """The name that kubectl is known by."""
    done = run("kubectl", *options, "auth", "whoami", "-o", "json")
    return str(json.loads(done.stdout)["status"]["userInfo"]["username"])


async def test_certificates_as_data_and_as_files_log_in(
    sandbox: Cluster, admin: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    cluster, user = ({key: value for key, value in admin[kind].items() if "data" not in key} for kind in admin)
    for entry, kind in ((cluster, "cluster"), (user, "user")):
        for key, value in admin[kind].items():
            if key.endswith("-data"):
                field = key.removesuffix("-data")
                (tmp_path / field).write_bytes(base64.b64decode(value))
                entry[field] = field
    files = load_connection(make_kubeconfig(tmp_path / "k", user=user, **cluster))
    assert (
        await who(files)
        == await who(load_connection(sandbox.kubeconfig))
        == whoami("--kubeconfig", str(sandbox.kubeconfig))
    )


async def test_several_files_log_in_as_kubectl_does(
    sandbox: Cluster, admin: dict[str, dict[str, Any]], tmp_path: Path, token: str, namespace: str
) -> None:
    account = make_kubeconfig(tmp_path / "account", name="account", user={"token": token}, **admin["cluster"])
    listed = f"{tmp_path / 'missing'}:{account}:{sandbox.kubeconfig}"
    for context in ("account", f"dovetail-{sandbox.name}", None):
        ours = load_connection(context=context, environ={"KUBECONFIG": listed})
        words = [f"--context={context}"] if context else []
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", listed)
            assert await who(ours) == await asyncio.to_thread(whoami, *words)
    assert await who(ours) == f"system:serviceaccount:{namespace}:default"


async def test_a_pods_service_account_logs_in(
    admin: dict[str, dict[str, Any]], tmp_path: Path, token: str, namespace: str
) -> None:
    host, port = admin["cluster"]["server"].removeprefix("https://").split(":")
    (tmp_path / "token").write_text(token)
    (tmp_path / "namespace").write_text(namespace)
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(admin["cluster"]["certificate-authority-data"]))
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": "/nowhere"}
    connection = load_connection(environ=environ, service_account=tmp_path)
    assert (await who(connection), connection.namespace) == (f"system:serviceaccount:{namespace}:default", namespace)


async def test_a_plugin_is_asked_again_when_the_api_server_rejects_its_token(
    admin: dict[str, dict[str, Any]], tmp_path: Path, token: str, namespace: str
) -> None:
    answer = json.dumps(
        {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "TOKEN"}}
    )
    script = (
        f"[ -e {tmp_path}/used ] && T={token} || T=expired; touch {tmp_path}/used; echo '{answer}' | sed s/TOKEN/$T/"
    )
    connection = load_connection(make_plugin(tmp_path / "k", args=["-c", script], cluster=admin["cluster"]))
    assert await who(connection) == f"system:serviceaccount:{namespace}:default"


async def test_a_plugin_that_gives_a_certificate_logs_in(
    sandbox: Cluster, admin: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    names = {"clientCertificateData": "client-certificate-data", "clientKeyData": "client-key-data"}
    status = {key: base64.b64decode(admin["user"][name]).decode() for key, name in names.items()}
    (tmp_path / "answer").write_text(
        json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})
    )
    connection = load_connection(
        make_plugin(tmp_path / "k", args=["-c", f"cat {tmp_path}/answer"], cluster=admin["cluster"])
    )
    assert await who(connection) == await who(load_connection(sandbox.kubeconfig))


async def test_a_plugin_whose_every_token_is_rejected_is_unauthorized(
    admin: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    answer = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "no"}}'
    connection = load_connection(make_plugin(tmp_path / "k", args=["-c", f"echo '{answer}'"], cluster=admin["cluster"]))
    await is_refused(connection, Unauthorized)


async def test_the_name_in_the_servers_certificate_is_checked(
    admin: dict[str, dict[str, Any]], tmp_path: Path, token: str, namespace: str
) -> None:
    good = {**admin["cluster"], "tls-server-name": "localhost"}
    assert await who(load_connection(make_kubeconfig(tmp_path / "good", user={"token": token}, **good))) == (
        f"system:serviceaccount:{namespace}:default"
    )
    wrong = {**admin["cluster"], "tls-server-name": "elsewhere.example"}
    await is_refused(
        load_connection(make_kubeconfig(tmp_path / "wrong", user={"token": token}, **wrong)),
        Unreachable,
        match=r"its certificate is not trusted.*elsewhere\.example",
    )


async def test_an_unknown_authority_is_refused_unless_the_cluster_says_insecure(
    admin: dict[str, dict[str, Any]], tmp_path: Path, token: str, namespace: str
) -> None:
    server = {"server": admin["cluster"]["server"]}
    await is_refused(
        load_connection(make_kubeconfig(tmp_path / "k", user={"token": token}, **server)),
        Unreachable,
        match="its certificate is not trusted",
    )
    insecure = {**server, "insecure-skip-tls-verify": True}
    assert await who(load_connection(make_kubeconfig(tmp_path / "k", user={"token": token}, **insecure))) == (
        f"system:serviceaccount:{namespace}:default"
    )


@asynccontextmanager
async def proxy(asked: list[str]) -> AsyncIterator[str]:
    """A proxy that tunnels (CONNECT), and its address; `asked` gets where to."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split()[1].decode()
        asked.append(target)
        host, port = target.rsplit(":", 1)
        upstream = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pump(reader, upstream[1]), pump(upstream[0], writer))

    server = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_proxy_is_used(admin: dict[str, dict[str, Any]], tmp_path: Path, token: str, namespace: str) -> None:
    asked: list[str] = []
    async with proxy(asked) as address:
        cluster = {**admin["cluster"], "proxy-url": address}
        connection = load_connection(make_kubeconfig(tmp_path / "k", user={"token": token}, **cluster))
        assert await who(connection) == f"system:serviceaccount:{namespace}:default"
    assert set(asked) == {admin["cluster"]["server"].removeprefix("https://")}


async def test_a_wrong_context_names_those_that_there_are(sandbox: Cluster) -> None:
    with pytest.raises(KubeconfigError, match=f'no context "wrong"; contexts are dovetail-{sandbox.name}'):
        load_connection(sandbox.kubeconfig, context="wrong")

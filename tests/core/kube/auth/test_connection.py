"""Which API server a process talks to, and what its credentials are."""

import datetime as dt
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dovetail.kube.auth.connection import Connection, default_kubeconfigs, load_connection
from dovetail.kube.errors import KubeconfigError
from tests.core.kube.auth.kubeconfigs import encode, make_kubeconfig, make_plugin


def test_the_given_file_wins_over_everything(tmp_path: Path) -> None:
    given, other = make_kubeconfig(tmp_path / "a", name="given"), make_kubeconfig(tmp_path / "b", name="other")
    connection = load_connection(given, environ={"KUBECONFIG": str(other), "KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert (connection.server, connection.namespace, connection.token) == (
        "https://given:6443",
        "ns-given",
        "token-given",
    )


def test_kubeconfig_lists_files_of_which_some_may_be_missing(tmp_path: Path) -> None:
    first, second = make_kubeconfig(tmp_path / "1", name="a"), make_kubeconfig(tmp_path / "2", name="b")
    environ = {"KUBECONFIG": f"{first}:{tmp_path}/missing::{second}"}
    assert load_connection(environ=environ).server == "https://a:6443"
    assert load_connection(context="b", environ=environ).server == "https://b:6443"


def make_service_account(path: Path) -> Path:
    path.mkdir()
    (path / "token").write_text("first\n")
    (path / "namespace").write_text("dovetail-system")
    (path / "ca.crt").write_text("PEM")
    return path


def in_pod(account: Path, **environ: str) -> Connection:
    found = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "HOME": "/nowhere", **environ}
    return load_connection(environ=found, service_account=account)


def test_a_pod_uses_its_service_account_and_reads_the_rotated_token(tmp_path: Path) -> None:
    account = make_service_account(tmp_path / "sa")
    connection = in_pod(account, KUBERNETES_SERVICE_HOST="fd00::1")
    assert (connection.server, connection.namespace, connection.ca) == (
        "https://[fd00::1]:443",
        "dovetail-system",
        "PEM",
    )
    assert connection.read_token() == "first"
    (account / "token").write_text("second\n")
    assert connection.read_token() == "second"


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            lambda account: (account / "ca.crt").unlink(),
            "ca.crt: the service account's CA cannot be read: No such file",
        ),
        (lambda account: (account / "token").write_text("\n"), "token: the token is empty"),
        (lambda account: (account / "token").write_text("caf\u00e9"), "token: the token is not ASCII text"),
    ],
)
def test_a_service_account_that_cannot_be_used_is_one_sentence(tmp_path: Path, damage: Any, sentence: str) -> None:
    account = make_service_account(tmp_path / "sa")
    damage(account)
    with pytest.raises(KubeconfigError, match=sentence):
        in_pod(account).read_token()


def test_a_kubeconfig_that_a_pod_is_given_comes_before_its_service_account(tmp_path: Path) -> None:
    """As with kubectl: who sets the variable means another cluster."""
    path = make_kubeconfig(tmp_path / "k", name="other")
    assert in_pod(make_service_account(tmp_path / "sa"), KUBECONFIG=str(path)).server == "https://other:6443"


def test_a_named_context_means_a_kubeconfig_even_in_a_pod(tmp_path: Path) -> None:
    make_kubeconfig(default_kubeconfigs({"HOME": str(tmp_path)})[1], name="users")
    environ = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    found = load_connection(context="users", environ=environ, service_account=make_service_account(tmp_path / "sa"))
    assert found.server == "https://users:6443"


def test_the_default_sandbox_comes_before_the_users_file(tmp_path: Path) -> None:
    sandbox, users = default_kubeconfigs({"HOME": str(tmp_path)})
    make_kubeconfig(users, name="users")
    assert load_connection(environ={"HOME": str(tmp_path)}).server == "https://users:6443"
    make_kubeconfig(sandbox, name="sandbox")
    assert load_connection(environ={"HOME": str(tmp_path)}).server == "https://sandbox:6443"


def test_the_state_folder_may_be_elsewhere(tmp_path: Path) -> None:
    environ = {"HOME": "/nowhere", "XDG_STATE_HOME": str(tmp_path)}
    assert default_kubeconfigs(environ)[0] == tmp_path / "dovetail/sandboxes/default/kubeconfig"


def test_without_any_configuration_the_sentence_says_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(
        KubeconfigError, match=r"\.kube/config: no such file, and neither \$KUBECONFIG, a pod's service"
    ):
        load_connection(environ={"HOME": str(tmp_path)})


def test_certificates_are_data_or_files_next_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "client.crt").write_text("CERT")
    user = {"client-certificate": "client.crt", "client-key-data": encode("KEY")}
    connection = load_connection(
        make_kubeconfig(tmp_path / "k", user=user, **{"certificate-authority-data": encode("CA")})
    )
    assert (connection.ca, connection.client_certificate, connection.client_key) == ("CA", "CERT", "KEY")


def test_what_a_cluster_says_about_tls_and_proxy_is_kept(tmp_path: Path) -> None:
    said = {"insecure-skip-tls-verify": True, "tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
    connection = load_connection(make_kubeconfig(tmp_path / "k", **said))
    assert (connection.insecure, connection.tls_server_name, connection.proxy_url) == (
        True,
        "kubernetes",
        "http://proxy:3128",
    )


def test_a_token_file_comes_before_a_token_and_is_read_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    connection = load_connection(make_kubeconfig(tmp_path / "k", user={"token": "old", "tokenFile": "token"}))
    assert (connection.changing_token, connection.read_token()) == (True, "one")
    (tmp_path / "token").write_text("two\n")
    assert connection.read_token() == "two"


def test_a_token_comes_before_a_login(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "missing"}
    connection = load_connection(make_kubeconfig(tmp_path / "k", user={"token": "t", "exec": plugin}))
    assert connection.read_token() == "t"


def test_a_context_without_a_user_sends_no_credentials(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_text(
        "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://x/'}}]"
    )
    connection = load_connection(path)
    assert (connection.server, connection.namespace, connection.read_token()) == ("https://x", "default", None)


def test_an_insecure_connection_checks_no_certificate() -> None:
    context = Connection(server="https://x", insecure=True).ssl_context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE


def test_plain_http_needs_no_tls() -> None:
    assert Connection(server="http://x").ssl_context() is None


def test_secrets_are_not_printed() -> None:
    proxy = "http://me:hidden@proxy:3128"
    connection = Connection(server="https://x", token="hidden", client_key="hidden", ca="hidden", proxy_url=proxy)
    assert "hidden" not in repr(connection)


@pytest.mark.parametrize("wrong", [{"ca": "no PEM"}, {"client_certificate": "no PEM", "client_key": "no PEM"}])
def test_a_certificate_that_is_none_is_one_sentence(wrong: dict[str, str]) -> None:
    with pytest.raises(KubeconfigError, match="https://x: its certificates cannot be used"):
        Connection(server="https://x", **wrong).ssl_context()  # type: ignore[arg-type]  # texts alone


def test_a_token_file_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="gone: the token cannot be read: No such file"):
        Connection(server="https://x", token_file=tmp_path / "gone").read_token()


def imported(code: str, *, environ: dict[str, str] | None = None) -> str:
    """Which of the large packages a fresh interpreter has imported after `code`."""
    large = ("kubernetes", "pydantic", "numpy", "prometheus_client")
    code = f"import sys; {code}; print([name for name in {large} if name in sys.modules])"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ
    ).stdout.strip()


def test_connecting_imports_neither_the_official_client_nor_pydantic() -> None:
    code = "import dovetail.kube.client, dovetail.kube.auth.connection, dovetail.config.errors"
    assert imported(code) == "[]"


def test_only_a_login_imports_the_official_client(tmp_path: Path) -> None:
    load = "from dovetail.kube.auth.connection import load_connection; load_connection()"
    static, plugin = make_kubeconfig(tmp_path / "a"), make_plugin(tmp_path / "b", args=["-c", TOKEN])
    assert imported(load, environ={"KUBECONFIG": f"{static}:{plugin}"}) == "[]"
    assert "kubernetes" in imported(load, environ={"KUBECONFIG": str(plugin), "PATH": "/usr/bin:/bin"})


TOKEN = """echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}'"""


def test_a_context_may_name_the_folder_of_its_local_node(tmp_path: Path) -> None:
    path = make_kubeconfig(tmp_path / "config")
    assert load_connection(path).local_data is None
    document = yaml.safe_load(path.read_text())
    extension = {"name": "dovetail.dev/local-node", "extension": {"data": "/home/ada/.local/share/gflow"}}
    document["contexts"][0]["context"]["extensions"] = [{"name": "other", "extension": {"data": 3}}, extension]
    path.write_text(yaml.safe_dump(document))
    assert load_connection(path).local_data == Path("/home/ada/.local/share/gflow")


def test_a_context_may_say_that_all_nodes_are_simulated(tmp_path: Path) -> None:
    path = make_kubeconfig(tmp_path / "config")
    assert not load_connection(path).simulated
    document = yaml.safe_load(path.read_text())
    document["contexts"][0]["context"]["extensions"] = [{"name": "dovetail.dev/simulated-nodes", "extension": {}}]
    path.write_text(yaml.safe_dump(document))
    assert load_connection(path).simulated


def make_old_pair() -> tuple[str, str]:
    """An authority and a server's certificate with its key, as PEM, neither of which names the authority's key."""
    now, keys = dt.datetime.now(dt.UTC), [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("old CA", "localhost")]
    made = []
    for at, extension in enumerate(
        (x509.BasicConstraints(ca=True, path_length=None), x509.SubjectAlternativeName([x509.DNSName("localhost")]))
    ):
        builder = x509.CertificateBuilder(names[0], names[at], keys[at].public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now).not_valid_after(now + dt.timedelta(days=1))
        signed = builder.add_extension(extension, critical=at == 0).sign(keys[0], hashes.SHA256())
        made.append(signed.public_bytes(serialization.Encoding.PEM).decode())
    private = keys[1].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made[0], made[1] + private.decode()


def handshake(client: ssl.SSLContext, *, pair: Path) -> None:
    """Shake hands with a server of that pair, in memory. Raises `ssl.SSLError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for side in sides:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert sides[0].version() is not None


def test_a_server_whose_certificate_names_no_key_of_its_authority_is_trusted_as_kubectl_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, pair = make_old_pair()
    (tmp_path / "pair.pem").write_text(pair)
    strict = ssl.create_default_context(cadata=authority)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    with pytest.raises(ssl.SSLCertVerificationError, match="Missing Authority Key Identifier"):
        handshake(strict, pair=tmp_path / "pair.pem")

    monkeypatch.setattr(ssl, "create_default_context", lambda **_: strict)
    context = Connection(server="https://localhost", ca=authority).ssl_context()
    assert context is not None
    handshake(context, pair=tmp_path / "pair.pem")

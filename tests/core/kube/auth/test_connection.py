import base64
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail import kube
from dovetail.kube.auth.connection import Connection, default_kubeconfigs, load_connection
from dovetail.kube.errors import KubeconfigError


def make_kubeconfig(path: Path, *, name: str = "main", user: Any = None, **cluster: Any) -> Path:
    """A kubeconfig with one context, cluster and user, all of one name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443", **cluster}}],
        "users": [{"name": name, "user": {"token": f"token-{name}"} if user is None else user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def load(path: Path, context: str | None = None) -> Connection:
    return load_connection(path, context, environ={})


def test_the_given_file_wins_over_everything(tmp_path: Path) -> None:
    given, other = make_kubeconfig(tmp_path / "a", name="given"), make_kubeconfig(tmp_path / "b", name="other")
    connection = load_connection(given, environ={"KUBECONFIG": str(other), "KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert (connection.server, connection.namespace, connection.token) == (
        "https://given:6443",
        "ns-given",
        "token-given",
    )


def test_listed_files_are_merged_and_the_first_leads(tmp_path: Path) -> None:
    first, second = make_kubeconfig(tmp_path / "1", name="a"), make_kubeconfig(tmp_path / "2", name="b")
    third = make_kubeconfig(tmp_path / "3", name="a", server="https://hidden")
    environ = {"KUBECONFIG": f"{first}:{tmp_path}/missing:{second}:{third}"}
    assert load_connection(environ=environ).server == "https://a:6443"
    assert load_connection(context="b", environ=environ).server == "https://b:6443"


def make_service_account(path: Path) -> Path:
    path.mkdir()
    (path / "token").write_text("first\n")
    (path / "namespace").write_text("dovetail-system")
    (path / "ca.crt").write_text("PEM")
    return path


def test_in_a_pod_the_service_account_is_used_and_its_token_read_afresh(tmp_path: Path) -> None:
    account = make_service_account(tmp_path / "sa")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "HOME": str(tmp_path)}
    connection = load_connection(environ=environ, service_account=account)
    assert (connection.server, connection.namespace) == ("https://[fd00::1]:443", "dovetail-system")
    assert connection.read_token() == "first"
    (account / "token").write_text("second\n")
    assert connection.read_token() == "second"


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
    with pytest.raises(KubeconfigError, match=r"\.kube/config: no such file, and neither \$KUBECONFIG nor a running"):
        load_connection(environ={"HOME": str(tmp_path)})


def test_certificates_stand_in_the_file_or_beside_it(tmp_path: Path) -> None:
    (tmp_path / "client.crt").write_text("CERT")
    user = {"client-certificate": "client.crt", "client-key-data": encode("KEY")}
    path = make_kubeconfig(tmp_path / "k", user=user, **{"certificate-authority-data": encode("CA")})
    connection = load(path)
    assert (connection.ca, connection.client_certificate, connection.client_key) == ("CA", "CERT", "KEY")


def test_what_a_cluster_says_about_tls_and_proxy_is_kept(tmp_path: Path) -> None:
    said = {"insecure-skip-tls-verify": True, "tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
    connection = load(make_kubeconfig(tmp_path / "k", **said))
    assert (connection.insecure, connection.tls_server_name, connection.proxy_url) == (
        True,
        "kubernetes",
        "http://proxy:3128",
    )


def test_an_insecure_connection_checks_no_certificate() -> None:
    context = Connection(server="https://x", insecure=True).ssl_context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE


def test_plain_http_needs_no_tls() -> None:
    assert Connection(server="http://x").ssl_context() is None


def test_secrets_are_not_printed(tmp_path: Path) -> None:
    connection = Connection(server="https://x", token="hidden", client_key="hidden", ca="hidden")
    assert "hidden" not in repr(connection)


def test_a_ca_that_is_none_is_one_sentence() -> None:
    with pytest.raises(KubeconfigError, match="https://x: its certificates cannot be used"):
        Connection(server="https://x", ca="no PEM").ssl_context()


def test_a_token_file_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="gone: the token cannot be read: No such file"):
        Connection(server="https://x", token_file=tmp_path / "gone").read_token()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not YAML: while parsing"),
        ("clusters: 3", r"is not a kubeconfig: Expected `array \| null`, got `int` - at `\$.clusters`"),
        ("contexts: [{name: a}]", "no current-context is set; contexts are a"),
        ("current-context: b\ncontexts: [{name: a}]", 'no context "b"; contexts are a'),
        ("", "no current-context is set; contexts are none"),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]",
            'context "a" names the unknown cluster "c"',
        ),
        (
            (
                "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
                "clusters: [{name: c, cluster: {server: 'https://x'}}]"
            ),
            'context "a" names the unknown user "u"',
        ),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c}]",
            'cluster "c" has the server ""; it must begin with https:// or http://',
        ),
    ],
)
def test_a_wrong_file_is_one_sentence_with_the_field(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match=f"{path}: {sentence}"):
        load(path)


@pytest.mark.parametrize(
    ("user", "sentence"),
    [
        ({"client-certificate-data": "%%"}, "client-certificate-data is not a PEM text in base64"),
        ({"client-key": "missing.key"}, "missing.key: client-key of .* cannot be read: No such file"),
        ({"username": "me", "password": "x"}, 'user "main" logs in by username'),
        ({"token": "t", "as": "root"}, 'user "main" uses "as"'),
    ],
)
def test_wrong_credentials_are_one_sentence(tmp_path: Path, user: dict[str, str], sentence: str) -> None:
    with pytest.raises(KubeconfigError, match=sentence):
        load(make_kubeconfig(tmp_path / "k", user=user))


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="no such kubeconfig"):
        load(tmp_path / "missing")


def make_login(tmp_path: Path, *, script: str) -> Path:
    """A kubeconfig whose user runs `script` to log in."""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", script]}
    return make_kubeconfig(tmp_path / "k", user={"exec": {**plugin, "interactiveMode": "Never"}})


def test_a_login_program_gives_the_token(tmp_path: Path) -> None:
    credential = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t1"}}'
    connection = load(make_login(tmp_path, script=f"echo '{credential}'"))
    assert (connection.read_token(), connection.namespace) == ("t1", "ns-main")


def test_a_login_program_that_fails_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match='the login of context "main"'):
        load(make_login(tmp_path, script="exit 3"))


def test_a_login_without_the_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.delitem(sys.modules, "dovetail.kube.auth.exec_login", raising=False)
    monkeypatch.delattr(kube, "login", raising=False)
    with pytest.raises(KubeconfigError, match=r'pip install "dovetail-gpu\[login\]"'):
        load(make_login(tmp_path, script="exit 0"))


def test_connecting_imports_neither_the_official_client_nor_pydantic() -> None:
    code = (
        "import sys, dovetail.kube.client, dovetail.kube.auth.connection, dovetail.config.errors; "
        "print([name for name in ('kubernetes', 'pydantic', 'numpy', 'prometheus_client') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

"""Logins by real exec plugins and by an identity provider that speaks TLS."""

import base64
import datetime as dt
import json
import os
import pty
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dovetail.kube import auth
from dovetail.kube.auth.connection import Connection, load_connection
from dovetail.kube.errors import KubeconfigError
from tests.core.kube.auth.kubeconfigs import make_kubeconfig, make_plugin

API = "client.authentication.k8s.io/v1"


def credential(**status: str) -> str:
    """What a plugin prints."""
    return json.dumps({"apiVersion": API, "kind": "ExecCredential", "status": status})


def prints(text: str) -> list[str]:
    """The arguments of a shell that prints `text`."""
    return ["-c", f"cat <<'END'\n{text}\nEND"]


def counts(path: Path, *, seconds: float) -> list[str]:
    """The arguments of a shell that gives t1, t2 ..., each of which expires in so many seconds."""
    expires = dt.datetime.fromtimestamp(time.time() + seconds, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = credential(token="tNUMBER", expirationTimestamp=expires)
    return ["-c", f"echo >> {path}; echo '{text}' | sed s/NUMBER/$(wc -l < {path})/"]


def load(path: Path) -> Connection:
    return load_connection(path, environ={})


def test_a_plugin_gives_the_token(tmp_path: Path) -> None:
    connection = load(make_plugin(tmp_path / "k", args=prints(credential(token="t1"))))
    assert (connection.read_token(), connection.namespace, connection.changing_token) == ("t1", "ns-main", True)


def test_a_plugin_gives_a_certificate_of_which_no_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    text = credential(clientCertificateData="CERT", clientKeyData="KEY")
    connection = load(make_plugin(tmp_path / "k", args=prints(text)))
    assert (connection.client_certificate, connection.client_key, connection.read_token()) == ("CERT", "KEY", None)
    assert not list((tmp_path / "tmp").iterdir())


def test_a_token_that_is_good_for_long_is_kept(tmp_path: Path) -> None:
    connection = load(make_plugin(tmp_path / "k", args=counts(tmp_path / "count", seconds=3600)))
    assert [connection.read_token() for _ in range(3)] == ["t1", "t1", "t1"]


def test_an_expired_token_is_renewed(tmp_path: Path) -> None:
    connection = load(make_plugin(tmp_path / "k", args=counts(tmp_path / "count", seconds=-1)))
    assert [connection.read_token() for _ in range(2)] == ["t2", "t3"]


def test_a_rejected_token_is_renewed_although_it_says_that_it_is_good(tmp_path: Path) -> None:
    connection = load(make_plugin(tmp_path / "k", args=counts(tmp_path / "count", seconds=3600)))
    assert [connection.read_token(), connection.read_token(renew=True), connection.read_token()] == ["t1", "t2", "t2"]


def test_a_renewal_ahead_of_time_may_fail_but_not_one_after_a_rejection(tmp_path: Path) -> None:
    script, good = tmp_path / "plugin", counts(tmp_path / "count", seconds=60)[1]
    connection = load(make_plugin(tmp_path / "k", args=[str(make_script(script, good))]))
    make_script(script, "echo the network is away >&2; exit 1")
    assert connection.read_token() == "t1"
    with pytest.raises(KubeconfigError, match=r'"/bin/sh", which failed: process returned 1\. the network is away'):
        connection.read_token(renew=True)


def test_the_plugin_gets_its_variables_and_the_cluster(tmp_path: Path) -> None:
    keep = tmp_path / "seen"
    script = f'echo "$KUBERNETES_EXEC_INFO" > {keep}; echo "$WHO" >> {keep}; {prints(credential(token="t"))[1]}'
    plugin = {"env": [{"name": "WHO", "value": "me"}], "provideClusterInfo": True}
    load(make_plugin(tmp_path / "k", args=["-c", script], **plugin))
    info, who = keep.read_text().splitlines()
    assert (json.loads(info)["spec"]["cluster"]["server"], who) == ("https://main:6443", "me")


def test_a_relative_command_starts_at_the_kubeconfigs_folder(tmp_path: Path) -> None:
    script = make_script(tmp_path / "bin" / "plugin", f"#!/bin/sh\n{prints(credential(token='near'))[1]}")
    script.chmod(0o755)
    assert load(make_plugin(tmp_path / "k", command="./bin/plugin")).read_token() == "near"


def test_a_login_of_merged_files_is_that_of_the_chosen_context(tmp_path: Path) -> None:
    plugin = make_plugin(tmp_path / "k", args=prints(credential(token="plugin")))
    other = make_kubeconfig(tmp_path / "other", name="other")
    (tmp_path / "empty").touch()
    environ = {"KUBECONFIG": f"{tmp_path / 'empty'}:{plugin}:{tmp_path / 'missing'}:{other}"}
    assert load_connection(environ=environ).read_token() == "plugin"


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo please log in >&2; exit 3", "process returned 3. please log in"),
        ("exit 3", "process returned 3"),
        ("echo no JSON", "failed to decode process output: "),
        ("echo '{}'", "malformed response. missing key 'apiVersion'"),
        (prints(credential())[1], "missing token or clientCertificateData field in plugin output"),
        (prints(credential(token="t").replace("/v1", "/v9"))[1], "plugin api version client.authentication.k8s.io/v9"),
        (prints(credential(clientCertificateData="CERT"))[1], "missing clientKeyData field in plugin output"),
    ],
)
def test_a_plugin_that_fails_is_one_sentence(
    tmp_path: Path, script: str, sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = make_plugin(tmp_path / "k", args=["-c", script])
    with pytest.raises(KubeconfigError) as caught:
        load(path)
    assert str(caught.value).startswith(
        f'{path}: user "main" logs in by the program "/bin/sh", which failed: {sentence}'
    )
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_plugin_that_is_not_installed_comes_with_its_hint(tmp_path: Path) -> None:
    path = make_plugin(tmp_path / "k", command="no-such-plugin", installHint="Install it with:\n  brew\n")
    with pytest.raises(
        KubeconfigError, match=r"No such file or directory: 'no-such-plugin' \(Install it with: brew\)$"
    ):
        load(path)


@pytest.mark.parametrize("lacks", ["command", "apiVersion"])
def test_a_plugin_without_a_field_names_the_field(tmp_path: Path, lacks: str) -> None:
    plugin = {"command": "/bin/sh", "apiVersion": API}
    del plugin[lacks]
    with pytest.raises(KubeconfigError, match=f"missing key '{lacks}'"):
        load(make_kubeconfig(tmp_path / "k", user={"exec": plugin}))


def test_a_plugin_that_fails_at_a_terminal_says_why_there(tmp_path: Path) -> None:
    # The official client shows the plugin's own words, and then fails over having none.
    path = make_plugin(tmp_path / "k", args=["-c", "echo please log in >&2; exit 3"])
    code = "import sys; from pathlib import Path; from dovetail.kube.auth.connection import load_connection; "
    code += "load_connection(Path(sys.argv[1]))"
    shown = bytearray()

    def read(descriptor: int) -> bytes:
        shown.extend(read := os.read(descriptor, 4096))
        return read

    pty.spawn([sys.executable, "-c", code, str(path)], read)
    assert b"please log in\r\n" in shown
    assert b'logs in by the program "/bin/sh", which failed: it ended with an error\r\n' in shown
    assert b"ERROR:root" not in shown


def test_a_login_without_the_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    monkeypatch.delitem(sys.modules, "dovetail.kube.auth.exec_login", raising=False)
    monkeypatch.delattr(auth, "exec_login", raising=False)
    with pytest.raises(KubeconfigError, match=r'user "main" must log in.*pip install "dovetail-gpu\[login\]"'):
        load(make_plugin(tmp_path / "k"))


class Provider:
    """An identity provider: discovery and a token endpoint, over TLS with an authority of its own."""

    def __init__(self, folder: Path) -> None:
        self.authority = folder / "authority.pem"
        self.refreshed: list[str] = []
        self.discovered = 0
        self.status = 200
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.socket = _tls(self.authority).wrap_socket(server.socket, server_side=True)
        self.server = server
        self.url = f"https://localhost:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.discovered += 1
                self._answer(200, {"token_endpoint": f"{provider.url}/token"})

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                provider.refreshed += form["refresh_token"]
                if provider.status != 200:
                    return self._answer(provider.status, {"error": "invalid_grant", "error_description": "used before"})
                token = {"id_token": jwt(seconds=3600), "access_token": "a", "token_type": "Bearer"}
                return self._answer(200, {**token, "refresh_token": f"r{len(provider.refreshed) + 1}"})

            def _answer(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _tls(authority: Path) -> ssl.SSLContext:
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]),
    )
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(minutes=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = certificate.public_bytes(serialization.Encoding.PEM)
    authority.write_bytes(text)
    private = authority.with_suffix(".key")
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, private)
    return context


def jwt(*, seconds: float) -> str:
    """A token that expires then. Nothing here checks its signature."""
    parts: list[dict[str, Any]] = [{"alg": "none"}, {"exp": int(time.time() + seconds)}, {}]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    made = Provider(tmp_path)
    yield made
    made.server.shutdown()
    made.server.server_close()


def make_oidc(path: Path, *, provider: Provider, id_token: str, **config: str) -> Path:
    made = {"idp-issuer-url": provider.url, "client-id": "kubernetes", "id-token": id_token, "refresh-token": "r1"}
    return make_kubeconfig(path, user={"auth-provider": {"name": "oidc", "config": {**made, **config}}})


def saved(path: Path) -> dict[str, str]:
    """The provider's fields as the file has them."""
    found: dict[str, str] = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    return found


def test_an_identity_token_that_is_good_is_sent_without_asking_the_provider(tmp_path: Path, provider: Provider) -> None:
    token = jwt(seconds=3600)
    path = make_oidc(tmp_path / "k", provider=provider, id_token=token)
    before = path.read_text()
    assert (load(path).read_token(), provider.discovered, path.read_text()) == (token, 0, before)


def test_an_expired_identity_token_is_renewed_and_saved(tmp_path: Path, provider: Provider) -> None:
    authority = {"idp-certificate-authority": str(provider.authority)}
    path = make_oidc(tmp_path / "k", provider=provider, id_token=jwt(seconds=-1), **authority)
    token = load(path).read_token()
    assert provider.refreshed == ["r1"]
    assert saved(path) == {
        **authority,
        "idp-issuer-url": provider.url,
        "client-id": "kubernetes",
        "id-token": token,
        "refresh-token": "r2",
    }


def test_the_provider_must_have_a_certificate_that_the_system_trusts(
    tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_oidc(tmp_path / "k", provider=provider, id_token=jwt(seconds=-1))
    with pytest.raises(
        KubeconfigError, match=r'user "main" logs in by the identity provider, which failed.*CERTIFICATE'
    ):
        load(path)
    assert (provider.discovered, provider.refreshed) == (0, [])
    monkeypatch.setenv("SSL_CERT_FILE", str(provider.authority))
    load(path)
    assert provider.refreshed == ["r1"]
    assert not {"idp-certificate-authority", "client-secret"} & saved(path).keys()


def test_a_rejected_identity_token_is_renewed_from_what_the_file_says_now(tmp_path: Path, provider: Provider) -> None:
    authority = {"idp-certificate-authority": str(provider.authority)}
    path = make_oidc(tmp_path / "k", provider=provider, id_token=jwt(seconds=3600), **authority)
    connection = load(path)
    newer = jwt(seconds=7200)
    make_oidc(path, provider=provider, id_token=newer, **authority)
    assert connection.read_token(renew=True) == newer


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"id-token": "no.jwt"}, "it gave neither a token nor a certificate"),
        ({"id-token": ""}, "it gave neither a token nor a certificate"),
        ({"idp-certificate-authority": "/gone.pem"}, "No such file or directory|invalid path: /gone.pem"),
    ],
)
def test_a_provider_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, provider: Provider, config: dict[str, str], sentence: str
) -> None:
    path = make_oidc(tmp_path / "k", provider=provider, id_token=jwt(seconds=-1))
    document = yaml.safe_load(path.read_text())
    document["users"][0]["user"]["auth-provider"]["config"] |= config
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(KubeconfigError, match=f"logs in by the identity provider, which failed: .*({sentence})"):
        load(path)


def test_a_refresh_token_that_was_used_before_is_one_sentence(tmp_path: Path, provider: Provider) -> None:
    provider.status = 400
    authority = {"idp-certificate-authority": str(provider.authority)}
    path = make_oidc(tmp_path / "k", provider=provider, id_token=jwt(seconds=-1), **authority)
    with pytest.raises(KubeconfigError, match=r"which failed: \(invalid_grant\) used before"):
        load(path)


def make_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path

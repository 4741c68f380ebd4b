"""Each program of the node is a user of its own, known to the sandbox's CA."""

import json
import shutil
from pathlib import Path

import pytest

from dovetail_sandbox.realnode import credentials
from dovetail_sandbox.realnode.commands import call
from dovetail_sandbox.realnode.errors import CommandError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    call(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=test-ca", "-days", 2, "-keyout", tmp_path / "ca.key", "-out", tmp_path / "ca.pem"),
    )
    return tmp_path


@pytest.fixture
def etc(ca: Path) -> Path:
    folder = ca / "etc"
    folder.mkdir()
    credentials.write(folder, ca_cert=ca / "ca.pem", ca_key=ca / "ca.key", server="https://10.213.0.1:6443")
    return folder


@pytest.mark.parametrize(
    ("program", "subject"),
    [
        ("kubelet", "O=system:nodes,CN=system:node:real-0"),
        ("kube-proxy", "CN=system:kube-proxy"),
        ("coredns", "CN=dovetail:coredns"),
    ],
)
def test_the_certificate_names_the_user_and_is_signed_by_the_sandbox(etc: Path, *, program: str, subject: str) -> None:
    certificate = etc / f"{program}.crt"
    shown = call("openssl", "x509", "-in", certificate, "-noout", "-subject", "-nameopt", "compat,sep_comma_plus")
    assert shown.strip() == f"subject={subject}"
    call("openssl", "verify", "-CAfile", etc / "ca.crt", "-purpose", "sslclient", certificate)


def test_a_private_key_is_for_its_owner_alone(etc: Path) -> None:
    assert {path.stat().st_mode & 0o777 for path in etc.glob("*.key")} == {0o600}


def test_the_kubeconfig_checks_the_api_server_by_the_name_that_its_certificate_has(etc: Path) -> None:
    cluster = json.loads((etc / "kubelet.kubeconfig").read_text())["clusters"][0]["cluster"]
    assert cluster["server"] == "https://10.213.0.1:6443"
    assert cluster["tls-server-name"] == "kubernetes.default.svc"


def test_a_ca_that_cannot_sign_is_an_error_that_names_the_command(ca: Path) -> None:
    with pytest.raises(CommandError, match=r"`openssl x509 .*` failed"):
        credentials.write(ca, ca_cert=ca / "ca.pem", ca_key=ca / "missing.key", server="https://x")

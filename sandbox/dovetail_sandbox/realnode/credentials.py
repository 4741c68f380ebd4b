"""Client certificates and kubeconfigs of the node's programs, signed by the sandbox's CA.

Each program is a user of its own. kubelet is `system:node:real-0`, which the Node authorizer and NodeRestriction
restrict to its own node and pods. kube-proxy and CoreDNS have the rights of their ClusterRoles.

A module of its own: the part of a node that needs `openssl`; `node` puts the parts together.
"""

import json
from pathlib import Path

from dovetail_sandbox.realnode.commands import call
from dovetail_sandbox.realnode.layout import INNER, NODE_NAME
from dovetail_sandbox.realnode.objects import COREDNS_USER

VALID_DAYS = 365
API_SERVER_NAME = (
    "kubernetes.default.svc"  # a name in the sandbox's serving certificate, which does not have the host's link address
)

# A program, and the subject of its certificate: O is the group, CN the user.
SUBJECTS = {
    "kubelet": f"/O=system:nodes/CN=system:node:{NODE_NAME}",
    "kube-proxy": "/CN=system:kube-proxy",
    "coredns": f"/CN={COREDNS_USER}",
}


def write(etc: Path, *, ca_cert: Path, ca_key: Path, server: str) -> None:
    """Write each program's key, certificate and kubeconfig, and the CA's certificate, to `etc`."""
    (etc / "ca.crt").write_bytes(ca_cert.read_bytes())
    for program, subject in SUBJECTS.items():
        _sign(etc, program=program, subject=subject, ca_cert=ca_cert, ca_key=ca_key)
        (etc / f"{program}.kubeconfig").write_text(json.dumps(_kubeconfig(program, server=server), indent=2))


def _sign(etc: Path, *, program: str, subject: str, ca_cert: Path, ca_key: Path) -> None:
    key, request, certificate = (etc / f"{program}.{suffix}" for suffix in ("key", "csr", "crt"))
    call(
        *("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", key, "-out", request, "-subj", subject),
    )
    key.chmod(0o600)
    extensions = etc / "client.ext"
    extensions.write_text("keyUsage=digitalSignature\nextendedKeyUsage=clientAuth\n")
    call(
        *("openssl", "x509", "-req", "-in", request, "-out", certificate, "-days", VALID_DAYS),
        *("-CA", ca_cert, "-CAkey", ca_key, "-CAcreateserial", "-CAserial", etc / "ca.srl", "-extfile", extensions),
    )


def _kubeconfig(program: str, *, server: str) -> dict[str, object]:
    cluster = {
        "server": server,
        "certificate-authority": f"{INNER}/etc/ca.crt",
        "tls-server-name": API_SERVER_NAME,
    }
    user = {
        "client-certificate": f"{INNER}/etc/{program}.crt",
        "client-key": f"{INNER}/etc/{program}.key",
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": cluster}],
        "users": [{"name": program, "user": user}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": program}}],
        "current-context": "sandbox",
    }

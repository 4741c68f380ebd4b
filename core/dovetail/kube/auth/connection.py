"""Which API server to talk to, and as whom.

`load_connection` takes the first of: the path it is given, `$KUBECONFIG` (a list of files, merged), the service account
of the pod it runs in, the default sandbox, and `~/.kube/config`. What cannot be used is a `KubeconfigError`: one
sentence that names the file, the context, cluster or user, and the field.
"""

import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from dovetail.kube.auth import kubeconfig as kubeconfigs
from dovetail.kube.auth import trust
from dovetail.kube.errors import KubeconfigError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class TokenSource(Protocol):
    """A login that gives a bearer token, or None if it gives a certificate. May block. Raises `KubeconfigError`."""

    def __call__(self, *, renew: bool) -> str | None:
        """The token to send now. `renew` says that the API server rejected the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """An API server and the credentials for it.

    `repr` shows no secret. `server` has no slash at its end. At most one of `token`, `token_file` and `token_source` is
    set: a file is read again because it rotates, a source is asked again because its tokens expire.
    """

    server: str
    namespace: str = "default"
    ca: str | None = field(default=None, repr=False)  # PEM; None: the system's authorities
    client_certificate: str | None = field(default=None, repr=False)  # PEM
    client_key: str | None = field(default=None, repr=False)  # PEM
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    token_source: TokenSource | None = field(default=None, repr=False)
    tls_server_name: str | None = None  # the name in the server's certificate, if it is not the host of `server`
    insecure: bool = False
    proxy_url: str | None = field(default=None, repr=False)
    simulated: bool = False  # whether all nodes of the cluster are simulated, as in a sandbox
    source: str = ""  # which configuration names it, for people
    gateway_url: str = ""  # where its gateway is, if the kubeconfig says so
    local_data: Path | None = None  # where the cluster's local node on this machine reads submissions, if it has one

    def read_token(self, *, renew: bool = False) -> str | None:
        """The bearer token as it is now, or None. May block: it reads a file or runs a login program."""
        if self.token_source is not None:
            return self.token_source(renew=renew)
        if self.token_file is None:
            return self.token
        token = kubeconfigs.read_text(self.token_file, named="the token").strip()
        if not token:
            raise KubeconfigError(self.token_file, problem="the token is empty")
        return token

    @property
    def changing_token(self) -> bool:
        """Whether the token may be another one a while later."""
        return self.token_file is not None or self.token_source is not None

    def ssl_context(self) -> ssl.SSLContext | None:
        """What TLS needs, or None for plain http. Raises `KubeconfigError` for a certificate that cannot be used."""
        if self.server.startswith("http://"):
            return None
        try:
            context = trust.client_context(ca=self.ca)
            if self.client_certificate and self.client_key:
                _load_client_certificate(context, certificate=self.client_certificate, key=self.client_key)
        except (OSError, ValueError) as error:
            raise KubeconfigError(self.server, problem=f"its certificates cannot be used: {error}") from error
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def load_connection(
    kubeconfig: Path | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """The API server to talk to. `context` names one of the kubeconfig's; the default is its current context.

    `environ` is this program's environment by default.
    """
    environ = os.environ if environ is None else environ
    if kubeconfig is not None:
        return _from_files([kubeconfig], context=context)
    if listed := environ.get("KUBECONFIG"):
        return _from_files([Path(part) for part in listed.split(os.pathsep) if part], context=context)
    if context is None and environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return _in_cluster(environ, service_account=service_account)
    found = [path for path in default_kubeconfigs(environ) if path.exists()]
    if not found:
        raise KubeconfigError(
            default_kubeconfigs(environ)[-1],
            problem="no such file, and neither $KUBECONFIG, a pod's service account nor a running sandbox was found; "
            "for a queue on this machine: gflowd up",
        )
    return _from_files(found[:1], context=context)


def default_kubeconfigs(environ: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    """The kubeconfigs that are tried if none is named: the default sandbox's, then the user's."""
    environ = os.environ if environ is None else environ
    home = Path(environ.get("HOME") or Path.home())
    state = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state")
    return state / "dovetail" / "sandboxes" / "default" / "kubeconfig", home / ".kube" / "config"


def _in_cluster(environ: Mapping[str, str], *, service_account: Path) -> Connection:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT") or "443"
    namespace = service_account / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.exists() else "default",
        ca=kubeconfigs.read_text(service_account / "ca.crt", named="the service account's CA"),
        token_file=service_account / "token",
        source="the service account of this pod",
    )


def _from_files(paths: Sequence[Path], *, context: str | None) -> Connection:
    choice = kubeconfigs.choose(paths, context=context)
    cluster, user = choice.cluster, choice.user
    connection = Connection(
        server=cluster.server.rstrip("/"),
        source=f'context "{choice.context}" of {choice.cluster_file}',
        namespace=choice.namespace,
        ca=choice.ca(),
        tls_server_name=cluster.tls_server_name,
        insecure=cluster.insecure_skip_tls_verify,
        proxy_url=cluster.proxy_url,
        local_data=choice.local_data,
        simulated=choice.simulated,
        gateway_url=choice.gateway_url,
    )
    if user.logs_in:
        return _with_login(connection, choice=choice, paths=paths)
    certificate, key = choice.client_certificate()
    return replace(
        connection,
        client_certificate=certificate,
        client_key=key,
        token=None if user.token_file else user.token,
        token_file=choice.user_file.parent / user.token_file if user.token_file else None,
    )


def _with_login(connection: Connection, *, choice: kubeconfigs.Choice, paths: Sequence[Path]) -> Connection:
    try:
        # 0.3 s of CPU and 17 MiB, which only such a user costs.
        from dovetail.kube.auth.exec_login import Login  # noqa: PLC0415
    except ImportError as error:
        raise choice.user_error(
            'must log in, for which a package is missing: pip install "dovetail-gpu[login]"'
        ) from error
    login = Login(paths, context=choice.context)
    return replace(connection, client_certificate=login.certificate, client_key=login.key, token_source=login.token)


def _load_client_certificate(context: ssl.SSLContext, *, certificate: str, key: str) -> None:
    # OpenSSL reads them from files only. No other user may open this directory, and it is removed at once.
    with tempfile.TemporaryDirectory(prefix="dovetail-") as directory:
        certificate_file, key_file = Path(directory, "tls.crt"), Path(directory, "tls.key")
        certificate_file.write_text(certificate, encoding="ascii")
        key_file.write_text(key, encoding="ascii")
        context.load_cert_chain(certificate_file, key_file)

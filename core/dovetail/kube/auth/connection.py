"""Which API server to talk to, and as whom.

`load_connection` looks, in this order, at the path it is given, `$KUBECONFIG` (a list, merged), the service account of
the pod it runs in, the default sandbox, and `~/.kube/config`. Everything wrong is a `KubeconfigError` in one sentence.
"""

import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dovetail.kube.auth import kubeconfig as kubeconfigs
from dovetail.kube.errors import KubeconfigError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """An API server and the credentials for it. Certificates and keys are PEM texts, secrets are not printed.

    Of the tokens at most one is set. `token_file` is read again and again, for it rotates; `token_source` is asked
    likewise (it may run a login program, so it is called in a thread).
    """

    server: str
    namespace: str = "default"
    ca: str | None = field(default=None, repr=False)
    client_certificate: str | None = field(default=None, repr=False)
    client_key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    token_source: Callable[[], str | None] | None = field(default=None, repr=False)
    tls_server_name: str | None = None
    insecure: bool = False
    proxy_url: str | None = None

    def read_token(self) -> str | None:
        """The bearer token as it is now, or None. May block: it reads a file or runs a login program."""
        if self.token_source is not None:
            return self.token_source()
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise KubeconfigError(self.token_file, problem=f"the token cannot be read: {error.strerror}") from error

    @property
    def changing_token(self) -> bool:
        """Whether the token may be another one a while later."""
        return self.token_file is not None or self.token_source is not None

    def ssl_context(self) -> ssl.SSLContext | None:
        """What TLS needs, or None for plain http. Raises `KubeconfigError` for a certificate that is none."""
        if self.server.startswith("http://"):
            return None
        try:
            context = ssl.create_default_context(cadata=self.ca)
            if self.client_certificate and self.client_key:
                _load_client_certificate(context, certificate=self.client_certificate, key=self.client_key)
        except (ssl.SSLError, ValueError) as error:
            raise KubeconfigError(self.server, problem=f"its certificates cannot be used: {error}") from error
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def load_connection(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """The API server to talk to. `context` names one of the kubeconfig's; without it the current one is taken."""
    if kubeconfig is not None:
        return _from_files([kubeconfig], context=context)
    if listed := environ.get("KUBECONFIG"):
        return _from_files([Path(part) for part in listed.split(os.pathsep) if part], context=context)
    if context is None and "KUBERNETES_SERVICE_HOST" in environ and (service_account / "token").exists():
        return _in_cluster(environ, service_account=service_account)
    found = [path for path in default_kubeconfigs(environ) if path.exists()]
    if not found:
        raise KubeconfigError(
            default_kubeconfigs(environ)[-1],
            problem="no such file, and neither $KUBECONFIG nor a running sandbox (`dovetail sandbox up`) was found",
        )
    return _from_files(found[:1], context=context)


def default_kubeconfigs(environ: Mapping[str, str] = os.environ) -> tuple[Path, Path]:
    """Where a kubeconfig is looked for when none is named: the default sandbox's, then the user's."""
    home = Path(environ.get("HOME") or Path.home())
    state = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state")
    return state / "dovetail" / "sandboxes" / "default" / "kubeconfig", home / ".kube" / "config"


def _in_cluster(environ: Mapping[str, str], *, service_account: Path) -> Connection:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = service_account / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.exists() else "default",
        ca=kubeconfigs.read_pem(service_account / "ca.crt", named="the service account's CA"),
        token_file=service_account / "token",
    )


def _from_files(paths: list[Path], *, context: str | None) -> Connection:
    choice = kubeconfigs.choose(paths, context=context)
    cluster, user = choice.cluster, choice.user
    connection = Connection(
        server=cluster.server.rstrip("/"),
        namespace=choice.namespace,
        ca=kubeconfigs.pem(
            cluster.certificate_authority_data,
            cluster.certificate_authority,
            file=choice.cluster_file,
            field="certificate-authority",
        ),
        tls_server_name=cluster.tls_server_name,
        insecure=cluster.insecure_skip_tls_verify,
        proxy_url=cluster.proxy_url,
    )
    if user.logs_in:
        return _with_login(connection, paths=paths, choice=choice)
    return _with_credentials(connection, user=user, file=choice.user_file)


def _with_credentials(connection: Connection, *, user: kubeconfigs.User, file: Path) -> Connection:
    return replace(
        connection,
        client_certificate=kubeconfigs.pem(
            user.client_certificate_data, user.client_certificate, file=file, field="client-certificate"
        ),
        client_key=kubeconfigs.pem(user.client_key_data, user.client_key, file=file, field="client-key"),
        token=None if user.token_file else user.token,
        token_file=file.parent / user.token_file if user.token_file else None,
    )


def _with_login(connection: Connection, *, paths: list[Path], choice: kubeconfigs.Choice) -> Connection:
    """Exec plugins and OIDC, through the official client, which is an extra and slow to import: so only here."""
    try:
        from dovetail.kube.auth import exec_login  # noqa: PLC0415 - 0.4 s that only such a kubeconfig costs
    except ImportError as error:
        raise KubeconfigError(
            choice.user_file,
            problem=f'the user of context "{choice.context}" needs a login program; '
            'install it with: pip install "dovetail-gpu[login]"',
        ) from error
    credentials = exec_login.log_in(paths, context=choice.context, file=choice.user_file)
    return replace(
        connection,
        client_certificate=credentials.client_certificate,
        client_key=credentials.client_key,
        token_source=credentials.token,
    )


def _load_client_certificate(context: ssl.SSLContext, *, certificate: str, key: str) -> None:
    # OpenSSL reads them from files only; the directory is ours alone and gone at once.
    with tempfile.TemporaryDirectory(prefix="dovetail-") as directory:
        certificate_file, key_file = Path(directory, "tls.crt"), Path(directory, "tls.key")
        certificate_file.write_text(certificate, encoding="ascii")
        key_file.write_text(key, encoding="ascii")
        context.load_cert_chain(certificate_file, key_file)

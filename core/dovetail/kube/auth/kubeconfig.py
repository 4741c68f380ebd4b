"""Kubeconfig files: merged and read as kubectl does it. Reads files, and runs nothing.

The official package reads them too. It takes the current context of the last file instead of the first, reads a
`tokenFile` once, ignores `as`, and takes 0.3 s of CPU to import (docs/decisions/0012-client-of-our-own.md).
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from dovetail.decoding import UnreadableError, convert
from dovetail.formats.yaml_text import BAD_SCALAR, QUICK_LOADER
from dovetail.kube.errors import KubeconfigError

T = TypeVar("T")

# The extension of a context whose cluster runs jobs as processes of this machine.
LOCAL_NODE: Final = "dovetail.dev/local-node"
# The extension that names the cluster's gateway, by its URL.
GATEWAY: Final = "dovetail.dev/gateway"
SIMULATED_NODES: Final = "dovetail.dev/simulated-nodes"


class Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """An API server, as a kubeconfig describes it."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None


class User(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Credentials, as a kubeconfig describes them."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    exec: dict[str, Any] | None = None
    auth_provider: dict[str, Any] | None = None
    username: str | None = None
    impersonated: str | None = msgspec.field(default=None, name="as")

    @property
    def logs_in(self) -> bool:
        """Whether a program or an identity provider gives the credentials. A token that is there comes first."""
        return bool((self.exec or self.auth_provider) and not (self.token or self.token_file))


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """What a program other than kubectl keeps in a context."""

    name: str = ""
    extension: dict[str, Any] | None = None


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Which user goes to which cluster, and the default namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""
    extensions: list[Extension] | None = None

    @property
    def local_data(self) -> Path | None:
        """The folder of the cluster's local node on this machine; None for any other cluster."""
        found = [each.extension or {} for each in self.extensions or () if each.name == LOCAL_NODE]
        return Path(str(found[0]["data"])) if found and found[0].get("data") else None

    @property
    def gateway_url(self) -> str:
        """The URL of the cluster's gateway; empty where the context names none."""
        found = [each.extension or {} for each in self.extensions or () if each.name == GATEWAY]
        return str(found[0].get("url") or "") if found else ""

    @property
    def simulated(self) -> bool:
        """Whether all nodes of the cluster are simulated, as in a sandbox."""
        return any(each.name == SIMULATED_NODES for each in self.extensions or ())


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of one of the lists. Its value is checked when a context chooses it: other entries may be wrong."""

    name: str
    cluster: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    user: dict[str, Any] | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    clusters: list[_Named] | None = None
    contexts: list[_Named] | None = None
    users: list[_Named] | None = None
    current_context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a context names. Relative paths of an entry start at the folder of the file that the entry is in."""

    context: str
    namespace: str
    local_data: Path | None
    simulated: bool
    gateway_url: str
    cluster: Cluster
    cluster_file: Path
    user: User
    user_name: str
    user_file: Path

    def ca(self) -> str | None:
        """The PEM text of the cluster's authority, or None for the system's. Raises `KubeconfigError`."""
        data, path = self.cluster.certificate_authority_data, self.cluster.certificate_authority
        return _pem(data, path=path, file=self.cluster_file, field="certificate-authority")

    def client_certificate(self) -> tuple[str | None, str | None]:
        """The PEM texts of the user's certificate and key, both or neither. Raises `KubeconfigError`."""
        user, file = self.user, self.user_file
        certificate = _pem(
            user.client_certificate_data, path=user.client_certificate, file=file, field="client-certificate"
        )
        key = _pem(user.client_key_data, path=user.client_key, file=file, field="client-key")
        if (certificate is None) != (key is None):
            raise self.user_error("has one of client-certificate and client-key; TLS needs both")
        return certificate, key

    def user_error(self, problem: str) -> KubeconfigError:
        """An error about the user's entry."""
        return KubeconfigError(self.user_file, problem=f'user "{self.user_name}" {problem}')


def choose(paths: Sequence[Path], *, context: str | None = None) -> Choice:
    """What the named (or current) context says in the merged files. Raises `KubeconfigError`.

    Of equal names the first file's counts, as does the first `current-context`. Files that do not exist are skipped as
    long as one does.
    """
    files = {path: _read(path) for path in paths if path.exists()}
    if not files:
        raise KubeconfigError(", ".join(map(str, paths)), problem="no such kubeconfig")
    first = next(iter(files))
    contexts = ", ".join(sorted({each.name for file in files.values() for each in file.contexts or ()})) or "none"
    name = context or next((file.current_context for file in files.values() if file.current_context), None)
    if not name:
        raise KubeconfigError(first, problem=f"no current-context is set; contexts are {contexts}")
    chosen, file = _entry(files, kind="context", name=name, as_type=Context)
    if chosen is None:
        raise KubeconfigError(first, problem=f'no context "{name}"; contexts are {contexts}')
    cluster, cluster_file = _entry(files, kind="cluster", name=chosen.cluster, as_type=Cluster)
    user, user_file = _entry(files, kind="user", name=chosen.user, as_type=User)
    if cluster is None:
        raise KubeconfigError(file, problem=f'context "{name}" names the unknown cluster "{chosen.cluster}"')
    if user is None and chosen.user:
        raise KubeconfigError(file, problem=f'context "{name}" names the unknown user "{chosen.user}"')
    _check_cluster(cluster, name=chosen.cluster, file=cluster_file)
    choice = Choice(
        context=name,
        namespace=chosen.namespace or "default",
        local_data=chosen.local_data,
        simulated=chosen.simulated,
        gateway_url=chosen.gateway_url,
        cluster=cluster,
        cluster_file=cluster_file,
        user=user or User(),
        user_name=chosen.user,
        user_file=user_file,
    )
    _check_user(choice)
    return choice


def read_text(path: Path, *, named: str) -> str:
    """The text of a certificate, key or token file. Raises `KubeconfigError`."""
    try:
        return path.read_text(encoding="ascii")
    except OSError as error:
        raise KubeconfigError(path, problem=f"{named} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KubeconfigError(path, problem=f"{named} is not ASCII text") from error


def _read(path: Path) -> _File:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=QUICK_LOADER)  # noqa: S506 - a safe loader
        return convert(document or {}, as_type=_File)
    except OSError as error:
        raise KubeconfigError(path, problem=f"cannot be read: {error.strerror}") from error
    except UnreadableError as error:
        raise KubeconfigError(path, problem=f"is not a kubeconfig: {error}") from error
    except (yaml.YAMLError, *BAD_SCALAR, RecursionError) as error:
        raise KubeconfigError(path, problem=f"is not YAML: {' '.join(str(error).split())}") from error


def _entry(files: Mapping[Path, _File], *, kind: str, name: str, as_type: type[T]) -> tuple[T | None, Path]:
    """The first entry of that name, and its file; None, and the first file, if there is none."""
    for path, file in files.items():
        for entry in getattr(file, f"{kind}s") or ():
            if entry.name == name:
                try:
                    return convert(getattr(entry, kind) or {}, as_type=as_type), path
                except UnreadableError as error:
                    raise KubeconfigError(path, problem=f'{kind} "{name}" cannot be read: {error}') from error
    return None, next(iter(files))


def _check_cluster(cluster: Cluster, *, name: str, file: Path) -> None:
    server, proxy = urlsplit(cluster.server), urlsplit(cluster.proxy_url or "")
    if server.scheme not in {"https", "http"} or not server.hostname:
        problem = f'the server "{cluster.server}"; it must be an https:// or http:// address'
    elif cluster.proxy_url and proxy.scheme not in {"https", "http"}:
        # The rest of the address may hold a password.
        problem = f'a proxy-url that begins with "{proxy.scheme}"; it must be an https:// or http:// address'
    else:
        return
    raise KubeconfigError(file, problem=f'cluster "{name}" has {problem}')


def _check_user(choice: Choice) -> None:
    user, provider = choice.user, (choice.user.auth_provider or {}).get("name", "oidc")
    if user.username:
        raise choice.user_error("logs in by username, which API servers no longer accept")
    if user.impersonated:
        raise choice.user_error('uses "as" (impersonation), which Dovetail does not support')
    if provider != "oidc":
        raise choice.user_error(f'uses the auth-provider "{provider}", which Kubernetes 1.26 removed; use exec')


def _pem(data: str | None, *, path: str | None, file: Path, field: str) -> str | None:
    """The PEM text of a `*-data` field, or else of the file that the field names, or None."""
    if data:
        try:
            return base64.b64decode(data, validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise KubeconfigError(file, problem=f"{field}-data is not a PEM text in base64") from error
    return read_text(file.parent / path, named=f"{field} of {file}") if path else None

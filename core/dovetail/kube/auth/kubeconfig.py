"""Kubeconfig files: merged as kubectl merges them, and what a context names in them. Files only."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from dovetail.decoding import UnreadableError, convert
from dovetail.kube.errors import KubeconfigError

# libyaml's loader reads a kubeconfig ten times faster; PyYAML may be built without it.
_LOADER: Final[type[Any]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """An API server as a kubeconfig has it."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None


class User(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Credentials as a kubeconfig has them."""

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
        """Whether a login program or provider gives the credentials."""
        return self.exec is not None or self.auth_provider is not None


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Which user goes to which cluster, and to which namespace by default."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: Cluster | None = None


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: User | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: Context | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a context names. `cluster_file` and `user_file` are where the entries stand: paths are relative to them."""

    context: str
    namespace: str
    cluster: Cluster
    cluster_file: Path
    user: User
    user_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merged:
    where: Path
    current_context: str | None
    contexts: Mapping[str, tuple[Context | None, Path]]
    clusters: Mapping[str, tuple[Cluster | None, Path]]
    users: Mapping[str, tuple[User | None, Path]]


def choose(paths: Sequence[Path], *, context: str | None = None) -> Choice:
    """What the named (or current) context says in the merged files: of equal names the first file's counts.

    Files that do not exist are passed over as long as one does. Raises `KubeconfigError`.
    """
    merged = _merge(paths)
    name = context or merged.current_context
    if not name:
        raise KubeconfigError(merged.where, problem=f"no current-context is set; contexts are {_list(merged.contexts)}")
    if name not in merged.contexts:
        raise KubeconfigError(merged.where, problem=f'no context "{name}"; contexts are {_list(merged.contexts)}')
    found = merged.contexts[name][0] or Context()
    if found.cluster not in merged.clusters:
        raise KubeconfigError(merged.where, problem=f'context "{name}" names the unknown cluster "{found.cluster}"')
    if found.user and found.user not in merged.users:
        raise KubeconfigError(merged.where, problem=f'context "{name}" names the unknown user "{found.user}"')
    cluster, cluster_file = merged.clusters[found.cluster]
    user, user_file = merged.users.get(found.user, (None, merged.where))
    return Choice(
        context=name,
        namespace=found.namespace or "default",
        cluster=_usable_cluster(cluster or Cluster(), name=found.cluster, file=cluster_file),
        cluster_file=cluster_file,
        user=_usable_user(user or User(), name=found.user, file=user_file),
        user_file=user_file,
    )


def pem(data: str | None, path: str | None, *, file: Path, field: str) -> str | None:
    """The PEM text of a `*-data` field, or else of the file that the field names, or None. Raises `KubeconfigError`."""
    if data:
        try:
            return base64.b64decode(data, validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise KubeconfigError(file, problem=f"{field}-data is not a PEM text in base64") from error
    return read_pem(file.parent / path, named=f"{field} of {file}") if path else None


def read_pem(path: Path, *, named: str) -> str:
    """A PEM file's text. Raises `KubeconfigError`."""
    try:
        return path.read_text(encoding="ascii")
    except OSError as error:
        raise KubeconfigError(path, problem=f"{named} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KubeconfigError(path, problem=f"{named} is not a PEM text") from error


def _merge(paths: Sequence[Path]) -> _Merged:
    present = [path for path in paths if path.exists()]
    if not present:
        raise KubeconfigError(", ".join(map(str, paths)), problem="no such kubeconfig")
    files = [(path, _read(path)) for path in present]
    # From the last to the first, so that the first of equal names stays.
    backwards = files[::-1]
    return _Merged(
        where=present[0],
        current_context=next((file.current_context for _, file in files if file.current_context), None),
        contexts={entry.name: (entry.context, path) for path, file in backwards for entry in file.contexts or ()},
        clusters={entry.name: (entry.cluster, path) for path, file in backwards for entry in file.clusters or ()},
        users={entry.name: (entry.user, path) for path, file in backwards for entry in file.users or ()},
    )


def _read(path: Path) -> _File:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - a safe loader
        return convert(document or {}, as_type=_File)
    except OSError as error:
        raise KubeconfigError(path, problem=f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeconfigError(path, problem=f"is not YAML: {' '.join(str(error).split())}") from error
    except UnreadableError as error:
        raise KubeconfigError(path, problem=f"is not a kubeconfig: {error}") from error


def _usable_cluster(cluster: Cluster, *, name: str, file: Path) -> Cluster:
    if not cluster.server.startswith(("https://", "http://")):
        raise KubeconfigError(
            file, problem=f'cluster "{name}" has the server "{cluster.server}"; it must begin with https:// or http://'
        )
    return cluster


def _usable_user(user: User, *, name: str, file: Path) -> User:
    if user.username:
        raise KubeconfigError(file, problem=f'user "{name}" logs in by username, which API servers no longer accept')
    if user.impersonated:
        raise KubeconfigError(file, problem=f'user "{name}" uses "as" (impersonation), which Dovetail does not support')
    return user


def _list(entries: Mapping[str, object]) -> str:
    return ", ".join(sorted(entries)) or "none"

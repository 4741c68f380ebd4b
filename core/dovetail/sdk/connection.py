"""Where the gateway is, and with which token: from arguments, the environment, the pod, or the kubeconfig."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dovetail.sdk import discovery
from dovetail.sdk.discovery import Connection
from dovetail.sdk.errors import SettingsError

URL_VARIABLE: Final = "DOVETAIL_GATEWAY"
TOKEN_VARIABLE: Final = "DOVETAIL_TOKEN"  # noqa: S105 - the variable's name
NAMESPACE_VARIABLE: Final = "DOVETAIL_NAMESPACE"
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The chart's Service, in the namespace that its page of installation uses.
IN_CLUSTER: Final = "http://dovetail-gateway.dovetail-system.svc:8000"
_NAME_ONE: Final = (
    f"pass base_url, or set {URL_VARIABLE}, for example to http://127.0.0.1:8000; your administrator knows the URL of "
    "a cluster's gateway"
)
_NO_GATEWAY: Final = f"no gateway is named: {_NAME_ONE}; for a queue on this machine: gflowd up"
# A token is asked for with each request, because a pod's token is replaced each hour.
Token = str | Callable[[], str] | None


def connection(
    base_url: str | None = None,
    *,
    token: Token = None,
    namespace: str | None = None,
    environment: Mapping[str, str] | None = None,
    account: Path = _ACCOUNT,
) -> Connection:
    """The connection of these arguments and, for those that are None, of what is found. Raises `SettingsError`.

    DOVETAIL_GATEWAY comes first. Without it, a pod uses the gateway in its cluster, and anything else the gateway that
    the kubeconfig names: that of this machine's queue, of a sandbox, or of a cluster.
    """
    known = os.environ if environment is None else environment
    url = base_url if base_url is not None else known.get(URL_VARIABLE, "")
    wanted = known.get(TOKEN_VARIABLE) if token is None else token
    own = namespace or known.get(NAMESPACE_VARIABLE)
    if url or base_url is not None:
        return Connection(
            url=_checked(url),
            token=_token(wanted, account=account),
            namespace=own or _read(account / "namespace") or "default",
            source="base_url" if base_url is not None else URL_VARIABLE,
        )
    if _read(account / "token"):
        source = f"the service account of this pod; {URL_VARIABLE} names another gateway than {IN_CLUSTER}"
        return Connection(
            url=IN_CLUSTER,
            token=_token(wanted, account=account),
            namespace=own or _read(account / "namespace") or "default",
            source=source,
        )
    found = discovery.find()
    if found is None or not found.url:
        raise SettingsError(_NO_GATEWAY if found is None else f"{found.source} names no gateway: {_NAME_ONE}")
    return replace(
        found,
        url=_checked(found.url),
        token=found.token if wanted is None else _token(wanted, account=account),
        namespace=own or found.namespace,
    )


def _checked(url: str) -> str:
    if not url:
        raise SettingsError(_NO_GATEWAY)
    try:
        parts = urlsplit(url)
        named = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    if not named or parts.query or parts.fragment:
        raise SettingsError(f'base_url "{url}" is no URL of a gateway: write for example http://127.0.0.1:8000')
    return url.rstrip("/")


def _token(token: Token, *, account: Path) -> Callable[[], str]:
    if callable(token):
        return token
    if token is not None:
        return lambda: token
    return lambda: _read(account / "token")


def _read(path: Path) -> str:
    """The text of a file; empty without one."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""

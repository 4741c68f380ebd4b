"""Where the gateway is, and with which token: from arguments, the environment, or the pod's service account."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dovetail.sdk.errors import SettingsError

URL_VARIABLE: Final = "DOVETAIL_GATEWAY"
TOKEN_VARIABLE: Final = "DOVETAIL_TOKEN"  # noqa: S105 - the variable's name
NAMESPACE_VARIABLE: Final = "DOVETAIL_NAMESPACE"
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# A token is asked for with each request, because a pod's token is replaced each hour.
Token = str | Callable[[], str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A gateway's URL without a slash at its end, the token for each request, and the namespace of new jobs."""

    url: str
    token: Callable[[], str]
    namespace: str


def connection(
    base_url: str | None = None,
    *,
    token: Token = None,
    namespace: str | None = None,
    environment: Mapping[str, str] | None = None,
    account: Path = _ACCOUNT,
) -> Connection:
    """The connection of these arguments and, for those that are None, of the environment. Raises `SettingsError`."""
    known = os.environ if environment is None else environment
    return Connection(
        url=_checked(base_url if base_url is not None else known.get(URL_VARIABLE, "")),
        token=_token(known.get(TOKEN_VARIABLE) if token is None else token, account=account),
        namespace=namespace or known.get(NAMESPACE_VARIABLE) or _read(account / "namespace") or "default",
    )


def _checked(url: str) -> str:
    if not url:
        message = (
            f"no gateway is named: pass base_url, or set {URL_VARIABLE}, for example to http://127.0.0.1:8000; "
            "`dovetail sandbox status` prints that of a sandbox, and `dovetail sandbox token` a token"
        )
        raise SettingsError(message)
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

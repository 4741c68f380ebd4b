"""The gateway that the current kubeconfig leads to: that of this machine's queue, of a sandbox, or of a cluster.

The kubeconfig's context names it in the extension `dovetail.dev/gateway`: its `url`, and where the user has no token,
the service `account` whose tokens the gateway accepts.
"""

import http.client
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from dovetail.decoding import UnreadableError, decode
from dovetail.sdk.errors import SettingsError

if TYPE_CHECKING:
    from dovetail.kube.auth import connection as kubeconfigs

_TOKEN_SECONDS: Final = 3600
# A token is replaced some time before its end.
_EARLY_SECONDS: Final = 300
_TIMEOUT_SECONDS: Final = 10.0
_CREATED: Final = 201


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A gateway, and how to talk to it.

    url         its URL, without a slash at its end; empty if a kubeconfig names none
    token       gives the token of each request
    namespace   that of new jobs
    source      what says so, for people
    local_data  the folder of this machine's queue; None elsewhere
    """

    url: str
    token: Callable[[], str]
    namespace: str
    source: str = ""
    local_data: Path | None = None


def find() -> Connection | None:
    """What the kubeconfig of `$KUBECONFIG`, of this machine's queue or of the user says; None without one.

    Raises `SettingsError` for one that cannot be used.
    """
    # 0.05 s, which a script with DOVETAIL_GATEWAY does without.
    from dovetail.kube.auth.connection import default_kubeconfigs, load_connection
    from dovetail.kube.errors import KubeconfigError

    if not os.environ.get("KUBECONFIG") and not any(path.exists() for path in default_kubeconfigs()):
        return None
    try:
        made = load_connection()
    except KubeconfigError as error:
        raise SettingsError(str(error)) from error
    token = _AccountToken(made) if made.gateway_account else lambda: made.read_token() or ""
    return Connection(
        url=made.gateway_url,
        token=token,
        namespace=made.namespace,
        source=made.source,
        local_data=made.local_data,
    )


class _AccountToken:
    """Tokens of the service account that the kubeconfig names, which the API server makes for its user."""

    def __init__(self, made: "kubeconfigs.Connection") -> None:
        self._made = made
        self._token = ""
        self._until = 0.0

    def __call__(self) -> str:
        if time.monotonic() > self._until - _EARLY_SECONDS:
            self._token = self._new()
            self._until = time.monotonic() + _TOKEN_SECONDS
        return self._token

    def _new(self) -> str:
        namespace, _, name = self._made.gateway_account.partition("/")
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        sent = msgspec.json.encode({**body, "spec": {"expirationSeconds": _TOKEN_SECONDS}})
        address = urlsplit(self._made.server)
        line = http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=_TIMEOUT_SECONDS, context=self._made.ssl_context()
        )
        try:
            line.request("POST", path, body=sent, headers={"Content-Type": "application/json"})
            answer = line.getresponse()
            content = answer.read()
            if answer.status != _CREATED:
                raise SettingsError(f"{self._made.source}: no token of {self._made.gateway_account}: {answer.reason}")
            return str(decode(content, as_type=dict[str, Any])["status"]["token"])
        except (OSError, http.client.HTTPException, UnreadableError) as error:
            message = f"{self._made.source}: {self._made.server} does not answer: {error}; is the queue up (gflowd up)?"
            raise SettingsError(message) from error
        finally:
            line.close()

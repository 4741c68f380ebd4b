"""The token of one configured service account, for scripts that send none."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from dovetail.api.resources import SERVICEACCOUNTS
from dovetail.kube.client import Client
from dovetail_gateway.access.tokens import Token, token_of

_SECONDS: Final = 3600
# The kubelet replaces a token at 80 % of its life too.
_KEPT: Final = 0.8


class _Status(msgspec.Struct, frozen=True):
    token: str


class _TokenRequest(msgspec.Struct, frozen=True):
    status: _Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A service account."""

    namespace: str
    name: str


class LegacyAccount:
    """Gets the account's token by TokenRequest with the gateway's own rights, which are for this account by name."""

    def __init__(self, account: Account, *, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._account = account
        self._client = client
        self._clock = clock
        self._token: Token | None = None
        self._until = 0.0

    async def token(self) -> Token:
        """A token with at least a fifth of its life left. Raises `KubeError`."""
        if self._token is None or self._clock() >= self._until:
            self._token = token_of(await self._request())
            self._until = self._clock() + _KEPT * _SECONDS
        return self._token

    async def _request(self) -> str:
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _SECONDS},
        }
        found = await self._client.create(
            SERVICEACCOUNTS,
            body=wanted,
            as_type=_TokenRequest,
            namespace=self._account.namespace,
            name=self._account.name,
            subresource="token",
        )
        return found.status.token

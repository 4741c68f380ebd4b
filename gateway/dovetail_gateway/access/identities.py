"""Who the API server says a caller is: SelfSubjectReviews with the caller's token, kept for a short time.

Limits, turns and queues go by the user's name, or by the namespace of a service account: a user can make any number of
tokens, and of accounts. Rights go by the whole identity.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dovetail.api.resources import SELFSUBJECTREVIEWS
from dovetail.kube.errors import Unauthorized
from dovetail_gateway.access.callers import Caller, Clients
from dovetail_gateway.access.fair_queue import FairQueue
from dovetail_gateway.access.limits import tenant_of
from dovetail_gateway.access.shared_calls import SharedCalls

# A token that is deleted ends after this time, and an unknown one may become known: API servers see new accounts late.
KNOWN_SECONDS: Final = 60.0
UNKNOWN_SECONDS: Final = 15.0
# How many tokens of one user are kept, and in all. Unknown tokens count as those of one user.
_MOST_OF_ONE: Final = 512
_MOST: Final = 20_000
_AT_ONCE: Final = 8
_MOST_WAITING: Final = 64
# Differs between two tokens of one user with the same rights. The API server's own authorizers do not read it.
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"


class UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A user as a SelfSubjectReview describes it."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _Myself(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    user_info: UserInfo = UserInfo()


class _SelfReview(msgspec.Struct, frozen=True, kw_only=True):
    status: _Myself = _Myself()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user. `key` stands for all that rights may depend on: name, UID, groups and extra, but not the credential."""

    username: str
    groups: tuple[str, ...] = ()
    key: bytes = b""

    @classmethod
    def of(cls, info: UserInfo) -> "Identity":
        """The identity that a review describes."""
        extra = {name: sorted(values) for name, values in info.extra.items() if name != _CREDENTIAL}
        rights = [info.username, info.uid, sorted(info.groups), extra]
        key = hashlib.sha256(msgspec.json.encode(rights, order="deterministic")).digest()
        return cls(username=info.username, groups=tuple(info.groups), key=key)


# Of what needs no token.
NO_ONE: Final = Identity(username="")


@dataclass(frozen=True, slots=True)
class _Kept:
    found: Identity | Unauthorized
    asked_at: float

    @property
    def tenant(self) -> str:
        return tenant_of(self.found.username) if isinstance(self.found, Identity) else ""


@dataclass(slots=True)
class _Tokens:
    """The tokens that are kept, the least recently used first, and those of each tenant."""

    kept: OrderedDict[bytes, _Kept] = field(default_factory=OrderedDict)
    of_tenant: dict[str, OrderedDict[bytes, None]] = field(default_factory=dict)

    def keep(self, key: bytes, *, found: _Kept) -> None:
        self.drop(key)
        self.kept[key] = found
        own = self.of_tenant.setdefault(found.tenant, OrderedDict())
        own[key] = None
        if len(own) > _MOST_OF_ONE:
            self.drop(next(iter(own)))
        if len(self.kept) > _MOST:
            self.drop(next(iter(self.kept)))

    def use(self, key: bytes) -> _Kept | None:
        if (found := self.kept.get(key)) is not None:
            self.kept.move_to_end(key)
            self.of_tenant[found.tenant].move_to_end(key)
        return found

    def drop(self, key: bytes) -> None:
        if (found := self.kept.pop(key, None)) is None:
            return
        own = self.of_tenant[found.tenant]
        del own[key]
        if not own:
            del self.of_tenant[found.tenant]


class Identities:
    """Asks the API server who callers are, once for each token in `KNOWN_SECONDS`."""

    def __init__(self, clients: Clients, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clients = clients
        self._clock = clock
        self._tokens = _Tokens()
        self._calls: SharedCalls[bytes, Identity] = SharedCalls()
        self._queue = FairQueue(at_once=_AT_ONCE, most_of_one=_AT_ONCE // 2, most_waiting=_MOST_WAITING)

    def known(self, caller: Caller) -> Identity | None:
        """Who the caller is, if that was asked a short time ago."""
        kept = self._tokens.kept.get(caller.key)
        if kept is None or isinstance(kept.found, Unauthorized):
            return None
        return kept.found if self._clock() - kept.asked_at < KNOWN_SECONDS else None

    async def of(self, caller: Caller, *, address: str = "", oldest: float = KNOWN_SECONDS) -> Identity:
        """Who the caller is, by an answer of at most `oldest` seconds ago. Raises `KubeError` and `CrowdedError`.

        Those whose name is not known yet take turns by `address`. A token that the API server does not know raises
        `Unauthorized`, which counts for `UNKNOWN_SECONDS`.
        """
        kept = self._tokens.use(caller.key)
        if kept is not None:
            age = self._clock() - kept.asked_at
            if isinstance(kept.found, Unauthorized):
                if age < UNKNOWN_SECONDS:
                    raise kept.found
            elif age < min(KNOWN_SECONDS, oldest):
                return kept.found
        turn = kept.tenant if kept is not None and kept.tenant else f"address {address}"
        return await self._calls.result(caller.key, of=lambda: self._ask(caller, turn=turn))

    async def _ask(self, caller: Caller, *, turn: str) -> Identity:
        async with self._queue.slot(turn), self._clients.client_for(caller) as client:
            # An answer that comes late is about the moment of the question at best.
            asked_at = self._clock()
            try:
                found = await client.create(SELFSUBJECTREVIEWS, body={}, as_type=_SelfReview)
            except Unauthorized as error:
                self._tokens.keep(caller.key, found=_Kept(error, asked_at))
                raise
        identity = Identity.of(found.status.user_info)
        self._tokens.keep(caller.key, found=_Kept(identity, asked_at))
        return identity

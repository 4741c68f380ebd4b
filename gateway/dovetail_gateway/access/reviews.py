"""What the API server lets a caller do: SelfSubjectAccessReviews with the caller's token, kept for a short time."""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from dovetail.api.resources import SELFSUBJECTACCESSREVIEWS, SELFSUBJECTREVIEWS
from dovetail.kube.errors import Unauthorized
from dovetail.names import GROUP
from dovetail_gateway.access.callers import Caller, Clients
from dovetail_gateway.access.visibility import Visibility

ALLOWED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 15.0
# So that the answers about many namespaces do not all end at one moment.
_JITTER: Final = 0.1
_AT_ONCE: Final = 16
_MOST_KEPT: Final = 50_000


class ReviewStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a SelfSubjectAccessReview."""

    allowed: bool = False


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A SelfSubjectAccessReview as it comes back."""

    status: ReviewStatus = ReviewStatus()


class UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who the API server says a caller is."""

    username: str = ""
    groups: list[str] = []


class _Myself(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    user_info: UserInfo = UserInfo()


class _SelfReview(msgspec.Struct, frozen=True, kw_only=True):
    status: _Myself = _Myself()


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A verb on a resource, by default of Dovetail's group; an empty namespace means all of them."""

    verb: str
    resource: str = "gpujobs"
    namespace: str = ""
    group: str = GROUP
    subresource: str = ""


_Key = tuple[bytes, Act]


@dataclass(frozen=True, slots=True)
class _Kept:
    answer: bool | Unauthorized
    asked_at: float
    counts_seconds: float


class Reviews:
    """Asks the API server what callers may do, and keeps its answers.

    Raises `Unauthorized` for a token that the API server does not know, which is kept like a denial.
    """

    def __init__(self, clients: Clients, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clients = clients
        self._clock = clock
        self._rng = random.Random()  # noqa: S311 - spreads reviews, guards nothing
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._asking: dict[_Key, asyncio.Future[bool]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def who(self, caller: Caller) -> UserInfo:
        """Who the API server says the caller is. Raises `KubeError`."""
        async with self._clients.client_for(caller) as client:
            found = await client.create(SELFSUBJECTREVIEWS, body={}, as_type=_SelfReview)
        return found.status.user_info

    async def visibility(self, caller: Caller, *, among: Iterable[str], oldest: float = ALLOWED_SECONDS) -> Visibility:
        """The namespaces of `among` whose GPUJobs the caller may list, or everything. Raises `KubeError`.

        An answer that is older than `oldest` seconds does not count.
        """
        if await self.may(caller, act=Act(verb="list"), oldest=oldest):
            return Visibility(None)
        acts = {namespace: Act(verb="list", namespace=namespace) for namespace in among}
        unknown = [act for act in acts.values() if self._known(caller, act=act, oldest=oldest) is None]
        await asyncio.gather(*(self.may(caller, act=act, oldest=oldest) for act in unknown))
        return Visibility(frozenset([name for name, act in acts.items() if await self.may(caller, act=act)]))

    async def may(self, caller: Caller, *, act: Act, oldest: float = ALLOWED_SECONDS) -> bool:
        """Whether the API server lets the caller do this. Raises `KubeError`."""
        known = self._known(caller, act=act, oldest=oldest)
        if isinstance(known, Unauthorized):
            raise known
        if known is not None:
            return known
        return await self._asked(caller, act=act)

    def _known(self, caller: Caller, *, act: Act, oldest: float) -> bool | Unauthorized | None:
        kept = self._kept.get((caller.key, act))
        if kept is None:
            return None
        age = self._clock() - kept.asked_at
        return kept.answer if age < min(kept.counts_seconds, oldest) else None

    async def _asked(self, caller: Caller, *, act: Act) -> bool:
        """Ask once, however many requests wait for the answer."""
        key = (caller.key, act)
        found = self._asking.get(key)
        if found is None:
            found = self._asking[key] = asyncio.ensure_future(self._ask(caller, act=act))
            found.add_done_callback(partial(self._done, key))
        # The first request may be cancelled while others still wait.
        return await asyncio.shield(found)

    def _done(self, key: _Key, asked: asyncio.Future[bool]) -> None:
        self._asking.pop(key, None)
        if not asked.cancelled():
            # Marks the error as seen where every request that waited is gone.
            asked.exception()

    async def _ask(self, caller: Caller, *, act: Act) -> bool:
        body = {"spec": {"resourceAttributes": _attributes(act)}}
        async with self._slots, self._clients.client_for(caller) as client:
            try:
                found = await client.create(SELFSUBJECTACCESSREVIEWS, body=body, as_type=Review)
            except Unauthorized as error:
                self._keep((caller.key, act), answer=error)
                raise
        self._keep((caller.key, act), answer=found.status.allowed)
        return found.status.allowed

    def _keep(self, key: _Key, *, answer: bool | Unauthorized) -> None:
        seconds = ALLOWED_SECONDS if answer is True else DENIED_SECONDS
        counts = seconds * (1 - _JITTER * self._rng.random())
        self._kept[key] = _Kept(answer, asked_at=self._clock(), counts_seconds=counts)
        self._kept.move_to_end(key)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)


def _attributes(act: Act) -> dict[str, str]:
    named = {
        "verb": act.verb,
        "group": act.group,
        "resource": act.resource,
        "subresource": act.subresource,
        "namespace": act.namespace,
    }
    return {name: value for name, value in named.items() if value}

"""What the API server lets a user do: SelfSubjectAccessReviews, kept for a short time by the user's whole identity."""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.api.access_reviews import Act, Review
from dovetail.api.reasons import problems as says
from dovetail.api.resources import SELFSUBJECTACCESSREVIEWS
from dovetail.kube.errors import Unauthorized
from dovetail.process.rate_limit import Allowance
from dovetail_gateway.access.callers import Caller, Clients
from dovetail_gateway.access.fair_queue import CrowdedError, FairQueue
from dovetail_gateway.access.identities import Identities, Identity
from dovetail_gateway.access.limits import Budgets, tenant_of
from dovetail_gateway.access.shared_calls import SharedCalls
from dovetail_gateway.access.visibility import Visibility

ALLOWED_SECONDS: Final = 60.0
# A denial ends sooner where a RoleBinding of its namespace changes. Those of a caller without rights cost the most.
DENIED_SECONDS: Final = 300.0
# A denial about all namespaces, or about another verb than `list`.
SHORT_DENIED_SECONDS: Final = 60.0
# A change of a RoleBinding reaches the API server's authorizer later than our watch.
SETTLING_SECONDS: Final = 15.0
# About so many namespaces of which nothing says that they are the caller's, the API server is asked without success.
MOST_DENIED: Final = 32
# So many reviews of one user at once, and one more every 1/32 s: at most 2,400 a minute on average.
USER_REVIEWS: Final = Allowance(burst=4096, every_seconds=1 / 32)
# So that the answers about many namespaces do not all end at one moment.
_JITTER: Final = 0.1
_AT_ONCE: Final = 16
_AT_ONCE_OF_ONE: Final = 8
# Of one caller so many wait for their turn at a time, so that a queue has a bound and another request gets its turns.
_AT_A_TIME: Final = 32
_MOST_WAITING: Final = 1024
_MOST_KEPT: Final = 50_000
_MOST_KEPT_OF_ONE: Final = 8_192


@dataclass(frozen=True, slots=True)
class _Kept:
    allowed: bool
    asked_at: float
    counts_seconds: float


class Reviews:
    """Asks the API server what users may do, and keeps its answers. `identities` says who callers are."""

    def __init__(self, clients: Clients, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.identities = Identities(clients, clock=clock)
        self._clients = clients
        self._clock = clock
        self._rng = random.Random()  # noqa: S311 - spreads reviews, guards nothing
        # By identity, the least recently used first.
        self._kept: OrderedDict[bytes, dict[Act, _Kept]] = OrderedDict()
        self._number = 0
        self._calls: SharedCalls[tuple[bytes, Act], bool] = SharedCalls()
        self._queue = FairQueue(at_once=_AT_ONCE, most_of_one=_AT_ONCE_OF_ONE, most_waiting=_MOST_WAITING)
        self._budgets = Budgets(USER_REVIEWS, clock=clock)
        # When the rights in a namespace changed last.
        self._changed_at: dict[str, float] = {}

    async def who(self, caller: Caller, *, address: str = "") -> Identity:
        """Who the API server says the caller is. Raises `KubeError` and `CrowdedError`."""
        return await self.identities.of(caller, address=address)

    def rights_changed(self, namespace: str) -> None:
        """Ask again about denials in the namespace: a RoleBinding has changed there."""
        self._changed_at[namespace] = self._clock()

    async def visibility(
        self, caller: Caller, *, likely: Collection[str], others: Iterable[str], oldest: float = ALLOWED_SECONDS
    ) -> Visibility:
        """The namespaces whose GPUJobs the caller may list, or everything. Raises `KubeError` and `CrowdedError`.

        The API server is asked about the `likely` namespaces and those that were allowed before, then about the first
        `MOST_DENIED` of the `others`. If it allows one of these, something else than RoleBindings gives the caller its
        rights, and it is asked about all others too. A permission that is older than `oldest` seconds does not count.
        """
        identity = await self.identities.of(caller, oldest=oldest)
        if await self._answer(caller, identity=identity, act=Act(verb="list"), oldest=oldest):
            return Visibility(None)
        kept = self._kept.get(identity.key, {})
        before = {act.namespace for act, found in kept.items() if _is_seen(act, kept=found)}
        first = dict.fromkeys([*likely, *sorted(before)])
        rest = [name for name in others if name not in first]
        seen = await self._listed(caller, identity=identity, namespaces=list(first), oldest=oldest)
        found = await self._listed(caller, identity=identity, namespaces=rest[:MOST_DENIED], oldest=oldest)
        if found or not seen.isdisjoint(before.difference(likely)):
            found |= await self._listed(caller, identity=identity, namespaces=rest[MOST_DENIED:], oldest=oldest)
        return Visibility(frozenset(seen | found))

    async def may(self, caller: Caller, *, act: Act, oldest: float = ALLOWED_SECONDS) -> bool:
        """Whether the API server lets the caller do this. Raises `KubeError` and `CrowdedError`."""
        identity = await self.identities.of(caller, oldest=oldest)
        return await self._answer(caller, identity=identity, act=act, oldest=oldest)

    async def _listed(
        self, caller: Caller, *, identity: Identity, namespaces: Sequence[str], oldest: float
    ) -> set[str]:
        """Those of the namespaces whose GPUJobs the caller may list."""
        acts = [Act(verb="list", namespace=name) for name in namespaces]
        known = {act: self._known(identity, act=act, oldest=oldest) for act in acts}
        unknown = [act for act, answer in known.items() if answer is None]
        for start in range(0, len(unknown), _AT_A_TIME):
            part = unknown[start : start + _AT_A_TIME]
            answers = await asyncio.gather(
                *(self._answer(caller, identity=identity, act=act, oldest=oldest) for act in part)
            )
            known.update(zip(part, answers, strict=True))
        return {act.namespace for act, answer in known.items() if answer}

    def _known(self, identity: Identity, *, act: Act, oldest: float) -> bool | None:
        kept = self._kept.get(identity.key, {}).get(act)
        if kept is None:
            return None
        age = self._clock() - kept.asked_at
        if kept.allowed:
            return True if age < min(kept.counts_seconds, oldest) else None
        is_current = kept.asked_at > self._changed_at.get(act.namespace, float("-inf"))
        return False if is_current and age < kept.counts_seconds else None

    async def _answer(self, caller: Caller, *, identity: Identity, act: Act, oldest: float) -> bool:
        known = self._known(identity, act=act, oldest=oldest)
        if known is not None:
            self._kept.move_to_end(identity.key)
            return known
        key = (identity.key, act)
        try:
            return await self._calls.result(key, of=lambda: self._ask(caller, identity=identity, act=act))
        except Unauthorized:
            # The call may have been made with another token of this identity, which ended meanwhile.
            await self.identities.of(caller, oldest=0.0)
            return await self._calls.result(key, of=lambda: self._ask(caller, identity=identity, act=act))

    async def _ask(self, caller: Caller, *, identity: Identity, act: Act) -> bool:
        user = identity.username
        tenant = tenant_of(user)
        if wait := self._budgets.wait_seconds(tenant):
            raise CrowdedError(says.REVIEWED_TOO_OFTEN(user=user), wait_seconds=wait)
        self._budgets.spend(tenant)
        body = {"spec": {"resourceAttributes": act.attributes}}
        async with self._queue.slot(user), self._clients.client_for(caller) as client:
            # An answer that comes late is about the moment of the question at best.
            asked_at = self._clock()
            found = await client.create(SELFSUBJECTACCESSREVIEWS, body=body, as_type=Review)
        self._keep(identity, act=act, allowed=found.status.allowed, asked_at=asked_at)
        return found.status.allowed

    def _keep(self, identity: Identity, *, act: Act, allowed: bool, asked_at: float) -> None:
        seconds = ALLOWED_SECONDS if allowed else self._denied_seconds(act, now=asked_at)
        counts = seconds * (1 - _JITTER * self._rng.random())
        own = self._kept.setdefault(identity.key, {})
        self._number += own.pop(act, None) is None
        own[act] = _Kept(allowed, asked_at=asked_at, counts_seconds=counts)
        if len(own) > _MOST_KEPT_OF_ONE:
            del own[next(iter(own))]
            self._number -= 1
        self._kept.move_to_end(identity.key)
        while self._number > _MOST_KEPT and len(self._kept) > 1:
            _, forgotten = self._kept.popitem(last=False)
            self._number -= len(forgotten)

    def _denied_seconds(self, act: Act, *, now: float) -> float:
        if now - self._changed_at.get(act.namespace, float("-inf")) < SETTLING_SECONDS:
            return SETTLING_SECONDS
        return DENIED_SECONDS if act.verb == "list" and act.namespace else SHORT_DENIED_SECONDS


def _is_seen(act: Act, *, kept: _Kept) -> bool:
    """Whether the caller was allowed to list the jobs of one namespace, however long ago."""
    return kept.allowed and bool(act.namespace) and act == Act(verb="list", namespace=act.namespace)

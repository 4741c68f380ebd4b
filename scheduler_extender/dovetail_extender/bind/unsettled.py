"""Binds that the cache does not show yet: what became of them is found out, and their promises stand meanwhile.

A write without an answer may have happened. A write that was confirmed shows in the cache within milliseconds, except
that a pod may come and go while nobody watches; then no event will ever free its devices.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from dovetail.api.builtin import Pod
from dovetail.engine.ledger.ledger import Ledger
from dovetail.kube.errors import KubeError, NotFound
from dovetail.logs import get_logger

log = get_logger(__name__)

# The cache shows a bind within milliseconds; where it does not after this time, a read asks.
READ_SECONDS: Final = 5.0
# A read that finds the pod unbound settles the bind only after this time: until then the write may be on its way.
SETTLE_SECONDS: Final = 30.0


class PodsOfCluster(Protocol):
    """The pods as the API server has them: the cache, fresh reads, and the one write."""

    def cached(self, *, namespace: str, name: str) -> Pod | None:
        """The pod as last seen by watching."""

    async def read(self, *, namespace: str, name: str, deadline_seconds: float) -> Pod:
        """The pod as it is now. Raises `KubeError`."""

    async def bind(self, pod: Pod, *, node: str, annotations: Mapping[str, str], deadline_seconds: float) -> None:
        """The Binding. Raises `KubeError`."""


class Office(Protocol):
    """The right to bind, as a Lease gives it."""

    @property
    def term(self) -> int | None:
        """The number of our term; None when we are not in office."""

    @property
    def remaining_seconds(self) -> float:
        """For how long nobody else can be in office."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """A bind that the cache has not shown. `known` says that the API server has confirmed it."""

    namespace: str
    name: str
    since: float
    known: bool


class Settling:
    """Keeps the binds that are not seen yet, by pod UID, and settles them one by one."""

    def __init__(
        self, *, ledger: Ledger, pods: PodsOfCluster, deadline_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._ledger = ledger
        self._pods = pods
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._unseen: dict[str, Unseen] = {}

    @property
    def unseen(self) -> int:
        """How many binds the cache has not shown yet."""
        return len(self._unseen)

    @property
    def unsettled(self) -> int:
        """How many binds have an outcome that nobody knows."""
        return sum(not bind.known for bind in self._unseen.values())

    def note(self, pod: Pod, *, known: bool) -> None:
        """A bind was sent; `known` if the API server has confirmed it."""
        meta = pod.metadata
        self._unseen[meta.uid] = Unseen(namespace=meta.namespace, name=meta.name, since=self._clock(), known=known)

    def release(self, uid: str) -> None:
        """The pod is not bound by us and will not be: its promise goes."""
        self._unseen.pop(uid, None)
        self._ledger.release(uid)

    def give_up(self, uid: str) -> None:
        """Nothing came of this attempt; an earlier one whose outcome is not known keeps the promise."""
        if uid not in self._unseen:
            self._ledger.release(uid)

    async def settle(self, *, running: Container[str]) -> None:
        """Look after each bind that is not `running`; to be called every second or so."""
        for uid, bind in list(self._unseen.items()):
            if uid in running:
                continue
            if self._is_seen(uid, bind):
                self._unseen.pop(uid, None)
                continue
            nothing = self._clock() - bind.since >= READ_SECONDS and await self._came_to_nothing(uid, bind)
            # While the read went on the pod may have been bound once more.
            if nothing and uid not in running and self._unseen.get(uid) is bind:
                log.info("not bound after all", namespace=bind.namespace, pod=bind.name, pod_uid=uid)
                self.release(uid)

    def _is_seen(self, uid: str, bind: Unseen) -> bool:
        """Whether the cache has taken over: the pod is bound there, or its promise went with it."""
        if self._ledger.claim(uid) is None:
            return True
        pod = self._pods.cached(namespace=bind.namespace, name=bind.name)
        return pod is not None and pod.metadata.uid == uid and bool(pod.spec.node_name)

    async def _came_to_nothing(self, uid: str, bind: Unseen) -> bool:
        # Taken before the read, which must not be counted as waiting.
        late = self._clock() - bind.since >= SETTLE_SECONDS
        try:
            pod = await self._pods.read(
                namespace=bind.namespace, name=bind.name, deadline_seconds=self._deadline_seconds
            )
        except NotFound:
            return True
        except KubeError:
            return False
        return pod.metadata.uid != uid or (late and not pod.spec.node_name)

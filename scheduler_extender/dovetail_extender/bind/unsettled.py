"""Binds that the cache does not show yet: keep their promises until the outcome is known.

A write without an answer may have happened. The cache shows a confirmed write within milliseconds. The exception is a
pod that is bound and deleted while the watch is interrupted: no event ever frees its devices.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from dovetail.api.builtin import Pod
from dovetail.api.gpunode import GPUNode
from dovetail.engine.ledger.ledger import Ledger
from dovetail.kube.errors import KubeError, NotFound
from dovetail.logs import get_logger
from dovetail_extender.holds.planned_workers import PlannedJob

log = get_logger(__name__)

# The cache shows a bind within milliseconds; where it does not after this time, a read asks.
READ_SECONDS: Final = 5.0
# A read that finds the pod unbound settles the bind only after this time: until then the write may still arrive.
SETTLE_SECONDS: Final = 30.0


class PodsOfCluster(Protocol):
    """Access to pods: the cache, fresh reads, and the one write."""

    def cached(self, *, namespace: str, name: str) -> Pod | None:
        """The pod in the cache, or None."""

    async def read(self, *, namespace: str, name: str, deadline_seconds: float) -> Pod:
        """Read the pod from the API server. Raises `KubeError`."""

    async def bind(self, pod: Pod, *, node: str, annotations: Mapping[str, str], deadline_seconds: float) -> None:
        """Create the Binding with these annotations. Raises `KubeError`."""


class JobsOfCluster(Protocol):
    """Access to GPUJobs that the informer has not brought."""

    async def read_job(self, *, namespace: str, name: str, deadline_seconds: float) -> PlannedJob:
        """Read the GPUJob from the API server. Raises `KubeError`."""


class DevicesOfCluster(Protocol):
    """Fresh reads of GPUNodes."""

    async def read_gpunode(self, *, name: str, deadline_seconds: float) -> GPUNode:
        """Read the GPUNode from the API server. Raises `KubeError`."""


class BindAuthority(Protocol):
    """The right to bind, which comes from holding the Lease."""

    @property
    def term(self) -> int | None:
        """The fencing token of this holder; None while the Lease is not held."""

    @property
    def remaining_seconds(self) -> float:
        """Seconds during which no other process can hold the Lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """A bind that the cache does not show; `known` if the API server has confirmed it."""

    namespace: str
    name: str
    since: float
    known: bool


class Settling:
    """Keeps the unseen binds by pod UID, and settles them one by one."""

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
        """The number of binds that the cache does not show yet."""
        return len(self._unseen)

    @property
    def unsettled(self) -> int:
        """The number of binds whose outcome is unknown."""
        return sum(not bind.known for bind in self._unseen.values())

    def record_bind(self, pod: Pod, *, known: bool) -> None:
        """Record that a bind was sent; `known` if the API server has confirmed it."""
        meta = pod.metadata
        self._unseen[meta.uid] = Unseen(namespace=meta.namespace, name=meta.name, since=self._clock(), known=known)

    def release(self, uid: str) -> None:
        """Drop the promise of a pod that is not bound by us and will not be."""
        self._unseen.pop(uid, None)
        self._ledger.release(uid)

    def give_up(self, uid: str) -> None:
        """End a failed attempt; the promise remains if an earlier attempt is still unsettled."""
        if uid not in self._unseen:
            self._ledger.release(uid)

    async def settle(self, *, running: Container[str]) -> None:
        """Settle each bind that is not `running`, where possible; call this about every second."""
        for uid, bind in list(self._unseen.items()):
            if uid in running:
                continue
            if self._is_seen(uid, bind=bind):
                self._unseen.pop(uid, None)
                continue
            nothing = self._clock() - bind.since >= READ_SECONDS and await self._came_to_nothing(uid, bind=bind)
            # Another bind of the pod may have started or ended during the read.
            if nothing and uid not in running and self._unseen.get(uid) is bind:
                log.info("not bound after all", namespace=bind.namespace, pod=bind.name, pod_uid=uid)
                self.release(uid)

    def _is_seen(self, uid: str, *, bind: Unseen) -> bool:
        """Whether the cache has taken over: it shows the pod as bound, or its claim is already gone."""
        if self._ledger.claim(uid) is None:
            return True
        pod = self._pods.cached(namespace=bind.namespace, name=bind.name)
        return pod is not None and pod.metadata.uid == uid and bool(pod.spec.node_name)

    async def _came_to_nothing(self, uid: str, *, bind: Unseen) -> bool:
        # Computed before the read, because the time of the read must not count.
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

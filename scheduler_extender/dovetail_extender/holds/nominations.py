"""Room for pods that kube-scheduler has nominated to a node: their victims are leaving, and they are not bound yet.

kube-scheduler shows an extender no nominated pods. Without a promise the next pod that asks would take the devices that
somebody was evicted for. So such a pod has a hold by device, beside the claims of those who are still leaving, until it
is bound, gone, or no longer nominated. As with kube-scheduler the hold counts for pods of the same or a lower priority;
one of a higher priority may take the room. Pure.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.api.builtin import Pod
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.request import RequestError

# Preemptions of which the chosen devices are remembered until kube-scheduler says what it made of them.
REMEMBERED: Final = 1000
_FOR_EVER: Final = float("inf")
# By so much what we watch may lag behind what kube-scheduler does.
_LAG_SECONDS: Final = 10.0
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class _Nomination:
    node: str
    priority: int
    ask: Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Intended:
    """What a pod is to have of a node, whose leaving makes room for that, and when that was decided."""

    claim: Claim
    victims: frozenset[str]
    at: float


def priority_of(pod: Pod) -> int:
    """The pod's priority; admission sets it, and 0 is what it sets without a class."""
    return pod.spec.priority or 0


class Nominations:
    """The nominated pods by UID. Feed it every change of every pod, after the ledger has it. Their devices are chosen
    by `fit_cache` of the same ledger, as all others are."""

    def __init__(self, *, ledger: Ledger, fit_cache: FitCache, ask: Callable[[Pod], Ask | None]) -> None:
        self._ledger = ledger
        self._fit_cache = fit_cache
        self._ask = ask
        self._pods: dict[str, _Nomination] = {}
        self._leaving: dict[str, set[str]] = {}
        self._intended: OrderedDict[str, Mapping[str, Intended]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def holding(self) -> int:
        """How many of them have room that is kept."""
        return sum(self._ledger.is_hold(uid) for uid in self._pods)

    def pod_changed(self, pod: Pod) -> None:
        """A Pod was added or modified."""
        uid, node = pod.metadata.uid, pod.status.nominated_node_name
        if pod.spec.node_name:
            self._pods.pop(uid, None)
            self._note_leaving(pod)
        elif not node or pod.status.phase in _ENDED:
            self._drop(uid)
        else:
            self._nominated(pod, node=node)

    def pod_gone(self, pod: Pod) -> None:
        """A Pod was deleted; the ledger has released it."""
        self._pods.pop(pod.metadata.uid, None)
        self._intended.pop(pod.metadata.uid, None)
        leaving = self._leaving.get(pod.spec.node_name)
        if leaving is not None:
            leaving.discard(pod.metadata.uid)
            if not leaving:
                del self._leaving[pod.spec.node_name]

    def leaving(self, node: str) -> frozenset[str]:
        """UIDs of the bound pods that are leaving the node."""
        return frozenset(self._leaving.get(node, ()))

    def intend(self, uid: str, by_node: Mapping[str, Intended]) -> None:
        """Remember which devices the pod is to have on each node once its victims are gone."""
        self._intended[uid] = by_node
        self._intended.move_to_end(uid)
        if len(self._intended) > REMEMBERED:
            self._intended.popitem(last=False)

    def is_awaited(self, pod: Pod, *, now: float) -> bool:
        """Whether victims that were chosen for the pod a moment ago are on their way out.

        kube-scheduler may see them gone before we do. Refused then, it would have others evicted on another node.
        """
        uid, known = pod.metadata.uid, self._pods.get(pod.metadata.uid)
        nominated = {pod.status.nominated_node_name, "" if known is None else known.node} - {""}
        return any(
            now - intended.at <= _LAG_SECONDS and self._are_leaving(intended, node=node, named=node in nominated)
            for node, intended in self._intended.get(uid, {}).items()
        )

    def _are_leaving(self, intended: Intended, *, node: str, named: bool) -> bool:
        """Whether some of the victims are still there, of a node that was chosen: as the pod says, or as who leaves
        shows."""
        there = {uid for uid in intended.victims if self._ledger.claim(uid) is not None}
        return bool(there) and (named or len(there) < len(intended.victims) or not there.isdisjoint(self.leaving(node)))

    def review(self) -> None:
        """Keep room for those who have none by now; to be called every second or so."""
        for uid, nomination in self._pods.items():
            if self._ledger.claim(uid) is None:
                self._keep(uid, nomination)

    def fits_above(self, ask: Ask, *, nodes: Sequence[str], pod: Pod) -> list[str]:
        """Those of `nodes` that the pod would fit on but for nominated pods of lower priority."""
        lower = self._below(pod)
        concerned = {self._pods[uid].node for uid in lower}
        if concerned.isdisjoint(nodes):
            return []
        scratch = self.without_lower(pod)
        uid = pod.metadata.uid
        return [
            node for node in nodes if node in concerned and isinstance(check(scratch, ask, node=node, key=uid), Fit)
        ]

    def make_way(self, ask: Ask, *, node: str, pod: Pod) -> Fit | None:
        """The fit of a pod that nominated pods of lower priority kept off the node; their holds there end."""
        if not self.fits_above(ask, nodes=[node], pod=pod):
            return None
        for uid in self._below(pod):
            if self._pods[uid].node == node and self._ledger.is_hold(uid):
                self._ledger.release(uid)
        found = self._fit_cache.check(ask, node=node, key=pod.metadata.uid)
        return found if isinstance(found, Fit) else None

    def claim_without(self, gone: Iterable[str], ask: Ask, *, node: str, pod: Pod) -> Claim:
        """What the pod would have of a node on which it fits once these are gone, nominated pods of lower priority
        making way."""
        holds = [uid for uid in self._below(pod) if self._ledger.is_hold(uid)]
        with self._ledger.without([*gone, *holds]):
            found = self._fit_cache.check(ask, node=node, key=pod.metadata.uid)
        assert isinstance(found, Fit), "it was found to fit without them"
        return found.claim

    def without_lower(self, pod: Pod) -> Ledger:
        """A copy of the ledger as the pod sees it: nominated pods of lower priority keep no room from it."""
        scratch = self._ledger.copy()
        for uid in self._below(pod):
            if scratch.is_hold(uid):
                scratch.release(uid)
        return scratch

    def _below(self, pod: Pod) -> list[str]:
        priority = priority_of(pod)
        return [uid for uid, each in self._pods.items() if each.priority < priority and uid != pod.metadata.uid]

    def _nominated(self, pod: Pod, *, node: str) -> None:
        uid = pod.metadata.uid
        known = self._pods.get(uid)
        if known is not None and known.node == node:
            return
        self._drop(uid)
        try:
            ask = self._ask(pod)
        except RequestError:
            return
        if ask is not None:
            nomination = self._pods[uid] = _Nomination(node, priority_of(pod), ask)
            self._keep(uid, nomination)

    def _drop(self, uid: str) -> None:
        if self._pods.pop(uid, None) is not None and self._ledger.is_hold(uid):
            self._ledger.release(uid)

    def _keep(self, uid: str, nomination: _Nomination) -> None:
        standing = self._ledger.claim(uid)
        if standing is not None and not self._ledger.is_hold(uid):
            return
        intended = self._intended.get(uid, {}).get(nomination.node)
        claim = self._room_when_they_left(uid, nomination) if intended is None else intended.claim
        if claim is not None:
            self._ledger.commit(claim, hold_until=_FOR_EVER)

    def _room_when_they_left(self, uid: str, nomination: _Nomination) -> Claim | None:
        """Devices that are free for the pod, or will be when those who are leaving its node have left."""
        with self._ledger.without(self._leaving.get(nomination.node, ())):
            found = self._fit_cache.check(nomination.ask, node=nomination.node, key=uid)
        return found.claim if isinstance(found, Fit) else None

    def _note_leaving(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            self._leaving.setdefault(pod.spec.node_name, set()).add(pod.metadata.uid)

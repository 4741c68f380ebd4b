"""Holds for pods that kube-scheduler has nominated to a node and not bound yet. Pure.

kube-scheduler does not show nominated pods to extenders. Without a hold, the next pod would take the devices that the
victims free. So a nominated pod has a hold by device, in addition to the claims of its leaving victims, until it is
bound, deleted or no longer nominated. As in kube-scheduler, the hold counts against pods of the same or a lower
priority; a pod of higher priority may take the room.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.api.builtin import Pod, is_terminated
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.request import WHOLE_MILLI, RequestError

# Preemptions whose chosen devices are remembered until kube-scheduler nominates the pod.
REMEMBERED: Final = 1000
_FOR_EVER: Final = float("inf")
# The most by which our watch may lag behind kube-scheduler.
_LAG_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Nomination:
    node: str
    priority: int
    ask: Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Intended:
    """The claim that a pod gets on a node, its victims' UIDs, and the time of the decision."""

    claim: Claim
    victims: frozenset[str]
    at: float


def priority_of(pod: Pod) -> int:
    """The pod's priority as admission sets it; 0 without a priority class."""
    return pod.spec.priority or 0


class Nominations:
    """The nominated pods by UID, with their holds in the ledger.

    The caller must pass on every change of every pod, after the ledger has it. `fit_cache` belongs to the same ledger
    and chooses the devices, as for all other pods.
    """

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
        """The number of nominated pods that have a hold."""
        return sum(self._ledger.is_hold(uid) for uid in self._pods)

    def pod_changed(self, pod: Pod) -> None:
        """Take in an added or modified pod."""
        uid, node = pod.metadata.uid, pod.status.nominated_node_name
        if pod.spec.node_name:
            self._pods.pop(uid, None)
            self._note_leaving(pod)
        elif not node or is_terminated(pod):
            self._drop(uid)
        else:
            self._nominated(pod, node=node)

    def pod_gone(self, pod: Pod) -> None:
        """Take in a deleted pod, which the ledger has already released."""
        self._pods.pop(pod.metadata.uid, None)
        self._intended.pop(pod.metadata.uid, None)
        leaving = self._leaving.get(pod.spec.node_name)
        if leaving is not None:
            leaving.discard(pod.metadata.uid)
            if not leaving:
                del self._leaving[pod.spec.node_name]

    def leaving(self, node: str) -> frozenset[str]:
        """The UIDs of the bound pods that are being deleted from the node."""
        return frozenset(self._leaving.get(node, ()))

    def intend(self, uid: str, *, by_node: Mapping[str, Intended]) -> None:
        """Remember the devices that the pod gets on each node once its victims are gone."""
        self._intended[uid] = by_node
        self._intended.move_to_end(uid)
        if len(self._intended) > REMEMBERED:
            self._intended.popitem(last=False)

    def is_awaited(self, pod: Pod, *, now: float) -> bool:
        """Whether victims that were chosen for the pod moments ago are still leaving.

        kube-scheduler may see their deletion before we do. A refusal then would evict further pods on another node.
        `now` is the clock's time in seconds.
        """
        uid, known = pod.metadata.uid, self._pods.get(pod.metadata.uid)
        nominated = {pod.status.nominated_node_name, "" if known is None else known.node} - {""}
        return any(
            now - intended.at <= _LAG_SECONDS and self._are_leaving(intended, node=node, named=node in nominated)
            for node, intended in self._intended.get(uid, {}).items()
        )

    def _are_leaving(self, intended: Intended, *, node: str, named: bool) -> bool:
        """Whether some victims remain on a chosen node.

        A node is chosen if the pod's status nominates it (`named`), or if some of its victims have left or are leaving.
        """
        there = {uid for uid in intended.victims if self._ledger.claim(uid) is not None}
        return bool(there) and (named or len(there) < len(intended.victims) or not there.isdisjoint(self.leaving(node)))

    def review(self) -> None:
        """Create the holds that are missing; call this about every second."""
        for uid, nomination in self._pods.items():
            if self._ledger.claim(uid) is None:
                self._keep(uid, nomination=nomination)

    def fits_above(self, ask: Ask, *, nodes: Sequence[str], pod: Pod) -> list[str]:
        """Those of `nodes` that fit once nominated pods of lower priority lose their holds there."""
        lower = self._below(pod)
        concerned = {self._pods[uid].node for uid in lower}
        if concerned.isdisjoint(nodes):
            return []
        scratch = self.without_lower(pod)
        uid = pod.metadata.uid
        return [
            node for node in nodes if node in concerned and isinstance(check(scratch, ask=ask, node=node, key=uid), Fit)
        ]

    def fit_by_release(self, ask: Ask, *, node: str, pod: Pod) -> Fit | None:
        """Fit the pod by releasing the holds of nominated pods of lower priority on the node.

        None, with nothing released, if their holds do not keep the pod off.
        """
        if not self.fits_above(ask, nodes=[node], pod=pod):
            return None
        for uid in self._below(pod):
            if self._pods[uid].node == node and self._ledger.is_hold(uid):
                self._ledger.release(uid)
        found = self._fit_cache.check(ask, node=node, key=pod.metadata.uid)
        return found if isinstance(found, Fit) else None

    def claim_without(self, gone: Iterable[str], *, ask: Ask, node: str, pod: Pod) -> Claim:
        """The pod's claim once `gone` and the holds of lower-priority nominated pods are removed.

        The pod must fit then.
        """
        holds = [uid for uid in self._below(pod) if self._ledger.is_hold(uid)]
        with self._ledger.without([*gone, *holds]):
            found = self._fit_cache.check(ask, node=node, key=pod.metadata.uid)
        assert isinstance(found, Fit), "it was found to fit without them"
        return found.claim

    def without_lower(self, pod: Pod) -> Ledger:
        """A copy of the ledger without the holds of nominated pods of lower priority than the pod."""
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
            self._keep(uid, nomination=nomination)

    def _drop(self, uid: str) -> None:
        if self._pods.pop(uid, None) is not None and self._ledger.is_hold(uid):
            self._ledger.release(uid)

    def _keep(self, uid: str, *, nomination: _Nomination) -> None:
        standing = self._ledger.claim(uid)
        if standing is not None and not self._ledger.is_hold(uid):
            return
        claim = self._as_intended(uid, nomination=nomination) or self._room_when_they_left(uid, nomination=nomination)
        if claim is not None:
            self._ledger.commit(claim, hold_until=_FOR_EVER)

    def _as_intended(self, uid: str, *, nomination: _Nomination) -> Claim | None:
        """The devices that were chosen at preemption; None if none were, or something else has taken them since.

        A pod of higher priority may have taken them, or the pod was nominated elsewhere in between.
        """
        node, intended = nomination.node, self._intended.get(uid, {}).get(nomination.node)
        if intended is None:
            return None
        lower = {each for each, other in self._pods.items() if other.priority < nomination.priority}
        gone = {*self._leaving.get(node, ()), *intended.victims, *filter(self._ledger.is_hold, lower)}
        left = [claim for claim in self._ledger.claims_on(node) if claim.key not in {*gone, uid}]
        taken = Counter[str]()
        for device in (device for claim in (*left, intended.claim) for device in claim.devices):
            taken[device.uuid] += device.share_milli
        if any(taken[device.uuid] > WHOLE_MILLI for device in intended.claim.devices):
            return None
        with self._ledger.without(gone):
            found = self._fit_cache.check(nomination.ask, node=node, key=uid)
        return intended.claim if isinstance(found, Fit) else None

    def _room_when_they_left(self, uid: str, *, nomination: _Nomination) -> Claim | None:
        """The claim that the pod gets on its node now, or once the pods that are leaving have left."""
        with self._ledger.without(self._leaving.get(nomination.node, ())):
            found = self._fit_cache.check(nomination.ask, node=nomination.node, key=uid)
        return found.claim if isinstance(found, Fit) else None

    def _note_leaving(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            self._leaving.setdefault(pod.spec.node_name, set()).add(pod.metadata.uid)

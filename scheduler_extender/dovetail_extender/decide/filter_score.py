"""Filter and prioritize, decided over the ledger. No I/O; the clock is an argument.

Each decision leaves a hold under the pod's UID on the best node. kube-scheduler sends nothing more before it binds, and
the extender decides other pods in between. Prioritize creates the hold, or filter when a single node is left, because
kube-scheduler does not score a single node. Repeated requests are safe: a pod's own hold does not count against it.

A pod with a firm promise has a bind that is running or whose outcome is unknown. Filter offers it only the same node,
where repeating the bind is safe.

What a pod asks for is read once for each content of a pod (`Asks`), and at the bind the claim becomes the record of
which container gets which devices (`allocation_of`).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from dovetail import names
from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import Policy
from dovetail.api.reasons import start as says
from dovetail.api.reasons.refusals import BIND_UNSETTLED
from dovetail.cluster.view import ClusterView
from dovetail.engine.filter.fit import Fit
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.ranking import DEFAULT_RANKINGS, Ranking, Rankings
from dovetail.engine.model.refusals import Refusal
from dovetail.engine.model.settings import FragmentationPolicy, Limits
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.live_fragmentation import FragmentationSettings, LiveFragmentation
from dovetail.engine.score.warm_start import count_pods
from dovetail.formats.quantities import QuantityError
from dovetail.gpu.device_plugins import Vendors
from dovetail.gpu.request import RequestError
from dovetail.pods.allocation import Allocation, ContainerAllocation
from dovetail.pods.containers import parts_of
from dovetail.pods.demand import ask_of_pod
from dovetail.pods.options.annotations import check_pod
from dovetail.pods.tenancy import Tenancy
from dovetail_extender.decide.quotas import PodQuotas
from dovetail_extender.decide.tenancies import Tenancies
from dovetail_extender.holds.nominations import Nominations
from dovetail_extender.holds.planned_workers import ELSEWHERE, Place, Plans
from dovetail_extender.protocol import ScheduledPod

# kube-scheduler adds score x 10 to the sum of its own plugins: up to 1,200 in its default profile, of which 200 for
# preferred node affinity. With SCALE the engine's order decides: a share of 0.01 on a node with eight GPUs moves the
# scores by 0.0001 at least, which is 10,000 of kube-scheduler's points. For a pod with preferences of its own, the
# smaller scale lets these outweigh differences of up to a fifth of the scale.
SCALE: Final = 10_000_000
SCALE_BESIDE_WISHES: Final = 100

# kube-scheduler's own scoring costs more for each node than ours, so filter answers only the best few. _NEAR leaves out
# nodes that its plugins cannot lift above the best one: their 1,200 points are 120 of ours, because ours count tenfold.
FILTER_LIMIT: Final = 64
NEAR: Final = 120 / SCALE

_UNSETTLED: Final = BIND_UNSETTLED().message


# Pod versions whose request is cached, and contents of pods.
REMEMBERED: Final = 1024
_ENCODER: Final = msgspec.msgpack.Encoder()
_OURS: Final = f"{names.GROUP}/"


class Asks:
    """Cache of pods' requests: by version, because filter, prioritize and bind read the same one, and by content,
    because pods of one template request the same.

    `rankings` are those of the namespaces.
    """

    def __init__(self, *, rankings: Rankings, vendors: Vendors) -> None:
        self._rankings = rankings
        self._vendors = vendors
        self._known: OrderedDict[tuple[str, str], Ask | None] = OrderedDict()
        self._by_content: OrderedDict[bytes, Ask | None] = OrderedDict()

    def configure(self, *, rankings: Rankings) -> None:
        """Apply other rankings: all pods are read again."""
        self._rankings = rankings
        self._known.clear()
        self._by_content.clear()

    def policy_of(self, namespace: str) -> Policy:
        """The policy for the pods of a namespace that name none."""
        return self._rankings.of(namespace).policy

    def request(self, pod: Pod) -> Ask | None:
        """The pod's request, or None when it asks for no GPU of Dovetail's or of a vendor's.

        Raises `RequestError`.
        """
        version = pod.metadata.uid, pod.metadata.resource_version
        if all(version) and version in self._known:
            return self._known[version]
        ask = self._of_content(pod)
        if all(version):
            self._known[version] = ask
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return ask

    def _of_content(self, pod: Pod) -> Ask | None:
        content = _content(pod)
        if content in self._by_content:
            return self._by_content[content]
        ask = _read(pod, ranking=self._rankings.of(pod.metadata.namespace), vendors=self._vendors)
        self._by_content[content] = ask
        if len(self._by_content) > REMEMBERED:
            self._by_content.popitem(last=False)
        return ask


def _content(pod: Pod) -> bytes:
    """A digest of all that a request is read from: namespace, spec and annotations of ours."""
    annotations = {key: text for key, text in pod.metadata.annotations.items() if key.startswith(_OURS)}
    return blake2b(_ENCODER.encode((pod.metadata.namespace, pod.spec, annotations)), digest_size=32).digest()


def _read(pod: Pod, *, ranking: Ranking, vendors: Vendors) -> Ask | None:
    try:
        if not pod.spec.node_name:
            check_pod(pod, ranking=ranking)
        return ask_of_pod(pod, ranking=ranking, vendors=vendors)
    except QuantityError as error:
        raise RequestError(
            str(error.text), field="resources", problem=says.NO_QUANTITY(), example="100m or 2Gi"
        ) from error


def allocation_of(claim: Claim, *, pod: Pod, tenancy: Tenancy) -> Allocation:
    """The claim as the pod's annotations record it, its devices assigned to containers in order."""
    devices = iter(claim.devices)
    containers = [
        ContainerAllocation(index=part.index, devices=list(islice(devices, part.request.count)))
        for part in parts_of(pod).parts
    ]
    containers.sort(key=lambda container: container.index)
    return Allocation(
        node=claim.node,
        mode=claim.mode,
        containers=containers,
        guard_fraction=claim.guard_fraction,
        workload=claim.workload,
        movable=claim.movable,
        priority=tenancy.priority,
        reservation=tenancy.reservation,
        job=tenancy.job,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The configuration of decisions.

    `rankings` say by namespace how pods rank nodes. `filter_limit` bounds the nodes in an
    answer, and a hold expires after `hold_ttl_seconds`.
    """

    rankings: Rankings = DEFAULT_RANKINGS
    fragmentation: FragmentationPolicy = "ph"
    filter_limit: int = FILTER_LIMIT
    hold_ttl_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """The answer to filter: the nodes to continue with, or the reasons against each node.

    Nodes that fit but are not among the best few appear in neither, and reasons exist only while no node fits.
    `invalid` is the message for an unreadable request, which fits no node. `ask` is the pod's request, and `place` its
    place in the plan of its job.
    """

    nodes: list[str] = field(default_factory=list)
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    invalid: str = ""
    ask: Ask | None = None
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Foreseen:
    """A pod's claim on a node, valid while the node's last change is `changed_at`."""

    ask: Ask
    claim: Claim
    changed_at: int


class Decisions:
    """Filter and prioritize over one cluster view."""

    def __init__(self, *, view: ClusterView, rules: Rules, clock: Callable[[], float]) -> None:
        self._ledger = view.ledger
        self._asks = Asks(rankings=rules.rankings, vendors=view.vendors)
        self.fragments = LiveFragmentation(view.ledger, settings=FragmentationSettings(policy=rules.fragmentation))
        self.fit_cache = FitCache(view.ledger, term=self.fragments)
        self._rules = rules
        self._clock = clock
        self._foreseen: OrderedDict[str, _Foreseen] = OrderedDict()
        self.nominations = Nominations(ledger=view.ledger, fit_cache=self.fit_cache, ask=self.ask)
        self.quotas = PodQuotas(ledger=view.ledger, nodes=view.nodes)
        self.tenancies = Tenancies()
        self.plans = Plans(
            ledger=view.ledger,
            fit_cache=self.fit_cache,
            nominations=self.nominations,
            vendors=view.vendors,
            policy_of=self._asks.policy_of,
            clock=clock,
        )

    def configure(self, rules: Rules, *, limits: Limits) -> None:
        """Apply a new configuration: those of its values that count at once."""
        self._asks.configure(rankings=rules.rankings)
        self._ledger.set_tenant_limits(
            training_per_device=limits.training_per_device, inference_per_device=limits.inference_per_device
        )

    def filter(self, pod: ScheduledPod, *, nodes: Sequence[str]) -> Filtered:
        """The best few of `nodes` that the pod fits on; all that fit, if the pod has preferences.

        Creates a hold when a single node is left.
        """
        try:
            ask = self.ask(pod)
        except RequestError as error:
            return Filtered(invalid=str(error))
        uid = pod.metadata.uid
        if ask is not None:
            self.fragments.arrived(ask, key=uid)
        pinned = self._pinned_to(uid)
        if pinned is not None:
            return _only(pinned, nodes=nodes, ask=ask)
        if ask is None:
            return Filtered(nodes=list(nodes))
        place = self.plans.place_of(pod, ask=ask)
        if place is not None:
            return self._planned(ask, place=place, nodes=nodes)
        beyond = self.quotas.refusal(pod, ask=ask)
        if beyond is not None:
            return Filtered(refusals=dict.fromkeys(nodes, beyond), ask=ask)
        nodes, outside = self.quotas.allowed(pod, nodes=nodes)
        fits = self._alone(ask, node=nodes[0], key=uid) if len(nodes) == 1 else self._best(ask, nodes=nodes, pod=pod)
        fits = fits or self.nominations.fits_above(ask, nodes=nodes, pod=pod)
        # Only a pod that fits nowhere needs reasons: kube-scheduler discards them when any node fits.
        refusals = {} if fits else self.fit_cache.refusals(ask, nodes=nodes, key=uid)
        return Filtered(nodes=fits, refusals={**refusals, **({} if fits else outside)}, ask=ask)

    def _planned(self, ask: Ask, *, place: Place | Refusal, nodes: Sequence[str]) -> Filtered:
        """The answer for a worker of a plan: its own node once it fits there, and no other."""
        if isinstance(place, Refusal):
            return Filtered(refusals=dict.fromkeys(nodes, place), ask=ask)
        found = self.plans.check(place, ask=ask)
        if isinstance(found, Fit) and place.node in nodes:
            return Filtered(nodes=[place.node], ask=ask, place=place)
        refusals = dict.fromkeys(nodes, Refusal(kind="Held", message=ELSEWHERE, text=ELSEWHERE))
        if isinstance(found, Refusal) and place.node in refusals:
            refusals[place.node] = found
        return Filtered(refusals=refusals, ask=ask, place=place)

    def _best(self, ask: Ask, *, nodes: Sequence[str], pod: ScheduledPod) -> list[str]:
        uid = pod.metadata.uid
        if pod.spec.has_wishes:
            return self.fit_cache.best(ask, nodes=nodes, key=uid)
        # Pack is the engine's order alone. FGD's result depends on the same node winning each of its many ties, and
        # kube-scheduler's own scores, which prefer idle nodes, would decide between equal nodes.
        limit = 1 if ask.policy == "Pack" else self._rules.filter_limit
        found = self.fit_cache.best(ask, nodes=nodes, key=uid, limit=limit, within=NEAR)
        if len(found) == 1:
            self._hold(ask, node=found[0], key=uid)
        return found

    def _alone(self, ask: Ask, *, node: str, key: str) -> list[str]:
        """The single node of the request, if the pod fits there; kube-scheduler binds it next."""
        found = self.fit_cache.check(ask, node=node, key=key)
        if isinstance(found, Refusal):
            return []
        self._foresee(ask, claim=found.claim)
        return [node]

    def prioritize(self, pod: ScheduledPod, *, nodes: Sequence[str]) -> list[int]:
        """An integer score for each of `nodes`, higher is better; creates a hold on the best node.

        The scores are all 0 where there is nothing to choose: the pod asks for no device, has a firm promise, or has a
        place in a plan.
        """
        uid = pod.metadata.uid
        try:
            ask = self.ask(pod)
        except RequestError:
            ask = None
        if (
            ask is None
            or not nodes
            or self._pinned_to(uid) is not None
            or self.plans.place_of(pod, ask=ask) is not None
        ):
            return [0] * len(nodes)
        ranks = np.asarray(self.fit_cache.scores(ask, nodes=nodes, key=uid))
        best = int(np.argmax(ranks))
        self._hold(ask, node=nodes[best], key=uid)
        scale = SCALE_BESIDE_WISHES if pod.spec.has_wishes else SCALE
        scores: list[int] = np.rint(ranks * scale).astype(int).tolist()
        # kube-scheduler picks at random among equal scores: the node with the hold must win.
        scores[best] += 1
        return scores

    def count_pods(self, pods: Iterable[Pod]) -> Iterator[int]:
        """Count bound pods as arrivals, in small steps; filter counts the other pods."""
        bound = (pod for pod in pods if pod.spec.node_name and not is_terminated(pod))
        return count_pods(self.fragments, asks=((pod.metadata.uid, self._ask_of_bound(pod)) for pod in bound))

    def _ask_of_bound(self, pod: Pod) -> Ask | None:
        try:
            return self.ask(pod)
        except RequestError:
            return None

    def ask(self, pod: Pod) -> Ask | None:
        """The pod's request, with its namespace's policy if it names none. Raises `RequestError`."""
        return self._asks.request(pod)

    def claim(self, ask: Ask, *, pod: Pod, node: str) -> Claim | Refusal:
        """The pod's claim on the node, or why it does not fit.

        Takes the room of nominated pods of lower priority if the pod needs it. Skips the check when the node has not
        changed since the decision.
        """
        place = self.plans.place_of(pod, ask=ask)
        if place is not None:
            if isinstance(place, Refusal):
                return place
            return self.plans.take(place, ask=ask, node=node, key=pod.metadata.uid)
        beyond = self.quotas.refusal(pod, ask=ask)
        if beyond is not None:
            return beyond
        seen = self._foreseen.pop(pod.metadata.uid, None)
        if (
            seen is not None
            and (seen.ask, seen.claim.node) == (ask, node)
            and seen.changed_at == self._ledger.changed_at(node)
        ):
            return seen.claim
        found = self.fit_cache.check(ask, node=node, key=pod.metadata.uid)
        if isinstance(found, Refusal):
            made = self.nominations.fit_by_release(ask, node=node, pod=pod)
            return found if made is None else made.claim
        return found.claim

    def _pinned_to(self, uid: str) -> str | None:
        claim = self._ledger.claim(uid)
        return None if claim is None or self._ledger.is_hold(uid) else claim.node

    def _hold(self, ask: Ask, *, node: str, key: str) -> None:
        found = self.fit_cache.check(ask, node=node, key=key)
        if isinstance(found, Fit):
            self._ledger.commit(found.claim, hold_until=self._clock() + self._rules.hold_ttl_seconds)
            self._foresee(ask, claim=found.claim)

    def _foresee(self, ask: Ask, *, claim: Claim) -> None:
        """Cache the claim for the pod's bind; this holds nothing."""
        self._foreseen[claim.key] = _Foreseen(ask=ask, claim=claim, changed_at=self._ledger.changed_at(claim.node))
        if len(self._foreseen) > REMEMBERED:
            self._foreseen.popitem(last=False)


def _only(pinned: str, *, nodes: Sequence[str], ask: Ask | None) -> Filtered:
    refusal = Refusal(kind="Held", message=_UNSETTLED, text=_UNSETTLED)
    return Filtered(
        nodes=[name for name in nodes if name == pinned],
        refusals={name: refusal for name in nodes if name != pinned},
        ask=ask,
    )

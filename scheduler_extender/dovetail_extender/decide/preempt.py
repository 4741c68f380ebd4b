"""Preempt: choose victims by device. Pure.

kube-scheduler counts sums: of eight half devices on four devices it would evict any two pods for a pod that needs one
whole device. So the extender chooses the victims itself on each node that kube-scheduler offers. It first removes all
pods of lower priority, then puts them back one by one, the most important first, as long as the preemptor still fits.
Pods that kube-scheduler did not pick come back first, because its choice respects disruption budgets. kube-scheduler
itself breaks a budget where no other victims suffice; here such a node is left out. Two kinds of pods are never victims
(contracts §3.4):

- pods of GPUJobs, because only the operator preempts those;
- pods with devices of another namespace than the preemptor's. Every cluster has PriorityClasses such as
  `system-cluster-critical`, and anyone who may create pods may name one, so a priority is no right over other tenants.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.api.builtin import Pod
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.gpu.request import RequestError
from dovetail.pods.disruption_budgets import covered_pods, disruptions_allowed, may_end_together, refusing_budget
from dovetail.pods.tenancy import job_it_was_of
from dovetail_extender.holds.nominations import Intended, Nominations, priority_of
from dovetail_extender.protocol import MetaPod, MetaVictims, PreemptArgs

# Nodes in an answer. kube-scheduler takes one, and each costs a check for every pod on it.
ENOUGH: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """The victims on a node, and the claim that the pod gets once they are gone."""

    victims: list[Pod]
    claim: Claim


class Preempting:
    """Chooses victims over one cluster view; `pods` and `budgets` return all of them in the cache."""

    def __init__(
        self,
        *,
        ask: Callable[[Pod], Ask | None],
        nominations: Nominations,
        pods: Callable[[], Iterable[Pod]],
        budgets: Callable[[], Iterable[PodDisruptionBudget]],
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._ask = ask
        self._nominations = nominations
        self._pods = pods
        self._budgets = budgets

    def preempt(self, args: PreemptArgs) -> dict[str, MetaVictims]:
        """The victims for each node on which evictions make room; other nodes are left out.

        Empty while victims that were chosen for this pod moments ago are still leaving.
        """
        try:
            ask = self._ask(args.pod)
        except RequestError:
            ask = None
        now = self._clock()
        if ask is None or self._nominations.is_awaited(args.pod, now=now):
            return {}
        ways = self._ways(args, ask=ask)
        self._nominations.intend(
            args.pod.metadata.uid,
            by_node={
                node: Intended(claim=way.claim, victims=frozenset(pod.metadata.uid for pod in way.victims), at=now)
                for node, way in ways.items()
            },
        )
        return {
            node: MetaVictims(
                pods=[MetaPod(uid=pod.metadata.uid) for pod in way.victims],
                num_pdb_violations=0,
            )
            for node, way in ways.items()
        }

    def _ways(self, args: PreemptArgs, *, ask: Ask) -> dict[str, _Way]:
        scratch = self._nominations.without_lower(args.pod)
        tenants, budgets = self._evictable(args, scratch=scratch), tuple(self._budgets())
        found: dict[str, _Way] = {}
        # kube-scheduler's order of preference, because only the first `ENOUGH` are answered.
        for node in sorted(args.victims, key=lambda name: _cost(args.victims[name])):
            victims = _victims(scratch, ask=ask, node=node, tenants=tenants.get(node, []), args=args, budgets=budgets)
            if victims:
                gone = [pod.metadata.uid for pod in victims]
                claim = self._nominations.claim_without(gone, ask=ask, node=node, pod=args.pod)
                found[node] = _Way(victims=victims, claim=claim)
            if len(found) == ENOUGH:
                break
        return found

    def _evictable(self, args: PreemptArgs, *, scratch: Ledger) -> Mapping[str, list[Pod]]:
        """The pods that may be evicted for the request's pod, by node."""
        priority = priority_of(args.pod)
        found: dict[str, list[Pod]] = {}
        for pod in self._pods():
            node = pod.spec.node_name
            if node in args.victims and priority_of(pod) < priority and not of_gpujob(pod):
                claim = scratch.claim(pod.metadata.uid)
                if claim is None or claim.node != node:
                    continue
                if not _holds_devices(claim) or pod.metadata.namespace == args.pod.metadata.namespace:
                    found.setdefault(node, []).append(pod)
        return found


def of_gpujob(pod: Pod) -> bool:
    """Whether the pod belongs to a GPUJob; a label without the owner reference does not count."""
    return bool(job_it_was_of(pod))


def _victims(
    scratch: Ledger,
    *,
    ask: Ask,
    node: str,
    tenants: list[Pod],
    args: PreemptArgs,
    budgets: Sequence[PodDisruptionBudget],
) -> list[Pod]:
    """The pods to evict so that the request fits on the node; empty if evictions within their budgets do not help."""
    picked = {pod.uid for pod in args.victims[node].pods}
    able = [pod for pod in tenants if not refusing_budget([pod], budgets=budgets)]
    found = _fewest(scratch, ask=ask, node=node, tenants=able, args=args)
    if not refusing_budget(found, budgets=budgets):
        return found
    # The first ones to leave that may leave together. Another choice of them could suffice where these do not.
    able.sort(key=lambda pod: _order_of_staying(pod, picked=picked), reverse=True)
    covered = [covered_pods([pod], budgets=budgets) for pod in able]
    together = may_end_together(covered, allowed=disruptions_allowed(budgets))
    return _fewest(scratch, ask=ask, node=node, tenants=[able[at] for at in together], args=args)


def _fewest(scratch: Ledger, *, ask: Ask, node: str, tenants: list[Pod], args: PreemptArgs) -> list[Pod]:
    """The fewest of these pods, as `_order_of_staying` has it, whose evictions make room. `scratch` stays as it is."""
    picked = {pod.uid for pod in args.victims[node].pods}
    claims = {
        pod.metadata.uid: scratch.release(pod.metadata.uid)
        for pod in tenants
        if _concerns(pod, scratch=scratch, picked=picked)
    }
    key, victims = args.pod.metadata.uid, list[Pod]()
    if not claims or not isinstance(check(scratch, ask=ask, node=node, key=key), Fit):
        _restore(scratch, claims=claims.values())
        return []
    for pod in sorted(tenants, key=lambda pod: _order_of_staying(pod, picked=picked)):
        claim = claims.get(pod.metadata.uid)
        if claim is None:
            continue
        scratch.commit(claim)
        # kube-scheduler picked a pod without devices for a reason of its own, so that pod stays a victim.
        if not _holds_devices(claim) or not isinstance(check(scratch, ask=ask, node=node, key=key), Fit):
            scratch.release(pod.metadata.uid)
            victims.append(pod)
    _restore(scratch, claims=[claims[pod.metadata.uid] for pod in victims])
    return victims


def _restore(scratch: Ledger, *, claims: Iterable[Claim | None]) -> None:
    for claim in claims:
        if claim is not None:
            scratch.commit(claim)


def _concerns(pod: Pod, *, scratch: Ledger, picked: set[str]) -> bool:
    claim = scratch.claim(pod.metadata.uid)
    return claim is not None and (_holds_devices(claim) or pod.metadata.uid in picked)


def _holds_devices(claim: Claim) -> bool:
    return bool(claim.devices or claim.picked)


def _order_of_staying(pod: Pod, *, picked: set[str]) -> tuple[bool, bool, int, str]:
    """Sort key: keep pods that are not leaving, not picked, more important, and started earlier."""
    meta = pod.metadata
    leaving = meta.deletion_timestamp is not None
    return leaving, meta.uid in picked, -priority_of(pod), pod.status.start_time or "9"


def _cost(victims: MetaVictims) -> tuple[int, int]:
    return victims.num_pdb_violations, len(victims.pods)

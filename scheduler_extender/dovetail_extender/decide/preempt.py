"""Preempt: whose leaving makes room, chosen by device. Pure.

kube-scheduler counts sums: of eight halves on four devices it would evict any two for a pod that needs one whole one.
For each node that it offers, the victims are chosen anew among the pods of lower priority there: first all of them
count as gone, and then they are let stay one by one, the most important first, as long as the pod still fits. Those
that kube-scheduler did not pick are let stay before those that it did, since it looked at disruption budgets. Pods of
GPUJobs are never offered: among them preemption has one hand, the operator's (contracts §3.4).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dovetail.api.builtin import Pod
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.gpu.request import RequestError
from dovetail.pods.tenancy import job_it_was_of
from dovetail_extender.holds.nominations import Intended, Nominations, priority_of
from dovetail_extender.protocol import MetaPod, MetaVictims, PreemptArgs

# Nodes that are answered with. kube-scheduler takes one, and each costs a look at every pod on it.
ENOUGH: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How a pod gets onto a node: who leaves, and what it has then."""

    victims: list[Pod]
    claim: Claim


class Preempting:
    """Chooses victims over one picture of the cluster; `pods` gives all pods as last seen."""

    def __init__(
        self,
        *,
        ask: Callable[[Pod], Ask | None],
        nominations: Nominations,
        pods: Callable[[], Iterable[Pod]],
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._ask = ask
        self._nominations = nominations
        self._pods = pods

    def preempt(self, args: PreemptArgs) -> dict[str, MetaVictims]:
        """Victims for the nodes where somebody's leaving makes room; the other nodes are left out, and all of them
        while the victims of a moment ago are leaving."""
        try:
            ask = self._ask(args.pod)
        except RequestError:
            ask = None
        now = self._clock()
        if ask is None or self._nominations.is_awaited(args.pod, now=now):
            return {}
        ways = self._ways(args, ask)
        self._nominations.intend(
            args.pod.metadata.uid,
            {
                node: Intended(claim=way.claim, victims=frozenset(pod.metadata.uid for pod in way.victims), at=now)
                for node, way in ways.items()
            },
        )
        return {
            node: MetaVictims(
                pods=[MetaPod(uid=pod.metadata.uid) for pod in way.victims],
                num_pdb_violations=args.victims[node].num_pdb_violations,
            )
            for node, way in ways.items()
        }

    def _ways(self, args: PreemptArgs, ask: Ask) -> dict[str, _Way]:
        scratch = self._nominations.without_lower(args.pod)
        tenants = self._evictable(args, scratch=scratch)
        found: dict[str, _Way] = {}
        # Those first that kube-scheduler would prefer.
        for node in sorted(args.victims, key=lambda name: _cost(args.victims[name])):
            victims = _victims(scratch, ask, node=node, tenants=tenants.get(node, []), args=args)
            if victims:
                gone = [pod.metadata.uid for pod in victims]
                claim = self._nominations.claim_without(gone, ask, node=node, pod=args.pod)
                found[node] = _Way(victims=victims, claim=claim)
            if len(found) == ENOUGH:
                break
        return found

    def _evictable(self, args: PreemptArgs, *, scratch: Ledger) -> Mapping[str, list[Pod]]:
        """The pods that may be evicted for this one, by node."""
        priority = priority_of(args.pod)
        found: dict[str, list[Pod]] = {}
        for pod in self._pods():
            node = pod.spec.node_name
            if node in args.victims and priority_of(pod) < priority and not of_gpujob(pod):
                claim = scratch.claim(pod.metadata.uid)
                if claim is not None and claim.node == node:
                    found.setdefault(node, []).append(pod)
        return found


def of_gpujob(pod: Pod) -> bool:
    """Whether the pod belongs to a GPUJob; one that only says so may be evicted as any other."""
    return bool(job_it_was_of(pod))


def _victims(scratch: Ledger, ask: Ask, *, node: str, tenants: list[Pod], args: PreemptArgs) -> list[Pod]:
    """Whose leaving makes room on a node; nobody where that is of no use."""
    picked = {pod.uid for pod in args.victims[node].pods}
    claims = {pod.metadata.uid: scratch.release(pod.metadata.uid) for pod in tenants if _concerns(pod, scratch, picked)}
    key = args.pod.metadata.uid
    if not claims or not isinstance(check(scratch, ask, node=node, key=key), Fit):
        return []
    victims = []
    for pod in sorted(tenants, key=lambda pod: _order_of_staying(pod, picked=picked)):
        claim = claims.get(pod.metadata.uid)
        if claim is None:
            continue
        holds_devices = bool(claim.devices or claim.unnamed)
        scratch.commit(claim)
        # One without devices was picked for another reason, which is kube-scheduler's to know.
        if not holds_devices or not isinstance(check(scratch, ask, node=node, key=key), Fit):
            scratch.release(pod.metadata.uid)
            victims.append(pod)
    return victims


def _concerns(pod: Pod, scratch: Ledger, picked: set[str]) -> bool:
    claim = scratch.claim(pod.metadata.uid)
    return claim is not None and (bool(claim.devices or claim.unnamed) or pod.metadata.uid in picked)


def _order_of_staying(pod: Pod, *, picked: set[str]) -> tuple[bool, bool, int, str]:
    """Who is let stay first: one that is not leaving already, was not picked, is more important, runs for longer."""
    meta = pod.metadata
    leaving = meta.deletion_timestamp is not None
    return leaving, meta.uid in picked, -priority_of(pod), pod.status.start_time or "9"


def _cost(victims: MetaVictims) -> tuple[int, int]:
    return victims.num_pdb_violations, len(victims.pods)

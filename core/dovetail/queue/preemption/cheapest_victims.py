"""The cheapest jobs of borrowers after whose end a job within its guarantee provably starts. Pure.

What a victim costs is its lost work: its GPUs times the time since it started, or since it can have saved its work.
A few victims are chosen exactly, in the order of their cost. Where there are too many sets for that, they are added one
by one, by cost for each GPU and node by node, and the unnecessary ones are reprieved again.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Final

from dovetail.engine.ledger.ledger import Ledger
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.preemption import together
from dovetail.queue.preemption.victims import Proof, Proofs, Running
from dovetail.queue.quota_tree.loans import Loans

# The most sets that the exact choice looks at, and the most of them that it proves: a proof places the whole job.
_SETS: Final = 512
_PROOFS: Final = 48
# The number of nodes on which a job of one worker looks for victims, and of victims that are reprieved one by one.
_NODES: Final = 32
_SPARED: Final = 48
# So many victims above the least possible number are tried first.
_NEAR: Final = 8

# Lost GPU seconds, number of victims, sum of their priorities.
Cost = tuple[float, int, int]


@dataclass(slots=True)
class Choice:
    """The choice of victims for one job.

    - `proofs`: tests whether the job has room without some victims
    - `loans`: the use of the tree in this cycle; unchanged when a method returns
    - `owner`: index of the quota whose guarantee covers the job
    - `potential_victims`: the jobs that may end
    """

    proofs: Proofs
    loans: Loans
    owner: int
    potential_victims: Sequence[Running]

    def cheapest(self) -> Proof | None:
        """The proof that loses the least work; None where no victims suffice."""
        ordered = sorted(self.potential_victims, key=self._rank)
        found = self._exactly(ordered, proofs=_PROOFS)
        return self.roughly() if found is None else found

    def roughly(self) -> Proof | None:
        """A proof for too many sets to try each: victims that are added one by one, without the unnecessary ones."""
        ordered = sorted(self.potential_victims, key=self._rank)
        # A limit may need the end of jobs on other nodes than those that make room.
        by_node = self.proofs.job.workers == 1 and self.proofs.allows is None
        several = self._on_one_node(ordered) if by_node else self._by_adding(ordered)
        return min(several, key=lambda proof: self.cost(proof.victims), default=None)

    def cost(self, victims: Sequence[Running]) -> Cost:
        """What the end of these jobs loses."""
        lost = sum(self._lost(each) for each in victims)
        return lost, len(victims), sum(each.priority for each in victims)

    def _lost(self, victim: Running) -> float:
        return self._milli(victim) / WHOLE_MILLI * victim.lost_seconds

    def _rank(self, victim: Running) -> tuple[float, int, float, str]:
        return self._lost(victim), victim.priority, victim.run_seconds, victim.key

    def _milli(self, victim: Running) -> int:
        charge = self.loans.charge(victim.key)
        return 0 if charge is None else charge.milli

    # --- few victims ---------------------------------------------------------------------------------------------

    def _exactly(
        self, ordered: Sequence[Running], *, proofs: int, nodes: Sequence[str] | None = None, below: Cost | None = None
    ) -> Proof | None:
        """The cheapest set of victims, by trying sets in the order of their cost.

        None where none is found within the bounds, or none that costs less than `below`.
        """
        missing, left = self._missing_milli(nodes), proofs
        for victims in _by_cost(ordered, cost=self.cost):
            if below is not None and self.cost(victims) >= below:
                return None
            if sum(self._milli(each) for each in victims) < missing or not self.may_all_end(victims):
                continue
            if self.proofs.allows is not None and not self.proofs.allows(victims):
                continue
            if not left:
                return None
            left -= 1
            proof = self.proofs.without(victims, nodes=nodes)
            if proof is not None:
                return proof
        return None

    def _missing_milli(self, nodes: Sequence[str] | None = None) -> int:
        """What at least has to come back, in milli: less makes no room, whichever jobs end."""
        job, ledger = self.proofs.job, self.proofs.ledger
        if job.ask.gpu is None or job.ask.mode == "TimeShared" or job.ask.profile:
            return 0
        if nodes is None:
            totals = ledger.totals()
            free = totals.milli - totals.promised_milli
        else:
            free = sum(_free_milli(ledger, node=node) for node in nodes)
        workers = job.workers if job.least is None else job.least
        return workers * job.ask.gpu.total_milli - max(0, free)

    def may_all_end(self, victims: Sequence[Running]) -> bool:
        """Whether all of these jobs may end together: no quota falls below its guarantee."""
        with self._without(victims) as ended:
            return len(ended) == len(victims)

    def _without(self, victims: Sequence[Running]) -> AbstractContextManager[list[Running]]:
        """Uncount the victims one by one, those that leave their quotas their guarantees, within the context."""
        return together.without(victims, loans=self.loans, may_end=self._may_end)

    def _may_end(self, victim: Running) -> bool:
        return self.loans.gives_back(victim.key, to=self.proofs.job.key, owner=self.owner)

    # --- many victims --------------------------------------------------------------------------------------------

    def _on_one_node(self, ordered: Sequence[Running]) -> list[Proof]:
        """The best proof on each of the most promising nodes, for a job of one worker."""
        found: list[Proof] = []
        # Nodes whose jobs probably may not all end, because their quotas keep their guarantees, hide no others.
        left = {True: _NODES, False: _NODES}
        likely = sorted(
            (self._least(there, missing=self._missing_milli([node])), node, there)
            for node, there in self._by_node(ordered).items()
        )
        for least, node, there in likely:
            best = min((self.cost(proof.victims) for proof in found), default=None)
            if not any(left.values()) or (best is not None and least >= best[0]):
                break
            lends = self._lends(there, node=node)
            if not left[lends]:
                continue
            left[lends] -= 1
            proof = self._exactly(there, proofs=8, nodes=[node], below=best) or self._adding(there, nodes=[node])
            if proof is not None:
                found.append(proof)
        return found

    def _lends(self, there: Sequence[Running], *, node: str) -> bool:
        """Whether the jobs of a node that may end together, the cheapest first, give back what is missing there."""
        with self._without(there) as ended:
            return sum(self._milli(each) for each in ended) >= self._missing_milli([node])

    def _by_node(self, ordered: Sequence[Running]) -> dict[str, list[Running]]:
        """The potential victims on each node that the waiting job may use."""
        there: dict[str, list[Running]] = {}
        for each in ordered:
            for node in {claim.node for key in each.claims if (claim := self.proofs.ledger.claim(key)) is not None}:
                there.setdefault(node, []).append(each)
        allowed = self.proofs.sites.get(self.proofs.job.site)
        return there if allowed is None else {node: there[node] for node in allowed if node in there}

    def _least(self, there: Sequence[Running], *, missing: int) -> float:
        """A lower bound of the work that is lost on a node: the cheapest GPUs, parts of jobs too."""
        lost, left = 0.0, missing
        for each in sorted(there, key=lambda victim: victim.lost_seconds):
            if left <= 0:
                break
            taken = min(left, self._milli(each))
            lost, left = lost + taken / WHOLE_MILLI * each.lost_seconds, left - taken
        return lost if left <= 0 else float("inf")

    def _by_adding(self, ordered: Sequence[Running]) -> list[Proof]:
        """Proofs for a gang: victims added by cost for each GPU, and node by node."""
        by_gpu = sorted(ordered, key=lambda each: (each.lost_seconds, *self._rank(each)))
        nodes = self._by_node(by_gpu)
        price = {
            node: sum(self._lost(each) for each in there) / max(1, sum(self._milli(each) for each in there))
            for node, there in nodes.items()
        }
        by_node = {
            each.key: each for node in sorted(nodes, key=lambda name: (price[name], name)) for each in nodes[node]
        }
        if self.proofs.allows is None:
            # Jobs on nodes that this one may not use would take from what their quotas can do without.
            by_gpu = [each for each in by_gpu if each.key in by_node]
        first = self._adding(by_gpu)
        if first is not None and len(first.victims) == len(by_gpu):
            return [first]
        # One order may use up what a quota lends on nodes where it makes no room, and the other one not.
        second = self._adding(list(by_node.values()))
        return [proof for proof in (first, second) if proof is not None]

    def _adding(self, ordered: Sequence[Running], *, nodes: Sequence[str] | None = None) -> Proof | None:
        """The proof with the first victims in this order that suffice, without the unnecessary ones."""
        with self._without(ordered) as ended:
            may = list(ended)
        proof = self.proofs.without(may, nodes=nodes)
        if proof is None:
            return None
        low, high = self._too_few(may, nodes=nodes), len(may)
        # Victims that are added node by node suffice soon after they are enough in number.
        middle = min(low + _NEAR, (low + high) // 2)
        while high - low > 1:
            found = self.proofs.without(may[:middle], nodes=nodes)
            if found is None:
                low = middle
            else:
                high, proof = middle, found
            middle = (low + high) // 2
        return self.reprieved(proof, nodes=nodes)

    def _too_few(self, ordered: Sequence[Running], *, nodes: Sequence[str] | None) -> int:
        """How many of the first victims leave less than has to come back, whatever else they leave."""
        missing = self._missing_milli(nodes)
        freed = accumulate(self._milli(each) for each in ordered)
        return sum(1 for milli in takewhile(lambda milli: milli < missing, freed))

    def reprieved(self, proof: Proof, *, nodes: Sequence[str] | None = None) -> Proof:
        """The proof without victims that its room does not need, the most expensive tried first.

        Tries few of them one by one: each try places the whole job.
        """
        used = {claim.node for claim in proof.room.claims}
        there = [
            each
            for each in proof.victims
            if any((claim := self.proofs.ledger.claim(key)) is not None and claim.node in used for key in each.claims)
        ]
        where = sorted(used) if nodes is None else nodes
        if len(there) < len(proof.victims):
            proof = self.proofs.without(there, nodes=where) or proof
        spare = sum(self._milli(each) for each in proof.victims) - self._missing_milli(nodes)
        for victim in sorted(proof.victims, key=self._rank, reverse=True)[:_SPARED]:
            if victim.left or self._milli(victim) > spare:
                continue
            others = [each for each in proof.victims if each is not victim]
            found = self.proofs.without(others, nodes=where)
            if found is not None:
                proof, spare = found, spare - self._milli(victim)
        return proof


def _by_cost(ordered: Sequence[Running], *, cost: Callable[[Sequence[Running]], Cost]) -> Iterator[tuple[Running, ...]]:
    """Sets of victims by rising cost, at most `_SETS`; each set is made from a cheaper one by one step."""
    if not ordered:
        return
    heap: list[tuple[Cost, tuple[int, ...]]] = [(cost([ordered[0]]), (0,))]
    for _ in range(_SETS):
        if not heap:
            return
        _, chosen = heapq.heappop(heap)
        yield tuple(ordered[at] for at in chosen)
        following = chosen[-1] + 1
        if following < len(ordered):
            for more in ((*chosen, following), (*chosen[:-1], following)):
                heapq.heappush(heap, (cost([ordered[at] for at in more]), more))


def _free_milli(ledger: Ledger, *, node: str) -> int:
    """What no claim has of a node's GPUs, in thousandths; MIG instances are none of them.

    The claims of a time-shared GPU may add up to more than the GPU, but take nothing of others.
    """
    held, unnamed = Counter[str](), 0
    for claim in ledger.claims_on(node):
        unnamed += claim.unnamed
        for device in claim.devices:
            if not device.mig:
                held[device.uuid] += device.share_milli
    return sum(max(0, WHOLE_MILLI - held[each.uuid]) for each in ledger.devices(node)) - unnamed * WHOLE_MILLI

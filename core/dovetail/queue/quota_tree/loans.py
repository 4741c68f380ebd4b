"""Who uses how much of the tree in one scheduling cycle: guarantees, loans, and what may come back.

A cycle uses it up, as it does its ledger and its gate.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.quota_tree.tree import Bounds, Tree, Vector

# The depth of a job beyond every guarantee.
_BEYOND: Final = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one job or pod takes of the tree.

    - `quota`: index of the quota that it counts for; None outside the tree
    - `need`: what all its workers take of each resource
    - `each`: what each worker of an elastic job takes; empty for other jobs
    - `preemptible`: whether it may be ended for others
    - `leave_seconds`: how long its pods take to end; None if it may not be preempted, or while no quota has a reserve
    """

    quota: int | None
    need: Vector
    each: Vector = ()
    preemptible: bool = True
    leave_seconds: float | None = None

    @property
    def milli(self) -> int:
        """Thousandths of GPUs that all its workers take."""
        return self.need[0]


class Loans:
    """The use of a tree by the jobs that run, and by those that a cycle starts.

    `charges` are by the jobs' UIDs. The jobs `running` already take theirs, and `others` are the charges of pods
    without a job. `recent` is the recent use of each quota as a part of the cluster, by index.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        charges: Mapping[str, Charge],
        running: Iterable[str] = (),
        others: Iterable[Charge] = (),
        recent: Mapping[int, float] | None = None,
    ) -> None:
        self.tree = tree
        self._charges = charges
        self._recent = recent or {}
        self._taken: dict[str, tuple[int | None, Vector, bool]] = {}
        self._used = [[0] * len(tree.resources) for _ in tree.nodes]
        # The use by jobs that may not be ended.
        self._firm = [[0] * len(tree.resources) for _ in tree.nodes]
        self._outside = [0] * len(tree.resources)
        # The owners of charges while nothing changes, by identity: thousands of waiting jobs have the same charge.
        self._owners: dict[int, int | None] = {}
        # Goes up with each change of what is used.
        self.changes = 0
        for key in running:
            self.start(key)
        for charge in others:
            self._add(charge.quota, need=charge.need, sign=1, firm=False)

    # --- changes -----------------------------------------------------------------------------------------------

    def start(self, key: str, *, workers: int | None = None) -> None:
        """Count a job; `workers` is the number with which an elastic one starts. Counts each job once."""
        charge = self._charges.get(key)
        if charge is None or key in self._taken:
            return
        taken = charge.quota, self._need(charge, workers=workers), not charge.preemptible
        self._taken[key] = taken
        self._add(taken[0], need=taken[1], sign=1, firm=taken[2])

    def end(self, key: str) -> None:
        """Uncount a job."""
        taken = self._taken.pop(key, None)
        if taken is not None:
            self._add(taken[0], need=taken[1], sign=-1, firm=taken[2])

    def count(self, charge: Charge) -> None:
        """Count a job without its key, for a forecast."""
        self._add(charge.quota, need=self._need(charge), sign=1, firm=False)

    def expect(self, key: str, *, charge: Charge) -> None:
        """Know what a reserve would take, under the key of its claims, as if it were a job that waits."""
        self._charges = {**self._charges, key: charge}

    def forget(self, key: str) -> None:
        """Uncount a reserve, and forget what it would take."""
        self.end(key)
        self._charges = {each: charge for each, charge in self._charges.items() if each != key}

    def copy(self) -> "Loans":
        """An independent copy."""
        other = Loans(self.tree, charges=self._charges, recent=self._recent)
        other._taken = dict(self._taken)
        other._used = [list(each) for each in self._used]
        other._firm = [list(each) for each in self._firm]
        other._outside = list(self._outside)
        return other

    def _add(self, quota: int | None, *, need: Vector, sign: int, firm: bool) -> None:
        self._owners.clear()
        self.changes += 1
        if quota is None:
            counts = [self._outside]
        else:
            path = self.tree.nodes[quota].path
            counts = [*(self._used[at] for at in path), *(self._firm[at] for at in path if firm)]
        for each in counts:
            for resource, amount in enumerate(need):
                each[resource] += sign * amount

    def _need(self, charge: Charge, *, workers: int | None = None) -> Vector:
        if workers is None or not charge.each:
            return charge.need
        return tuple(amount * workers for amount in charge.each)

    # --- questions ---------------------------------------------------------------------------------------------

    @property
    def charges(self) -> Mapping[str, Charge]:
        """What each job that runs or waits takes or would take, by UID."""
        return self._charges

    @property
    def has_firm(self) -> bool:
        """Whether any job may not be preempted."""
        return any(not charge.preemptible for charge in self._charges.values())

    def charge(self, key: str) -> Charge | None:
        """What the job takes or would take; None where it takes no GPU."""
        return self._charges.get(key)

    def used(self, at: int) -> Sequence[int]:
        """What a quota and all below it use of each resource."""
        return self._used[at]

    @property
    def outside(self) -> Sequence[int]:
        """What jobs and pods outside the tree use of each resource."""
        return self._outside

    def owner(self, key: str, *, workers: int | None = None) -> int | None:
        """The nearest quota above the job whose guarantee covers it in addition to what runs; None for none."""
        charge = self._charges.get(key)
        if charge is None or charge.quota is None:
            return None
        if charge.each:
            return self._owner(charge.quota, need=self._need(charge, workers=workers))
        if id(charge) not in self._owners:
            self._owners[id(charge)] = self._owner(charge.quota, need=self._need(charge))
        return self._owners[id(charge)]

    def _owner(self, quota: int, *, need: Vector) -> int | None:
        depth, path = self.depth(quota, need=need), self.tree.nodes[quota].path
        return path[depth] if depth < len(path) else None

    def depth(self, quota: int | None, *, need: Vector) -> int:
        """How many levels above its quota a job's guarantee is: 0 for its own, a large number beyond all."""
        if quota is not None:
            for depth, at in enumerate(self.tree.nodes[quota].path):
                if self._covers(at, need=need):
                    return depth
        return _BEYOND

    def _covers(self, at: int, *, need: Vector) -> bool:
        """Whether all that the guarantee names covers a job; one of which it names nothing, it does not cover."""
        node, used = self.tree.nodes[at], self._used[at]
        is_named = False
        for amount, bound, there in zip(need, node.bounds, used, strict=True):
            if amount and bound is not None:
                if there + amount > bound:
                    return False
                is_named = True
        return is_named

    def _is_named(self, at: int, *, need: Vector) -> bool:
        """Whether the guarantee names anything that a job takes: one of models alone does not name other models."""
        bounds = self.tree.nodes[at].bounds
        return any(amount and bound is not None for amount, bound in zip(need, bounds, strict=True))

    def firm_room(self, key: str) -> Bounds | None:
        """What its own guarantee leaves of each resource to a job that may not be ended; None where it may be ended.

        None for a resource that no guarantee bounds.
        """
        charge = self._charges.get(key)
        if charge is None or charge.preemptible or not charge.milli:
            return None
        if charge.quota is None or not self._is_named(charge.quota, need=charge.need):
            return (0,) * len(self.tree.resources)
        rooms = [self._firm_room(at) for at in self._guarding(charge.quota)]
        return tuple(
            min((room for room in each if room is not None), default=None) for each in zip(*rooms, strict=True)
        )

    def _firm_room(self, at: int) -> Bounds:
        bounds, firm = self.tree.nodes[at].bounds, self._firm[at]
        return tuple(
            None if bound is None else max(0, bound - amount) for bound, amount in zip(bounds, firm, strict=True)
        )

    def _guarding(self, quota: int) -> Sequence[int]:
        """The quotas whose guarantees bound the jobs of a quota that may not be ended."""
        return [at for at in self.tree.nodes[quota].path if at == quota or any(self.tree.nodes[at].guaranteed)]

    def borrows(self, quota: int | None) -> bool:
        """Whether a quota uses more than its guarantee; always, outside the tree."""
        return quota is None or self.borrowed_milli(quota) > 0

    def borrowed_milli(self, at: int) -> int:
        """The GPUs that a quota uses beyond its guarantee, in milli; beyond any of the amounts that it names.

        Beyond an amount of memory is the same part of its GPUs as of its memory. A guarantee of models alone leaves
        out all other GPUs.
        """
        bounds, used, includes = self.tree.nodes[at].bounds, self._used[at], self.tree.includes
        found, covered, of_models_alone = 0, 0, bounds[0] is None
        for each, bound in enumerate(bounds):
            if bound is None:
                continue
            beyond, above = max(0, used[each] - bound), includes[each]
            if each and above is None:
                of_models_alone = False
                beyond = math.ceil(used[0] * beyond / used[each]) if beyond else 0
            elif above is not None and bounds[above] is None:
                covered += used[each] - beyond
            found = max(found, beyond)
        return max(found, used[0] - covered) if of_models_alone else found

    def reserved_gpus(self, at: int) -> int:
        """The whole GPUs of a quota's reserve that are to be ready now: what its guarantee leaves, in replicas."""
        node = self.tree.nodes[at]
        if node.reserve is None:
            return 0
        left = max(0, (node.bounds[0] or 0) - self._used[at][0]) // WHOLE_MILLI
        return min(node.reserve.gpus, left) // node.reserve.gpus_per_replica * node.reserve.gpus_per_replica

    def borrowers_for(self, at: int, *, within_seconds: float) -> list[str]:
        """The running jobs whose pods end in this time and that may end together for jobs of a quota.

        Without all of them, each of their quotas keeps its guarantee.
        """
        trial, found = self.copy(), []
        for key in self._taken:
            leave_seconds = self._charges[key].leave_seconds
            if leave_seconds is not None and leave_seconds <= within_seconds and trial.may_end_for(key, quota=at):
                trial.end(key)
                found.append(key)
        return found

    def may_end_for(self, victim: str, *, quota: int) -> bool:
        """Whether the end of a running job may serve what is within the own guarantee of a quota."""
        return self._gives_back(victim, to=quota, owner=quota)

    def gives_back(self, victim: str, *, to: str, owner: int) -> bool:
        """Whether the end of a running job may serve a job `to` that is within the guarantee of `owner`.

        It may where the two have no quota in common below or at the owner, and every quota of the victim that the job
        does not share stays at or above its guarantee.
        """
        asks = self._charges.get(to)
        return asks is not None and asks.quota is not None and self._gives_back(victim, to=asks.quota, owner=owner)

    def _gives_back(self, victim: str, *, to: int, owner: int) -> bool:
        taken = self._taken.get(victim)
        if taken is None or taken[2]:
            return False
        path = self.tree.nodes[to].path
        common = self.tree.common(to, other=taken[0])
        if common is not None and common in path[: path.index(owner) + 1]:
            return False
        return all(self._can_spare(at, need=taken[1]) for at in self._below(taken[0], common=common))

    def may_lose(self, victim: str, *, to: str, others: bool) -> bool:
        """Whether a running job may end for one of higher priority.

        It may within its quota; with `others`, also for a job of another quota, where its own ones stay at or above
        their guarantees.
        """
        mine, its = self._charges.get(victim), self._charges.get(to)
        one, other = (None if each is None else each.quota for each in (mine, its))
        if one == other:
            return True
        need = self._taken[victim][1] if victim in self._taken else None
        common = self.tree.common(other, other=one)
        return (
            others
            and need is not None
            and all(self._can_spare(at, need=need) for at in self._below(one, common=common))
        )

    def _below(self, quota: int | None, *, common: int | None) -> Iterator[int]:
        """The quotas from this one up, as far as they are below `common`."""
        for at in () if quota is None else self.tree.nodes[quota].path:
            if at == common:
                return
            yield at

    def _can_spare(self, at: int, *, need: Vector) -> bool:
        """Whether a quota keeps what it is guaranteed of some resource without a job: that job is beyond it."""
        node, used = self.tree.nodes[at], self._used[at]
        bounded = [
            (used[resource] - amount, bound)
            for resource, (amount, bound) in enumerate(zip(need, node.bounds, strict=True))
            if amount and bound is not None
        ]
        return not bounded or any(left >= bound for left, bound in bounded)

    @property
    def outside_level(self) -> float:
        """The same of all that is outside the tree, with the weight of one quota."""
        pairs = zip(self._outside, self.tree.capacity, strict=True)
        return max(amount / all_of_it if all_of_it else 0.0 for amount, all_of_it in pairs)

    def level(self, at: int) -> float:
        """A quota's dominant share beyond its guarantee, now and recently, for its weight."""
        return (self._dominant(at) + self._recent.get(at, 0.0)) / self.tree.nodes[at].weight

    def _dominant(self, at: int) -> float:
        """The largest part of any resource of the cluster that the quota uses beyond its guarantee."""
        capacity, used, limits = self.tree.capacity, self._used[at], self.tree.nodes[at].bounds
        if len(used) == 1:
            beyond = used[0] - (limits[0] or 0)
            return beyond / capacity[0] if beyond > 0 and capacity[0] else 0.0
        # Of what the guarantee does not name, the same part is beyond it as of the GPUs.
        part = self.borrowed_milli(at) / used[0] if used[0] else 0.0
        return max(
            ((amount * part if bound is None else max(0, amount - bound)) / all_of_it if all_of_it else 0.0)
            for amount, bound, all_of_it in zip(used, limits, capacity, strict=True)
        )

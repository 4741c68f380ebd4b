"""What jobs and pods take of the tree of quotas: which quota each counts for, and the loans of a cycle. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.api.gpuquota import GPUQuota
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.partitions import instances_milli
from dovetail.gpu.models import normalise
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.limits.device_memory import cluster_memory_mib
from dovetail.queue.limits.fair_share import Account
from dovetail.queue.limits.quota_usage import Counted, Kind
from dovetail.queue.limits.subjects import Subject, binds, specificity
from dovetail.queue.quota_tree.loans import Charge, Loans
from dovetail.queue.quota_tree.parents import acts_as_parent_alone
from dovetail.queue.quota_tree.resources import GPUS, MEMORY
from dovetail.queue.quota_tree.tree import Capacity, Tree, is_in_tree
from dovetail.queue.quota_tree.tree_builder import tree_of


def capacity_of(ledger: Ledger, *, models: Iterable[str] = (), memory: bool = False) -> Capacity:
    """What a cluster's existing nodes have of each resource, and what of it is healthy.

    MIG instances count among all GPUs and for their model, by their compute, as requests for them do. With `memory`,
    their memory is counted too, by nominal sizes.
    """
    known: dict[str, int] = {}
    usable: dict[str, int] = {}
    wanted = {each: normalise(each) for each in models}
    instances = instances_milli(ledger, models=list(wanted.values()))
    for (resource, model), (of_instances, healthy_ones) in zip({GPUS: None, **wanted}.items(), instances, strict=True):
        cards, healthy_cards = ledger.device_counts(model)
        known[resource] = cards * WHOLE_MILLI + of_instances
        usable[resource] = healthy_cards * WHOLE_MILLI + healthy_ones
    if memory:
        known[MEMORY], usable[MEMORY] = cluster_memory_mib(ledger)
    return Capacity(known=known, usable=usable)


@dataclass(slots=True)
class Guarantees:
    """The tree of the quotas as they are now, unscaled and for the cluster, kept until they or the cluster change."""

    _unscaled: tuple[int, Tree] | None = field(default=None, init=False)
    _scaled: tuple[int, Capacity, Tree] | None = field(default=None, init=False)

    def tree(self, quotas: Iterable[GPUQuota], *, version: int, capacity: Capacity | None) -> Tree:
        """The tree; `version` changes with the quotas."""
        # Each cycle asks for both, so one must not replace the other.
        if capacity is None:
            if self._unscaled is None or self._unscaled[0] != version:
                self._unscaled = version, tree_of(quotas)
            return self._unscaled[1]
        if self._scaled is None or self._scaled[:2] != (version, capacity):
            self._scaled = version, capacity, tree_of(quotas, capacity=capacity)
        return self._scaled[2]


def quota_of(quotas: Sequence[GPUQuota], *, subject: Subject) -> str | None:
    """The quota of the tree that a subject counts for: the one that names it most specifically, then the lowest.

    None outside the tree. `quotas` are all that exist.
    """
    inside, parents = is_in_tree(quotas), {quota.spec.parent for quota in quotas} - {None}
    known = {quota.metadata.name: quota for quota in quotas}
    found = [
        quota
        for quota in quotas
        if quota.metadata.name in inside
        and binds(quota.spec, subject=subject)
        and not acts_as_parent_alone(quota, parents=parents)
    ]
    return min(
        (quota.metadata.name for quota in found),
        key=lambda name: (*specificity(known[name]), -_depth(name, quotas=known), name),
        default=None,
    )


def _depth(name: str, *, quotas: Mapping[str, GPUQuota]) -> int:
    seen = {name}
    while (parent := quotas[name].spec.parent) is not None and parent in quotas and parent not in seen:
        seen.add(parent)
        name = parent
    return len(seen)


def loans_of(
    tree: Tree,
    *,
    counted: Sequence[Counted],
    pods: Iterable[Counted],
    quota_of: Callable[[Subject], str | None],
    recent: Mapping[int, float],
) -> Loans:
    """The loans of a cycle over all jobs that run or wait, and the pods that belong to no job."""
    charges: dict[str, Charge] = {}
    running: list[str] = []
    # Thousands of jobs take the same of few quotas.
    alike: dict[Kind, Charge] = {}
    for each in counted:
        # Ended jobs are included for their usage but take nothing any more.
        if each.end is None and each.milli:
            kind = each.kind
            charge = alike.get(kind)
            if charge is None:
                charge = alike[kind] = _charge(each, tree=tree, quota_of=quota_of)
            charges[each.uid] = charge
            if not each.queued:
                running.append(each.uid)
    others = [_charge(each, tree=tree, quota_of=quota_of) for each in pods]
    return Loans(tree, charges=charges, running=running, others=others, recent=recent)


def _charge(counted: Counted, *, tree: Tree, quota_of: Callable[[Subject], str | None]) -> Charge:
    name = quota_of(counted.subject)
    need = tree.need(counted.milli, memory_mib=counted.memory_mib, model=counted.model)
    return Charge(
        quota=None if name is None else tree.by_name[name],
        need=need,
        each=() if counted.least is None else tuple(amount // counted.workers for amount in need),
        preemptible=counted.preemptible,
        leave_seconds=counted.leave_seconds,
    )


def recent_shares(used: Mapping[Account, float], *, tree: Tree, half_life_seconds: float) -> dict[int, float]:
    """The recent use of each quota and of all below it, as a part of what the cluster could give in that time.

    `used` are GPU seconds, each of which counts half after the half-life.
    """
    whole = tree.capacity[0] / WHOLE_MILLI * half_life_seconds / math.log(2)
    if not whole:
        return {}
    found: dict[int, float] = {}
    for (quota, _), gpu_seconds in used.items():
        at = tree.by_name.get(quota)
        for above in () if at is None else tree.nodes[at].path:
            found[above] = found.get(above, 0.0) + gpu_seconds / whole
    return found

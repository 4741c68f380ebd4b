"""Builds the tree of GPUQuotas from their specs: parents, guarantees that agree with each other, contradictions."""

from collections.abc import Iterable, Mapping
from typing import Final

from dovetail.api.gpuquota import GPUAmounts, GPUQuota
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.quota_tree.parents import circle_of
from dovetail.queue.quota_tree.resources import GPUS, MEMORY, amount_text, bare_text, number_text, unit_of
from dovetail.queue.quota_tree.scaling import scaled
from dovetail.queue.quota_tree.tree import (
    Bounds,
    Capacity,
    Finding,
    FindingReason,
    Node,
    Tree,
    counts_memory,
    is_in_tree,
    models_of,
)  # fmt: skip

_NO_TREE: Final = Tree()


def tree_of(quotas: Iterable[GPUQuota], *, capacity: Capacity | None = None) -> Tree:
    """The tree of these quotas. Without `capacity`, no guarantee is scaled to a cluster."""
    known = {quota.metadata.name: quota for quota in quotas}
    inside = is_in_tree(known.values())
    if not inside:
        return _NO_TREE
    return _Builder({name: known[name] for name in sorted(inside)}, others=known, capacity=capacity).tree()


class _Builder:
    """One tree in the making."""

    def __init__(
        self, quotas: Mapping[str, GPUQuota], *, others: Mapping[str, GPUQuota], capacity: Capacity | None
    ) -> None:
        self._quotas = quotas
        self._others = others
        self._capacity = capacity
        self._findings: list[Finding] = []
        memory = (MEMORY,) if counts_memory(quotas.values()) else ()
        self._resources = (GPUS, *memory, *models_of(quotas.values()))
        self._parents = {name: self._parent_of(name) for name in quotas}
        self._children: dict[str | None, list[str]] = {}
        for name, parent in self._parents.items():
            self._children.setdefault(parent, []).append(name)
        self._says: dict[str, Bounds] = {}
        self._now: dict[str, Bounds] = {}

    def tree(self) -> Tree:
        for name in self._children.get(None, ()):
            self._sum_up(name)
        self._share_out(None)
        by_name = {name: at for at, name in enumerate(self._quotas)}
        return Tree(
            nodes=tuple(self._node(name, by_name=by_name) for name in self._quotas),
            resources=self._resources,
            by_name=by_name,
            findings=tuple(self._findings),
            capacity=tuple(0 if self._capacity is None else self._capacity.usable.get(r, 0) for r in self._resources),
        )

    def _node(self, name: str, *, by_name: Mapping[str, int]) -> Node:
        parent = self._parents[name]
        return Node(
            name=name,
            parent=None if parent is None else by_name[parent],
            children=tuple(by_name[each] for each in self._children.get(name, ())),
            path=tuple(by_name[each] for each in self._path(name)),
            says=self._says[name],
            guaranteed=self._now[name],
            weight=self._quotas[name].spec.shares or 1,
        )

    def _path(self, name: str) -> list[str]:
        path, at = [name], self._parents[name]
        while at is not None:
            path.append(at)
            at = self._parents[at]
        return path

    def _parent_of(self, name: str) -> str | None:
        """The parent that counts: none where it is missing, counts each subject by itself, or leads into a circle."""
        parent = self._quotas[name].spec.parent
        if parent is None:
            return None
        if parent not in self._others:
            self._find(name, reason="ParentMissing", says=f"its parent {parent} does not exist: it acts without one")
            return None
        if parent not in self._quotas:
            per = self._others[parent].spec.per.lower()
            says = f"its parent {parent} counts each {per} by itself (per): it acts without a parent"
            self._find(name, reason="ParentNotTogether", says=says)
            return None
        circle = circle_of(name, quotas=self._quotas)
        if circle:
            says = f"its parents form a circle ({' > '.join(circle)}): it acts without a parent"
            self._find(name, reason="ParentCircle", says=says)
            return None
        return parent

    def _sum_up(self, name: str) -> list[int | None]:
        """What the quota's spec guarantees, or else the sum of its children; from the leaves up."""
        below = [self._sum_up(child) for child in self._children.get(name, ())]
        # A resource that one child names is named, also with an amount of 0: without a bound, all of it is guaranteed.
        sums = [_sum(each[at] for each in below) for at in range(len(self._resources))]
        own = self._own(name)
        if own is None:
            found = self._at_most_limit(name, below=below, sums=sums)
        else:
            found = own
            for at, resource in enumerate(self._resources):
                if own[at] is not None and (sums[at] or 0) > (own[at] or 0):
                    said = f"guarantees {amount_text(own[at], of=resource)}"
                    self._children_above(name, said=said, bound="it", at=at, below=below)
        says_nothing = all(amount is None for amount in found)
        self._says[name] = (0, *found[1:]) if says_nothing else tuple(found)
        return found

    def _own(self, name: str) -> list[int | None] | None:
        """What the spec itself guarantees, at most its limit; None where it says nothing."""
        said = self._quotas[name].spec.guaranteed
        if said is None:
            return None
        found = self._amounts(said)
        by_model = sum(amount * WHOLE_MILLI for amount in said.models.values())
        if found[0] is not None or by_model or said.memory is None:
            # With memory alone, no number of GPUs is said, and none bounds the guarantee.
            found[0] = max(found[0] or 0, by_model)
        for at, bound in enumerate(self._limits(name)):
            amount = found[at]
            if bound is not None and amount is not None and amount > bound:
                resource = self._resources[at]
                most = bare_text(bound, of=resource)
                says = (
                    f"guarantees {amount_text(amount, of=resource)}, above its limit of {most}: "
                    f"{most} are guaranteed until you raise the limit or lower the guarantee"
                )
                self._find(name, reason="GuaranteeAboveLimit", says=says)
                found[at] = bound
        return found

    def _at_most_limit(self, name: str, *, below: list[list[int | None]], sums: list[int | None]) -> list[int | None]:
        """What the children guarantee together, at most the quota's limit: beyond it, no job of theirs can start."""
        found = list(sums)
        for at, bound in enumerate(self._limits(name)):
            if bound is not None and (sums[at] or 0) > bound:
                said = f"has a limit of {bare_text(bound, of=self._resources[at])}"
                self._children_above(name, said=said, bound="the limit", at=at, below=below)
                found[at] = bound
        return found

    def _limits(self, name: str) -> list[int | None]:
        """The quota's limit of each resource; None without one."""
        return self._amounts(self._quotas[name].spec.most)

    def _amounts(self, said: GPUAmounts) -> list[int | None]:
        """The amount of each resource in its unit; None where nothing is said."""
        gpus = {**said.models, GPUS: said.gpus}
        counts = [gpus.get(each) for each in self._resources]
        found = [None if count is None else count * WHOLE_MILLI for count in counts]
        return [
            said.memory_mib if each == MEMORY else amount for each, amount in zip(self._resources, found, strict=True)
        ]

    def _children_above(self, name: str, *, said: str, bound: str, at: int, below: list[list[int | None]]) -> None:
        children, resource = self._children[name], self._resources[at]
        parts = ", ".join(
            f"{child} {number_text(each[at], of=resource)}"
            for child, each in zip(children, below, strict=True)
            if each[at]
        )
        total = sum(each[at] or 0 for each in below)
        says = (
            f"{said}, its children guarantee {amount_text(total, of=resource)} together ({parts}): "
            f"each of them gets its part until you raise {bound} or lower them"
        )
        self._find(name, reason="ChildrenAboveParent", says=says)

    def _share_out(self, parent: str | None) -> None:
        """Set what is guaranteed now to the children of a quota, or to the top ones; from the top down."""
        children = self._children.get(parent, [])
        now: list[list[int | None]] = [list(self._says[each]) for each in children]
        for at, resource in enumerate(self._resources):
            room = self._room(parent, at=at, resource=resource, children=children)
            said = [each[at] for each in now]
            if room is None or sum(amount or 0 for amount in said) <= room:
                continue
            for each, amount in zip(
                now, scaled([amount or 0 for amount in said], total=room, unit=unit_of(resource)), strict=True
            ):
                each[at] = amount if each[at] is not None else None
        for name, each in zip(children, now, strict=True):
            self._now[name] = tuple(each)
            self._share_out(name)

    def _room(self, parent: str | None, *, at: int, resource: str, children: list[str]) -> int | None:
        """What there is for the children of a quota; None for no bound."""
        if parent is not None:
            return self._now[parent][at]
        if self._capacity is None:
            return None
        wanted = sum(self._says[each][at] or 0 for each in children)
        usable, known = self._capacity.usable.get(resource, 0), self._capacity.known.get(resource, 0)
        if wanted > usable:
            self._above_cluster(children, at=at, wanted=wanted, usable=usable, known=known)
        return usable

    def _above_cluster(self, children: list[str], *, at: int, wanted: int, usable: int, known: int) -> None:
        resource = self._resources[at]
        lost = wanted <= known
        for name in children:
            amount = self._says[name][at]
            if not amount:
                continue
            has = (
                f"only {number_text(usable, of=resource)} of {number_text(known, of=resource)} are usable"
                if lost
                else f"the cluster has {number_text(known, of=resource)}"
            )
            says = (
                f"its guarantee of {amount_text(amount, of=resource)} is scaled: "
                f"{number_text(wanted, of=resource)} are guaranteed in the cluster, {has}"
            )
            reason: FindingReason = "DevicesLost" if lost else "GuaranteesAboveCluster"
            self._find(name, reason=reason, says=says, scales=True)

    def _find(self, quota: str, *, reason: FindingReason, says: str, scales: bool = False) -> None:
        message = f"GPUQuota {quota}: {says}"
        self._findings.append(Finding(quota=quota, reason=reason, message=message, scales=scales))


def _sum(amounts: Iterable[int | None]) -> int | None:
    """The sum of those that are said; None where none is."""
    said = [amount for amount in amounts if amount is not None]
    return sum(said) if said else None

"""Builds the tree of GPUQuotas: paths, effective guarantees and contradictions. Frozen values only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from dovetail.api.gpuquota import GPUQuota
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.quota_tree.parents import circle_of
from dovetail.queue.quota_tree.scaling import scaled

FindingReason = Literal[
    "ParentMissing", "ParentCircle", "ParentNotTogether", "ChildrenAboveParent", "GuaranteeAboveLimit",
    "GuaranteesAboveCluster", "DevicesLost",
]  # fmt: skip
# The first resource of every tree. Others are models.
GPUS: Final = "GPUs"
# An amount of each resource of a tree, in thousandths of GPUs; None where nothing is said about a resource.
Vector = tuple[int, ...]
Bounds = tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A contradiction in the tree, or why less is guaranteed than the specs say.

    `scales` says that it lowers a guarantee that is right in itself.
    """

    quota: str
    reason: FindingReason
    message: str
    scales: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The GPUs of a cluster by resource, in milli: `known` ones, and those of them that are `usable` now."""

    known: Mapping[str, int]
    usable: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A GPUQuota in the tree.

    - `name`: its name
    - `parent`: index of the quota above it; None at the top
    - `children`: indexes of the quotas below it
    - `path`: indexes from itself up to the top
    - `says`: what its spec guarantees, or its children's sum, at most its limit, where it says nothing
    - `guaranteed`: what is guaranteed now; the first amount is that of all GPUs
    - `weight`: its share among its siblings
    """

    name: str
    parent: int | None
    children: tuple[int, ...]
    path: tuple[int, ...]
    says: Bounds
    guaranteed: Bounds
    weight: int

    @property
    def guaranteed_milli(self) -> int:
        """All GPUs that are guaranteed now, in milli."""
        return self.guaranteed[0] or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The quotas of a cluster that guarantee, have a parent or are one. The cluster is above the top ones.

    `resources` names the amounts of all vectors: GPUs, then models. `by_name` has the index of each quota.
    """

    nodes: tuple[Node, ...] = ()
    resources: tuple[str, ...] = (GPUS,)
    by_name: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    capacity: Vector = (0,)

    def __bool__(self) -> bool:
        return bool(self.nodes)

    @property
    def guarantees(self) -> bool:
        """Whether any GPU is guaranteed."""
        return any(node.guaranteed_milli for node in self.nodes)

    def need(self, milli: int, *, model: str = "") -> Vector:
        """What a request for `milli` thousandths of GPUs takes of each resource."""
        if len(self.resources) == 1:
            return (milli,)
        return (milli, *(milli if each == model else 0 for each in self.resources[1:]))

    def common(self, one: int | None, *, other: int | None) -> int | None:
        """The nearest quota above both; None for the cluster."""
        above = set() if other is None else set(self.nodes[other].path)
        return next((each for each in (() if one is None else self.nodes[one].path) if each in above), None)


_NO_TREE: Final = Tree()


def is_in_tree(quotas: Iterable[GPUQuota]) -> frozenset[str]:
    """The names of the quotas that are in the tree."""
    known = list(quotas)
    parents = {quota.spec.parent for quota in known if quota.spec.parent is not None}
    return frozenset(
        quota.metadata.name
        for quota in known
        if quota.spec.per == "Together"
        and (quota.spec.guaranteed is not None or quota.spec.parent is not None or quota.metadata.name in parents)
    )


def models_of(quotas: Iterable[GPUQuota]) -> list[str]:
    """The models that guarantees and limits of quotas name, in the order of their names."""
    return sorted(
        {
            model
            for quota in quotas
            for amounts in (quota.spec.guaranteed, quota.spec.most)
            if amounts is not None
            for model in amounts.models
        }
    )


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
        self._resources = (GPUS, *models_of(quotas.values()))
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
        sums = [sum(each[at] or 0 for each in below) for at in range(len(self._resources))]
        own = self._own(name)
        if own is None:
            found = self._at_most_limit(name, below=below, sums=sums)
        else:
            found = own
            for at, resource in enumerate(self._resources):
                if own[at] is not None and sums[at] > (own[at] or 0):
                    said = f"guarantees {_gpus(own[at])}{_of(resource)}"
                    self._children_above(name, said=said, bound="it", at=at, below=below)
        self._says[name] = tuple(found)
        return found

    def _own(self, name: str) -> list[int | None] | None:
        """What the spec itself guarantees, at most its limit; None where it says nothing."""
        said = self._quotas[name].spec.guaranteed
        if said is None:
            return None
        by_model = {model: said.models[model] for model in self._resources[1:] if model in said.models}
        found: list[int | None] = [max(said.gpus or 0, sum(by_model.values())) * WHOLE_MILLI]
        found += [by_model[each] * WHOLE_MILLI if each in by_model else None for each in self._resources[1:]]
        for at, bound in enumerate(self._limits(name)):
            amount = found[at]
            if bound is not None and amount is not None and amount > bound * WHOLE_MILLI:
                what = _of(self._resources[at])
                says = (
                    f"guarantees {_gpus(amount)}{what}, above its limit of {bound}: "
                    f"{bound} are guaranteed until you raise the limit or lower the guarantee"
                )
                self._find(name, reason="GuaranteeAboveLimit", says=says)
                found[at] = bound * WHOLE_MILLI
        return found

    def _at_most_limit(self, name: str, *, below: list[list[int | None]], sums: list[int]) -> list[int | None]:
        """What the children guarantee together, at most the quota's limit: beyond it, no job of theirs can start."""
        found: list[int | None] = [sums[0], *(amount or None for amount in sums[1:])]
        for at, bound in enumerate(self._limits(name)):
            if bound is not None and sums[at] > bound * WHOLE_MILLI:
                said = f"has a limit of {bound}{_of(self._resources[at])}"
                self._children_above(name, said=said, bound="the limit", at=at, below=below)
                found[at] = bound * WHOLE_MILLI
        return found

    def _limits(self, name: str) -> list[int | None]:
        """The quota's limit of each resource in GPUs; None without one."""
        most = self._quotas[name].spec.most
        return [most.gpus, *(most.models.get(each) for each in self._resources[1:])]

    def _children_above(self, name: str, *, said: str, bound: str, at: int, below: list[list[int | None]]) -> None:
        children, what = self._children[name], _of(self._resources[at])
        parts = ", ".join(f"{child} {_gpus(each[at])}" for child, each in zip(children, below, strict=True) if each[at])
        total = sum(each[at] or 0 for each in below)
        says = (
            f"{said}, its children guarantee {_gpus(total)}{what} together ({parts}): "
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
            for each, amount in zip(now, scaled([amount or 0 for amount in said], total=room), strict=True):
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
        what = _of(self._resources[at])
        lost = wanted <= known
        for name in children:
            amount = self._says[name][at]
            if not amount:
                continue
            has = f"only {_gpus(usable)} of {_gpus(known)} are usable" if lost else f"the cluster has {_gpus(known)}"
            says = (
                f"its guarantee of {_gpus(amount)}{what} is scaled: {_gpus(wanted)} are guaranteed in the cluster, "
                f"{has}"
            )
            reason: FindingReason = "DevicesLost" if lost else "GuaranteesAboveCluster"
            self._find(name, reason=reason, says=says, scales=True)

    def _find(self, quota: str, *, reason: FindingReason, says: str, scales: bool = False) -> None:
        message = f"GPUQuota {quota}: {says}"
        self._findings.append(Finding(quota=quota, reason=reason, message=message, scales=scales))


def _gpus(milli: int | None) -> str:
    amount = (milli or 0) / WHOLE_MILLI
    return f"{amount:g} GPU" if amount == 1 else f"{amount:g} GPUs"


def _of(resource: str) -> str:
    return "" if resource == GPUS else f" of model {resource}"

"""Builds the tree of GPUQuotas from their specs: parents, guarantees that agree with each other, contradictions.

Guarantees that are more than there is are scaled.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.api.gpuquota import GPUAmounts, GPUQuota, GuaranteeWindow
from dovetail.api.reasons import quotas as sentences
from dovetail.api.reasons.clause import Clause, Sentence
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.quota_tree.guarantee_windows import without_zone
from dovetail.queue.quota_tree.parents import circle_of
from dovetail.queue.quota_tree.resources import (
    GPUS,
    MEMORY,
    amount_text,
    bare_text,
    includes,
    number_text,
    unit_of,
)
from dovetail.queue.quota_tree.tree import (
    Bounds,
    Capacity,
    Finding,
    Node,
    Tree,
    amounts_of,
    counts_memory,
    is_in_tree,
    models_of,
)


def scaled(amounts: Sequence[int], *, total: int, unit: int = WHOLE_MILLI) -> list[int]:
    """The amounts in proportion, so that they sum to at most `total`.

    Whole units alone are given (GPUs, or GiB of memory), by the largest remainder (Hamilton's method): a promise of a
    part of a GPU would keep a job that needs a whole one from ever being within it.
    """
    wanted, whole = sum(amounts), total // unit
    if wanted <= total or not wanted:
        return list(amounts)
    exact = [amount * whole / wanted for amount in amounts]
    given = [int(each) for each in exact]
    by_remainder = sorted(range(len(amounts)), key=lambda at: (given[at] - exact[at], at))
    for at in by_remainder[: whole - sum(given)]:
        given[at] += 1
    return [each * unit for each in given]


# An amount of each resource; None where nothing is said about one.
Amounts = list[int | None]

_NO_TREE: Final = Tree()
_GPUS_ALONE: Final = frozenset({0})


def tree_of(quotas: Iterable[GPUQuota], *, capacity: Capacity | None = None) -> Tree:
    """The tree of these quotas. Without `capacity`, no guarantee is scaled to a cluster."""
    known = {quota.metadata.name: quota for quota in quotas}
    inside = is_in_tree(known.values())
    if not inside:
        return _NO_TREE
    return _Builder({name: known[name] for name in sorted(inside)}, others=known, capacity=capacity).tree()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    """What a quota is to have of each resource.

    - `says`: what it guarantees by its spec, or by its children, where that is the amount of a resource
    - `wants`: what is to be there for it and all below it, whichever of them name the resource; at most its limit
    - `names`: the resources whose amounts decide on its jobs
    - `shows`: these, and GPUs where its models imply a number of them
    - `is_empty`: whether neither it nor any quota below it says anything
    """

    says: Amounts
    wants: Amounts
    names: frozenset[int]
    shows: frozenset[int]
    is_empty: bool = False


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
        self._includes = includes(self._resources)
        # By resource: those that it counts, without those that one of them counts.
        self._included: list[list[int]] = [[] for _ in self._resources]
        for at, above in enumerate(self._includes):
            if above is not None:
                self._included[above].append(at)
        # GPUs before models, models before those of one size.
        self._general_first = sorted(range(len(self._resources)), key=self._depth)
        self._parents = {name: self._parent_of(name) for name in quotas}
        self._children: dict[str | None, list[str]] = {}
        for name, parent in self._parents.items():
            self._children.setdefault(parent, []).append(name)
        self._demands: dict[str, _Demand] = {}
        self._now: dict[str, Bounds] = {}

    def tree(self) -> Tree:
        for name, quota in self._quotas.items():
            for each in without_zone(quota.spec):
                if isinstance(each, GuaranteeWindow):
                    why = sentences.NO_TIME_ZONE(window=each.name, zone=each.time_zone)
                else:
                    why = sentences.NO_TIME_ZONE_OF_FORECAST(zone=each.time_zone)
                self._find(name, why=why)
        for name in self._children.get(None, ()):
            self._sum_up(name)
        self._share_out(None, rooms=self._usable())
        by_name = {name: at for at, name in enumerate(self._quotas)}
        return Tree(
            nodes=tuple(self._node(name, by_name=by_name) for name in self._quotas),
            resources=self._resources,
            includes=self._includes,
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
            says=tuple(self._demands[name].says),
            guaranteed=self._of(name, only=self._demands[name].shows),
            bounds=self._of(name, only=self._demands[name].names),
            weight=self._quotas[name].spec.shares or 1,
            reserve=self._quotas[name].spec.reserve,
        )

    def _of(self, name: str, *, only: frozenset[int]) -> Bounds:
        return tuple(amount if at in only else None for at, amount in enumerate(self._now[name]))

    def _depth(self, at: int) -> int:
        above = self._includes[at]
        return 0 if above is None else 1 + self._depth(above)

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
            self._find(name, why=sentences.NO_PARENT(parent=parent))
            return None
        if parent not in self._quotas:
            per = self._others[parent].spec.per.lower()
            self._find(name, why=sentences.PARENT_APART(parent=parent, per=per))
            return None
        circle = circle_of(name, quotas=self._quotas)
        if circle:
            self._find(name, why=sentences.PARENTS_IN_CIRCLE(circle=" > ".join(circle)))
            return None
        return parent

    # --- what each quota demands, from the leaves up -----------------------------------------------------------

    def _sum_up(self, name: str) -> None:
        children = self._children.get(name, ())
        for child in children:
            self._sum_up(child)
        below = [each for child in children if not (each := self._demands[child]).is_empty]
        # A resource that one child names is named, also with an amount of 0: without a bound, all of it is guaranteed.
        sums = [_sum(each.wants[at] for each in below) for at in range(len(self._resources))]
        said = self._quotas[name].spec.guaranteed
        self._demands[name] = (
            self._of_children(name, below=below, sums=sums) if said is None else self._own(name, said=said, sums=sums)
        )

    def _of_children(self, name: str, *, below: Sequence[_Demand], sums: Amounts) -> _Demand:
        """What the children guarantee together, at most the quota's limit."""
        if not below:
            nothing: Amounts = [0, *sums[1:]]
            return _Demand(says=nothing, wants=nothing, names=_GPUS_ALONE, shows=_GPUS_ALONE, is_empty=True)
        limits = self._amounts(self._quotas[name].spec.limits)
        wants = [self._at_most_limit(name, at=at, sums=sums, limits=limits) for at in range(len(sums))]
        names = frozenset[int]().union(*(each.names for each in below))
        shows = frozenset[int]().union(*(each.shows for each in below))
        says = [amount if at in shows else None for at, amount in enumerate(wants)]
        return _Demand(says=says, wants=wants, names=names, shows=shows)

    def _own(self, name: str, *, said: GPUAmounts, sums: Amounts) -> _Demand:
        """What the spec itself guarantees, at most its limit; and of what it does not name, what its children do."""
        amounts, limits = self._amounts(said), self._amounts(self._quotas[name].spec.limits)
        names = frozenset(at for at, amount in enumerate(amounts) if amount is not None)
        if not names:
            amounts[0], names = 0, _GPUS_ALONE
        says, wants = self._with_implied(amounts), self._with_implied(amounts, limits=limits)
        shows = names if wants[0] is None else names | _GPUS_ALONE
        for at, amount in enumerate(says):
            if at in shows or sums[at] is None:
                self._compare_with_limit(name, at=at, amount=amount, limit=limits[at])
            if at not in shows:
                wants[at] = _most(wants[at], self._at_most_limit(name, at=at, sums=sums, limits=limits))
        for at in sorted(shows):
            if (sums[at] or 0) > (wants[at] or 0):
                most = amount_text(wants[at], of=self._resources[at])
                self._children_above(name, clause=sentences.CHILDREN_ABOVE_GUARANTEE, most=most, at=at)
        says = [amount if at in shows else None for at, amount in enumerate(says)]
        return _Demand(says=says, wants=wants, names=names, shows=shows)

    def _with_implied(self, amounts: Amounts, *, limits: Amounts | None = None) -> Amounts:
        """The amounts with the GPUs that models imply, and the models that their sizes imply; each at most its limit.

        A number of GPUs is at least that of its models.
        """
        found = list(amounts)
        for at in reversed(self._general_first):
            if at == 0 or found[at] is None:
                found[at] = _most(found[at], _sum(found[each] for each in self._included[at]))
            found[at] = _at_most(found[at], bound=None if limits is None else limits[at])
        return found

    def _compare_with_limit(self, name: str, *, at: int, amount: int | None, limit: int | None) -> None:
        if amount is None or limit is None or amount <= limit:
            return
        most = bare_text(limit, of=self._resources[at])
        guaranteed = amount_text(amount, of=self._resources[at])
        self._find(name, why=sentences.ABOVE_LIMIT(guaranteed=guaranteed, most=most))

    def _at_most_limit(self, name: str, *, at: int, sums: Amounts, limits: Amounts) -> int | None:
        """The sum of the children, at most the quota's limit: beyond it, no job of theirs can start."""
        limit = limits[at]
        if limit is None or (sums[at] or 0) <= limit:
            return sums[at]
        most = bare_text(limit, of=self._resources[at])
        self._children_above(name, clause=sentences.CHILDREN_ABOVE_LIMIT, most=most, at=at)
        return limit

    def _amounts(self, said: GPUAmounts) -> Amounts:
        return amounts_of(said, resources=self._resources)

    def _children_above(self, name: str, *, clause: Clause, most: str, at: int) -> None:
        resource = self._resources[at]
        parts = {child: amount for child in self._children[name] if (amount := self._demands[child].wants[at])}
        listed = ", ".join(f"{child} {number_text(amount, of=resource)}" for child, amount in parts.items())
        self._find(name, why=clause(most=most, sum=amount_text(sum(parts.values()), of=resource), children=listed))

    # --- what each quota gets, from the top down ---------------------------------------------------------------

    def _share_out(self, parent: str | None, *, rooms: Amounts) -> None:
        """Set what is guaranteed now to the children of a quota, or to the top ones; from the top down.

        A quota that does not name a resource passes on what those below it demand.
        """
        children = self._children.get(parent, ())
        now = {name: list(self._demands[name].wants) for name in children}
        for at in self._general_first:
            room = rooms[at]
            wanted = [each[at] or 0 for each in now.values()]
            if room is not None and sum(wanted) > room:
                if parent is None:
                    self._above_cluster(children, at=at, usable=room)
                parts = scaled(wanted, total=room, unit=unit_of(self._resources[at]))
                for each, amount in zip(now.values(), parts, strict=True):
                    each[at] = None if each[at] is None else amount
            for name, each in now.items() if self._included[at] else ():
                if at not in self._demands[name].names:
                    self._cut_included(each, at=at)
        for name, each in now.items():
            self._now[name] = tuple(each)
            self._share_out(name, rooms=each)

    def _cut_included(self, now: Amounts, *, at: int) -> None:
        """Scale what implies an amount to what is left of that: models to their GPUs, sizes to their model."""
        included = [each for each in self._included[at] if now[each] is not None]
        parts = scaled([now[each] or 0 for each in included], total=now[at] or 0)
        for each, amount in zip(included, parts, strict=True):
            now[each] = amount

    def _usable(self) -> Amounts:
        """What there is for all quotas together; None for no bound."""
        usable = None if self._capacity is None else self._capacity.usable
        return [None if usable is None else usable.get(each, 0) for each in self._resources]

    def _above_cluster(self, children: Sequence[str], *, at: int, usable: int) -> None:
        resource = self._resources[at]
        known = 0 if self._capacity is None else self._capacity.known.get(resource, 0)
        wanted = sum(self._demands[each].wants[at] or 0 for each in children)
        lost = wanted <= known
        has = {"wanted": number_text(wanted, of=resource), "known": number_text(known, of=resource)}
        for name, of in self._naming(children, at=at):
            guaranteed = amount_text(self._demands[name].wants[of], of=self._resources[of])
            why = (
                sentences.NOT_USABLE(guaranteed=guaranteed, usable=number_text(usable, of=resource), **has)
                if lost
                else sentences.CLUSTER_SMALLER(guaranteed=guaranteed, **has)
            )
            self._find(name, why=why, scales=True)

    def _naming(self, names: Sequence[str], *, at: int) -> Iterator[tuple[str, int]]:
        """The highest quotas of which a demand for a resource comes, and the resource that they name."""
        for name in names:
            demand = self._demands[name]
            of = [at] if at in demand.shows else [each for each in self._included[at] if each in demand.shows]
            yield from ((name, each) for each in of if demand.wants[each])
            if not of:
                yield from self._naming(self._children.get(name, ()), at=at)

    def _find(self, quota: str, *, why: Sentence, scales: bool = False) -> None:
        self._findings.append(Finding.of_quota(quota, why=why, scales=scales))


def _sum(amounts: Iterable[int | None]) -> int | None:
    """The sum of those that are said; None where none is."""
    said = [amount for amount in amounts if amount is not None]
    return sum(said) if said else None


def _most(*amounts: int | None) -> int | None:
    return max((amount for amount in amounts if amount is not None), default=None)


def _at_most(amount: int | None, *, bound: int | None) -> int | None:
    return amount if amount is None or bound is None else min(amount, bound)

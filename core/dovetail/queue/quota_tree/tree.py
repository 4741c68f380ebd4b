"""The tree of GPUQuotas as a value: paths, effective guarantees, contradictions. Frozen values only."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from dovetail.api.gpuquota import GPUAmounts, GPUQuota, Reserve
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.quotas import OF_QUOTA
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.quota_tree.guarantee_windows import has_windows
from dovetail.queue.quota_tree.resources import GPUS, MEMORY, counts_model, model_name

# An amount of each resource of a tree: GPUs in thousandths, memory in MiB; None where nothing is said about one.
Vector = tuple[int, ...]
Bounds = tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Sentence):
    """A contradiction in the tree, or why less is guaranteed than the specs say.

    `scales` says that it lowers a guarantee that is right in itself.
    """

    quota: str
    scales: bool = False

    @classmethod
    def of_quota(cls, quota: str, *, why: Sentence, scales: bool = False) -> Self:
        """The finding about a quota."""
        said = OF_QUOTA(quota=quota) + why
        return cls(quota=quota, reason=said.reason, message=said.message, clauses=said.clauses, scales=scales)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a cluster has of each resource: what is `known`, and what of it is `usable` now."""

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
    - `guaranteed`: what is guaranteed now; the first amount is that of all GPUs, None where it guarantees memory alone
    - `bounds`: the same as far as it decides on jobs: where models alone are named, without the GPUs that they imply
    - `weight`: its share among its siblings
    - `reserve`: what of its guarantee is to be ready; None without one
    """

    name: str
    parent: int | None
    children: tuple[int, ...]
    path: tuple[int, ...]
    says: Bounds
    guaranteed: Bounds
    bounds: Bounds
    weight: int
    reserve: Reserve | None = None

    @property
    def guaranteed_milli(self) -> int:
        """All GPUs that are guaranteed now, in milli."""
        return self.guaranteed[0] or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The quotas of a cluster that guarantee, have a parent or are one. The cluster is above the top ones.

    `resources` names the amounts of all vectors: GPUs, then memory if a quota names it, then models. `by_name` has the
    index of each quota, and `includes` for each resource the index of the nearest one that counts all of it too.
    """

    nodes: tuple[Node, ...] = ()
    resources: tuple[str, ...] = (GPUS,)
    includes: tuple[int | None, ...] = (None,)
    by_name: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    capacity: Vector = (0,)

    def __bool__(self) -> bool:
        return bool(self.nodes)

    @property
    def guarantees(self) -> bool:
        """Whether anything is guaranteed."""
        return any(any(node.guaranteed) for node in self.nodes)

    @property
    def memory_at(self) -> int | None:
        """The index of memory in all vectors; None where no quota names it."""
        return self.resources.index(MEMORY) if MEMORY in self.resources else None

    def need(self, milli: int, *, memory_mib: int = 0, model: str = "") -> Vector:
        """What a request for `milli` thousandths of GPUs, with so much memory, takes of each resource."""
        if len(self.resources) == 1:
            return (milli,)
        return (
            milli,
            *(
                memory_mib if each == MEMORY else milli if counts_model(each, requested=model) else 0
                for each in self.resources[1:]
            ),
        )

    def common(self, one: int | None, *, other: int | None) -> int | None:
        """The nearest quota above both; None for the cluster."""
        above = set() if other is None else set(self.nodes[other].path)
        return next((each for each in (() if one is None else self.nodes[one].path) if each in above), None)


def is_in_tree(quotas: Iterable[GPUQuota]) -> frozenset[str]:
    """The names of the quotas that are in the tree."""
    known = list(quotas)
    parents = {quota.spec.parent for quota in known if quota.spec.parent is not None}
    return frozenset(
        quota.metadata.name
        for quota in known
        if quota.spec.per == "Together"
        and (
            quota.spec.guaranteed is not None
            or has_windows(quota.spec)
            or quota.spec.parent is not None
            or quota.metadata.name in parents
        )
    )


def amounts_of(said: GPUAmounts, *, resources: Sequence[str]) -> list[int | None]:
    """The amount of each resource in its unit; None where nothing is said. Of two spellings, the lower amount."""
    found: dict[str, int] = {} if said.gpus is None else {GPUS: said.gpus * WHOLE_MILLI}
    if said.memory_mib is not None:
        found[MEMORY] = said.memory_mib
    for model, count in said.models.items():
        resource, amount = model_name(model), count * WHOLE_MILLI
        found[resource] = min(amount, found.get(resource, amount))
    return [found.get(each) for each in resources]


def models_of(quotas: Iterable[GPUQuota]) -> list[str]:
    """The models that guarantees and limits of quotas name, one for all spellings, in the order of their names."""
    return sorted(
        {
            model_name(model)
            for quota in quotas
            for amounts in (quota.spec.guaranteed, quota.spec.limits)
            if amounts is not None
            for model in amounts.models
        }
    )


def counts_memory(quotas: Iterable[GPUQuota]) -> bool:
    """Whether a guarantee or a limit of these quotas names memory."""
    return any(
        amounts is not None and amounts.memory is not None
        for quota in quotas
        for amounts in (quota.spec.guaranteed, quota.spec.limits)
    )

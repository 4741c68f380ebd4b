"""Who would be asked for a quota's guarantee, from the statuses of all GPUQuotas. Pure."""

from collections.abc import Mapping, Sequence
from math import inf

import msgspec

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.quota_tree.parents import ancestors_of, parent_of


class Borrower(msgspec.Struct, frozen=True, kw_only=True):
    """A quota that would give GPUs back.

    name  its name
    gpus  the GPUs that its own jobs, it and the quotas above it use beyond their guarantees
    """

    name: str
    gpus: float


def borrowers_from(quota: str, *, quotas: Mapping[str, GPUQuota]) -> list[Borrower]:
    """The quotas that would be asked for the guarantee of one of `quotas`, those that borrow most first.

    As far as the statuses say; jobs outside the tree have none.
    """
    own = _path(quota, quotas=quotas)
    by_own_jobs = _used_by_own_jobs(quotas)
    found = []
    for name in quotas.keys() - {quota}:
        # What both have in common bounds no one: the jobs of a parent itself are beyond the guarantees below it.
        apart = [each for each in _path(name, quotas=quotas) if each not in own]
        gpus = min([by_own_jobs[name], *(_borrowed(quotas[each]) for each in apart)])
        if gpus > 0:
            found.append(Borrower(name=name, gpus=gpus))
    return sorted(found, key=lambda each: (-each.gpus, each.name))


def _used_by_own_jobs(quotas: Mapping[str, GPUQuota]) -> dict[str, float]:
    """The GPUs that each quota uses without those below it: for one that is no parent, all that it borrows."""
    found = dict.fromkeys(quotas, inf)
    below: dict[str, float] = {}
    for name in quotas:
        parent = parent_of(name, quotas=quotas)
        if parent is not None:
            below[parent] = below.get(parent, 0.0) + _used(quotas[name])
    for name, used in below.items():
        found[name] = round(max(0.0, _used(quotas[name]) - used), 3)
    return found


def _path(name: str, *, quotas: Mapping[str, GPUQuota]) -> Sequence[str]:
    return [name, *ancestors_of(name, quotas=quotas)]


def _used(quota: GPUQuota) -> float:
    return 0.0 if quota.status.guarantee is None else quota.status.guarantee.used


def _borrowed(quota: GPUQuota) -> float:
    return 0.0 if quota.status.guarantee is None else quota.status.guarantee.borrowed

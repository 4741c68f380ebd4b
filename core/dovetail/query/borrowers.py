"""Who would be asked for a quota's guarantee, from the statuses of all GPUQuotas. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.quota_tree.parents import ancestors_of


class Borrower(msgspec.Struct, frozen=True, kw_only=True):
    """A quota that would give GPUs back.

    name  its name
    gpus  the GPUs that it and the quotas above it use beyond their guarantees
    """

    name: str
    gpus: float


def borrowers_from(quota: str, *, quotas: Mapping[str, GPUQuota]) -> list[Borrower]:
    """The quotas that would be asked for the guarantee of one of `quotas`, those that borrow most first.

    As far as the statuses say; jobs outside the tree have none.
    """
    own = _path(quota, quotas=quotas)
    parents = {each.spec.parent for each in quotas.values()}
    found = []
    for name in quotas:
        if name in parents or name in own:
            continue
        apart = [each for each in _path(name, quotas=quotas) if each not in own]
        gpus = min((_borrowed(quotas[each]) for each in apart), default=0.0)
        if gpus > 0:
            found.append(Borrower(name=name, gpus=gpus))
    return sorted(found, key=lambda each: (-each.gpus, each.name))


def _path(name: str, *, quotas: Mapping[str, GPUQuota]) -> Sequence[str]:
    return [name, *ancestors_of(name, quotas=quotas)]


def _borrowed(quota: GPUQuota) -> float:
    return 0.0 if quota.status.guarantee is None else quota.status.guarantee.borrowed

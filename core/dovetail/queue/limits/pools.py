"""Pools: nodes by the label dovetail.dev/pool.

A job requests one, or quotas restrict jobs to some. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dovetail import names
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.reasons import queue as says
from dovetail.pods.node_affinity import requiring
from dovetail.queue.limits.subjects import Subject, binding
from dovetail.queue.model.gate import Refused


def pools_of(quotas: Iterable[GPUQuota], *, subject: Subject, asked: str | None = None) -> tuple[str, ...] | Refused:
    """The pools that the subject may use, empty for any node.

    Or why it may not use the one it requests.
    """
    allowed: tuple[str, ...] = ()
    for quota in binding(quotas, subject=subject):
        pools = quota.spec.pools
        if not pools:
            continue
        if asked is not None and asked not in pools:
            allows = _either(sorted(pools))
            return Refused.of(says.POOL_NOT_ALLOWED(asked=asked, quota=quota.metadata.name, pools=allows))
        left = tuple(sorted(set(pools) & set(allowed))) if allowed else tuple(sorted(pools))
        if not left:
            others = _either(allowed)
            return Refused.of(says.NO_COMMON_POOL(quota=quota.metadata.name, pools=_either(pools), others=others))
        allowed = left
    return (asked,) if asked is not None else allowed


def in_pools(spec: Mapping[str, Any], *, pools: Sequence[str]) -> dict[str, Any]:
    """A copy of the pod's spec that also requires nodes of these pools.

    Its own requirements stay.
    """
    if not pools:
        return dict(spec)
    return requiring(spec, expression={"key": names.LABEL_POOL, "operator": "In", "values": list(pools)})


def _either(pools: Sequence[str]) -> str:
    return " or ".join(pools)

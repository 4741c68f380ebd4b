"""v3: what bounds the plan besides jobs: advance reservations of quotas, and what is to be emptied. Pure."""

from collections.abc import Iterable, Iterator

from dovetail.answers.inventory import NodeUse
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.availability import is_leaving
from dovetail.config.groups import DrainRules
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.v3.types.plan import PlanDrain, PlanWindow


def windows(quotas: Iterable[GPUQuota], *, sees: Visibility) -> Iterator[PlanWindow]:
    """The advance reservations, by start. Those of other tenants have no names."""
    found = [(window, quota) for quota in quotas for window in quota.spec.advance_reservations]
    for window, quota in sorted(found, key=lambda each: (each[0].start_time, each[0].name)):
        is_shown = _applies_to(quota, sees=sees)
        yield PlanWindow(
            quota=quota.metadata.name if is_shown else None,
            name=window.name if is_shown else None,
            start=window.start_time,
            end=window.end_time,
            gpus=window.gpus,
            pool=window.pool,
        )


def _applies_to(quota: GPUQuota, *, sees: Visibility) -> bool:
    """Whether the quota applies to namespaces that the caller sees. One of users may be another tenant's."""
    if sees.everything:
        return True
    return not quota.spec.users and (not quota.spec.namespaces or any(map(sees.sees, quota.spec.namespaces)))


def drains(nodes: Iterable[NodeUse], *, rules: DrainRules) -> Iterator[PlanDrain]:
    """The nodes that are to be emptied or take no work, and the devices of all others that take none."""
    restarts = rules.action == "Restart"
    for use in nodes:
        if use.unavailable:
            leaves = use.node is not None and is_leaving(use.node)
            yield PlanDrain(node=use.name, index=None, why=use.reason, restarts=restarts and leaves)
            continue
        for each in use.uses:
            if not each.takes_work:
                yield PlanDrain(node=use.name, index=each.device.index, why=each.reason, restarts=False)

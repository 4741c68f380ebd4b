"""v3: nodes, devices and quotas from the cache, as far as the caller may see them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.answers.inventory import NodeUse
from dovetail.answers.nodes import device_rows, node_row
from dovetail.answers.owners import project_of, user_of
from dovetail.api.gpuquota import GPUQuota
from dovetail.gpu.models import normalise
from dovetail.query.borrowers import borrowers_from
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing, Strictly
from dovetail_gateway.v3.paging import page
from dovetail_gateway.v3.types.nodes import DeviceList, NodeFilter, NodeList, NodePath
from dovetail_gateway.v3.types.quotas import (
    QuotaBorrower,
    QuotaGuarantee,
    QuotaList,
    QuotaMemory,
    QuotaProblem,
    QuotaRow,
    QuotaUse,
)


class Nodes:
    """The handlers of nodes, devices and quotas."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    async def list_nodes(self, call: Call[Nothing, NodeFilter, Any]) -> Answer:
        """A page of the nodes with GPUs, by name."""
        nodes, after, total = self._page(call.query)
        return Answer(
            value=NodeList(items=[node_row(node, sees=call.sees.sees) for node in nodes], next=after, total=total)
        )

    async def list_devices(self, call: Call[Nothing, NodeFilter, Any]) -> Answer:
        """The devices of a page of nodes."""
        nodes, after, _ = self._page(call.query)
        rows = [row for node in nodes for row in device_rows(node, sees=call.sees.sees)]
        return Answer(value=DeviceList(items=rows, next=after))

    async def get_node(self, call: Call[NodePath, Strictly, Any]) -> Answer:
        """One node with GPUs."""
        node = self._cache.node_use(call.path.name)
        if node is None:
            raise RequestFailedError(404, reason="NotFound", message=f"there is no node {call.path.name} with GPUs")
        return Answer(value=node_row(node, sees=call.sees.sees))

    async def list_quotas(self, call: Call[Nothing, Strictly, Any]) -> Answer:
        """The quotas that apply to the caller's namespaces, and what is used of them."""
        jobs = [job for job in self._cache.jobs.values() if call.sees.sees(job.metadata.namespace)]
        users = frozenset(user for job in jobs if (user := user_of(job)))
        projects = frozenset(map(project_of, jobs))
        found = [_quota(each, sees=call.sees, users=users, projects=projects) for each in self._cache.quotas]
        rows = sorted((row for row in found if row is not None), key=lambda row: row.name)
        seen = {row.name for row in rows}
        known = {each.metadata.name: each for each in self._cache.quotas}
        rows = [_with_borrowers(row, quotas=known, seen=seen) for row in rows]
        return Answer(value=QuotaList(items=rows))

    def _page(self, wanted: NodeFilter) -> tuple[Sequence[NodeUse], str | None, int]:
        names = sorted(name for name in self._cache.gpunodes if self._has(name, model=wanted.model))
        chosen, after = page(names, cursor=wanted.cursor, limit=wanted.limit)
        found = [self._cache.node_use(name) for name in chosen]
        return [node for node in found if node is not None], after, len(names)

    def _has(self, name: str, *, model: str | None) -> bool:
        if model is None:
            return True
        wanted = normalise(model)
        return any(wanted.admits(normalise(each.model)) for each in self._cache.gpunodes[name].status.devices)


def _quota(quota: GPUQuota, *, sees: Visibility, users: frozenset[str], projects: frozenset[str]) -> QuotaRow | None:
    """The row of a quota; None for one of hidden namespaces, users or projects alone."""
    spec, status = quota.spec, quota.status
    namespaces = list(filter(sees.sees, spec.namespaces))
    shown = list(spec.users) if sees.everything else [user for user in spec.users if user in users]
    shown_projects = [each for each in spec.projects if sees.everything or each in projects]
    if any(all_ and not seen for all_, seen in (
        (spec.namespaces, namespaces), (spec.users, shown), (spec.projects, shown_projects),
    )):  # fmt: skip
        return None
    return QuotaRow(
        name=quota.metadata.name,
        per=spec.per,
        parent=spec.parent,
        projects=shown_projects,
        guaranteed=None if spec.guaranteed is None else spec.guaranteed.gpus,
        guaranteed_memory_mib=None if spec.guaranteed is None else spec.guaranteed.memory_mib,
        guarantee=_guarantee(quota),
        # Its messages name the other quotas of the tree.
        problems=[QuotaProblem(reason=each.reason, message=each.message) for each in status.conditions if each.message]
        if sees.everything
        else [],
        gpus_limit=spec.limits.gpus,
        memory_mib_limit=spec.limits.memory_mib,
        models_limit=spec.limits.models,
        running_jobs_limit=spec.limits.running_jobs,
        queued_jobs_limit=spec.limits.queued_jobs,
        shares=spec.shares,
        max_priority=spec.max_priority,
        gpus=status.gpus,
        memory_mib=status.memory_mib,
        running_jobs=status.running_jobs,
        queued_jobs=status.queued_jobs,
        namespaces=namespaces,
        users=shown,
        other_namespaces=len(spec.namespaces) - len(namespaces),
        other_users=len(spec.users) - len(shown),
        uses=[
            QuotaUse(
                who=use.who,
                gpus=use.gpus,
                memory_mib=use.memory_mib,
                running_jobs=use.running_jobs,
                queued_jobs=use.queued_jobs,
                gpu_seconds=use.gpu_seconds,
            )
            for use in status.uses
            if sees.everything or _is_shown(use.who, per=spec.per, sees=sees, users=users)
        ],
        as_of=status.as_of,
    )


def _guarantee(quota: GPUQuota) -> QuotaGuarantee | None:
    known = quota.status.guarantee
    if known is None:
        return None
    memory = known.memory
    return QuotaGuarantee(
        gpus=known.gpus,
        used=known.used,
        lent=known.lent,
        borrowed=known.borrowed,
        waiting=known.waiting,
        memory=None if memory is None else QuotaMemory(**msgspec.structs.asdict(memory)),
        would_give=[],
    )


def _with_borrowers(row: QuotaRow, *, quotas: Mapping[str, GPUQuota], seen: Collection[str]) -> QuotaRow:
    """The row with those who would be asked for its guarantee, as far as the caller sees them."""
    known = row.guarantee
    if known is None or not (known.waiting or (known.memory is not None and known.memory.waiting_mib)):
        return row
    found = [each for each in borrowers_from(row.name, quotas=quotas) if each.name in seen]
    would_give = [QuotaBorrower(name=each.name, gpus=each.gpus) for each in found]
    return msgspec.structs.replace(row, guarantee=msgspec.structs.replace(known, would_give=would_give))


def _is_shown(who: str, *, per: str, sees: Visibility, users: frozenset[str]) -> bool:
    return who == "" or (sees.sees(who) if per == "Namespace" else who in users)

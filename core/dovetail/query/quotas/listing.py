"""Quotas as a reader may see them, and who would give back what a quota is owed. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

import msgspec

from dovetail.answers.owners import project_of, user_of
from dovetail.answers.quotas import (
    QuotaBorrower,
    QuotaGuarantee,
    QuotaList,
    QuotaProblem,
    QuotaRow,
)
from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.quota_tree.parents import ancestors_of, parent_of


def quota_list(quotas: Iterable[GPUQuota], *, jobs: Iterable[GPUJob] = (), reader: Reader = EVERYTHING) -> QuotaList:
    """All quotas of the cluster, as far as `reader` may see them.

    A user or project is named to those who may list one of its `jobs`.
    """
    known = {each.metadata.name: each for each in quotas}
    seen = [] if reader.everything else [job for job in jobs if reader.sees(job.metadata.namespace)]
    users, projects = frozenset(user for job in seen if (user := user_of(job))), frozenset(map(project_of, seen))
    found = [_row(each, reader=reader, users=users, projects=projects) for each in known.values()]
    rows = sorted((row for row in found if row is not None), key=lambda row: row.name)
    names = {row.name for row in rows}
    return QuotaList(items=[_with_borrowers(row, quotas=known, seen=names) for row in rows])


def borrowers_from(quota: str, *, quotas: Mapping[str, GPUQuota]) -> list[QuotaBorrower]:
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
            found.append(QuotaBorrower(name=name, gpus=gpus))
    return sorted(found, key=lambda each: (-each.gpus, each.name))


def _row(quota: GPUQuota, *, reader: Reader, users: frozenset[str], projects: frozenset[str]) -> QuotaRow | None:
    """The row of a quota; None for one of hidden namespaces, users or projects alone."""
    spec, status = quota.spec, quota.status
    namespaces = list(filter(reader.sees, spec.namespaces))
    shown = [user for user in spec.users if reader.everything or user in users]
    shown_projects = [each for each in spec.projects if reader.everything or each in projects]
    pairs = ((spec.namespaces, namespaces), (spec.users, shown), (spec.projects, shown_projects))
    if any(said and not seen for said, seen in pairs):
        return None

    def names(who: str) -> bool:
        return reader.everything or who == "" or (reader.sees(who) if spec.per == "Namespace" else who in users)

    return QuotaRow(
        name=quota.metadata.name,
        generation=quota.metadata.generation,
        per=spec.per,
        parent=spec.parent,
        projects=shown_projects,
        guaranteed=None if spec.guaranteed is None else spec.guaranteed.gpus,
        guaranteed_memory_mib=None if spec.guaranteed is None else spec.guaranteed.memory_mib,
        guarantee=_guarantee(quota),
        # Its messages name the other quotas of the tree.
        problems=[QuotaProblem(reason=each.reason, message=each.message) for each in status.conditions if each.message]
        if reader.everything
        else [],
        gpus_limit=spec.limits.gpus,
        memory_mib_limit=spec.limits.memory_mib,
        models_limit=spec.limits.models,
        running_jobs_limit=spec.limits.running_jobs,
        queued_jobs_limit=spec.limits.queued_jobs,
        shares=spec.shares,
        pools=spec.pools,
        max_priority=spec.max_priority,
        preemption_policy=spec.preemption_policy,
        advance_reservations=spec.advance_reservations,
        guarantee_windows=spec.guarantee_windows,
        reserve=spec.reserve,
        ready=status.reserve,
        forecast=spec.forecast,
        demand=None if spec.forecast is None else status.forecast,
        gpus=status.gpus,
        memory_mib=status.memory_mib,
        running_jobs=status.running_jobs,
        queued_jobs=status.queued_jobs,
        namespaces=namespaces,
        users=shown,
        other_namespaces=len(spec.namespaces) - len(namespaces),
        other_users=len(spec.users) - len(shown),
        uses=[use for use in status.uses if names(use.who)],
        as_of=status.as_of,
    )


def _guarantee(quota: GPUQuota) -> QuotaGuarantee | None:
    known = quota.status.guarantee
    return None if known is None else QuotaGuarantee(**msgspec.structs.asdict(known), would_give=[])


def _with_borrowers(row: QuotaRow, *, quotas: Mapping[str, GPUQuota], seen: Collection[str]) -> QuotaRow:
    """The row with those who would be asked for its guarantee, as far as they are `seen`."""
    known = row.guarantee
    if known is None or not (known.waiting or (known.memory is not None and known.memory.waiting_mib)):
        return row
    would_give = [each for each in borrowers_from(row.name, quotas=quotas) if each.name in seen]
    return msgspec.structs.replace(row, guarantee=msgspec.structs.replace(known, would_give=would_give))


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

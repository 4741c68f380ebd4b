"""What a changed tree of quotas would do, before it is applied: guarantees, contradictions, starts and ends. Pure.

The queue's cycle runs twice on the same objects, with the quotas as they are and as they would be.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec
from msgspec.structs import replace as with_fields

from dovetail.answers.quotas import EndedJob, MemoryChange, QuotaChange, QuotaPlan
from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import key_of
from dovetail.cluster.objects import ClusterObjects
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.query.preemption import preemption_view
from dovetail.query.queue_view import QueueView, queue_view
from dovetail.queue.quota_tree.tree import Tree
from dovetail.queue.verdicts import Admitted


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One cycle: the tree, the use by quota of each resource, the jobs that start, and those that end."""

    tree: Tree
    used: dict[str, Sequence[int]]
    starts: set[str]
    ends: dict[str, EndedJob]


def plan_quotas(
    objects: ClusterObjects, *, changed: Sequence[GPUQuota], now: datetime, reader: Reader = EVERYTHING
) -> QuotaPlan:
    """What the queue would do with these quotas added or replaced.

    What `reader` may not read is counted and not named.
    """
    known = {quota.metadata.name: quota for quota in objects.quotas or ()}
    then = list((known | {quota.metadata.name: _continued(quota, known=known) for quota in changed}).values())
    before = _outcome(objects, now=now)
    after = _outcome(replace(objects, quotas=then), now=now)
    found = {*before.tree.by_name, *after.tree.by_name}
    starts, others_start = _seen(after.starts - before.starts, reader=reader)
    waits, others_wait = _seen(before.starts - after.starts, reader=reader)
    ends = {ended.job: ended for victim, ended in sorted(after.ends.items()) if victim not in before.ends}
    seen_ends, others_end = _seen(ends, reader=reader)
    return QuotaPlan(
        quotas=[
            QuotaChange(
                name=name,
                before=_guaranteed(before.tree, name=name),
                after=_guaranteed(after.tree, name=name),
                used=after.used.get(name, (0,))[0] / WHOLE_MILLI,
                memory=_memory(name, before=before, after=after),
            )
            # A quota of others has no name that can be read.
            for name in sorted(name for name in found if reader.readable(name) == name)
        ],
        contradictions=[reader.readable(finding.message) for finding in after.tree.findings],
        starts=starts,
        waits=waits,
        ends=[
            with_fields(ends[name], by=reader.readable(ends[name].by), reason=reader.readable(ends[name].reason))
            for name in seen_ends
        ],
        others_start=others_start,
        others_wait=others_wait,
        others_end=others_end,
        is_refused=any(not finding.scales for finding in after.tree.findings),
    )


def _seen(jobs: Iterable[str], *, reader: Reader) -> tuple[list[str], int]:
    """Those of the jobs that the reader may see, by namespace and name, and how many others there are."""
    found = list(jobs)
    seen = sorted(each for each in found if reader.sees(each.partition("/")[0]))
    return seen, len(found) - len(seen)


def _continued(quota: GPUQuota, *, known: Mapping[str, GPUQuota]) -> GPUQuota:
    """The changed quota with the status of the one that it replaces, which has the forecast of its demand."""
    before = known.get(quota.metadata.name)
    return quota if before is None else msgspec.structs.replace(quota, status=before.status)


def _guaranteed(tree: Tree, *, name: str) -> float | None:
    at = tree.by_name.get(name)
    return None if at is None else tree.nodes[at].guaranteed_milli / WHOLE_MILLI


def _memory(name: str, *, before: _Outcome, after: _Outcome) -> MemoryChange | None:
    amounts = [_guaranteed_mib(each.tree, name=name) for each in (before, after)]
    if before.tree.memory_at is None and after.tree.memory_at is None:
        return None
    used = after.used.get(name)
    at = after.tree.memory_at
    return MemoryChange(
        before_mib=amounts[0], after_mib=amounts[1], used_mib=0 if used is None or at is None else used[at]
    )


def _guaranteed_mib(tree: Tree, *, name: str) -> int | None:
    quota, memory = tree.by_name.get(name), tree.memory_at
    return None if quota is None or memory is None else tree.nodes[quota].guaranteed[memory]


def _outcome(objects: ClusterObjects, *, now: datetime) -> _Outcome:
    queue = queue_view(objects, now=now)
    evictor = preemption_view(objects, queue=queue).evictor()
    look = queue.cycle(None, evictor=evictor)
    starts = {job.name for job in look.in_order(queue.waiting) if isinstance(look.at(job), Admitted)}
    # Reserves get back what they lack.
    look.end()
    jobs = {job.metadata.uid: key_of(job.metadata) for job in objects.jobs}
    ends = {
        victim: EndedJob(job=jobs[victim], by=order.by.name, reason=order.reclaim or "a job of higher priority starts")
        for victim, order in evictor.orders.items()
    }
    tree = queue.quotas.tree(capacity=queue.quotas.capacity(queue.view.ledger))
    return _Outcome(tree=tree, used=_used(queue), starts=starts, ends=ends)


def _used(queue: QueueView) -> dict[str, Sequence[int]]:
    """What is in use of each resource by quota of the tree, with what those below it use."""
    gate = queue.gate(None)
    if gate is None or gate.loans is None:
        return {}
    loans = gate.loans
    return {node.name: loans.used(at) for at, node in enumerate(loans.tree.nodes)}

"""What a quota's status says of its guarantee: what holds, what is lent and borrowed, what waits, contradictions."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from dovetail.api.gpuquota import GPUQuota, QuotaGuarantee, QuotaMemoryGuarantee
from dovetail.api.meta import Condition, find_condition
from dovetail.api.reasons.capacity import SEMICOLON
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.conditions import condition
from dovetail.api.reasons.quotas import IN_ORDER, LIMIT_LOWER, PARENT_LOWER
from dovetail.formats.timestamps import timestamp
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.quota_tree.loans import Loans
from dovetail.queue.quota_tree.resources import GPUS, MEMORY, unit_of
from dovetail.queue.quota_tree.tree import Finding, Node, Tree, Vector, amounts_of
from dovetail.queue.quota_tree.turns import fewest

# By the index of the quota and that of the resource.
Amounts = Sequence[Sequence[int]]
VALID: Final = "Valid"
SCALED: Final = "Scaled"


def guarantee_of(quota: str, *, loans: Loans, lent: Amounts, waiting: Amounts) -> QuotaGuarantee | None:
    """The entry of a quota's status; None outside the tree. `lent` and `waiting` are by quota and resource."""
    at = loans.tree.by_name.get(quota)
    if at is None:
        return None
    return QuotaGuarantee(
        gpus=loans.tree.nodes[at].guaranteed_milli / WHOLE_MILLI,
        used=loans.used(at)[0] / WHOLE_MILLI,
        lent=lent[at][0] / WHOLE_MILLI,
        borrowed=loans.borrowed_milli(at) / WHOLE_MILLI,
        waiting=waiting[at][0] / WHOLE_MILLI,
        memory=_of_memory(loans, at=at, lent=lent[at], waiting=waiting[at]),
    )


def _of_memory(loans: Loans, *, at: int, lent: Sequence[int], waiting: Sequence[int]) -> QuotaMemoryGuarantee | None:
    memory = loans.tree.memory_at
    if memory is None:
        return None
    return QuotaMemoryGuarantee(
        guaranteed_mib=loans.tree.nodes[at].guaranteed[memory] or 0,
        used_mib=loans.used(at)[memory],
        lent_mib=lent[memory],
        borrowed_mib=_beyond(loans, at=at, resource=memory),
        waiting_mib=waiting[memory],
    )


def _beyond(loans: Loans, *, at: int, resource: int) -> int:
    """What a quota uses beyond its guarantee; 0 where the guarantee does not name the resource."""
    bound = loans.tree.nodes[at].guaranteed[resource]
    return 0 if bound is None else max(0, loans.used(at)[resource] - bound)


def lent(loans: Loans) -> Amounts:
    """What of each quota's guarantee others use, by quota and resource."""
    by_resource = [_lent(loans, resource=at) for at in range(len(loans.tree.resources))]
    return list(zip(*by_resource, strict=True))


def _lent(loans: Loans, *, resource: int) -> list[int]:
    """The same of one resource.

    Of what the children of a quota leave idle, the others among them use what they borrow beyond that quota's own
    part, and the rest is lent with the quota's own. Where several have idle GPUs, each lends in proportion.
    """
    tree = loans.tree
    guaranteed = [node.guaranteed[resource] or 0 for node in tree.nodes]
    used = [loans.used(at)[resource] for at in range(len(tree.nodes))]
    found = [0] * len(tree.nodes)
    tops = [at for at, node in enumerate(tree.nodes) if node.parent is None]
    todo: list[tuple[Sequence[int], int, int]] = [(tops, tree.capacity[resource], loans.outside[resource])]
    while todo:
        children, there, further = todo.pop()
        idle = [max(0, guaranteed[at] - used[at]) for at in children]
        borrowed = sum(max(0, used[at] - guaranteed[at]) for at in children)
        apart = max(0, there - sum(guaranteed[at] for at in children))
        out = max(0, min(sum(idle), borrowed + further - apart))
        for at, part in zip(children, idle, strict=True):
            found[at] = part * out // sum(idle) if out else 0
            node = tree.nodes[at]
            if node.children:
                todo.append((node.children, guaranteed[at], found[at]))
    return found


def waiting(loans: Loans, *, counted: Iterable[Counted]) -> Amounts:
    """What the waiting jobs of each quota request within its guarantee, by quota and resource."""
    tree = loans.tree
    found = [[0] * len(tree.resources) for _ in tree.nodes]
    room = [
        [
            None if bound is None else max(0, bound - used)
            for bound, used in zip(node.bounds, loans.used(at), strict=True)
        ]
        for at, node in enumerate(tree.nodes)
    ]
    for each in counted:
        charge = loans.charge(each.uid) if each.queued and each.refused is None else None
        if charge is None or charge.quota is None:
            continue
        left = room[charge.quota]
        need = next((it for it in (charge.need, fewest(charge, least=each.least)) if _is_left(it, room=left)), None)
        for at, amount in enumerate(need or ()):
            found[charge.quota][at] += amount
            left[at] = None if (most := left[at]) is None else most - amount
    return found


def _is_left(need: Vector, *, room: Sequence[int | None]) -> bool:
    """Whether the room has what is needed of all that a guarantee names; not where it names nothing of it."""
    named = [(amount, most) for amount, most in zip(need, room, strict=True) if amount and most is not None]
    return bool(named) and all(amount <= most for amount, most in named)


def conditions_of(quota: GPUQuota, *, tree: Tree, now: datetime) -> list[Condition]:
    """The conditions of a quota: whether it agrees with its tree, and whether less is guaranteed than it says."""
    at = tree.by_name.get(quota.metadata.name)
    if at is None:
        return []
    own = [finding for finding in tree.findings if finding.quota == quota.metadata.name]
    wrong = [finding for finding in own if not finding.scales]
    scaled = [finding for finding in own if finding.scales] or _less_than_said(quota, node=tree.nodes[at], tree=tree)
    return [
        _condition(quota, of_type=VALID, holds=not wrong, findings=wrong, now=now),
        _condition(quota, of_type=SCALED, holds=bool(scaled), findings=scaled, now=now),
    ]


def _less_than_said(quota: GPUQuota, *, node: Node, tree: Tree) -> list[Finding]:
    """Why less is guaranteed than the quota says: its own limit is lower, or the quotas above it have less."""
    found: list[Finding] = []
    limits = amounts_of(quota.spec.limits, resources=tree.resources)
    for of, says, now, limit in zip(tree.resources, node.says, node.bounds, limits, strict=True):
        if now is None or now >= (says or 0):
            continue
        is_limited = limit is not None and limit <= now
        clause, unit = LIMIT_LOWER if is_limited else PARENT_LOWER, unit_of(of)
        what = "GiB of device memory" if of == MEMORY else "GPUs" if of == GPUS else f"GPUs of model {of}"
        why = clause(holds=now / unit, guaranteed=(says or 0) / unit, what=what)
        found.append(Finding.of_quota(node.name, why=why, scales=True))
    return found


def _condition(quota: GPUQuota, *, of_type: str, holds: bool, findings: Sequence[Finding], now: datetime) -> Condition:
    before = find_condition(quota.status.conditions, type=of_type)
    since = before.last_transition_time if before is not None and (before.status == "True") is holds else timestamp(now)
    said: Sequence[Sentence] = findings or [IN_ORDER()]
    first, *others = said
    why = sum((SEMICOLON() + each for each in others), start=first).with_reason(first.reason)
    return condition(
        of_type, status="True" if holds else "False", why=why, at=since, generation=quota.metadata.generation
    )

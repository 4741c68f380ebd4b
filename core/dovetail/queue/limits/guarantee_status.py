"""What a quota's status says of its guarantee: what holds, what is lent and borrowed, what waits, contradictions."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from dovetail.api.gpuquota import GPUQuota, QuotaGuarantee
from dovetail.api.meta import Condition, find_condition
from dovetail.formats.timestamps import timestamp
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.quota_tree.loans import Loans
from dovetail.queue.quota_tree.tree import Finding, Node, Tree

VALID: Final = "Valid"
SCALED: Final = "Scaled"
_NO_FINDING: Final = "AsSpecified"


def guarantee_of(quota: str, *, loans: Loans, lent: Sequence[int], waiting: Sequence[int]) -> QuotaGuarantee | None:
    """The entry of a quota's status; None outside the tree. `lent` and `waiting` are in milli by index."""
    at = loans.tree.by_name.get(quota)
    if at is None:
        return None
    now, used = loans.tree.nodes[at].guaranteed_milli, loans.used(at)[0]
    return QuotaGuarantee(
        gpus=now / WHOLE_MILLI,
        used=used / WHOLE_MILLI,
        lent=lent[at] / WHOLE_MILLI,
        borrowed=max(0, used - now) / WHOLE_MILLI,
        waiting=waiting[at] / WHOLE_MILLI,
    )


def lent_milli(loans: Loans) -> list[int]:
    """What of each quota's guarantee others use, in milli, by index.

    Of what the children of a quota leave idle, the others among them use what they borrow beyond that quota's own
    part, and the rest is lent with the quota's own. Where several have idle GPUs, each lends in proportion.
    """
    tree = loans.tree
    lent = [0] * len(tree.nodes)
    tops = [at for at, node in enumerate(tree.nodes) if node.parent is None]
    todo: list[tuple[Sequence[int], int, int]] = [(tops, tree.capacity[0], loans.outside_milli)]
    while todo:
        children, there, further = todo.pop()
        idle = [max(0, tree.nodes[at].guaranteed_milli - loans.used(at)[0]) for at in children]
        borrowed = sum(max(0, loans.used(at)[0] - tree.nodes[at].guaranteed_milli) for at in children)
        apart = max(0, there - sum(tree.nodes[at].guaranteed_milli for at in children))
        out = max(0, min(sum(idle), borrowed + further - apart))
        for at, part in zip(children, idle, strict=True):
            lent[at] = part * out // sum(idle) if out else 0
            node = tree.nodes[at]
            if node.children:
                todo.append((node.children, node.guaranteed_milli, lent[at]))
    return lent


def waiting_milli(loans: Loans, *, counted: Iterable[Counted], quota_of: Callable[[Subject], str | None]) -> list[int]:
    """What the waiting jobs of each quota request within its guarantee, in milli, by index."""
    tree = loans.tree
    waiting = [0] * len(tree.nodes)
    room = [max(0, node.guaranteed_milli - loans.used(at)[0]) for at, node in enumerate(tree.nodes)]
    for each in counted:
        name = quota_of(each.subject) if each.queued and each.refused is None else None
        if name is not None and 0 < each.milli <= room[tree.by_name[name]]:
            waiting[tree.by_name[name]] += each.milli
            room[tree.by_name[name]] -= each.milli
    return waiting


def conditions_of(quota: GPUQuota, *, tree: Tree, now: datetime) -> list[Condition]:
    """The conditions of a quota: whether it agrees with its tree, and whether less is guaranteed than it says."""
    at = tree.by_name.get(quota.metadata.name)
    if at is None:
        return []
    own = [finding for finding in tree.findings if finding.quota == quota.metadata.name]
    wrong = [finding for finding in own if not finding.scales]
    scaled = [finding for finding in own if finding.scales] or _from_above(tree.nodes[at], wrong=wrong)
    return [
        _condition(quota, of_type=VALID, holds=not wrong, findings=wrong, now=now),
        _condition(quota, of_type=SCALED, holds=bool(scaled), findings=scaled, now=now),
    ]


def _from_above(node: Node, *, wrong: Sequence[Finding]) -> list[Finding]:
    """Why less is guaranteed where the quotas above it have less."""
    says, now = node.says[0] or 0, node.guaranteed_milli
    if now >= says or wrong:
        return []
    message = (
        f"GPUQuota {node.name}: {now / WHOLE_MILLI:g} of its {says / WHOLE_MILLI:g} guaranteed GPUs hold: the quota "
        "above it guarantees less"
    )
    return [Finding(quota=node.name, reason="ChildrenAboveParent", message=message, scales=True)]


def _condition(quota: GPUQuota, *, of_type: str, holds: bool, findings: Sequence[Finding], now: datetime) -> Condition:
    before = find_condition(quota.status.conditions, type=of_type)
    since = before.last_transition_time if before is not None and (before.status == "True") is holds else timestamp(now)
    return Condition(
        type=of_type,
        status="True" if holds else "False",
        reason=findings[0].reason if findings else _NO_FINDING,
        message="; ".join(finding.message for finding in findings),
        last_transition_time=since,
        observed_generation=quota.metadata.generation,
    )

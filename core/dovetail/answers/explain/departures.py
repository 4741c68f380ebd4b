"""Claims whose end would make room, on the nodes where the fewest jobs are in the way.

A module of its own: one kind of remedy, as `repairs` and `relaxations` are.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dovetail.answers.explain.answer import change
from dovetail.answers.explain.question import KEY, Holder, Question
from dovetail.answers.explain.what_if import Trial, nearest, needed
from dovetail.answers.questions import ExplainedChange
from dovetail.api.reasons import remedies as says
from dovetail.api.reasons.clause import NOTHING
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.refusals import UNRESOLVABLE

# The number of nodes to try; the answer names the best few.
TRIED_NODES: Final = 16
_MOST_CHANGES: Final = 3
# So many holders are named.
_NAMED: Final = 4
_FAR: Final = 1 << 20


def departures(question: Question) -> list[ExplainedChange]:
    """The nodes where the fewest jobs would have to end, and which jobs."""
    if question.ask.gpu is None:
        return []
    ledger = question.view.ledger.copy()
    found: list[tuple[tuple[int, str, str], ExplainedChange]] = []
    for node in _candidates(question):
        holders = _smallest(question, trial=Trial(question, ledger=ledger, node=node))
        if holders:
            # The fewest first, then the earliest known end, then by name.
            ends = max(holder.ends_by or "9999" for holder in holders)
            found.append(((len(holders), ends, node), _change(holders, node=node)))
    return [each for _, each in sorted(found, key=lambda each: each[0])[:_MOST_CHANGES]]


def _candidates(question: Question) -> list[str]:
    """Nodes where the end of a job could help.

    Those with the fewest tenants on the relevant devices first.
    """
    judged = Judgement(question.view.ledger, ask=question.ask, nodes=question.nodes, key=KEY)
    if not question.nodes or question.ask.gpu is None:
        return []
    usable = judged.indexed_devices & judged.columns.healthy & ~judged.columns.cordoned
    wanted = question.ask.gpu.count + sum(gpu.count for gpu in question.ask.more)
    tenants = np.where(usable, judged.columns.tenants, _FAR)
    distance = np.sort(tenants, axis=1)[:, :wanted].sum(axis=1)
    resolvable = [
        row for row in np.flatnonzero(~judged.fits & (distance < _FAR)).tolist() if _resolvable(judged, row=row)
    ]
    return nearest(question, rows=np.array(resolvable, dtype=np.intp), distance=distance, most=TRIED_NODES)


def _resolvable(judged: Judgement, *, row: int) -> bool:
    kind = judged.outline(int(judged.first_cause[row]), node=judged.nodes[row]).kind
    return kind not in UNRESOLVABLE


def _smallest(question: Question, *, trial: Trial) -> list[Holder] | None:
    """Few holders whose end is enough on this node; a holder may have several claims there."""
    by_holder: dict[Holder, list[Claim]] = {}
    for claim in sorted(trial.claims, key=lambda claim: claim.key):
        by_holder.setdefault(_holder(question, claim=claim), []).append(claim)

    def enough(holders: Sequence[Holder]) -> bool:
        return trial.fits_without([claim for holder in holders for claim in by_holder[holder]])

    order = sorted(by_holder, key=lambda holder: (_device_rank(trial, claims=by_holder[holder]), holder.called.message))
    alone = next((holder for holder in order if enough([holder])), None)
    return [alone] if alone is not None else needed(order, enough=enough)


def _device_rank(trial: Trial, *, claims: Sequence[Claim]) -> tuple[int, int]:
    """Sorts holders on the devices with the fewest tenants first, then those with more of them."""
    crowd: dict[str, int] = {}
    for claim in trial.claims:
        for device in claim.devices:
            crowd[device.uuid] = crowd.get(device.uuid, 0) + 1
    devices = [crowd[device.uuid] for claim in claims for device in claim.devices]
    return (min(devices, default=_FAR), -len(devices))


def _holder(question: Question, *, claim: Claim) -> Holder:
    return question.holders.get(claim.key) or Holder(called=says.HOLDING_POD(pod=claim.key))


def _change(holders: Sequence[Holder], *, node: str) -> ExplainedChange:
    found = says.FREES(node=node)
    for at, holder in enumerate(holders[:_NAMED]):
        found += (says.NEXT_HOLDER() if at else NOTHING) + holder.called
    if len(holders) > _NAMED:
        found += says.AND_HOLDERS(count=len(holders) - _NAMED)
    found += says.ENDS() if len(holders) == 1 else says.END()
    ends = max(holder.ends_by for holder in holders) if all(holder.ends_by for holder in holders) else ""
    return change("Departure", node=node, says=found + says.AT_THE_LATEST(time=ends) if ends else found)

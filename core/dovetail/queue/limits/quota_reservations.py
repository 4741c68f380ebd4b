"""The advance reservations and the reserves of GPUQuotas: whose they are, when, and what of them is free now.

Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dovetail import names
from dovetail.api.gpujob import KeptOnNode
from dovetail.api.gpuquota import AdvanceReservation, GPUQuota, QuotaReserve
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.formats.timestamps import moment, timestamp
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.jobs import plan
from dovetail.queue.backfill.advance_reservation import Window, Windows, kept_of, placed
from dovetail.queue.backfill.reservation import Lending, Reservation
from dovetail.queue.limits.limits import LimitGate
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Leaving
from dovetail.queue.quota_tree.loans import Loans

_NOW: Final = 0.0
_NEVER: Final = float("inf")


def windows_of(
    quotas: Quotas,
    *,
    counted: Iterable[Counted],
    view: ClusterView,
    ledger: Ledger,
    leaving: Sequence[Leaving],
    now: datetime,
    gate: LimitGate | None,
) -> Windows:
    """The advance reservations and the reserves for one scheduling cycle; the latter by the loans of its `gate`."""
    keeping = [quota for quota in quotas.all if quota.spec.advance_reservations or quota.spec.reserve]
    if not keeping:
        return Windows()
    everyone = list(counted)
    uses = _uses(everyone, ledger=ledger, leaving=leaving)
    wanted = [
        window
        for quota in keeping
        for window in _windows(
            quota,
            uses=[each for each in uses if quota.metadata.name in quotas.names_of(each.subject)],
            view=view,
            now=now,
        )
    ]
    if gate is not None and (loans := gate.loans) is not None:
        wanted += [
            window
            for quota in keeping
            if (window := reserve_of(quota, loans=loans, leaving=leaving, view=view)) is not None
        ]
    reservations = placed(wanted, ledger=ledger, leaving=leaving)
    ready = {quota.metadata.name: QuotaReserve() for quota in keeping if quota.spec.reserve} | {
        window.quota: _ready(window, kept=reservations.get(window.quota, ()), ledger=ledger, leaving=leaving)
        for window in wanted
        if window.lending is not None
    }
    kept = {quota: _on_nodes(kept_of(each, ledger=ledger, leaving=leaving)) for quota, each in reservations.items()}
    own = {each.uid: quotas.names_of(each.subject) & {quota.metadata.name for quota in keeping} for each in everyone}
    return Windows(reservations=reservations, quotas_of=own, wanted=wanted, kept=kept, ready=ready)


def reserve_of(
    quota: GPUQuota, *, loans: Loans, leaving: Iterable[Leaving], view: ClusterView | None = None
) -> Window | None:
    """What of a quota's guarantee is to be ready now, beyond what it uses; None for nothing.

    `view` knows the nodes of pools and the vendors' resources.
    """
    said, at = quota.spec.reserve, loans.tree.by_name.get(quota.metadata.name)
    if said is None or at is None or not (gpus := loans.reserved_gpus(at)):
        return None
    jobs = frozenset(loans.borrowers_for(at, within_seconds=said.leave_within_seconds))
    return Window(
        name="",
        quota=quota.metadata.name,
        at_seconds=_NOW,
        gpus=gpus,
        gpus_each=said.gpus_per_replica,
        until="",
        nodes=None
        if view is None or not quota.spec.pools
        else [node for pool in quota.spec.pools for node in _nodes_in(view, pool=pool)],
        resources=("",) if view is None else _resources(view),
        lending=Lending(
            within_seconds=said.leave_within_seconds,
            claims=frozenset(each.key for each in leaving if each.job in jobs),
        ),
    )


def _ready(window: Window, *, kept: Iterable[Reservation], ledger: Ledger, leaving: Sequence[Leaving]) -> QuotaReserve:
    """What is ready of a reserve: on free GPUs, and on those of jobs that leave in time."""
    found = [each for each in kept if each.lending is not None]
    ready = sum(len(each.claims) * window.gpus_each for each in found)
    free = sum(
        claim.picked + sum(device.share_milli > 0 for device in claim.devices)
        for claim in kept_of(found, ledger=ledger, leaving=leaving)
    )
    return QuotaReserve(gpus=window.gpus, ready=ready, lent=max(0, ready - free))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """GPUs in milli that a job holds on a node until it ends, as far as is known.

    `node` is empty where the claims are not known; `end_seconds` are from now.
    """

    subject: Subject
    milli: int
    node: str = ""
    end_seconds: float = _NEVER


def _uses(counted: Iterable[Counted], *, ledger: Ledger, leaving: Iterable[Leaving]) -> list[_Use]:
    """What jobs hold, claim by claim; for a job without known claims, all that it requests."""
    claims: dict[str, list[Leaving]] = {}
    for each in leaving:
        claims.setdefault(each.job, []).append(each)
    found = []
    for job in counted:
        if job.queued or job.end is not None:
            continue
        held = [(each, claim) for each in claims.get(job.uid, ()) if (claim := ledger.claim(each.key)) is not None]
        found += [
            _Use(
                subject=job.subject,
                milli=claim.milli,
                node=claim.node,
                end_seconds=_NEVER if each.assumed else each.at_seconds,
            )
            for each, claim in held
        ] or [_Use(subject=job.subject, milli=job.milli)]
    return found


def _windows(quota: GPUQuota, *, uses: Sequence[_Use], view: ClusterView, now: datetime) -> Iterator[Window]:
    """The advance reservations of a quota that have not ended and that its jobs, with these `uses`, do not fill.

    A use counts towards one of them at a time: two that overlap each keep their own number.
    """
    before: list[tuple[AdvanceReservation, Counter[int]]] = []
    # Those bound to a pool come first: use in the pool counts towards them rather than towards one for any node.
    for said in sorted(
        quota.spec.advance_reservations, key=lambda each: (each.pool is None, each.start_time, each.name)
    ):
        start, end = moment(said.start_time), moment(said.end_time)
        if end <= now:
            continue
        at_seconds = max(_NOW, (start - now).total_seconds())
        nodes = None if said.pool is None else _nodes_in(view, pool=said.pool)
        taken = sum((counts for other, counts in before if _overlap(said, other=other)), Counter[int]())
        counts = _towards(said.gpus, uses=uses, taken=taken, nodes=nodes, at_seconds=at_seconds)
        before.append((said, counts))
        left = said.gpus - counts.total() // WHOLE_MILLI
        if left > 0:
            yield Window(
                name=said.name,
                quota=quota.metadata.name,
                at_seconds=at_seconds,
                until_seconds=(end - now).total_seconds(),
                gpus=left,
                until=timestamp(end) if at_seconds <= 0 else f"{timestamp(end)} from {timestamp(start)} on",
                nodes=nodes,
                resources=_resources(view),
            )


def _resources(view: ClusterView) -> tuple[str, str]:
    return "", view.vendors.by_name.get(view.vendors.default, view.vendors.default)


def _overlap(one: AdvanceReservation, *, other: AdvanceReservation) -> bool:
    return moment(one.start_time) < moment(other.end_time) and moment(other.start_time) < moment(one.end_time)


def _towards(
    gpus: int, *, uses: Sequence[_Use], taken: Counter[int], nodes: Sequence[str] | None, at_seconds: float
) -> Counter[int]:
    """The milli of each use, by its index, that count towards a reservation of `gpus` GPUs."""
    counts: Counter[int] = Counter()
    for place, use in enumerate(uses):
        elsewhere = nodes is not None and use.node and use.node not in nodes
        if elsewhere or use.end_seconds <= at_seconds:
            continue
        amount = min(use.milli - taken[place], gpus * WHOLE_MILLI - counts.total())
        if amount > 0:
            counts[place] = amount
    return counts


def _nodes_in(view: ClusterView, *, pool: str) -> list[str]:
    return [name for name, node in view.nodes.items() if node.metadata.labels.get(names.LABEL_POOL) == pool]


def _on_nodes(claims: Iterable[Claim]) -> list[KeptOnNode]:
    """What is kept free on each node, as request texts."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        # The extender cannot block devices that kubelet assigns.
        if claim.devices and not claim.resource:
            found.setdefault(claim.node, []).append(claim)
    texts: Mapping[str, list[str]] = {node: plan.kept_texts(each) for node, each in found.items()}
    return [KeptOnNode(name=node, keeps=keeps) for node, keeps in sorted(texts.items()) if keeps]

"""The reservations of GPUQuotas: for whom and when, and what of it is free now. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from dovetail import names, plans
from dovetail.api.gpujob import KeptOnNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.gpuquota import Window as Said
from dovetail.cluster import ClusterView
from dovetail.engine.claims import Claim
from dovetail.engine.ledger import Ledger
from dovetail.moments import moment, timestamp
from dovetail.queue.candidates import Leaving
from dovetail.queue.limits import binds
from dovetail.queue.windows import Window, Windows, kept_of, placed
from dovetail.quotas import Counted, Quotas
from dovetail.requests import WHOLE_MILLI

_NOW: Final = 0.0


def windows_of(
    quotas: Quotas,
    counted: Iterable[Counted],
    *,
    view: ClusterView,
    ledger: Ledger,
    leaving: Sequence[Leaving],
    now: datetime,
) -> Windows:
    """What is kept for a time from the jobs of a look. What of it is kept from pods now is noted by quota."""
    keeping = [quota for quota in quotas.all if quota.spec.reservations]
    if not keeping:
        quotas.kept = {}
        return Windows()
    everyone = list(counted)
    wanted = [
        window
        for quota in keeping
        for said in quota.spec.reservations
        if (window := _window(quota, said, everyone, view=view, leaving=leaving, now=now)) is not None
    ]
    reservations = placed(wanted, ledger=ledger, leaving=leaving)
    quotas.kept = {
        quota: _on_nodes(kept_of(each, ledger=ledger, leaving=leaving)) for quota, each in reservations.items()
    }
    own = {each.uid: frozenset(q.metadata.name for q in keeping if binds(q.spec, each.subject)) for each in everyone}
    return Windows(reservations=reservations, quotas_of=own)


def _window(
    quota: GPUQuota,
    said: Said,
    counted: Iterable[Counted],
    *,
    view: ClusterView,
    leaving: Iterable[Leaving],
    now: datetime,
) -> Window | None:
    """The reservation as it is now; None for one that is over, or of which all is in use by those it is for."""
    start, end = moment(said.start), moment(said.end)
    if end <= now:
        return None
    at_seconds = max(_NOW, (start - now).total_seconds())
    left = said.gpus - _in_use(quota, counted, leaving=leaving, at_seconds=at_seconds)
    if left <= 0:
        return None
    vendors = view.vendors
    return Window(
        name=said.name,
        quota=quota.metadata.name,
        at_seconds=at_seconds,
        gpus=left,
        until=timestamp(end) if at_seconds <= 0 else f"{timestamp(end)} from {timestamp(start)} on",
        nodes=None if said.pool is None else _nodes_in(view, said.pool),
        resources=("", vendors.by_name.get(vendors.default, vendors.default)),
    )


def _in_use(quota: GPUQuota, counted: Iterable[Counted], *, leaving: Iterable[Leaving], at_seconds: float) -> int:
    """Whole GPUs that those whom the quota binds still use then, as far as can be known."""
    ends = {each.job: each.at_seconds for each in leaving if not each.assumed}
    used: Counter[str] = Counter()
    for each in counted:
        still = ends.get(each.uid, float("inf")) > at_seconds
        if still and not each.queued and each.end is None and binds(quota.spec, each.subject):
            used[each.uid] += each.milli
    return sum(used.values()) // WHOLE_MILLI


def _nodes_in(view: ClusterView, pool: str) -> list[str]:
    return [name for name, node in view.nodes.items() if node.metadata.labels.get(names.LABEL_POOL) == pool]


def _on_nodes(claims: Iterable[Claim]) -> list[KeptOnNode]:
    """What is kept free on each node, as texts of requests."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        # What kubelet gives out the extender cannot hold.
        if claim.devices and not claim.resource:
            found.setdefault(claim.node, []).append(claim)
    texts: Mapping[str, list[str]] = {node: plans.kept_texts(each) for node, each in found.items()}
    return [KeptOnNode(name=node, keeps=keeps) for node, keeps in sorted(texts.items()) if keeps]

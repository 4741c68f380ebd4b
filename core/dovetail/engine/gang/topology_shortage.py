"""Why a gang with rules about its domains does not fit: a reason of the closed set and a sentence. Pure."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from dovetail.api.reasons import capacity as says
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.codes import EXCEEDS_CAPACITY
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.gang.shortage import Shortage, missing_reports, shortage, workers_on_empty
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.node_labels import NO_DOMAIN
from dovetail.engine.model.columns import Ints
from dovetail.engine.model.topology import Spread, Topology

_ALL: Final = ""


class Gang(Protocol):
    """What the sentences need of a gang."""

    ledger: Ledger
    nodes: Sequence[str]
    topology: Topology
    workers: int
    least: int
    now: Judgement
    seats: Ints

    def capacity(self, level: str, *, seats: Ints | None = None) -> Ints:
        """How many workers each domain of a level takes, [domains]."""
        ...


def shortage_by_topology(gang: Gang) -> Shortage:
    """Why the gang does not fit, with the numbers of its best domain."""
    workers, gpu = gang.least, gang.now.gpu
    topology, ever = gang.topology, workers_on_empty(gang.now, gpu=gpu)
    level = topology.required or _ALL
    at_most = gang.capacity(level, seats=ever)
    if int(ever.sum()) < workers or (at_most.size and not int(gang.seats.sum())):
        # The rules about domains do not matter.
        return shortage(gang.now, after=gang.now, workers=workers, placed=0)
    now = gang.capacity(level)
    wanted = _wanted(gang, workers=workers)
    if not at_most.size:
        missing = topology.path(level)[-1] if level and not topology.group_size else _group_label(topology)
        return Shortage.of(wanted + says.NO_LABEL(label=missing))
    if int(at_most.max()) < workers:
        largest, most = _domain(gang, level=level, at=int(at_most.argmax())), int(at_most.max()) * gpu.count
        ever_in = says.MOST_IN_DOMAIN(most=most, domain=largest) if level else says.MOST_IN_CLUSTER(most=most)
        return Shortage.of(wanted + ever_in + missing_reports(gang.now))
    if any(each.most and _most_apart(gang, spread=each, seats=ever) < workers for each in topology.spreads):
        return Shortage.of((wanted + _by_spread(topology.spreads)).with_reason(EXCEEDS_CAPACITY.code))
    if int(now.max(initial=0)) >= workers:
        return Shortage.of(wanted + _by_spread(topology.spreads))
    if not level and not topology.group_size:
        return shortage(gang.now, after=gang.now, workers=workers, placed=int(now.max()))
    best, has = _domain(gang, level=level, at=int(now.argmax())), int(now.max()) * gpu.count
    found = wanted + (says.DOMAIN_HAS(domain=best, free=has) if level else says.CLUSTER_HAS(free=has))
    free = int(gang.seats.sum())
    if free < workers:
        return Shortage.of(found)
    free_devices = free * gpu.count
    together = (
        says.NOT_IN_ONE(free=free_devices, level=level, profile=gpu.mig)
        if level
        else says.NOT_IN_GROUPS(free=free_devices, profile=gpu.mig)
    )
    return Shortage.of(found + together)


def _wanted(gang: Gang, *, workers: int) -> Sentence:
    topology, gpu = gang.topology, gang.now.gpu
    found = says.WANTED(count=workers * gpu.count, profile=gpu.mig)
    if topology.required:
        found += says.IN_ONE(level=topology.required)
    if topology.group_size:
        in_each = topology.group_size * gpu.count
        found += says.IN_EACH(count=in_each, level=topology.group_level, profile=gpu.mig)
    return found


def _domain(gang: Gang, *, level: str, at: int) -> str:
    """The domain's name as users read it: with its wider domains where several have this name.

    Empty for the whole cluster.
    """
    if not level:
        return ""
    names = gang.ledger.domains(gang.topology.path(level)).names
    name = names[at]
    alike = sum(each[-1] == name[-1] for each in names)
    return name[-1] if alike == 1 else "/".join(filter(None, name))


def _most_apart(gang: Gang, *, spread: Spread, seats: Ints) -> int:
    """How many workers fit under an anti-affinity, which does not bind the nodes without its label."""
    domains = gang.ledger.domains((spread.label,)).at(gang.ledger.rows(gang.nodes))
    bound = domains != NO_DOMAIN
    in_domains = np.bincount(domains[bound], weights=seats[bound])
    return int(np.minimum(in_domains, spread.most).sum() + seats[~bound].sum())


def _group_label(topology: Topology) -> str:
    return topology.path(topology.group_level)[-1]


def _by_spread(spreads: tuple[Spread, ...]) -> Sentence:
    """Why free seats do not suffice: the template spreads the workers, or shares of devices do not add up."""
    if not spreads:
        return says.PARTS_DO_NOT_ADD_UP()
    first, *others = (
        says.MOST_ON_EACH(most=each.most, label=each.label)
        if each.most
        else says.SKEW_OF_EACH(label=each.label, skew=each.max_skew)
        for each in spreads
    )
    return sum((says.AND() + each for each in others), start=says.BUT() + first)

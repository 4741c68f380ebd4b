"""Why a gang with rules about its domains does not fit: a reason of the closed set and a sentence. Pure."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from dovetail.engine.filter.empty_capacity import workers_on_empty
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.filter.messages import gpus
from dovetail.engine.gang.shortage import Shortage, shortage
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
        return Shortage(reason="ExceedsCapacity", message=f"{wanted}, no node has the label {missing}")
    if int(at_most.max()) < workers:
        largest = _domain(gang, level=level, at=int(at_most.argmax()))
        has = _amount(gang, workers=int(at_most.max()))
        return Shortage(reason="ExceedsCapacity", message=f"{wanted}, at most {has} could ever run in {largest}")
    if any(each.most and _most_apart(gang, spread=each, seats=ever) < workers for each in topology.spreads):
        return Shortage(reason="ExceedsCapacity", message=f"{wanted}{_spread_text(topology.spreads)}")
    if int(now.max(initial=0)) >= workers:
        return Shortage(reason="Fragmentation", message=f"{wanted}{_spread_text(topology.spreads)}")
    if not level and not topology.group_size:
        return shortage(gang.now, after=gang.now, workers=workers, placed=int(now.max()))
    best = _domain(gang, level=level, at=int(now.argmax()))
    has = _amount(gang, workers=int(now.max()))
    message, free = f"{wanted}, {best} has {has}", int(gang.seats.sum())
    if free >= workers:
        together = f"not in one {level}" if level else "not in such groups"
        message = f"{message}: {gpus(free * gpu.count, profile=gpu.mig)} are free, but {together}"
        return Shortage(reason="Fragmentation", message=message)
    return Shortage(reason="Resources", message=message)


def _wanted(gang: Gang, *, workers: int) -> str:
    topology, gpu = gang.topology, gang.now.gpu
    count = gpu.count
    where = f" in one {topology.required}" if topology.required else ""
    if not topology.group_size:
        return f"Need {gpus(workers * count, profile=gpu.mig)}{where}"
    group = topology.group_size
    all_of_them, in_each = gpus(workers * count, profile=gpu.mig), gpus(group * count, profile=gpu.mig)
    return f"Need {all_of_them}{where} with {in_each} in each {topology.group_level}"


def _amount(gang: Gang, *, workers: int) -> str:
    """What so many workers take: the number of GPUs alone, as in `rack-7 has 24`."""
    return str(workers * gang.now.gpu.count)


def _domain(gang: Gang, *, level: str, at: int) -> str:
    """The domain's name as users read it: with its wider domains where several have this name."""
    if not level:
        return "the cluster"
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


def _spread_text(spreads: tuple[Spread, ...]) -> str:
    """Why free seats do not suffice: the template spreads the workers, or shares of devices do not add up."""
    if not spreads:
        return ", the free parts of devices do not add up"
    found = [
        f"at most {each.most} {'worker' if each.most == 1 else 'workers'} on each {each.label}"
        if each.most
        else f"the number of workers on each {each.label} may differ by {each.max_skew}"
        for each in spreads
    ]
    return f", but {' and '.join(found)}"

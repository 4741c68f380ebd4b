"""Which idle GPUs to partition again, and into what, so that all workers of a waiting job fit. Pure.

The planner tries a new partition on a copy of the ledger, with the engine's own placement: a GPU is partitioned again
only if the job then fits, whatever keeps it waiting. Of the partitions that help, it takes the one that costs least of
what other waiting requests and the GPU's present instances have.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from dovetail.api.gpujob import Reason
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.inventory import DeviceFacts
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu import mig
from dovetail.gpu.geometry import arrange, filled
from dovetail.gpu.models import normalise
from dovetail.queue.model.candidates import Candidate, Room, Sites, find_room
from dovetail.queue.reshaping.cards import Card

# Reasons that other instances may remove. A limit (Quota) is none of them.
HELPS_AGAINST: Final[frozenset[Reason]] = frozenset({"ExceedsCapacity", "Resources", "Fragmentation"})
# How many GPUs one decision considers: each costs a placement on a copy of the ledger.
_MOST_CARDS: Final = 32
# An instance of a profile that another job waits for counts as so many others when it is lost.
_WEIGHT_OF_WANTED: Final = 3
# The driver's index of an instance is not known before it exists. No device of a node has such an index.
_FIRST_INDEX: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshapeRules:
    """When GPUs are partitioned again; never unless `enabled`.

    - `labels`: those that a node must have; empty for all nodes
    - `after_seconds`: how long a request must have waited
    - `idle_seconds`: for how long a GPU must have had no tenant
    - `cooldown_seconds`: the shortest time between two changes of a GPU
    """

    enabled: bool = False
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    after_seconds: float = 60.0
    idle_seconds: float = 60.0
    cooldown_seconds: float = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A GPU is to get instances of these `profiles`, the largest first, for the job with this UID."""

    card: Card
    profiles: tuple[str, ...]
    job: str


def idle_cards(cards: Iterable[Card], *, ledger: Ledger) -> list[Card]:
    """The cards without a request whose instances are all usable and promised to no one."""
    return [
        card
        for card in cards
        if card.request is None
        and card.slots
        and all(each.usable and mig.normalised(each.profile) for each in card.instances)
        and not _promised(ledger, card=card)
        and not ledger.obstacle(card.node)
    ]


def may_change(card: Card, *, rules: ReshapeRules, ledger: Ledger, idle_since: datetime, now: datetime) -> bool:
    """Whether the rules let an idle card change now."""
    facts = ledger.facts(card.node)
    if not rules.enabled or facts is None or not facts.managed or facts.cordoned:
        return False
    if any(facts.labels.get(name) != value for name, value in rules.labels.items()):
        return False
    if now - idle_since < timedelta(seconds=rules.idle_seconds):
        return False
    return card.finished is None or now - card.finished >= timedelta(seconds=rules.cooldown_seconds)


def changes_for(
    job: Candidate, *, cards: Sequence[Card], wanted: Sequence[str], ledger: Ledger, sites: Sites
) -> tuple[Change, ...]:
    """The changes of these idle cards with which all workers of the job fit; none if no changes help.

    `wanted` are the profiles of the instances that other jobs wait for, in queue order. `ledger` stays unchanged.
    """
    most = _most_of(job, cards=cards, sites=sites)
    if not most or _fits(job, counts={}, wanted=wanted, ledger=ledger, sites=sites):
        return ()
    first = sorted(most, key=lambda card: (_loss(card, job=job, count=1, wanted=wanted), card.node, card.index))
    counts = _enough(job, cards=first, most=most, wanted=wanted, ledger=ledger, sites=sites)
    if not counts and len(first) > _MOST_CARDS:
        serving = _serving(job, most=most, wanted=wanted, ledger=ledger)
        others = [card for card in first if card.node in serving]
        if others[:_MOST_CARDS] != first[:_MOST_CARDS]:
            counts = _enough(job, cards=others, most=most, wanted=wanted, ledger=ledger, sites=sites)
    for card in reversed(list(counts)):
        counts = _fewest(job, card=card, counts=counts, wanted=wanted, ledger=ledger, sites=sites)
    return tuple(
        Change(card=card, profiles=layout(card, profile=job.ask.profile, count=count, wanted=wanted), job=job.key)
        for card, count in counts.items()
    )


def layout(card: Card, *, profile: str, count: int, wanted: Sequence[str]) -> tuple[str, ...]:
    """A partition of the card with at least `count` instances of the profile, the largest instance first.

    What is left of the card goes to the instances that others wait for, then to those that it has now, then to more of
    the same profile.
    """
    there = sorted((each.profile for each in card.instances), key=mig.milli_of, reverse=True)
    others = [*wanted, *there, *[profile] * _slices(card)]
    found = arrange(tuple(sorted(filled([profile] * count, with_any_of=others, slots=card.slots))), slots=card.slots)
    assert found is not None, "`filled` keeps what fits"
    return tuple(place.profile for place in found)


def _most_of(job: Candidate, *, cards: Iterable[Card], sites: Sites) -> dict[Card, int]:
    """How many instances of the job's profile each card can have, of those whose node and model it takes."""
    profile = job.ask.profile
    if not profile:
        return {}
    nodes = set(sites[job.site]) if job.site in sites else None
    families = _families(job)
    return {
        card: most
        for card in cards
        if (nodes is None or card.node in nodes)
        and (families is None or normalise(card.model).family in families)
        and (most := len(filled((), with_any_of=[profile] * _slices(card), slots=card.slots)))
    }


def _families(job: Candidate) -> set[str] | None:
    """The families of models that the job takes instances of its profile from; None for all."""
    named = [ask.gpu.models for ask in (job.ask, *job.others) if ask.gpu is not None and ask.profile == job.ask.profile]
    return {normalise(name).family for models in named for name in models} if all(named) else None


def _enough(
    job: Candidate,
    *,
    cards: Sequence[Card],
    most: Mapping[Card, int],
    wanted: Sequence[str],
    ledger: Ledger,
    sites: Sites,
) -> dict[Card, int]:
    """The first of these cards with which the job fits, each with all instances that it can have; none if too few."""
    counts = dict[Card, int]()
    for card in cards[:_MOST_CARDS]:
        counts[card] = most[card]
        if _fits(job, counts=counts, wanted=wanted, ledger=ledger, sites=sites):
            return counts
    return {}


def _serving(job: Candidate, *, most: Mapping[Card, int], wanted: Sequence[str], ledger: Ledger) -> set[str]:
    """The nodes on which one worker fits once all of these cards have as many instances as they can.

    Cards of other nodes, which lack CPU or memory or are too few, would fill the bound on considered cards.
    """
    trial = _reshaped(ledger, counts=most, profile=job.ask.profile, wanted=wanted)
    nodes, fit_cache = list(dict.fromkeys(card.node for card in most)), FitCache(trial)
    asks = [ask for ask in (job.ask, *job.others) if ask.profile == job.ask.profile]
    return {node for ask in asks for node in fit_cache.best(ask, nodes=nodes, key=job.key)}


def _slices(card: Card) -> int:
    """How many memory slices the card has."""
    return max((start + slot.size for slot in card.slots for start in slot.starts), default=0)


def _loss(card: Card, *, job: Candidate, count: int, wanted: Sequence[str]) -> int:
    """What the change costs: compute of lost instances in thousandths of a GPU, more for those that others want."""
    kept = Counter(layout(card, profile=job.ask.profile, count=count, wanted=wanted))
    lost = Counter(instance.profile for instance in card.instances) - kept
    return sum(
        mig.milli_of(profile, count=lost[profile]) * (_WEIGHT_OF_WANTED if profile in wanted else 1) for profile in lost
    )


def _fewest(
    job: Candidate, *, card: Card, counts: dict[Card, int], wanted: Sequence[str], ledger: Ledger, sites: Sites
) -> dict[Card, int]:
    """The counts with the fewest instances on this card with which the job fits; without the card if it can be."""
    for count in range(counts[card]):
        fewer = {each: count if each is card else many for each, many in counts.items() if each is not card or count}
        if _fits(job, counts=fewer, wanted=wanted, ledger=ledger, sites=sites):
            return fewer
    return counts


def _fits(job: Candidate, *, counts: Mapping[Card, int], wanted: Sequence[str], ledger: Ledger, sites: Sites) -> bool:
    """Whether the job fits once each card has at least so many instances of its profile."""
    trial = _reshaped(ledger, counts=counts, profile=job.ask.profile, wanted=wanted)
    return isinstance(find_room(job, ledger=trial, fit_cache=FitCache(trial), sites=sites), Room)


def _reshaped(ledger: Ledger, *, counts: Mapping[Card, int], profile: str, wanted: Sequence[str]) -> Ledger:
    """A copy of the ledger in which each card has at least so many instances of the profile."""
    trial = ledger.copy()
    by_node: dict[str, list[Card]] = {}
    for card in counts:
        by_node.setdefault(card.node, []).append(card)
    for node, cards in by_node.items():
        gone = {instance.uuid for card in cards for instance in card.instances}
        devices = [device for device in trial.everything(node) if device.uuid not in gone]
        for card in cards:
            devices += _future(card, profiles=layout(card, profile=profile, count=counts[card], wanted=wanted))
        trial.set_devices(node, devices=devices)
    return trial


def _future(card: Card, *, profiles: Sequence[str]) -> Iterator[DeviceFacts]:
    for number, profile in enumerate(profiles):
        yield DeviceFacts(
            index=_FIRST_INDEX + 64 * card.index + number,
            uuid=f"{card.uuid}/{number}",
            vendor="nvidia",
            model=card.model,
            memory_mib=mig.memory_mib(profile),
            mig=profile,
        )


def _promised(ledger: Ledger, *, card: Card) -> bool:
    uuids: Collection[str] = {instance.uuid for instance in card.instances}
    return any(device.uuid in uuids for claim in ledger.claims_on(card.node) for device in claim.devices)

"""Which idle GPUs are partitioned again, and into what."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from dovetail.api.gpunode import GPUNode, Reshape
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.availability import Unavailable
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.geometry import arrange
from dovetail.queue.model.candidates import Candidate, NoRoom, find_room
from dovetail.queue.reshaping.cards import Card, cards_of
from dovetail.queue.reshaping.decision import ReshapeRules, changes_for, idle_cards, may_change
from tests.core.engine.builders import make_ask
from tests.core.queue.reshaping.cards import H100_SLOTS, add_cards, make_card, take

SEVEN = ("1g.10gb",) * 7
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)
ON = ReshapeRules(enabled=True, after_seconds=60, idle_seconds=60, cooldown_seconds=600)


def job(text: str, *, workers: int = 1, site: str = "") -> Candidate:
    return Candidate(key="job", ask=make_ask(text), workers=workers, site=site)


def ledger_of(*cards: Card) -> Ledger:
    ledger = Ledger()
    for node in dict.fromkeys(card.node for card in cards):
        add_cards(ledger, node, *(card for card in cards if card.node == node))
    return ledger


@dataclass(frozen=True, kw_only=True)
class Case:
    """A request on idle GPUs, and what these become, by node and index."""

    cards: tuple[Card, ...]
    request: str
    workers: int = 1
    wanted: tuple[str, ...] = ()
    becomes: dict[tuple[str, int], tuple[str, ...]]


CASES = {
    "what is left of the GPU keeps the instances it had": Case(
        cards=(make_card("a", 0, *SEVEN),), request="3g.40gb", becomes={("a", 0): ("3g.40gb", *("1g.10gb",) * 4)},
    ),
    "a GPU without instances gets as many as fit": Case(
        cards=(make_card("a", 0),), request="3g.40gb", becomes={("a", 0): ("3g.40gb", "3g.40gb")},
    ),
    "the GPU that loses least is taken": Case(
        cards=(make_card("a", 0, "7g.80gb"), make_card("a", 1, "4g.40gb", "2g.20gb")), request="1g.10gb",
        becomes={("a", 1): ("4g.40gb", "2g.20gb", "1g.10gb")},
    ),
    "instances that other requests wait for are kept": Case(
        cards=(make_card("a", 0, "2g.20gb", "1g.10gb"), make_card("b", 0, "3g.40gb", "3g.40gb")), request="7g.80gb",
        wanted=("2g.20gb",), becomes={("b", 0): ("7g.80gb",)},
    ),
    "what others wait for comes before what was there": Case(
        cards=(make_card("a", 0, *SEVEN),), request="3g.40gb", wanted=("2g.20gb",),
        becomes={("a", 0): ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")},
    ),
    "one worker with several instances gets them on one node": Case(
        cards=(make_card("a", 0, *SEVEN), make_card("b", 0, *SEVEN), make_card("b", 1, *SEVEN)), request="3x3g.40gb",
        becomes={("b", 0): ("3g.40gb", "3g.40gb"), ("b", 1): ("3g.40gb", *("1g.10gb",) * 4)},
    ),
    "a gang gets its instances on several nodes": Case(
        cards=(make_card("a", 0, *SEVEN), make_card("b", 0, *SEVEN)), request="2x3g.40gb", workers=2,
        becomes={("a", 0): ("3g.40gb", "3g.40gb"), ("b", 0): ("3g.40gb", "3g.40gb")},
    ),
    "nothing changes for a request that no partition serves": Case(
        cards=(make_card("a", 0, *SEVEN),), request="3x3g.40gb", becomes={},
    ),
    "nothing changes for a request that fits already": Case(
        cards=(make_card("a", 0, *SEVEN),), request="2x1g.10gb", becomes={},
    ),
    "nothing changes for another model": Case(
        cards=(make_card("a", 0, *SEVEN),), request="3g.40gb(A100)", becomes={},
    ),
    "nothing changes for a profile that no card can have": Case(
        cards=(make_card("a", 0, *SEVEN),), request="1g.5gb", becomes={},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_idle_gpus_become(case: Case) -> None:
    ledger = ledger_of(*case.cards)
    found = changes_for(
        job(case.request, workers=case.workers), cards=case.cards, wanted=case.wanted, ledger=ledger, sites={}
    )
    becomes = {(change.card.node, change.card.index): change.profiles for change in found}
    assert becomes == case.becomes


def test_a_node_without_cpu_for_the_job_is_left_alone() -> None:
    ledger, small, large = Ledger(), make_card("small", 0, *SEVEN), make_card("large", 0, *SEVEN)
    add_cards(ledger, "small", small, cpu_milli=1000)
    add_cards(ledger, "large", large)
    asks = replace(job("3g.40gb"), ask=make_ask("3g.40gb", cpu_milli=8000))
    (found,) = changes_for(asks, cards=[small, large], wanted=(), ledger=ledger, sites={})
    assert found.card is large
    assert (
        changes_for(replace(asks, site="s"), cards=[small, large], wanted=(), ledger=ledger, sites={"s": ["small"]})
        == ()
    )


def test_many_gpus_of_another_model_hide_no_gpu_that_helps() -> None:
    others = [replace(make_card(f"a{at}", 0), model="A100") for at in range(40)]
    card = make_card("z", 0, *SEVEN)
    (found,) = changes_for(
        job("3g.40gb(H100)"), cards=[*others, card], wanted=(), ledger=ledger_of(*others, card), sites={}
    )
    assert found.card is card


def test_a_job_of_which_one_way_takes_any_model_gets_gpus_of_all_models() -> None:
    card = make_card("z", 0, *SEVEN)
    two_ways = replace(job("3g.40gb(A100)"), others=(make_ask("3g.40gb"),))
    (found,) = changes_for(two_ways, cards=[card], wanted=(), ledger=ledger_of(card), sites={})
    assert found.card is card
    none = replace(job("3g.40gb(A100)"), others=(make_ask("3g.40gb(H200)"),))
    assert changes_for(none, cards=[card], wanted=(), ledger=ledger_of(card), sites={}) == ()


@pytest.mark.parametrize("readable", [True, False])
def test_what_an_agent_cannot_read_it_cannot_partition(readable: bool) -> None:
    ready = {
        "type": "Ready", "status": "True" if readable else "False", "reason": "Driver", "message": "",
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    }  # fmt: skip
    slots = [
        {"profile": each.profile, "size": each.size, "starts": list(each.starts), "count": each.count}
        for each in H100_SLOTS
    ]
    card = {"index": 0, "uuid": "GPU-0", "model": "H100", "slots": slots}
    found = {"metadata": {"name": "a"}, "status": {"conditions": [ready], "reshapable": [card]}}
    assert len(cards_of(msgspec.convert(found, GPUNode))) == readable


def test_many_gpus_on_nodes_without_cpu_hide_no_gpu_that_helps() -> None:
    others, card, ledger = [make_card(f"a{at}", 0) for at in range(40)], make_card("z", 0, *SEVEN), Ledger()
    for each in others:
        add_cards(ledger, each.node, each, cpu_milli=1000)
    add_cards(ledger, "z", card)
    asks = replace(job("3g.40gb"), ask=make_ask("3g.40gb", cpu_milli=8000))
    (found,) = changes_for(asks, cards=[*others, card], wanted=(), ledger=ledger, sites={})
    assert found.card is card


def test_a_gpu_with_one_tenant_is_not_idle() -> None:
    free, used = make_card("a", 0, *SEVEN), make_card("a", 1, *SEVEN)
    ledger = ledger_of(free, used)
    take(ledger, used, instance=6)
    assert idle_cards([free, used], ledger=ledger) == [free]


def test_a_gpu_that_people_or_strangers_keep_is_not_idle() -> None:
    card = make_card("a", 0, *SEVEN)
    first = replace(card.instances[0], usable=False)
    assert idle_cards([replace(card, instances=(first, *card.instances[1:]))], ledger=ledger_of(card)) == []


def test_a_gpu_that_changes_already_or_whose_node_takes_no_pods_is_not_idle() -> None:
    card = make_card("a", 0, *SEVEN)
    request = msgspec.convert({"profiles": ["7g.80gb"], "requestedTime": "2026-03-01T12:00:00Z"}, Reshape)
    assert idle_cards([replace(card, request=request)], ledger=ledger_of(card)) == []
    assert idle_cards([replace(card, slots=())], ledger=ledger_of(card)) == []
    ledger = Ledger()
    add_cards(ledger, "a", card, unavailable=(Unavailable(cause="NodeNotReady"),))
    assert idle_cards([card], ledger=ledger) == []


@pytest.mark.parametrize(
    ("rules", "idle_for", "finished_before", "allowed"),
    [
        (ON, 60, None, True),
        (replace(ON, enabled=False), 60, None, False),
        (ON, 59, None, False),
        (ON, 60, 599, False),
        (ON, 60, 600, True),
        (replace(ON, labels={"pool": "mig"}), 60, None, True),
        (replace(ON, labels={"pool": "other"}), 60, None, False),
    ],
)
def test_the_rules_say_which_gpus_may_change(
    rules: ReshapeRules, idle_for: int, finished_before: int | None, allowed: bool
) -> None:
    finished = None if finished_before is None else NOW - timedelta(seconds=finished_before)
    card, ledger = replace(make_card("a", 0, *SEVEN), finished=finished), Ledger()
    add_cards(ledger, "a", card, labels={"pool": "mig"})
    since = NOW - timedelta(seconds=idle_for)
    assert may_change(card, rules=rules, ledger=ledger, idle_since=since, now=NOW) == allowed


CORDONED = (Unavailable(cause="NodeCordoned"),)


@pytest.mark.parametrize("facts", [{"managed": False}, {"unavailable": CORDONED}])
def test_a_node_of_a_plugin_and_a_cordoned_node_are_left_alone(facts: dict[str, object]) -> None:
    card, ledger = make_card("a", 0, *SEVEN), Ledger()
    add_cards(ledger, "a", card, **facts)
    assert not may_change(card, rules=ON, ledger=ledger, idle_since=LONG_AGO, now=NOW)


partitions = st.sampled_from(
    [(), SEVEN, ("7g.80gb",), ("3g.40gb", "3g.40gb"), ("4g.40gb", "2g.20gb"), ("1g.20gb", "1g.10gb")]
)


@settings(max_examples=60)
@given(
    partitions=st.lists(partitions, min_size=1, max_size=4),
    taken=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 6))),
    request=st.sampled_from(["1g.10gb", "2x2g.20gb", "3g.40gb", "2x3g.40gb", "7g.80gb"]),
    workers=st.integers(1, 2),
)
def test_a_change_helps_its_job_and_touches_idle_gpus_alone(
    partitions: list[tuple[str, ...]], taken: set[tuple[int, int]], request: str, workers: int
) -> None:
    cards = [make_card("ab"[at % 2], at, *profiles) for at, profiles in enumerate(partitions)]
    ledger, asks = ledger_of(*cards), job(request, workers=workers)
    tenants = {(at, instance) for at, instance in taken if at < len(cards) and instance < len(cards[at].instances)}
    for at, instance in tenants:
        take(ledger, cards[at], instance=instance, key=f"{at}-{instance}")
    before = ledger.content()
    found = changes_for(asks, cards=idle_cards(cards, ledger=ledger), wanted=(), ledger=ledger, sites={})
    assert ledger.content() == before
    assert not {change.card.index for change in found} & {at for at, _ in tenants}
    assert all(arrange(tuple(sorted(change.profiles)), slots=H100_SLOTS) is not None for change in found)
    if found:
        assert isinstance(find_room(asks, ledger=ledger, fit_cache=FitCache(ledger), sites={}), NoRoom)
        changed = {
            change.card.uuid: make_card(change.card.node, change.card.index, *change.profiles) for change in found
        }
        later = ledger_of(*(changed.get(card.uuid, card) for card in cards))
        for claim in ledger.claims():
            later.commit(claim)
        assert not isinstance(find_room(asks, ledger=later, fit_cache=FitCache(later), sites={}), NoRoom)

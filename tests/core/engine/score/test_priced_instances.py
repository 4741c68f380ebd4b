"""MIG instances by price: scenarios, the state machine of the ledger with a priced term, and what is learned."""

from dataclasses import dataclass, field, replace
from functools import cache
from itertools import cycle, islice

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from dovetail.engine.filter.fit import Fit, Judgement
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.inventory import NodeFacts
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.fragmentation_term import BestFit
from dovetail.engine.score.live_fragmentation import (
    FIRST_OF_PROFILE,
    FragmentationSettings,
    LiveFragmentation,
    price_by,
    term_of,
)
from dovetail.engine.score.mix_record import MixRecord, record_in, text_of
from dovetail.engine.score.priced_term import CapacityMirror, PricedTerm
from dovetail.engine.score.warm_start import restored_at_once
from tests.core.engine.builders import make_ask
from tests.core.engine.ledger.test_partitions import (
    LARGE,
    NODES,
    SMALL,
    PartitionMachine,
    add,
    instance,
    make_partitioned,
)

# The text of a request, and the CPU that goes with it.
Request = tuple[str, int]


def ask_of(request: Request) -> Ask:
    text, cpu_milli = request
    return make_ask(text, cpu_milli=cpu_milli, policy="Pack")


def learned(
    ledger: Ledger, *mix: Request, policy: FragmentationPolicy = "ph", count: int = FIRST_OF_PROFILE
) -> LiveFragmentation:
    """A term that has seen so many requests, the mix over and over again."""
    term = LiveFragmentation(ledger, settings=FragmentationSettings(policy=policy))
    term.follow()
    for number, request in enumerate(islice(cycle(mix), count)):
        term.arrived(ask_of(request), key=f"earlier-{number}")
    while term.work():
        pass
    return term


@dataclass(frozen=True, kw_only=True)
class Case:
    """Nodes by name, each with its model, CPUs and profiles; requests that came before, and those that are placed."""

    says: str
    nodes: dict[str, tuple[str, int, tuple[str, ...]]]
    mix: tuple[Request, ...]
    placed: tuple[tuple[Request, str], ...]
    by_best_fit: tuple[str, ...] = field(default=())


CASES = (
    Case(
        says="a request for any model leaves the model that others name",
        nodes={"a": ("A100", 64, (SMALL,) * 3), "h": ("H100", 64, (SMALL,) * 3)},
        mix=((f"{SMALL}(A100)", 1000), (SMALL, 1000)),
        placed=(((SMALL, 1000), "h"), ((SMALL, 1000), "h"), ((SMALL, 1000), "h")),
        by_best_fit=("a", "a", "a"),
    ),
    Case(
        says="a request with little CPU leaves the instances with much CPU to those that need it",
        nodes={"rich": ("A100", 32, (SMALL,) * 2), "poor": ("A100", 4, (SMALL,) * 4)},
        mix=((SMALL, 16_000), (SMALL, 1000)),
        placed=(((SMALL, 1000), "poor"), ((SMALL, 1000), "poor"), ((SMALL, 16_000), "rich")),
    ),
    Case(
        says="a request for one instance leaves the node where several are free",
        nodes={"both": ("A100", 64, (LARGE,) * 2), "one": ("A100", 64, (LARGE,))},
        mix=((f"2x{LARGE}", 1000), (LARGE, 1000)),
        placed=(((LARGE, 1000), "one"), ((f"2x{LARGE}", 1000), "both")),
    ),
)


def ledger_of(case: Case) -> Ledger:
    ledger = Ledger()
    for name, (model, cpus, profiles) in case.nodes.items():
        ledger.set_node(NodeFacts(name=name, cpu_milli=1000 * cpus, memory_mib=1 << 20))
        devices = [replace(instance(name, at, profile=profile), model=model) for at, profile in enumerate(profiles)]
        ledger.set_devices(name, devices=devices)
    return ledger


def places(case: Case, *, policy: FragmentationPolicy) -> list[str]:
    ledger = ledger_of(case)
    fit_cache, found = FitCache(ledger, term=learned(ledger, *case.mix, policy=policy)), list[str]()
    for number, (request, _) in enumerate(case.placed):
        ask, key = ask_of(request), f"pod-{number}"
        (node,) = fit_cache.best(ask, nodes=list(case.nodes), key=key, limit=1)
        fit = fit_cache.check(ask, node=node, key=key)
        assert isinstance(fit, Fit)
        ledger.commit(fit.claim)
        found.append(node)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_an_instance_goes_where_the_mix_loses_least(case: Case) -> None:
    assert places(case, policy="ph") == [node for _, node in case.placed]
    if case.by_best_fit:
        assert places(case, policy="bestfit") == list(case.by_best_fit)


MIX: tuple[Request, ...] = (
    (SMALL, 1000), (f"2x{SMALL}", 8000), (LARGE, 4000), (f"2x{LARGE}", 1000), (f"{SMALL}(A100)", 1000), ("1", 1000),
)  # fmt: skip


@cache
def record_of(policy: FragmentationPolicy) -> MixRecord:
    return learned(make_partitioned(), *MIX, policy=policy, count=4 * FIRST_OF_PROFILE).record()


def restored(ledger: Ledger, *, policy: FragmentationPolicy) -> LiveFragmentation:
    """A term with a mix that was learned once for all tests."""
    term = LiveFragmentation(ledger, settings=FragmentationSettings(policy=policy))
    term.follow()
    term.restore(record_of(policy))
    for profile in (SMALL, LARGE):
        term.of_profile(profile).follow()
    while term.work():
        pass
    return term


class PricedMachine(PartitionMachine):
    """The same requests and nodes; the extender's cache and the plans on copies judge by price."""

    def __init__(self) -> None:
        super().__init__()
        self.term = restored(self.ledger, policy="ph")
        price_by(self.term, ledger=self.ledger)
        self.cache = FitCache(self.ledger, term=self.term)


TestPricedInstances = PricedMachine.TestCase
TestPricedInstances.settings = settings(max_examples=10, stateful_step_count=12, deadline=None)

STEPS = st.lists(st.tuples(st.sampled_from(["take", "leave", "drop", "add"]), st.integers(0, 5)), max_size=8)
REQUESTS: tuple[Request, ...] = ((SMALL, 1000), (f"2x{SMALL}", 16_000), (LARGE, 8000))


def change(ledger: Ledger, step: tuple[str, int]) -> None:
    what, at = step
    node = NODES[at % len(NODES)]
    match what:
        case "take":
            ask, cache = ask_of(REQUESTS[at % len(REQUESTS)]), FitCache(ledger, term=BestFit())
            found = cache.check(ask, node=node, key=f"pod-{at}")
            if isinstance(found, Fit):
                ledger.commit(found.claim)
        case "leave":
            ledger.release(f"pod-{at}")
        case "drop":
            ledger.drop_node(node)
        case "add":
            add(ledger, node)


@settings(max_examples=25, deadline=None)
@given(STEPS, STEPS, STEPS, st.sampled_from(["ph", "fgd"]), st.sampled_from(REQUESTS))
def test_a_copy_prices_instances_by_its_own_capacity(
    before: list[tuple[str, int]],
    of_copy: list[tuple[str, int]],
    of_original: list[tuple[str, int]],
    policy: FragmentationPolicy,
    request: Request,
) -> None:
    ledger, ask = make_partitioned(), ask_of(request)
    price_by(restored(ledger, policy=policy), ledger=ledger)
    for step in before:
        change(ledger, step)
    copy = ledger.copy()
    for step in of_copy:
        change(copy, step)
    for step in of_original:
        change(ledger, step)
    for each in (copy.copy(), copy):
        term, seen = term_of(each).of_profile(ask.profile), each.of_profile(ask.profile)
        if isinstance(term, BestFit):
            # No node has such an instance any more, there or in the original.
            continue
        assert isinstance(term, PricedTerm)
        mirror = CapacityMirror(seen)
        mirror.follow()
        mix, pricing = term._mix, term._pricing
        appraisal = pricing.appraise(mirror.columns, mix=mix)
        fresh = PricedTerm(seen, mirror=mirror, pricing=pricing, mix=mix, appraisal=appraisal)
        judged = Judgement(each, ask=ask, nodes=NODES, key="")
        np.testing.assert_allclose(term.alone(judged, key=""), fresh.alone(judged, key=""), atol=2e-5)


def test_few_requests_for_a_profile_are_placed_by_best_fit() -> None:
    ledger = make_partitioned()
    term = learned(ledger, (SMALL, 1000), count=FIRST_OF_PROFILE - 1)
    cache = FitCache(ledger, term=term)
    assert isinstance(term.of_profile(SMALL), BestFit)
    before = cache._seen_by(ask_of((SMALL, 1000)))
    term.arrived(ask_of((SMALL, 1000)), key="one-more")
    assert isinstance(term.of_profile(SMALL), LiveFragmentation)
    assert cache._seen_by(ask_of((SMALL, 1000))) is not before
    assert isinstance(term.of_profile(LARGE), BestFit)


def test_best_fit_by_configuration_prices_no_instance() -> None:
    term = learned(make_partitioned(), (SMALL, 1000), policy="bestfit")
    assert isinstance(term.of_profile(SMALL), BestFit)
    assert term.all_arrivals == 0


def test_requests_for_instances_leave_the_mix_of_gpus_as_it_is() -> None:
    term = learned(make_partitioned(), (SMALL, 1000), (LARGE, 1000), ("1", 1000), count=300)
    assert (term.arrivals, term.all_arrivals) == (100, 300)
    assert {shape.gpus for shape, _ in term._learned.learner.counted(most=10)} == {1}


def test_a_request_counts_once_however_often_it_is_asked_about() -> None:
    term = learned(make_partitioned(), (SMALL, 1000), count=1)
    term.arrived(ask_of((SMALL, 1000)), key="earlier-0")
    assert term.all_arrivals == 1


def test_what_was_learned_of_instances_outlives_a_restart() -> None:
    first = learned(make_partitioned(), *REQUESTS, count=4 * FIRST_OF_PROFILE)
    record = record_in({"mix": text_of(first.record())})
    assert record is not None
    assert sorted(record.instances) == [SMALL, LARGE]
    again = LiveFragmentation(make_partitioned())
    again.restore(record)
    assert isinstance(again.of_profile(SMALL), LiveFragmentation)
    assert again.record().instances[LARGE].counted == record.instances[LARGE].counted
    judge = restored_at_once(make_partitioned(), policy="ph", record=record)
    found = judge.of_profile(SMALL)
    assert isinstance(found, LiveFragmentation)
    assert found._mix == record.instances[SMALL].mix


def test_what_was_learned_waits_for_a_node_with_instances() -> None:
    record = learned(make_partitioned(), (SMALL, 1000)).record()
    ledger = Ledger()
    term = LiveFragmentation(ledger)
    term.restore(record)
    assert isinstance(term.of_profile(SMALL), BestFit)
    assert term.record().instances == record.instances
    add(ledger, "managed")
    assert isinstance(term.of_profile(SMALL), LiveFragmentation)


def test_a_record_of_an_earlier_version_has_no_instances() -> None:
    record = record_in({"mix": '{"policy": "ph", "arrivals": 0, "inUse": [], "counted": []}'})
    assert record is not None
    assert record.instances == {}

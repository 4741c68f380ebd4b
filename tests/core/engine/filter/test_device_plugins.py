"""Nodes of a vendor's plugin: kubelet picks the devices, so counts decide, and every device of a node must do."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dovetail.api.devices import AllocatedDevice
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.inventory import NodeFacts
from dovetail.engine.model.refusals import Refusal
from tests.core.engine.builders import add_node, make_ask, make_device

GPU = "nvidia.com/gpu"


def vendor_ledger(gpus: int = 4, *, name: str = "a", offered: int | None = None, model: str = "V100") -> Ledger:
    ledger = Ledger()
    add_vendor_node(ledger, name, gpus=gpus, offered=offered, model=model)
    return ledger


def add_vendor_node(
    ledger: Ledger, name: str, *, gpus: int = 4, offered: int | None = None, model: str = "V100", resource: str = GPU
) -> None:
    there = gpus if offered is None else offered
    add_node(ledger, name, gpus=gpus, model=model, managed=False, resource=resource, offered=there)


def asking(text: str, *, resource: str = GPU) -> Ask:
    return replace(make_ask(text), resource=resource)


def hold(ledger: Ledger, key: str, *, unnamed: int = 0, named: tuple[int, ...] = (), node: str = "a") -> None:
    devices = tuple(AllocatedDevice(index=at, uuid=f"{node}-{at}", share_milli=1000, memory_mib=32768) for at in named)
    ledger.commit(Claim(key=key, node=node, devices=devices, unnamed=unnamed, resource=GPU))


def kind(ledger: Ledger, ask: Ask, *, node: str = "a") -> str:
    found = check(ledger, ask=ask, node=node, key="new")
    return found.kind if isinstance(found, Refusal) else "fits"


def test_a_claim_counts_devices_and_names_none() -> None:
    found = check(vendor_ledger(), ask=asking("2"), node="a", key="new")
    assert isinstance(found, Fit)
    assert (found.claim.devices, found.claim.unnamed, found.claim.resource) == ((), 2, GPU)


@pytest.mark.parametrize(("free", "expected"), [("1", "fits"), ("2", "DevicesBusy")])
def test_devices_that_nobody_has_named_are_taken_all_the_same(free: str, expected: str) -> None:
    ledger = vendor_ledger()
    hold(ledger, "x", unnamed=2)
    hold(ledger, "y", named=(0,))
    assert kind(ledger, asking(free)) == expected


def test_naming_the_devices_of_a_claim_changes_no_count() -> None:
    ledger = vendor_ledger()
    hold(ledger, "x", unnamed=3)
    before = (kind(ledger, asking("1")), kind(ledger, asking("2")))
    hold(ledger, "x", named=(1, 2, 3))
    assert before == (kind(ledger, asking("1")), kind(ledger, asking("2"))) == ("fits", "DevicesBusy")


def test_a_claim_that_goes_frees_what_stood_for_it() -> None:
    ledger = vendor_ledger()
    hold(ledger, "x", unnamed=4)
    assert kind(ledger, asking("1")) == "DevicesBusy"
    ledger.release("x")
    assert kind(ledger, asking("4")) == "fits"


def test_more_claims_than_devices_leave_none_free() -> None:
    ledger = vendor_ledger(gpus=1)
    hold(ledger, "x", unnamed=3)
    assert kind(ledger, asking("1")) == "DevicesBusy"


def test_a_hold_without_names_is_told_as_a_hold() -> None:
    ledger = vendor_ledger(gpus=1)
    ledger.commit(Claim(key="x", node="a", unnamed=1, resource=GPU), hold_until=9.0)
    assert kind(ledger, asking("1")) == "Held"
    assert ledger.expire_holds(9.0)
    assert kind(ledger, asking("1")) == "fits"


@pytest.mark.parametrize(
    ("offered", "named", "fitting"),
    [(3, (), "3"), (3, (3,), "2"), (0, (), None), (4, (), "4")],
    ids=["one is withdrawn", "and another taken", "the plugin is away", "all in order"],
)
def test_kubelet_s_count_bounds_what_the_report_shows(
    offered: int, named: tuple[int, ...], fitting: str | None
) -> None:
    ledger = vendor_ledger(offered=offered)
    if named:
        hold(ledger, "x", named=named)
    if fitting is not None:
        assert kind(ledger, asking(fitting)) == "fits"
    assert kind(ledger, asking(str(int(fitting or 0) + 1))) in {"DevicesBusy", "TooFewDevices"}


def test_a_sick_device_is_not_counted_twice_when_kubelet_knows_of_it_too() -> None:
    ledger = vendor_ledger(offered=3)
    ledger.set_devices("a", devices=[make_device("a", index, healthy=index != 0) for index in range(4)])
    assert (kind(ledger, asking("3")), kind(ledger, asking("4"))) == ("fits", "Unhealthy")


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (asking("1(V100)"), "fits"),
        (asking("1(A100)"), "WrongModel"),
        (asking("1(amd,V100)"), "WrongVendor"),
        (asking("5"), "TooFewDevices"),
        (asking("1", resource="amd.com/gpu"), "NotManaged"),
        (make_ask("1"), "NotManaged"),
        (make_ask("0.5"), "NotManaged"),
    ],
    ids=["its model", "another model", "another vendor", "too many", "another resource", "managed", "a share"],
)
def test_a_vendor_s_node_takes_what_asks_its_resource_and_is_of_its_kind(ask: Ask, expected: str) -> None:
    assert kind(vendor_ledger(), ask) == expected


def test_a_managed_node_never_takes_what_asks_a_vendor_s_resource() -> None:
    ledger = Ledger()
    add_node(ledger, "a", gpus=4)
    found = check(ledger, ask=asking("1"), node="a", key="new")
    assert isinstance(found, Refusal)
    assert (found.kind, found.text) == ("NotManaged", "no nvidia.com/gpu here")


def test_of_two_models_on_a_node_kubelet_could_pick_the_wrong_one() -> None:
    ledger = vendor_ledger()
    ledger.set_devices("a", devices=[make_device("a", 0), make_device("a", 1, model="T4")])
    assert (kind(ledger, asking("1(V100)")), kind(ledger, asking("1(V100|T4)"))) == ("WrongModel", "fits")


def test_a_cordoned_device_that_kubelet_could_pick_keeps_its_node_free_of_new_pods() -> None:
    ledger = vendor_ledger()
    ledger.set_devices("a", devices=[make_device("a", index, cordoned=index == 2) for index in range(4)])
    found = check(ledger, ask=asking("1"), node="a", key="new")
    assert isinstance(found, Refusal)
    assert (found.kind, found.text) == ("Cordoned", "kubelet could pick a cordoned GPU")
    hold(ledger, "x", named=(2,))
    assert kind(ledger, asking("1")) == "fits"


def test_a_node_that_became_managed_still_counts_what_a_vendor_s_pods_hold() -> None:
    ledger = vendor_ledger(gpus=2)
    hold(ledger, "x", unnamed=1)
    ledger.set_node(NodeFacts(name="a", managed=True, cpu_milli=64000))
    assert (kind(ledger, make_ask("1")), kind(ledger, make_ask("2"))) == ("fits", "DevicesBusy")


def test_workers_are_spread_over_vendor_nodes_by_count() -> None:
    ledger = vendor_ledger(gpus=2)
    add_vendor_node(ledger, "b", gpus=2)
    add_node(ledger, "managed", gpus=8)
    found = place(ledger, ask=asking("2"), workers=2, key="job")
    assert not isinstance(found, Shortage)
    assert sorted((claim.node, claim.unnamed) for claim in found) == [("a", 2), ("b", 2)]


@pytest.mark.parametrize(
    ("ask", "reason", "message"),
    [
        (asking("3"), "ExceedsCapacity", "Need 3 GPUs, only 2 available on one node"),
        (asking("2"), "Resources", "Need 2 GPUs, only 1 available"),
        (asking("1(T4)"), "ExceedsCapacity", "no node has model T4, there is V100"),
        (asking("1", resource="amd.com/gpu"), "ExceedsCapacity", "no node advertises amd.com/gpu"),
        (make_ask("0.5"), "ExceedsCapacity", "served by a vendor's plugin, which gives whole ones only"),
    ],
    ids=["too large", "busy", "model", "resource", "share"],
)
def test_a_shortage_says_what_is_short_on_vendor_nodes(ask: Ask, reason: str, message: str) -> None:
    ledger = vendor_ledger(gpus=2)
    hold(ledger, "x", unnamed=1)
    found = place(ledger, ask=ask, workers=1, key="job")
    assert isinstance(found, Shortage)
    assert found.reason == reason
    assert message in found.message


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (asking("1(T4)"), "no node has model T4, there is V100"),
        (make_ask("0.5(V100)"), "V100 is served by a vendor's plugin alone, which gives whole ones only"),
        (make_ask("0.5(A100)"), "no node has model A100, there is T4"),
        (make_ask("8"), "Need 8 GPUs, only 4 available on one node"),
    ],
)
def test_each_kind_of_node_is_told_apart_in_a_mixed_cluster(ask: Ask, message: str) -> None:
    ledger = vendor_ledger(gpus=8)
    add_node(ledger, "managed", gpus=4, model="T4")
    found = place(ledger, ask=ask, workers=1, key="job")
    assert isinstance(found, Shortage)
    assert message in found.message


def test_a_copy_knows_the_resources() -> None:
    assert kind(vendor_ledger().copy(), asking("4")) == "fits"


CARDS = st.tuples(st.sampled_from(["V100", "T4"]), st.sampled_from([16384, 32768]), st.booleans())


@given(
    cards=st.lists(CARDS, min_size=1, max_size=4),
    model=st.sampled_from(["", "(V100)"]),
    memory=st.sampled_from(["", "20G,"]),
)
def test_kubelet_may_pick_any_device_so_each_of_the_node_has_to_do(
    cards: list[tuple[str, int, bool]], model: str, memory: str
) -> None:
    """Devices of several models and sizes, also two sizes of one model, some of them cordoned."""
    ledger = Ledger()
    add_vendor_node(ledger, "a", gpus=len(cards))
    devices = [
        replace(make_device("a", at, model=name, cordoned=cordoned), memory_mib=mib)
        for at, (name, mib, cordoned) in enumerate(cards)
    ]
    ledger.set_devices("a", devices=devices)
    ask = asking(f"{memory}1{model}")
    fits_each = [(not model or name == "V100") and (not memory or mib >= 20 * 1024) for name, mib, _ in cards]
    found = kind(ledger, ask)
    assert (found == "fits") == (all(fits_each) and not any(cordoned for *_, cordoned in cards)), found

"""Gangs by levels of the network: which domain they take, or the sentence with which they wait."""

from dataclasses import replace

import pytest

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.topology import Spread
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_ledger
from tests.core.engine.gang.topologies import CLIQUE, RACK, ZONE, gang, make_racks, nodes_of, planned


def hold(ledger: Ledger, *nodes: str, gpus: int = 8) -> Ledger:
    for node in nodes:
        hold_devices(ledger, node, *range(gpus))
    return ledger


def test_a_required_rack_has_all_workers_though_other_nodes_are_free() -> None:
    found = nodes_of(make_racks(1, 2, 1), gang("8", required="rack"), workers=2)
    assert found == ["r1-n0", "r1-n1"]


def test_a_gang_that_no_rack_has_room_for_waits_with_the_numbers_of_the_best_one() -> None:
    ledger = hold(make_racks(4, 4, 1), "r0-n0", "r1-n0", "r1-n1")
    told = nodes_of(ledger, gang("8", required="rack"), workers=4)
    assert told == "Fragmentation: Need 32 GPUs in one rack, r0 has 24: 48 GPUs are free, but not in one rack"
    hold(ledger, "r1-n2", "r1-n3", "r2-n0")
    assert nodes_of(ledger, gang("8", required="rack"), workers=4) == "Resources: Need 32 GPUs in one rack, r0 has 24"


def test_a_gang_larger_than_every_rack_can_never_start() -> None:
    told = nodes_of(make_racks(2, 3), gang("8", required="rack"), workers=4)
    assert told == "ExceedsCapacity: Need 32 GPUs in one rack, at most 24 could ever run in r1"


def test_a_level_without_labels_is_named_with_its_label() -> None:
    told = nodes_of(make_ledger(a=8, b=8), gang("8", required="rack"), workers=2)
    assert told == f"ExceedsCapacity: Need 16 GPUs in one rack, no node has the label {RACK}"


def test_a_gang_without_room_anywhere_gets_the_sentence_of_any_gang() -> None:
    ledger = hold(make_racks(2, 2), "r0-n0", "r0-n1", "r1-n0", "r1-n1")
    assert nodes_of(ledger, gang("8", required="rack"), workers=2) == "Resources: Need 16 GPUs, only 0 available"


def test_equal_names_of_two_zones_are_two_racks() -> None:
    ledger = make_racks(1, zones=2)
    told = nodes_of(ledger, gang("8", required="rack"), workers=2)
    assert told == "ExceedsCapacity: Need 16 GPUs in one rack, at most 8 could ever run in z0/r0"


def test_of_racks_with_room_the_tightest_is_taken() -> None:
    ledger = hold(make_racks(4, 4, 4), "r1-n0", "r1-n1")
    assert nodes_of(ledger, gang("8", required="rack"), workers=2) == ["r1-n2", "r1-n3"]


def test_a_preferred_rack_is_left_for_the_fewest_racks_of_the_required_zone() -> None:
    ledger = make_racks(2, 3, 2, zones=2)
    rules = gang("8", required="zone", preferred="rack")
    assert nodes_of(ledger, rules, workers=3) == ["z0-r1-n0", "z0-r1-n1", "z0-r1-n2"]
    found = nodes_of(ledger, rules, workers=5)
    assert {node.rsplit("-", 1)[0] for node in found} in ({"z0-r0", "z0-r1"}, {"z0-r1", "z0-r2"})
    assert "at most 56 could ever run in z0" in str(nodes_of(ledger, rules, workers=8))


def test_a_preferred_level_alone_is_no_condition() -> None:
    ledger = make_racks(1, 1)
    add_node(ledger, "without-labels")
    assert nodes_of(ledger, gang("8", preferred="rack"), workers=3) == ["without-labels", "r0-n0", "r1-n0"]


def test_sub_groups_are_each_in_a_domain_of_their_own_level() -> None:
    ledger = Ledger()
    for number, clique in enumerate("aabbbc"):
        add_node(ledger, f"n{number}", gpus=4, labels={RACK: "r0", CLIQUE: clique})
    ask = gang("4", required="rack", group_size=2, group_level="nvlink")
    assert nodes_of(ledger, ask, workers=4) == ["n0", "n1", "n2", "n3"]
    told = nodes_of(ledger, ask, workers=6)
    wanted = "Need 24 GPUs in one rack with 8 GPUs in each nvlink"
    assert told == f"ExceedsCapacity: {wanted}, at most 16 could ever run in r0"


def test_neighbouring_indexes_go_to_neighbouring_nodes() -> None:
    ledger = Ledger()
    for rack in (10, 2, 1):
        for node in (2, 1):
            add_node(ledger, f"rack{rack}-node{node}", labels={RACK: f"rack-{rack}"})
    ordered = [f"rack{rack}-node{node}" for rack in (1, 2, 10) for node in (1, 2)]
    assert nodes_of(ledger, gang("8"), workers=6) == ordered


def test_an_elastic_gang_starts_with_what_the_largest_room_of_a_rack_takes() -> None:
    ledger = hold(make_racks(4, 4), "r0-n0", "r0-n1", "r1-n0")
    ask = gang("8", required="rack")
    assert nodes_of(ledger, ask, workers=4, least=2) == ["r1-n1", "r1-n2", "r1-n3"]
    assert nodes_of(hold(ledger, "r1-n1", "r1-n2"), ask, workers=4, least=2) == ["r0-n2", "r0-n3"]


def test_an_elastic_gang_with_groups_starts_with_whole_groups() -> None:
    ledger = hold(make_racks(4, 4), "r0-n0", "r1-n0")
    ask = gang("8", group_size=2, group_level="rack")
    assert nodes_of(ledger, ask, workers=8, least=2) == ["r0-n1", "r0-n2", "r1-n1", "r1-n2"]


def test_shares_are_tried_on_the_ledger_because_their_parts_may_not_add_up() -> None:
    ledger = make_racks(1, 1, gpus=2)
    for node in ("r0-n0", "r1-n0"):
        for index in range(2):
            hold_devices(ledger, node, index, share_milli=400, mode="Fractional")
    assert nodes_of(ledger, gang("0.6", required="rack"), workers=2) == ["r0-n0", "r0-n0"]
    told = nodes_of(ledger, gang("0.5", required="rack"), workers=3)
    assert told == "Fragmentation: Need 3 GPUs in one rack, r0 has 2: 4 GPUs are free, but not in one rack"


def test_a_vendors_devices_are_counted_in_racks_too() -> None:
    ledger = make_racks(2, 1, managed=False, resource="nvidia.com/gpu", offered=8)
    ask = replace(gang("4", required="rack"), resource="nvidia.com/gpu")
    found = planned(ledger, ask, workers=4)
    assert not isinstance(found, str)
    assert [(claim.node, claim.unnamed) for claim in found] == [("r0-n0", 4)] * 2 + [("r0-n1", 4)] * 2
    assert nodes_of(ledger, ask, workers=5) == (
        "ExceedsCapacity: Need 20 GPUs in one rack, at most 16 could ever run in r0"
    )


@pytest.mark.parametrize("gpu", ["1", "0.5"])
def test_workers_spread_evenly_where_the_template_says_so(gpu: str) -> None:
    ledger = make_racks(1, 1, zones=2, gpus=4)
    add_node(ledger, "of-another-model", model="T4", labels={ZONE: "z2"})
    ask = gang(f"{gpu}(V100)", spreads=(Spread(label=ZONE, max_skew=1),))
    found = nodes_of(ledger, ask, workers=5)
    assert sorted(node[:2] for node in found) in (["z0"] * 3 + ["z1"] * 2, ["z0"] * 2 + ["z1"] * 3)
    hold(ledger, "z1-r0-n0", "z1-r1-n0", gpus=4)
    told = nodes_of(ledger, ask, workers=2)
    assert told == f"Fragmentation: Need 2 GPUs, but the number of workers on each {ZONE} may differ by 1"


def test_workers_keep_apart_by_any_label() -> None:
    ledger = make_racks(4, 4)
    ask = gang("1", spreads=(Spread(label=RACK, most=1),))
    assert sorted(str(node)[:2] for node in nodes_of(ledger, ask, workers=2)) == ["r0", "r1"]
    told = nodes_of(ledger, ask, workers=3)
    assert told == f"ExceedsCapacity: Need 3 GPUs, but at most 1 worker on each {RACK}"


def test_a_label_by_which_workers_keep_apart_does_not_bind_nodes_without_it() -> None:
    ledger = make_racks(1, 1)
    add_node(ledger, "of-no-rack")
    ask = gang("1", spreads=(Spread(label=RACK, most=1),))
    assert isinstance(nodes_of(ledger, ask, workers=3), list)
    hold(ledger, "of-no-rack")
    assert nodes_of(ledger, ask, workers=3) == f"Fragmentation: Need 3 GPUs, but at most 1 worker on each {RACK}"


def test_domains_whose_nodes_can_never_take_a_worker_do_not_count_for_workers_that_keep_apart() -> None:
    ledger = make_racks(2, 2)
    add_node(ledger, "of-another-model", model="T4", labels={ZONE: "z0", RACK: "r2"})
    ask = gang("1(V100)", spreads=(Spread(label=RACK, most=2),))
    assert isinstance(nodes_of(ledger, ask, workers=4), list)
    found = nodes_of(ledger, ask, workers=5)
    assert found == f"ExceedsCapacity: Need 5 GPUs, but at most 2 workers on each {RACK}"


def test_a_rack_of_workers_that_take_a_node_each() -> None:
    ledger = make_racks(2, 3)
    assert nodes_of(ledger, gang("1", required="rack", apart=True), workers=3) == ["r1-n0", "r1-n1", "r1-n2"]


def test_a_changed_label_moves_a_node_to_another_rack_and_not_in_copies() -> None:
    ledger = make_racks(1, 1)
    ask = gang("8", required="rack")
    assert isinstance(planned(ledger, ask, workers=2), str)
    copy, before = ledger.copy(), ledger.content()
    add_node(ledger, "r1-n0", labels={ZONE: "z0", RACK: "r0"})
    assert nodes_of(ledger, ask, workers=2) == ["r0-n0", "r1-n0"]
    assert isinstance(planned(copy, ask, workers=2), str)
    assert ledger.content() != before


def test_a_gang_of_cpu_workers_has_no_domain() -> None:
    ask = replace(gang("1", required="rack"), gpu=None)
    assert len(nodes_of(make_racks(1, 1), ask, workers=2)) == 2


def test_the_request_of_one_worker_is_that_of_a_gang_without_its_rules() -> None:
    assert gang("8", required="rack").alone == make_ask("8")

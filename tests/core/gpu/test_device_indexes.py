"""Numbers of devices over the cluster: in name order first, appended later, never used twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.gpu.device_indexes import NodeDevice, add_indexes, read_indexes

DEVICES = st.builds(NodeDevice, st.sampled_from(["a", "b", "b.rack"]), st.integers(0, 9))


def test_the_first_numbers_follow_node_names_and_then_indexes() -> None:
    devices = [NodeDevice("b", 0), NodeDevice("a", 10), NodeDevice("a", 2)]
    assert add_indexes(devices, data={}) == {"0": "a/cuda:2", "1": "a/cuda:10", "2": "b/cuda:0"}


def test_a_later_node_gets_the_next_numbers_whatever_its_name() -> None:
    assert add_indexes([NodeDevice("a", 0), NodeDevice("b", 0)], data={"0": "b/cuda:0"}) == {"1": "a/cuda:0"}


def test_the_number_of_a_device_that_is_gone_is_not_used_again() -> None:
    assert add_indexes([NodeDevice("c", 0)], data={"0": "a/cuda:0", "7": "b/cuda:0"}) == {"8": "c/cuda:0"}


@pytest.mark.parametrize("text", ["", "a", "cuda:1", "a/cuda:", "A/cuda:1", "a/cuda:1000", "a/cuda:-1", "cpu"])
def test_an_entry_that_is_no_device_is_left_out_and_its_number_counts_as_used(text: str) -> None:
    assert read_indexes({"4": text, "0": "a/cuda:0"}) == {0: NodeDevice("a", 0)}
    assert add_indexes([NodeDevice("b", 0)], data={"4": text}) == {"5": "b/cuda:0"}


@pytest.mark.parametrize("key", ["", "x", "01", "-1", "²", "12345678"])
def test_a_key_that_is_no_number_is_left_out(key: str) -> None:
    assert read_indexes({key: "a/cuda:0"}) == {}
    assert add_indexes([NodeDevice("a", 0)], data={key: "a/cuda:0"}) == {"0": "a/cuda:0"}


def test_a_device_with_two_numbers_has_the_lower() -> None:
    assert read_indexes({"10": "a/cuda:0", "9": "a/cuda:0"}) == {9: NodeDevice("a", 0)}


@given(st.lists(st.frozensets(DEVICES), max_size=5))
def test_a_number_keeps_its_device_however_devices_come_and_go(rounds: list[frozenset[NodeDevice]]) -> None:
    data = dict[str, str]()
    for devices in rounds:
        before = read_indexes(data)
        data |= add_indexes(devices, data=data)
        after = read_indexes(data)
        assert before.items() <= after.items()
        assert devices <= set(after.values())
    assert sorted(read_indexes(data)) == list(range(len(data)))

"""Which instances fit on a GPU together."""

from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dovetail.gpu.geometry import Place, Slot, arrange, described, filled
from tests.core.queue.reshaping.cards import H100_SLOTS

PROFILES = [slot.profile for slot in H100_SLOTS]


def overlap(places: tuple[Place, ...]) -> bool:
    slices = [at for place in places for at in range(place.start, place.start + place.size)]
    return len(slices) != len(set(slices))


@pytest.mark.parametrize(
    ("profiles", "fits"),
    [
        (("1g.10gb",) * 7, True),
        (("1g.10gb",) * 8, False),
        (("3g.40gb", "3g.40gb"), True),
        (("4g.40gb", "3g.40gb"), True),
        (("4g.40gb", "4g.40gb"), False),
        (("3g.40gb", "3g.40gb", "1g.10gb"), False),
        (("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"), True),
        (("7g.80gb",), True),
        (("7g.80gb", "1g.10gb"), False),
        (("1g.5gb",), False),
        ((), True),
    ],
)  # fmt: skip
def test_the_partitions_of_an_h100(profiles: tuple[str, ...], fits: bool) -> None:
    assert (arrange(profiles, slots=H100_SLOTS) is not None) == fits


@given(st.lists(st.sampled_from(PROFILES), max_size=4))
def test_an_arrangement_is_found_whenever_there_is_one(profiles: list[str]) -> None:
    slots = {slot.profile: slot for slot in H100_SLOTS}
    tried = (
        tuple(
            Place(profile=profile, start=start, size=slots[profile].size)
            for profile, start in zip(profiles, starts, strict=True)
        )
        for starts in product(*(slots[profile].starts for profile in profiles))
    )  # fmt: skip
    found = arrange(tuple(profiles), slots=H100_SLOTS)
    assert (found is not None) == any(not overlap(places) for places in tried)
    if found is not None:
        assert sorted(place.profile for place in found) == sorted(profiles)
        assert all(place.start in slots[place.profile].starts for place in found)
        assert not overlap(found)


def test_a_profile_with_media_engines_is_there_once() -> None:
    slots = (*H100_SLOTS, Slot(profile="1g.10gb+me", size=1, starts=tuple(range(7)), count=1))
    assert arrange(("1g.10gb+me", "1g.10gb"), slots=slots) is not None
    assert arrange(("1g.10gb+me", "1g.10gb+me"), slots=slots) is None


def test_what_is_left_of_a_gpu_is_filled_in_order() -> None:
    others = ["4g.40gb", "3g.40gb", *["1g.10gb"] * 7]
    assert filled(["3g.40gb"], with_any_of=others, slots=H100_SLOTS) == ("3g.40gb", "4g.40gb")
    assert filled(["2g.20gb"], with_any_of=others[1:], slots=H100_SLOTS) == (
        "2g.20gb", "3g.40gb", "1g.10gb", "1g.10gb",
    )  # fmt: skip


def test_a_partition_is_described_by_its_instances() -> None:
    assert described(["3g.40gb", "1g.10gb", "1g.10gb"]) == "3g.40gb + 2 x 1g.10gb"

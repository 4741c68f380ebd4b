"""A test of many seeds runs each of them, and a failure names its own."""

import pytest

from tests.seeds import seeds

SEEN: list[int] = []


@seeds(3)
def test_each_seed_below_the_count_is_run(seed: int) -> None:
    SEEN.append(seed)


@seeds(3)
async def test_so_it_is_where_the_test_waits(seed: int) -> None:
    SEEN.append(seed)
    if seed == 2:
        assert SEEN == [0, 1, 2] * 2


def test_a_failure_ends_it_and_names_its_seed() -> None:
    @seeds(5)
    def fails(seed: int) -> None:
        assert seed < 3

    with pytest.raises(AssertionError) as failed:
        fails()
    assert failed.value.__notes__ == ["with seed 3"]

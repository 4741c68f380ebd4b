"""What the use of a domain costs, computed again seat by seat and size by size."""

from random import Random

import numpy as np
import pytest

from dovetail.engine.gang.domain_loss import DIGITS, of_later_gangs, on_nodes, ranked


@pytest.mark.parametrize("seed", range(5))
def test_a_gang_takes_the_best_seats_of_each_domain(seed: int) -> None:
    random = Random(seed)
    for _ in range(40):
        count, workers = random.randint(1, 4), random.randint(1, 6)
        nodes = [
            (random.randint(-1, count - 1), random.randint(0, 3), random.choice([-2.5, -1.0, 0.0, 0.5, 4.0]))
            for _ in range(random.randint(0, 8))
        ]
        domain, seats = (np.array([node[at] for node in nodes], dtype=np.int64) for at in (0, 1))
        value = np.array([node[2] for node in nodes], dtype=np.float64)
        found = on_nodes(domain, seats=seats, value=value, workers=workers, count=count)
        for at in range(count):
            there = sorted((each for of, free, each in nodes if of == at for _ in range(free)), reverse=True)
            assert found[at] == pytest.approx(-sum(there[:workers]))


@pytest.mark.parametrize("seed", range(5))
def test_later_gangs_lose_what_no_longer_fits_in_sizes_of_powers_of_two(seed: int) -> None:
    random = Random(seed)
    for _ in range(40):
        capacity = [random.randint(0, 20) for _ in range(random.randint(1, 5))]
        workers = random.randint(1, 8)
        sizes = [size for size in (1, 2, 4, 8, 16) if size <= max(1, *capacity)]
        found = of_later_gangs(np.array(capacity, dtype=np.int64), workers=workers)
        for at, before in enumerate(capacity):
            after = max(0, before - workers)
            lost = [before // size * size - after // size * size for size in sizes]
            assert found[at] == pytest.approx(sum(lost) / len(sizes) - workers)


@pytest.mark.parametrize("seed", range(5))
def test_the_least_loss_comes_first_and_of_equal_ones_the_tightest(seed: int) -> None:
    random = Random(seed)
    for _ in range(40):
        loss = [random.choice([0.0, 0.00001, 1.0, 1.5]) for _ in range(6)]
        capacity = [random.randint(1, 3) for _ in loss]
        able = random.sample(range(6), k=4)
        found = ranked(np.array(loss), capacity=np.array(capacity, dtype=np.int64), able=able)
        assert sorted(found) == sorted(able)
        keys = [(round(loss[at], DIGITS), capacity[at], at) for at in found]
        assert keys == sorted(keys)

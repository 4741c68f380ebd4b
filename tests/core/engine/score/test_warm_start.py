"""What the pods that are here teach, before any more of them arrive."""

import pytest

from dovetail.engine.model.claims import Ask
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.score.live_fragmentation import FragmentationSettings, LiveFragmentation
from dovetail.engine.score.warm_start import count_pods, learned_at_once
from tests.core.engine.builders import make_ask, make_ledger


def pods(count: int, *, without: int = 0) -> list[tuple[str, Ask | None]]:
    """So many pods that ask for devices, after some that do not."""
    return [(f"none-{at}", None) for at in range(without)] + [(f"pod-{at}", make_ask("0.5")) for at in range(count)]


@pytest.mark.parametrize(
    ("asks", "steps"),
    [
        (pods(0), [0]),
        (pods(49), [49]),
        (pods(50), [50, 50]),
        (pods(101), [50, 100, 101]),
        (pods(30, without=40), [10, 30]),
    ],
    ids=["nobody", "less than a step", "one step", "two steps and one", "those that ask nothing do not count"],
)
def test_pods_are_counted_in_small_steps(asks: list[tuple[str, Ask | None]], steps: list[int]) -> None:
    fragments = LiveFragmentation(make_ledger(a=2), settings=FragmentationSettings(policy="ph"))
    assert list(count_pods(fragments, asks=asks)) == steps
    assert fragments.measure().arrivals == steps[-1]


@pytest.mark.parametrize("policy", ["ph", "fgd", "bestfit"])
def test_what_is_learned_at_once_leaves_nothing_to_work_out(policy: FragmentationPolicy) -> None:
    fragments, counted = learned_at_once(make_ledger(a=2), policy=policy, asks=pods(120))
    assert counted == 120
    assert (fragments.measure().policy, fragments.measure().arrivals) == (policy, 120)
    assert not fragments.work()


def test_an_amount_of_memory_is_learned_as_a_part_of_the_average_device_that_is_here_now() -> None:
    ledger = make_ledger(a=2)
    fragments = LiveFragmentation(ledger, settings=FragmentationSettings(policy="ph"))
    fragments.follow()
    assert fragments._shape_of(make_ask("8G,0.1")).share_milli == 250
    assert fragments._shape_of(make_ask("16G,0.1")).share_milli == 500

"""The machine of guests finds each fault that it was made for when its cure is taken away."""

import itertools
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from dovetail.api.gpujob import GPUJob, Placement
from dovetail.pods import seats
from dovetail_operator.lifecycle import status
from dovetail_operator.watchers.guests import gates
from dovetail_operator.watchers.guests.keeper import GuestKeeper
from tests.world.test_held_machine import HeldMachine

pytestmark = pytest.mark.slow

_MOST_EXAMPLES: Final = 200


def _release(patch: pytest.MonkeyPatch) -> None:
    """Seats for which no pod comes any more are kept."""

    def keep(placement: Placement, **_: Any) -> Placement:
        return placement

    patch.setattr(status, "with_released", keep)


def _end_without_owner(patch: pytest.MonkeyPatch) -> None:
    """A record outlives its object."""

    async def leave(_self: GuestKeeper, _record: GPUJob | None) -> None:
        """Do nothing."""

    patch.setattr(GuestKeeper, "_end_without_owner", leave)


def _size_of_a_seat(patch: pytest.MonkeyPatch) -> None:
    """A pod gets a seat whatever it asks for."""

    def fits(*_: Any, **__: Any) -> str:
        return ""

    patch.setattr(seats, "misfit", fits)
    patch.setattr(gates, "misfit", fits)


@pytest.mark.parametrize(
    ("revert", "says"),
    [
        (_release, "is held, and no pod has come for it|is planned, and has no pod"),
        (_end_without_owner, "has no owner|outlives its owner"),
        (_size_of_a_seat, r"asks .*, and its seat has"),
    ],
    ids=["release", "end without owner", "size of a seat"],
)
def test_the_machine_finds_what_breaks_without_a_cure(
    revert: Callable[[pytest.MonkeyPatch], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    revert(monkeypatch)
    numbers = itertools.count(1)

    class Counted(HeldMachine):
        def __init__(self) -> None:
            super().__init__()
            next(numbers)

    # An example is shrunk for minutes: each of some hundred others is a world that settles several times.
    chosen = settings(
        max_examples=_MOST_EXAMPLES, stateful_step_count=8, deadline=None, database=None, phases=[Phase.generate]
    )
    with pytest.raises(AssertionError, match=says):
        run_state_machine_as_test(Counted, settings=chosen)
    print(f"found within {next(numbers) - 1} examples")

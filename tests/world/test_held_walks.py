"""Walks of guests that a machine of them has found, or that are too rare for it."""

from typing import Any

import pytest

from tests.world.kinds import KINDS
from tests.world.test_held_machine import SETTLED, HeldMachine


class _Name:
    """Draws the object of this name."""

    def __init__(self, value: str) -> None:
        self._value = value

    def draw(self, _strategy: object) -> str:
        return self._value


def _scaled(machine: HeldMachine, *, to: int) -> None:
    name: Any = _Name("x")
    machine.scale(data=name, to=to, seconds=SETTLED)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.path])
def test_a_guest_that_was_scaled_to_nothing_starts_again_with_fewer(kind: str, seed: int) -> None:
    """Its record was planned with the earlier number while the guest was suspended, and is made again.

    With seed 1, a JobSet was let go by the plan of the record that was deleted meanwhile: no pod of it ever started.
    """
    machine = HeldMachine()
    try:
        machine.begin(seed=seed, kind=kind, count=3, gpu="1")
        _scaled(machine, to=0)
        _scaled(machine, to=2)
    finally:
        machine.teardown()

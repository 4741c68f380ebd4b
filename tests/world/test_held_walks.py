"""Walks of guests that a machine of them has found, or that are too rare for it."""

from typing import Any

import pytest

from tests.world.api import Values
from tests.world.cluster import _phase
from tests.world.guests import NAMESPACE
from tests.world.kinds import GROUPS, KINDS
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


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.path])
def test_a_guest_that_its_owner_resumes_without_a_turn_gets_nothing_beyond_the_quota(
    kind: str, seed: int | None
) -> None:
    """`suspend: false` by a user passes the queue, and the gates of the pods hold."""
    machine = HeldMachine()
    try:
        machine.begin(seed=seed, kind=kind, count=3, gpu="1")
        machine.limit(1, SETTLED)
        _set_suspended(machine, suspended=True)
        assert not _held_milli(machine)
        _set_suspended(machine, suspended=False)
        assert _held_milli(machine) <= 1000
        machine.limit(None, SETTLED)
        assert _held_milli(machine) == 3000
    finally:
        machine.teardown()


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("kind", GROUPS)
def test_a_gang_starts_once_beside_seats_that_were_given_back_and_pods_that_were_left_behind(
    kind: str, seed: int | None
) -> None:
    """Neither the queue nor the extender counts a seat for which no pod comes: the gang's plan is the only one."""
    machine = HeldMachine()
    try:
        machine.begin(seed=seed, kind="Job", count=2, gpu="1")
        machine.create(name="y", kind="JobSet", count=2, gpu="1", seconds=SETTLED)
        left: Any = _Name("y")
        machine.delete(data=left, orphan=True, seconds=0.6)
        machine.create(name="z", kind=kind, count=4, gpu="1", seconds=0.6)
        _scaled(machine, to=0)
        made = {pod["metadata"]["uid"]: _phase(pod) for pod in machine._pods("z")}
        assert list(made.values()) == ["Running"] * 4
        plans = [job["status"]["placement"]["generation"] for job in machine.world.server.all("gpujobs")
                 if job["metadata"]["name"].endswith("z") and job["status"].get("placement")]  # fmt: skip
        assert plans == [1]
        machine.world.pass_time(60.0)
        assert {pod["metadata"]["uid"]: _phase(pod) for pod in machine._pods("z")} == made
    finally:
        machine.teardown()


def _set_suspended(machine: HeldMachine, *, suspended: bool) -> None:
    kind = KINDS[machine.wishes.alive["x"].kind]

    def change(found: Values) -> None:
        at = found["spec"]
        for step in kind.path[:-1]:
            at = at.setdefault(step, {})
        at[kind.path[-1]] = suspended

    machine.world.server.change(kind.plural, f"{NAMESPACE}/x", change)
    machine.settle()


def _held_milli(machine: HeldMachine) -> int:
    """What pods with a node and planned workers hold."""
    ledger = machine.world.cluster.extender.ledger
    return sum(claim.milli for claim in ledger.claims() if ledger.claim(claim.key) is not None)

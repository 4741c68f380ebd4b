"""A supervisor that is killed at any of its effects: the next one ends where it would have ended."""

from typing import Any

import pytest

from dovetail_agent.mps.devices import MpsDevice
from dovetail_agent.mps.probe import Verdict
from dovetail_agent.mps.state_file import State
from dovetail_agent.mps.supervisor import Supervisor
from tests.agent.builders import allocated
from tests.agent.mps_machine import FakeCards, fractional
from tests.faults import Effects, at_each_effect

CARD, OTHER = allocated(0).uuid, allocated(1).uuid


class Driver:
    """The control daemon of one supervisor, which ends with it, and the limits that it was told."""

    starts_total = 0
    seconds_up = 0.0

    def __init__(self, effects: Effects) -> None:
        self.pid: int | None = None
        self.limits: list[str] = []
        self._effects = effects

    def tend(self) -> str:
        if self.pid is None:
            self._effects.around("start", lambda: setattr(self, "pid", 7))()
        return ""

    def ask(self, command: str) -> str:
        self._effects.around(command, lambda: self.limits.append(command))()
        return ""

    def servers(self) -> tuple[int, ...]:
        return ()

    def renew(self) -> None:
        """As the folder of clients does."""

    def left_over(self) -> str:
        return ""

    def clear(self) -> None:
        raise AssertionError


class Node:
    """What of a node outlives a supervisor: the devices' modes and the state file."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.cards = FakeCards(cards={uuid: MpsDevice(free_mib=80_000, exclusive=False) for uuid in (CARD, OTHER)})
        self.cards.keep = effects.around("mode", self.cards.keep)  # type: ignore[method-assign]
        self.write = effects.around("state", self._write)
        self.file: State | None = None
        self.tenants_left = False

    def _write(self, state: State) -> None:
        self.file = state

    def supervise(self) -> None:
        """A supervisor from its start, with a tenant that leaves, or that has left while none ran."""
        part: Any = Driver(self.effects)
        supervisor = Supervisor(
            daemon=part,
            control=part,
            cards=self.cards,
            probe=lambda _uuid, _size: Verdict(live=True, reason="Probed", message=""),
            clock=lambda: 0.0,
            wall=lambda: 0.0,
            shared=part,
            clients=part,
            remember=self.write,
            kept=self.file.exclusive if self.file else (),
        )
        tenants = [] if self.tenants_left else [(fractional(0),)] * 2
        for present in (*tenants, (), ()):
            state = supervisor.step(present).state
            self.write(state)
            assert not present or not state.live or self.cards.cards[CARD].exclusive
            assert part.limits[-1:] != [f"set_default_device_pinned_mem_limit {CARD} 8192M"] or present

    def end(self) -> object:
        assert self.file is not None
        return {uuid: card.exclusive for uuid, card in self.cards.cards.items()}, self.file


@pytest.mark.parametrize("leaves", [False, True], ids=["the tenant stays", "the tenant leaves meanwhile"])
def test_a_supervisor_that_is_killed_at_any_effect_leaves_no_device_closed(*, leaves: bool) -> None:
    def restart(node: Node) -> Node:
        node.tenants_left = leaves
        return node

    effects = at_each_effect(Node, journey=Node.supervise, end=Node.end, restart=restart)
    assert effects > 8


def test_the_mode_of_a_device_that_someone_else_closed_stays_whenever_the_supervisor_is_killed() -> None:
    def make(effects: Effects) -> Node:
        node = Node(effects)
        node.cards.cards[OTHER] = MpsDevice(free_mib=0, exclusive=True)
        return node

    def end(node: Node) -> bool:
        return node.cards.cards[OTHER].exclusive

    assert at_each_effect(make, journey=Node.supervise, end=end, restart=lambda node: node)

"""Tenants of one card over many turns: suspended, resumed, ended, left by an agent that is killed, with failing calls.

Beside them is what each of them has to be: stopped since its last turn, or running. A process that is stopped stays so
until its turn, whoever looks after what earlier agents have left.
"""

from pathlib import Path
from random import Random

import pytest

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.checkpoint.calls import ProcessState
from dovetail_agent.checkpoint.suspend_to_host import SuspendToHost
from dovetail_agent.devices.cuda import NOT_READY
from tests.agent.suspension import CARD_MIB, Rig

SIZES = (1000, 30_000, 60_000, 60_000)
CALLS = ("Lock", "Checkpoint", "Restore", "Unlock", "GetState")


class Node:
    """The card, its tenants, and which of them have to stand still; the agent may be another one each time."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        self.random = Random(seed)
        self.rig = Rig(folder=folder)
        self.agent: SuspendToHost = self.rig.agent()
        self.tenants: dict[str, NodeTenant] = {}
        self.stopped: set[str] = set()
        # Those that an earlier agent left, and those that a failing call has left where they were.
        self.left: set[str] = set()

    # --- steps --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A pod is promised a part of the card. Its process takes the memory where there is some, or later."""
        if len(self.rig.mib) < 6:
            uid = str(len(self.rig.mib) + 1)
            self.rig.mib[uid] = self.random.choice(SIZES)
        for uid, mib in self.rig.mib.items():
            if uid not in self.tenants and self.rig.stub.resident_mib + mib <= CARD_MIB:
                self.tenants[uid] = self.rig.tenant(int(uid), mib=mib)

    def suspend(self) -> None:
        uid = self._any()
        if uid is not None and self.agent.suspend(self.tenants[uid]) is None:
            self.stopped.add(uid)
            self.left.discard(uid)

    def resume(self) -> None:
        uid = self._any()
        if uid is None:
            return
        if self.agent.resume(self.tenants[uid]) is None:
            self.stopped.discard(uid)
            self.left.discard(uid)
            assert self._state(uid) is ProcessState.RUNNING
        else:
            self.left.add(uid)

    def recover(self) -> None:
        before = {uid: self._state(uid) for uid in self.stopped}
        self.agent.recover()
        assert {uid: self._state(uid) for uid in self.stopped} == before, "it was not its turn"

    def kill(self) -> None:
        """The watchdog thaws everybody, and the next agent knows what is on disk."""
        self.rig.freezer.frozen.clear()
        self.agent = self.rig.agent()
        self.left |= self.stopped
        self.stopped.clear()
        assert self.agent.away == set()

    def fail(self) -> None:
        """The next such call fails."""
        self.rig.stub.add(f"answer cuCheckpointProcess{self.random.choice(CALLS)} {NOT_READY} 1")

    # --- what holds ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        frozen = self.rig.freezer.frozen & set(self.tenants)
        assert self.stopped <= frozen
        assert frozen <= self.stopped | self.left
        for uid in self.tenants:
            assert self._state(uid) is ProcessState.RUNNING or uid in self.stopped | self.left

    def check_away(self) -> None:
        """After each look: those whose process the driver does not list, or may not."""
        marked = {file.stem for file in self.rig.folder.glob("*.json")} & set(self.tenants)
        assert self.agent.away == marked
        assert marked >= {uid for uid in self.tenants if self._state(uid) is not ProcessState.RUNNING}

    def settle(self) -> None:
        """One by one all get their turn, until no call is left that fails, and nothing is left of any."""
        for is_last in [False] * 8 + [True]:
            for uid, tenant in sorted(self.tenants.items()):
                for other, each in self.tenants.items():
                    assert other == uid or self.agent.suspend(each) is None or not is_last
                self.agent.resume(tenant)
                assert not is_last or self._state(uid) is ProcessState.RUNNING
                assert not is_last or self.rig.freezer.frozen == self.tenants.keys() - {uid}
        self.agent.forget(frozenset())
        assert (self.agent._held, self.agent._frozen, dict(self.agent.troubles)) == (set(), set(), {})

    def _any(self) -> str | None:
        return self.random.choice(sorted(self.tenants)) if self.tenants else None

    def _state(self, uid: str) -> ProcessState:
        return self.rig.state(int(uid))


STEPS = ("begin", "suspend", "suspend", "resume", "resume", "recover", "recover", "kill", "fail")


@pytest.mark.parametrize("seed", range(25))
def test_who_is_stopped_stays_so_until_its_turn_and_all_others_run_as_soon_as_there_is_room(
    tmp_path: Path, seed: int
) -> None:
    node = Node(tmp_path / "marks", seed=seed)
    for _ in range(40):
        step = node.random.choice(STEPS)
        getattr(node, step)()
        node.check()
        if step in {"suspend", "resume", "recover"}:
            node.check_away()
    node.settle()

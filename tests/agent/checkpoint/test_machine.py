"""Random turns over a driver and a freezer that refuse at random: nobody is lost silently, and nobody is brought back
onto a card without room."""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from dovetail_agent.checkpoint.calls import ProcessState
from dovetail_agent.turns.suspender import Refusal
from tests.agent.suspension import CARD_MIB, Rig

CALLS = st.sampled_from(["Lock", "Checkpoint", "Restore", "Unlock", "GetState"])


class Turns(RuleBasedStateMachine):
    """What the turns do with their tenants, in any order, with agents that die between."""

    tenants = Bundle("tenants")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="dovetail-suspend-"))
        self.rig = Rig(folder=self.folder / "marks", mib={"a promise": CARD_MIB})
        self.broken: set[int] = set()
        self.breaking = False
        self.next_pid = 1

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @precondition(lambda self: self.next_pid < 5)
    @rule(target=tenants, mib=st.sampled_from([1000, 40_000, 60_000, 80_000]))
    def begins(self, mib: int) -> int:
        pid = self.next_pid
        if self.rig.stub.resident_mib + mib > CARD_MIB:
            mib = CARD_MIB - self.rig.stub.resident_mib
        self.next_pid += 1
        self.rig.tenant(pid, mib=mib)
        return pid

    @rule(call=CALLS, code=st.sampled_from([1, 401, 600, 999]))
    def the_driver_refuses_next(self, call: str, code: int) -> None:
        self.rig.stub.add(f"answer cuCheckpointProcess{call} {code} 1")

    @rule(call=st.sampled_from(["Lock", "Checkpoint", "Restore", "Unlock"]))
    def the_driver_breaks_a_process_next(self, call: str) -> None:
        self.breaking = True
        self.rig.stub.add(f"after cuCheckpointProcess{call} 999")

    @rule(which=st.sampled_from(["suspend", "resume"]))
    def the_freezer_refuses_next(self, which: str) -> None:
        self.rig.freezer.refuses.add(which)

    @rule(first=tenants, second=tenants)
    def one_s_turn_follows_another_s(self, first: int, second: int) -> None:
        self.its_turn_is_over(first)
        self.its_turn_begins(second)

    @rule(pid=tenants)
    def its_turn_is_over(self, pid: int) -> None:
        refusal = self.rig.suspender.suspend(self.rig.known(pid))
        self.note()
        if refusal is None:
            assert str(pid) in self.rig.freezer.frozen, "who is to stand still does"
        else:
            self.told(pid, refusal)

    @rule(pid=tenants)
    def its_turn_begins(self, pid: int) -> None:
        refusal = self.rig.suspender.resume(self.rig.known(pid))
        self.note()
        state = self.rig.state(pid)
        if refusal is None:
            assert (state, str(pid) in self.rig.freezer.frozen) == (ProcessState.RUNNING, False)
            assert str(pid) not in self.rig.suspender.away
        else:
            self.told(pid, refusal)

    @rule()
    def the_agent_dies_and_another_begins(self) -> None:
        self.rig.freezer.frozen.clear()  # its watchdog
        self.rig.suspender = self.rig.agent()
        self.rig.suspender.recover()
        self.note()

    @rule(pid=consumes(tenants))
    def ends(self, pid: int) -> None:
        self.rig.gone.add(pid)
        self.rig.mib.setdefault(str(pid), 1)
        self.rig.suspender.resume(self.rig.known(pid))
        self.rig.freezer.frozen.discard(str(pid))
        self.rig.mib[str(pid)] = 0

    def note(self) -> None:
        for pid in range(1, self.next_pid):
            if pid not in self.rig.gone and self.rig.state(pid) is ProcessState.FAILED and pid not in self.broken:
                assert self.breaking, "only the driver breaks a process: no restore was tried without room"
                self.broken.add(pid)

    def told(self, pid: int, refusal: Refusal) -> None:
        state = self.rig.state(pid)
        assert refusal.lost == (state is ProcessState.FAILED) or refusal.reason in {
            "StateUnreadable", "FreezeTimedOut", "ThawFailed",
        }  # fmt: skip

    @invariant()
    def the_card_holds_all_that_are_on_it(self) -> None:
        assert self.rig.stub.resident_mib <= CARD_MIB

    @invariant()
    def who_is_not_running_is_marked_on_disk(self) -> None:
        marked = {file.stem for file in (self.folder / "marks").glob("*.json")}
        for pid in range(1, self.next_pid):
            if pid not in self.rig.gone and self.rig.state(pid) is not ProcessState.RUNNING:
                assert str(pid) in marked

    @invariant()
    def whoever_was_broken_is_told_of_by_the_last_look(self) -> None:
        for pid in self.broken - self.rig.gone:
            trouble = self.rig.suspender.troubles.get(str(pid))
            assert trouble is not None


TestTurns = Turns.TestCase
TestTurns.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)

"""MPS's supervisor with a real child process in the place of the control daemon, that crashes, hangs and comes back."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.mps.client_folder import ClientFolder
from dovetail_agent.mps.control import Control, environment
from dovetail_agent.mps.daemon import Daemon, Pace
from dovetail_agent.mps.devices import MpsDevice
from dovetail_agent.mps.leftovers import SharedMemory
from dovetail_agent.mps.probe import Verdict
from dovetail_agent.mps.supervisor import Step, Supervisor
from tests.agent.builders import allocated, make_tenant
from tests.agent.mps_machine import FakeCards, fractional
from tests.agent.mps_stub import MpsStub
from tests.agent.procfs import make_proc

CARD, OTHER = allocated(0).uuid, allocated(1).uuid
POD = "11111111-2222-4333-8444-555555555555"
GOOD = Verdict(live=True, reason="Probed", message="refused")
BAD = Verdict(reason="NotRefused", message="could take it")


class Memory(SharedMemory):
    """Shared memory with what a test says is left in it."""

    def __init__(self) -> None:
        self.left, self.cleared = "", 0

    def left_over(self) -> str:
        return self.left

    def clear(self) -> None:
        self.left, self.cleared = "", self.cleared + 1


@dataclass
class Rig:
    """A supervisor on a stand-in for MPS, with the clock in the test's hand."""

    mps: MpsStub
    proc: Path
    cards: FakeCards
    kept: tuple[str, ...] = ()
    verdict: Verdict = GOOD
    now: float = 0.0
    probes: list[tuple[str, int]] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)

    def __post_init__(self) -> None:
        variables = environment(pipe=self.mps.pipe, log=self.mps.log)
        program = str(self.mps.program)
        self.daemon = Daemon([program, "-f"], variables=variables, clock=lambda: self.now, pace=Pace(first_seconds=5))
        self.supervisor = Supervisor(
            daemon=self.daemon,
            control=Control(variables, program=program, seconds=2),
            cards=self.cards,
            probe=self._probe,
            clock=lambda: self.now,
            wall=lambda: 1000.0 + self.now,
            shared=self.memory,
            clients=ClientFolder(self.mps.clients, pipes=self.mps.pipe),
            remember=lambda _state: None,
            kept=self.kept,
            proc=self.proc,
        )

    def _probe(self, uuid: str, size: int) -> Verdict:
        self.probes.append((uuid, size))
        return self.verdict

    def step(self, *tenants: NodeTenant) -> Step:
        return self.supervisor.step(tenants)

    def until(self, holds: Callable[[Step], object], *tenants: NodeTenant) -> Step:
        """Steps until that holds; the child needs real time to come up and to go."""
        end = time.monotonic() + 60
        while not holds(step := self.step(*tenants)):
            assert time.monotonic() < end, step
        return step

    def kill(self) -> None:
        assert self.daemon._child is not None
        self.daemon._child.kill()
        self.daemon._child.wait()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(*, kept: tuple[str, ...] = (), exclusive: bool = False) -> Rig:
        cards = {uuid: MpsDevice(free_mib=80_000, exclusive=exclusive) for uuid in (CARD, OTHER)}
        proc = make_proc(tmp_path / "proc", pods={41: POD, 42: POD})
        made.append(Rig(mps=MpsStub(tmp_path / "mps"), proc=proc, cards=FakeCards(cards=cards), kept=kept))
        return made[-1]

    yield make
    for each in made:
        each.supervisor.stop()


RigOf = Callable[..., Rig]


def live(step: Step) -> bool:
    return step.state.live


def test_nothing_is_claimed_before_the_probe_was_refused(rig: RigOf) -> None:
    node = rig()
    node.mps.play("hang")
    first = node.step()
    assert (first.state.live, first.state.reason, node.probes) == (False, "Starting", [])
    node.mps.play()
    assert node.until(live).state.message == "refused"
    assert len(node.probes) == 1


def test_limits_that_do_not_bind_are_not_claimed_and_tried_again_later(rig: RigOf) -> None:
    node = rig()
    node.verdict = BAD
    assert not node.until(lambda step: step.state.reason == "NotRefused").state.live
    node.step()
    assert len(node.probes) == 1
    node.now, node.verdict = 301, GOOD
    assert node.until(live)


def test_clients_see_a_socket_by_which_they_can_change_nothing(rig: RigOf) -> None:
    node = rig()
    node.until(live)
    assert [each.name for each in node.mps.clients.iterdir()] == ["control"]
    before = node.mps.commands
    client = Control(environment(pipe=node.mps.clients, log=node.mps.log), program=str(node.mps.program))
    assert client.ask("get_default_active_thread_percentage") == "100.0\n"
    for command in ("set_default_active_thread_percentage 7", "quit"):
        assert "Insufficient privileges" in client.ask(command)
    assert node.mps.commands == before
    assert node.step().state.live


def test_clients_see_the_socket_of_the_next_daemon(rig: RigOf) -> None:
    node = rig()
    node.until(live)
    node.kill()
    node.step()
    node.now = 10
    node.until(live)
    assert (node.mps.clients / "control").samefile(node.mps.pipe / "control")


def test_without_a_socket_for_clients_nothing_is_claimed(rig: RigOf) -> None:
    node = rig()
    node.mps.clients.rmdir()
    node.until(lambda _: (node.mps.pipe / "control").exists())
    node.now = 60
    stopped = node.step().state
    assert (stopped.live, stopped.reason) == (False, "NotAnswering")
    assert "clients get no socket: " in stopped.message


def test_the_daemon_s_defaults_are_what_was_promised_and_follow_it(rig: RigOf) -> None:
    node = rig()
    node.until(live, fractional(0, share_milli=500, memory_mib=8192))
    node.step(fractional(0, share_milli=500, memory_mib=8192))
    assert node.mps.commands == [
        "set_default_active_thread_percentage 50",
        f"set_default_device_pinned_mem_limit {CARD} 8192M",
    ]
    node.step(fractional(0, share_milli=250, memory_mib=4096))
    assert node.mps.commands[2:] == [
        "set_default_active_thread_percentage 25",
        f"set_default_device_pinned_mem_limit {CARD} 4096M",
    ]


def test_a_card_is_exclusive_while_it_is_fractional_and_default_after(rig: RigOf) -> None:
    node = rig()
    assert node.until(live, fractional(0)).state.exclusive == [CARD]
    assert node.step().state.exclusive == []
    assert node.cards.modes == [(CARD, True), (CARD, False)]


def test_a_card_that_somebody_else_made_exclusive_stays_so(rig: RigOf) -> None:
    node = rig(exclusive=True)
    node.until(live)
    assert node.cards.modes == []


def test_a_supervisor_that_is_begun_anew_gives_back_what_the_last_one_kept(rig: RigOf) -> None:
    node = rig(kept=(CARD,), exclusive=True)
    node.until(live)
    assert node.cards.modes == [(CARD, False)]


def test_where_limits_do_not_bind_no_card_is_closed(rig: RigOf) -> None:
    node = rig()
    node.verdict = BAD
    node.until(lambda step: step.state.reason == "NotRefused", fractional(0))
    assert node.cards.modes == []


def test_the_probe_keeps_off_cards_of_other_tenants(rig: RigOf) -> None:
    node = rig()
    node.until(live, make_tenant(allocated(1)))
    assert node.probes == [(CARD, 2048)]


def test_with_no_card_to_try_it_on_nothing_is_claimed_and_the_reason_told(rig: RigOf) -> None:
    node = rig()
    told = node.until(lambda step: step.state.reason == "NotTried", make_tenant(allocated(0), allocated(1)))
    assert told.state.message.startswith("no card to try it on")
    assert node.until(live)


def test_a_daemon_that_crashes_is_reported_with_its_clients_and_begun_again_and_probed_again(rig: RigOf) -> None:
    node = rig()
    node.mps.play("server 7 41 42 43")
    node.until(lambda step: step.state.clients == {POD: 2, "": 1} and step.state.live, fractional(0))
    node.kill()
    crashed = node.step(fractional(0))
    assert crashed.lost == {POD: "MPS's control daemon is gone: killed by signal 9"}
    assert (crashed.state.live, crashed.state.reason, crashed.state.crashes_total) == (False, "Crashed", 1)
    assert crashed.state.exclusive == [CARD], "who comes without the daemon must fail, not run without limits"
    node.step(fractional(0))
    assert node.daemon.pid is None, "it waits before another start"
    node.now = 5
    again = node.until(live, fractional(0))
    assert (again.state.starts_total, len(node.probes)) == (2, 2)


def test_a_server_that_ends_is_reported_with_its_clients_and_limits_are_proven_again(rig: RigOf) -> None:
    node = rig()
    node.mps.play("server 7 41")
    node.until(lambda step: step.state.clients == {POD: 1} and step.state.live)
    node.mps.play()
    gone = node.step()
    assert gone.lost == {POD: "its MPS server has ended"}
    assert (gone.state.live, gone.state.crashes_total, len(node.probes)) == (True, 1, 2)


def test_a_daemon_that_hangs_is_ended_and_its_clients_told(rig: RigOf) -> None:
    node = rig()
    node.mps.play("server 7 41")
    node.until(lambda step: step.state.clients == {POD: 1})
    node.now = 60
    node.mps.play("hang")
    hung = node.step()
    assert (hung.state.live, hung.state.reason) == (False, "NotAnswering")
    assert "no answer in 2 s" in hung.lost[POD]
    assert node.daemon.pid is None


def _crash(node: Rig) -> None:
    node.kill()


def _hang(node: Rig) -> None:
    node.now += 60
    node.mps.play("hang")
    assert node.step(fractional(0)).state.reason == "NotAnswering"
    node.mps.play()


def _sweep(node: Rig) -> None:
    node.memory.left = "2000 MiB in 3 files"
    node.step()


@pytest.mark.parametrize("end", [_crash, _hang, _sweep])
def test_the_next_daemon_gets_the_limits_and_is_probed_before_they_are_claimed(
    rig: RigOf, end: Callable[[Rig], None]
) -> None:
    node = rig()
    node.until(live, fractional(0))
    before, probes = node.mps.commands, list(node.probes)
    assert before
    end(node)
    assert not node.step(fractional(0)).state.live
    node.now += 60
    node.until(live, fractional(0))
    # A command whose answer came late on a busy machine was sent again.
    assert dict.fromkeys(node.mps.commands[len(before) :]) == dict.fromkeys(before)
    assert node.probes == probes * 2


def test_a_daemon_that_ends_at_its_start_is_tried_less_and_less_often(rig: RigOf) -> None:
    node = rig()
    node.mps.play("broken")
    node.until(lambda step: step.state.crashes_total == 1)
    node.now = 4.9
    assert node.step().state.starts_total == 1
    node.now = 5
    node.until(lambda step: step.state.crashes_total == 2)
    node.now = 14.9
    assert node.step().state.starts_total == 2
    node.now = 15
    assert node.step().state.starts_total == 3


def test_without_the_control_program_it_says_so(rig: RigOf) -> None:
    node = rig()
    node.mps.program.unlink()
    told = node.step()
    assert told.state.reason == "Crashed"
    assert "cannot be run: No such file or directory" in told.state.message


def test_a_limit_that_the_daemon_refuses_is_no_proof(rig: RigOf) -> None:
    node = rig()
    node.mps.play("refuse set_default_device_pinned_mem_limit")
    node.until(lambda _: node.mps.commands, fractional(0))
    assert not node.step(fractional(0)).state.live
    node.now = 60
    assert node.step(fractional(0)).state.reason == "NotAnswering"


def test_cards_that_cannot_be_read_are_told_and_not_claimed(rig: RigOf) -> None:
    node = rig()
    node.cards.problem = "NVML: GPU is lost"
    told = node.until(lambda step: step.state.reason == "CardsUnreadable", fractional(0))
    assert told.state.message == "NVML: GPU is lost"


def test_what_tenants_left_in_shared_memory_is_freed_when_the_last_of_them_is_gone(rig: RigOf) -> None:
    node = rig()
    node.until(live, fractional(0))
    node.memory.left = "2000 MiB in 3 files"
    node.step(fractional(0))
    assert (node.memory.cleared, node.daemon.starts_total) == (0, 1)
    gone = node.step()
    assert (node.memory.cleared, gone.state.live, gone.state.reason, gone.lost) == (1, False, "Starting", {})
    node.now += 5
    again = node.until(live)
    assert (again.state.starts_total, again.state.crashes_total) == (2, 0)


def test_the_daemon_is_not_restarted_again_for_what_cannot_be_freed(rig: RigOf) -> None:
    node = rig()
    node.memory.left = "2000 MiB in 3 files"
    node.memory.clear = lambda: None  # type: ignore[method-assign]
    node.until(live)
    node.step()
    assert node.daemon.starts_total == 1

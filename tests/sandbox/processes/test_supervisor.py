"""The supervisor as it runs: a process of its own, told by files and signals, with programs that are quick to end."""

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from dovetail.process import identity
from dovetail_sandbox import state
from dovetail_sandbox.processes import processes
from dovetail_sandbox.processes import supervisor as supervising
from dovetail_sandbox.processes.supervisor import AWAKE_SECONDS, Child, backoff_seconds, describe_exit
from dovetail_sandbox.state import Component, Desired
from tests.sandbox.processes.conftest import Harness


def test_a_component_that_is_killed_is_started_again_and_counted(harness: Harness) -> None:
    harness.start(harness.component("c", "exec sleep 60"))
    first = harness.pid("c")
    identity.send(first, signal_number=signal.SIGKILL)

    again = harness.until("c", lambda each: each.state == "running" and each.process != first)
    assert (again.restarts, again.last_exit) == (1, "signal SIGKILL")


def test_a_component_that_keeps_crashing_waits_longer_and_keeps_its_log(harness: Harness) -> None:
    harness.start(harness.component("c", "echo no luck; exit 3"))

    waiting = harness.until("c", lambda each: each.state == "waiting" and each.restarts >= 1)
    assert waiting.last_exit == "exit code 3"
    assert Path(waiting.log).read_text().startswith("no luck\n")


def test_a_program_that_is_not_there_is_said(harness: Harness) -> None:
    harness.start(harness.component("c", "", argv=["/nowhere/program"]))

    assert harness.until("c", lambda each: bool(each.last_exit)).last_exit == "not started: No such file or directory"


def test_what_runs_once_is_done_or_has_failed_and_is_not_repeated(harness: Harness) -> None:
    harness.start(harness.component("good", "exit 0", once=True), harness.component("bad", "exit 4", once=True))

    assert harness.until("good", lambda each: each.state == "done").restarts == 0
    assert harness.until("bad", lambda each: each.state == "exited").last_exit == "exit code 4"


def test_a_new_epoch_is_a_restart(harness: Harness) -> None:
    spec = harness.component("c", "exec sleep 60")
    harness.start(spec)
    first = harness.pid("c")
    harness.desire(msgspec.structs.replace(spec, epoch=1))

    harness.until("c", lambda each: each.epoch == 1 and each.state == "running")
    assert not identity.alive(first)


def test_a_stopped_component_stays_away_until_it_is_wanted(harness: Harness) -> None:
    spec = harness.component("c", "exec sleep 60")
    harness.start(spec)
    harness.pid("c")
    harness.desire(msgspec.structs.replace(spec, stopped=True))
    harness.until("c", lambda each: each.state == "stopped")
    harness.desire(spec)

    assert harness.pid("c")


def test_what_is_no_longer_wanted_ends(harness: Harness) -> None:
    harness.start(harness.component("c", "exec sleep 60"), harness.component("d", "exec sleep 60"))
    first = harness.pid("c")
    harness.desire(harness.component("d", "exec sleep 60"))

    limit = time.monotonic() + 60
    while identity.alive(first) and time.monotonic() < limit:
        time.sleep(0.02)
    assert not identity.alive(first)


def test_what_a_component_leaves_behind_is_adopted_and_its_end_is_known(harness: Harness, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    leave = f"sleep 60 & echo -n $! > {pids}/etcd.pid"
    harness.start(harness.component("kwokctl", leave, once=True), adopt=pids)
    orphan = harness.pid("etcd")
    identity.send(orphan, signal_number=signal.SIGKILL)

    exited = harness.until("etcd", lambda each: each.state == "exited")
    assert exited.last_exit == "signal SIGKILL"


def test_what_was_left_behind_and_died_is_known_while_its_parent_is_still_at_work(
    harness: Harness, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    # It dies after the shell, which would take note of that, has become `sleep`, which does not.
    dies = 'until [ "$(cat /proc/$$/comm)" = sleep ]; do :; done; exit 7'
    leave = f"({dies}) & echo -n $! > {pids}/etcd.pid; exec sleep 60"
    harness.start(harness.component("kwokctl", leave, once=True), adopt=pids)

    assert harness.until("etcd", lambda each: each.state == "exited").last_exit == "exit code 7"


def test_the_end_of_the_supervisor_is_the_end_of_all(harness: Harness) -> None:
    deaf = "trap '' TERM; sleep 60 & wait; sleep 60"
    harness.start(harness.component("c", "exec sleep 60"), harness.component("deaf", deaf))
    children = [harness.pid("c"), harness.pid("deaf")]
    assert harness.process
    harness.process.terminate()
    harness.process.wait(timeout=60)

    assert not any(identity.alive(child) for child in children)
    assert processes.of_sandbox(harness.folder) == []


@pytest.mark.parametrize(("crashes", "seconds"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (7, 30), (99, 30)])
def test_the_wait_doubles_up_to_half_a_minute(crashes: int, seconds: float) -> None:
    assert backoff_seconds(crashes) == seconds


def test_who_ran_long_enough_starts_again_at_once() -> None:
    child = Child(spec=Component(name="c", argv=[], log=""), crashes=5, started_at=0.0)
    child.ended("exit code 1", success=False, now=61.0)

    assert (child.crashes, child.start_at) == (0, 61.0)


@pytest.mark.parametrize(
    ("status", "words"), [(0, "exit code 0"), (3 << 8, "exit code 3"), (9, "signal SIGKILL"), (15, "signal SIGTERM")]
)
def test_an_end_is_told_in_words(status: int, words: str) -> None:
    assert describe_exit(status) == words


def test_what_is_wanted_is_read_once_for_all_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    components = [Component(name=name, argv=["/bin/true"], log=str(tmp_path / f"{name}.log")) for name in "abc"]
    read = [Desired(components=components), Desired()]
    monkeypatch.setattr(supervising.state, "read_desired", lambda _folder: read.pop(0))
    supervisor = supervising.Supervisor(folder=tmp_path)
    supervisor.reconcile(now=0)
    assert len(read) == 1
    started = [child.process for child in supervisor.children.values()]
    assert all(started)
    processes.end([process for process in started if process], grace_seconds=0)
    for process in started:
        assert process
        processes.forget(process)


def test_a_program_with_nothing_to_do_rests_once_all_is_settled_and_runs_again(tmp_path: Path) -> None:
    spec = Component(name="c", argv=["/bin/sleep", "60"], log=str(tmp_path / "c.log"), rest_seconds=100)
    supervisor = supervising.Supervisor(folder=tmp_path)

    def reconciled(*, settled: bool, now: float) -> Child:
        state.write_desired(tmp_path, desired=Desired(components=[spec], settled=settled))
        supervisor.reconcile(now=now)
        return supervisor.children["c"]

    process = reconciled(settled=False, now=0).process
    assert process is not None
    assert reconciled(settled=False, now=AWAKE_SECONDS + 1).kill_at is None
    assert reconciled(settled=True, now=AWAKE_SECONDS - 1).kill_at is None
    child = reconciled(settled=True, now=AWAKE_SECONDS)
    assert child.kill_at is not None
    os.waitpid(process.pid, 0)
    child.ended("signal SIGTERM", success=False, now=70)
    assert (child.observed().state, child.start_at, child.crashes) == ("resting", 170, 0)
    again = reconciled(settled=True, now=170)
    assert (again.observed().state, again.rests) == ("running", False)
    assert again.process is not None
    processes.end([again.process], grace_seconds=0)
    processes.forget(again.process)

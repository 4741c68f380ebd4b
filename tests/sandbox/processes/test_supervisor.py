"""The supervisor as it runs: a process of its own, told by files and signals, with programs that are quick to end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_sandbox import state
from dovetail_sandbox.processes import forks, processes
from dovetail_sandbox.processes import supervisor as supervising
from dovetail_sandbox.processes.supervisor import AWAKE_SECONDS, Child, backoff_seconds, describe_exit
from dovetail_sandbox.state import Component, Desired, Observed

Supervisor = subprocess.Popen[bytes]


class Harness:
    """A supervisor and its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: Supervisor | None = None

    def component(self, name: str, script: str, **more: object) -> Component:
        fields = {"name": name, "argv": ["/bin/sh", "-c", script], "log": str(self.folder / f"{name}.log"), **more}
        return msgspec.convert(fields, Component)

    def start(self, *components: Component, adopt: Path | None = None) -> None:
        self.desire(*components, adopt=adopt)
        command = [sys.executable, "-m", "dovetail_sandbox.processes.supervisor", str(self.folder)]
        self.process = subprocess.Popen(command, env={processes.MARK: str(self.folder)})

    def desire(self, *components: Component, adopt: Path | None = None) -> None:
        place = str(adopt) if adopt else ""
        state.write_desired(self.folder, desired=Desired(components=list(components), adopt=place, adopt_logs=place))
        if self.process:
            self.process.send_signal(signal.SIGHUP)

    def until(self, name: str, holds: Callable[[Observed], bool]) -> Observed:
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            found = state.read_observed(self.folder).get(name)
            if found and holds(found):
                return found
            time.sleep(0.02)
        raise AssertionError(f"{name} is still {state.read_observed(self.folder).get(name)}")

    def pid(self, name: str) -> ProcessId:
        process = self.until(name, lambda each: each.state == "running").process
        assert process
        return process


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path)
    yield harness
    if harness.process:
        harness.process.terminate()
        assert harness.process.wait(timeout=60) == 0
    assert processes.of_sandbox(tmp_path) == []


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


FORKED = """
import os, signal, sys

def main():
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    print(sys.argv[1:], os.environ["NAME"], os.getsid(0) == os.getpid(), blocked, flush=True)
    if sys.argv[1] == "fails":
        raise ValueError("why")
    return int(sys.argv[1])
"""


START = """
import os, sys
from dovetail_sandbox.processes import forks
from dovetail_sandbox.state import Component

argv = [sys.executable, "-P", "-m", "forked_program", sys.argv[1]]
spec = Component(name="c", argv=argv, env={"NAME": "value"}, log="c.log")
print(os.waitstatus_to_exitcode(os.waitpid(forks.start(spec, module=forks.module_of(spec)), 0)[1]))
"""


@pytest.mark.parametrize(
    ("word", "code", "said"), [("0", 0, ""), ("7", 7, ""), ("fails", 1, "ValueError: why")], ids=["0", "7", "an error"]
)
def test_a_fork_is_a_program_of_its_own(word: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "forked_program.py").write_text(FORKED)
    done = subprocess.run([sys.executable, "-c", START, word], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == f"{code}\n"
    printed = (tmp_path / "c.log").read_text()
    assert printed.startswith(f"['{word}'] value True set()\n")
    assert said in printed


def test_only_dovetails_own_programs_are_forked() -> None:
    own = Component(name="operator", argv=[str(Path(sys.executable).with_name("dovetail-operator"))], log="")
    other = Component(name="operator", argv=["/usr/bin/dovetail-operator"], log="")
    foreign = Component(name="etcd", argv=["/bin/etcd"], log="")
    found = [forks.module_of(each) for each in (own, other, foreign)]
    assert found == ["dovetail_operator.main", None, None]


def test_what_forks_share_is_out_of_the_collectors_way() -> None:
    script = (
        "import gc; from dovetail_sandbox.processes import forks; forks.load(); "
        "import threading, sys; "
        "print(gc.get_freeze_count() > 100_000, threading.active_count(), len(sys.modules) > 500)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "1", "True"]


LATER = """
import io, sys
from dovetail_sandbox.processes import forks

forks.load()
there = set(sys.modules)
import sqlalchemy
from dovetail import logs

logs.configure(fmt="json", stream=io.StringIO())
logs.get_logger("x").info("a line")
sqlalchemy.create_engine("sqlite://").connect().close()
print(sorted(set(sys.modules) - there))
"""


def test_forks_import_nothing_anew_to_log_a_line_or_to_open_a_database() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", LATER], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

"""Programs of a command that are stopped for random spans, and run on after it."""

import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.process import identity
from tests.polling import until
from tools import stalls

# A process that outlives the command, as a sandbox's programs do, with a name that is stalled.
LASTING = (
    "import subprocess, sys, time;"
    "made = subprocess.Popen(['sleep', '600'], start_new_session=True);"
    "open(sys.argv[1], 'w').write(str(made.pid)); time.sleep(1); raise SystemExit(3)"
)


def stopped(pid: int) -> bool:
    return identity.stat_of(pid)[0] == "T"


def looked() -> stalls.Stalls:
    """Stalls of the processes that are called sleep, from now on."""
    made = stalls.Stalls(mark="x", programs=re.compile(b"sleep"), longest_seconds=1, chances=random.Random(1))
    made.look(0)
    return made


def test_a_program_is_stopped_and_continued_in_turns_and_runs_at_the_end() -> None:
    with subprocess.Popen(["sleep", "600"], env={stalls.MARK: "x"}) as program:
        made = looked()
        (turn,) = made.turns.values()
        meant = []
        for second in range(8):
            made.step(second + 0.9)
            meant.append(turn.stopped)
            until(lambda: stopped(program.pid) == turn.stopped)
        assert set(meant) == {True, False}
        assert made.count >= 2
        made.end()
        until(lambda: not stopped(program.pid))
        program.send_signal(signal.SIGKILL)


def test_a_program_that_the_command_stopped_stays_so() -> None:
    with subprocess.Popen(["sleep", "600"], env={stalls.MARK: "x"}) as program:
        made = looked()
        program.send_signal(signal.SIGSTOP)
        until(lambda: stopped(program.pid))
        for second in range(4):
            made.step(second + 0.9)
        assert (stopped(program.pid), made.count) == (True, 0)
        program.send_signal(signal.SIGCONT)
        until(lambda: not stopped(program.pid))
        made.step(9)
        assert made.count == 1, "its turn comes once it runs"
        program.kill()


def test_a_process_without_the_mark_or_with_another_name_runs_on() -> None:
    marked = {stalls.MARK: "x"}
    with (
        subprocess.Popen(["sleep", "600"], env=marked) as program,
        subprocess.Popen(["sleep", "600"]) as foreign,
        subprocess.Popen(["tail", "-f", "/dev/null"], env=marked) as other,
    ):
        assert [process.pid for process in looked().turns] == [program.pid]
        for each in (program, foreign, other):
            each.kill()


def test_the_exit_code_is_the_commands_and_what_it_leaves_behind_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pid"
    words = ["--programs", "sleep", "--longest", "0.2", "--", sys.executable, "-c", LASTING, str(path)]
    assert stalls.main(words) == 3
    pid = identity.identify(int(path.read_text()))
    assert pid is not None
    try:
        assert re.fullmatch(r"[1-9]\d* stops\n", capsys.readouterr().err)
        until(lambda: not stopped(pid.pid))
    finally:
        identity.send(pid, signal_number=signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_to_end_does_so_as_it_wants_to(tmp_path: Path, number: signal.Signals) -> None:
    program = f"trap 'sleep 1; exit 5' INT TERM; touch {tmp_path}/begun; while :; do sleep 0.1; done"
    words = [sys.executable, "-m", "tools.stalls", "--", "sh", "-c", program]
    with subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL) as running:
        until((tmp_path / "begun").exists)
        # A terminal interrupts all of its processes; who ends a program sends the signal to it alone.
        (os.killpg if number == signal.SIGINT else os.kill)(running.pid, number)
        assert running.wait(60) == 5


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--longest", "0", "--", "true"], "--longest 0 is not allowed; use a number above 0, at most 30"),
        (["--longest", "nan", "--", "true"], "--longest nan is not allowed; use a number above 0, at most 30"),
        (["--longest", "inf", "--", "true"], "--longest inf is not allowed; use a number above 0, at most 30"),
        (["--", "/no/such"], "/no/such does not start: No such file or directory"),
        ([], "the following arguments are required: command"),
    ],
)
def test_wrong_words_are_refused_in_a_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        stalls.main(words)
    assert refused.value.code == 2
    assert sentence in capsys.readouterr().err

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_sandbox.processes import processes


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    marked = {**os.environ, processes.MARK: str(tmp_path)}
    with subprocess.Popen(["sleep", "60"], env=marked) as child:
        yield child
        child.kill()


def identify(child: subprocess.Popen[bytes]) -> ProcessId:
    found = identity.identify(child.pid)
    assert found
    return found


def test_a_process_is_known_by_number_and_start(sleeper: subprocess.Popen[bytes]) -> None:
    assert identity.alive(identify(sleeper))


def test_another_process_of_the_same_number_is_not_the_same(sleeper: subprocess.Popen[bytes]) -> None:
    earlier = ProcessId(sleeper.pid, identify(sleeper).started - 1)

    assert not identity.alive(earlier)


def test_a_signal_never_reaches_a_later_process_of_the_same_number(sleeper: subprocess.Popen[bytes]) -> None:
    earlier = ProcessId(sleeper.pid, identify(sleeper).started - 1)

    assert not identity.send(earlier, signal_number=signal.SIGKILL)
    processes.end([earlier], grace_seconds=0)
    assert sleeper.poll() is None


def test_what_has_ended_is_not_alive_even_while_its_remains_are_there(sleeper: subprocess.Popen[bytes]) -> None:
    known = identify(sleeper)
    processes.end([known], grace_seconds=5)

    assert not identity.alive(known)  # nobody has waited for it yet: it is a zombie
    assert identity.identify(sleeper.pid) is None
    assert not identity.send(known, signal_number=signal.SIGTERM)


def test_what_does_not_listen_is_killed() -> None:
    deaf = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        processes.end([identify(child)], grace_seconds=0.1)

    assert child.returncode == -signal.SIGKILL


def test_processes_of_a_sandbox_are_found_by_their_mark(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert processes.of_sandbox(tmp_path) == [identify(sleeper)]
    assert processes.of_sandbox(tmp_path / "other") == []


def test_no_process_is_not_alive() -> None:
    assert not identity.alive(None)
    assert identity.identify(2**22 + 1) is None

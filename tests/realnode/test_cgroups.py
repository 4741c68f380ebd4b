"""The cgroup finds and ends every process of a node, however it was started. Uses the machine's real cgroups."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail_sandbox.realnode import cgroups
from dovetail_sandbox.realnode.capability import capable

pytestmark = pytest.mark.skipif(capable() is not None, reason=str(capable()))

# A process that joins, starts a child that would outlive it, and says so.
JOINER = """
import subprocess, sys, time
from dovetail_sandbox.realnode import cgroups
cgroups.join(sys.argv[1])
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("joined", flush=True)
time.sleep(600)
"""


@pytest.fixture
def group() -> Iterator[str]:
    name = "dovetail-test-cgroups"
    cgroups.create(name)
    yield name
    cgroups.end(name)


@pytest.fixture
def joined(group: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen([sys.executable, "-c", JOINER, group], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "joined\n"
        yield process
        cgroups.end(group)


def test_a_process_that_joined_is_found_with_its_children(group: str, joined: "subprocess.Popen[str]") -> None:
    assert joined.pid in cgroups.pids(group)
    assert len(cgroups.pids(group)) == 2


NESTED = """
import subprocess, sys
from dovetail_sandbox.realnode import cgroups
cgroups.join(sys.argv[1])
with subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "echo started; exec sleep 600"]):
    pass
"""


def test_the_first_process_is_not_that_of_a_container_whose_pid_is_lower(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cgroups.first(group) is None
    words = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", NESTED, group]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        found = cgroups.pids(group)
        # The node's first process, unshare in it, and the first process of the namespaces below.
        assert len(found) == 3
        first = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        # As after the kernel has given out its last PID.
        monkeypatch.setattr(cgroups, "pids", lambda _: [pid for pid in found if pid != first] + [first])
        assert cgroups.first(group) == first
        monkeypatch.undo()
        cgroups.end(group)


def test_ending_kills_all_and_leaves_no_cgroup(group: str, joined: "subprocess.Popen[str]") -> None:
    (cgroups.hierarchies()[0] / group / "kubepods" / "pod").mkdir(parents=True)
    cgroups.end(group)
    assert joined.wait() < 0
    assert cgroups.pids(group) == []
    assert not [path for path in cgroups.hierarchies() if (path / group).exists()]


def test_ending_what_does_not_exist_is_no_error() -> None:
    cgroups.end("dovetail-test-never-made")


def test_creating_twice_is_no_error(group: str) -> None:
    cgroups.create(group)
    assert cgroups.pids(group) == []

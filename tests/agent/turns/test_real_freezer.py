"""The freezers on this machine's kernel: a real process in a real cgroup, v1 and v2. The tree of a pod is made here.

A machine may mount v2 next to v1, without controllers. Freezing is no controller, so it works there too.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.turns.cgroup_freezer import Freezing, freezer_at, probe
from dovetail_agent.turns.freezer import Freezer
from dovetail_agent.turns.state_files import SILENT_SECONDS, Marks
from dovetail_agent.turns.watchdog import AGENT, WATCHDOG
from tests.agent.fake_cgroups import UID

TENANT = NodeTenant(uid=UID, namespace="ns", name="job-0", running=True)
# A process answers within microseconds. A frozen one must not answer in this time.
SILENCE_SECONDS = 0.5
PATIENCE_SECONDS = 60.0


def mount_of(version: str) -> Path | None:
    """Where to look for the freezer of that version: the mount of v2, the parent of the v1 freezer's mount."""
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, path, kind, options, *_ = line.split(" ")
        if version == "v2" and kind == "cgroup2":
            return Path(path)
        if version == "v1" and kind == "cgroup" and "freezer" in options.split(","):
            return Path(path).parent
    return None


class Pod:
    """A cgroup with the name of a pod's, and a process in it that repeats each line."""

    def __init__(self, group: Path) -> None:
        group.mkdir(parents=True)
        self.group = group
        self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        (group / "cgroup.procs").write_text(str(self._process.pid))

    def send(self) -> None:
        assert self._process.stdin
        self._process.stdin.write(b"x\n")

    def answers(self, *, within: float = PATIENCE_SECONDS) -> bool:
        assert self._process.stdout
        return bool(select.select([self._process.stdout], [], [], within)[0]) and bool(self._process.stdout.read(2))

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(params=["v1", "v2"])
def mount(request: pytest.FixtureRequest) -> Path:
    found = mount_of(request.param)
    if found is None:
        pytest.skip(f"this machine mounts no cgroup {request.param} with a freezer")
    return found


@pytest.fixture
def freezing(mount: Path) -> Freezing:
    found = freezer_at(mount)
    if not os.access(found.root, os.W_OK):
        pytest.skip(f"no right to create a cgroup in {found.root}")
    return found


@pytest.fixture
def pod(freezing: Freezing) -> Iterator[Pod]:
    top = freezing.root / f"dovetail-test-{os.getpid()}"
    pod = Pod(top / "kubepods" / f"pod{UID}")
    try:
        yield pod
    finally:
        freezing.thaw(pod.group)
        pod.end()
        limit = time.monotonic() + PATIENCE_SECONDS
        # The kernel empties a group a moment after its last process has ended.
        while (pod.group / "cgroup.procs").read_text() and time.monotonic() < limit:
            os.sched_yield()
        for folder in (pod.group, pod.group.parent, top):
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    marks = Marks(tmp_path / "marks", clock=time.monotonic)
    marks.prepare()
    return marks


def test_a_frozen_pod_does_not_answer_until_it_is_thawed(freezing: Freezing, pod: Pod, marks: Marks) -> None:
    freezer = Freezer(freezing, marks=marks, clock=time.monotonic, sleep=time.sleep)
    pod.send()
    assert pod.answers()
    assert freezer.suspend(TENANT) is None
    assert freezing.state(pod.group) == "frozen"
    pod.send()
    assert not pod.answers(within=SILENCE_SECONDS)
    assert freezer.resume(TENANT) is None
    assert pod.answers()
    assert freezing.state(pod.group) == "thawed"


def test_the_probe_freezes_a_group_next_to_the_pods_and_removes_it(freezing: Freezing, pod: Pod) -> None:
    probe(freezing)
    assert [each.name for each in pod.group.parent.iterdir() if each.is_dir()] == [pod.group.name]
    pod.send()
    assert pod.answers()


def test_the_watchdog_thaws_what_an_ended_agent_has_frozen(
    mount: Path, freezing: Freezing, pod: Pod, marks: Marks, tmp_path: Path
) -> None:
    marks.beat(AGENT)
    assert Freezer(freezing, marks=marks, clock=time.monotonic, sleep=time.sleep).suspend(TENANT) is None
    pod.send()
    command = ["-m", "dovetail_agent.turns.watchdog", f"--marks={tmp_path / 'marks'}", f"--cgroups={mount}"]
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True) as watchdog:
        try:
            assert pod.answers(within=PATIENCE_SECONDS + SILENT_SECONDS)
            assert marks.alive(WATCHDOG)
        finally:
            watchdog.terminate()
            said = watchdog.communicate()[1]
    assert f"pod {UID} thawed: the agent is silent" in said

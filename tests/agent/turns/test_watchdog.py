"""Who thaws when the agent is gone: the watchdog by itself, without an agent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.turns.cgroup_freezer import freezer_at
from dovetail_agent.turns.freezer import Freezer
from dovetail_agent.turns.state_files import SILENT_SECONDS, Marks
from dovetail_agent.turns.watchdog import AGENT, WATCHDOG, Watchdog
from tests.agent.fake_cgroups import OTHER, UID, FakeKernel

TENANT = NodeTenant(uid=UID, namespace="ns", name="job-0", running=True)


class World:
    """A pod that an agent has frozen, and a watchdog."""

    def __init__(self, folder: Path) -> None:
        self.kernel = FakeKernel(folder / "cgroup", version=1)
        self.group = self.kernel.add(f"kubepods/pod{UID}")
        self.marks = Marks(folder / "marks", clock=self.kernel.clock)
        self.marks.prepare()
        freezing = freezer_at(self.kernel.mount)
        self.freezing = freezing
        self.freezer = Freezer(freezing, marks=self.marks, clock=self.kernel.clock, sleep=self.kernel.sleep)
        self.watchdog = Watchdog(freezing, marks=self.marks)
        self.marks.beat(AGENT)
        self.freezer.suspend(TENANT)

    @property
    def frozen(self) -> bool:
        return self.kernel.stands(self.group)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_while_the_agent_beats_nobody_is_thawed(world: World) -> None:
    for _ in range(20):
        world.kernel.seconds += 1
        world.marks.beat(AGENT)
        assert world.watchdog.check() == []
    assert world.frozen


def test_when_the_agent_falls_silent_everybody_is_thawed(world: World) -> None:
    world.kernel.seconds += SILENT_SECONDS
    assert world.watchdog.check() == [f"pod {UID} thawed: the agent is silent"]
    assert not world.frozen


def test_an_agent_that_never_was_is_silent(world: World) -> None:
    world.marks.leave(AGENT)
    world.watchdog.check()
    assert not world.frozen


def test_a_pod_is_thawed_once_for_each_time_that_it_was_frozen(world: World) -> None:
    world.kernel.seconds += SILENT_SECONDS
    world.watchdog.check()
    world.freezing.freeze(world.group)  # by somebody else
    assert world.watchdog.check() == []
    assert world.frozen


def test_an_agent_that_hung_and_freezes_again_is_watched_again(world: World) -> None:
    world.kernel.seconds += SILENT_SECONDS
    world.watchdog.check()
    os.utime(world.kernel.mount.parent / "marks" / "frozen" / UID, ns=(1, 1))  # the clock of files is coarse
    world.freezer.suspend(TENANT)
    assert world.watchdog.check() == [f"pod {UID} thawed: the agent is silent"]


def test_what_others_froze_stays_frozen(world: World) -> None:
    other = world.kernel.add(f"kubepods/pod{OTHER}")
    world.freezing.freeze(other)
    world.kernel.seconds += SILENT_SECONDS
    world.watchdog.check()
    assert world.kernel.stands(other)


def test_a_pod_that_is_gone_leaves_no_mark(world: World) -> None:
    (world.group / "freezer.state").unlink()
    world.kernel.seconds += SILENT_SECONDS
    assert world.watchdog.check() == []
    assert world.marks.all() == []


def test_a_watchdog_that_ends_leaves_nobody_frozen_and_no_sign_of_life(world: World) -> None:
    world.watchdog.check()
    assert world.marks.alive(WATCHDOG)
    assert world.watchdog.leave() == [f"pod {UID} thawed: the watchdog ends"]
    assert (world.frozen, world.marks.alive(WATCHDOG)) == (False, False)


def test_a_beat_of_another_boot_is_no_sign_of_life(world: World) -> None:
    world.kernel.seconds = 1000.0
    world.marks.beat(AGENT)
    world.kernel.seconds = 3.0
    assert not world.marks.alive(AGENT)


@pytest.fixture
def process(world: World) -> "subprocess.Popen[str]":
    folder = world.kernel.mount.parent
    words = [sys.executable, "-m", "dovetail_agent.turns.watchdog", f"--marks={folder / 'marks'}"]
    return subprocess.Popen([*words, f"--cgroups={folder / 'cgroup'}"], stderr=subprocess.PIPE, text=True)


def test_the_process_thaws_and_ends_by_sigterm(world: World, process: "subprocess.Popen[str]") -> None:
    # The machine's clock is far from the agent's beat at 0.
    assert process.stderr
    assert process.stderr.readline() == f"pod {UID} thawed: the agent is silent\n"
    assert not world.frozen
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    process.stderr.close()


def test_without_a_freezer_it_ends_with_one_sentence(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "dovetail_agent.turns.watchdog",
        f"--marks={tmp_path / 'marks'}",
        f"--cgroups={tmp_path}",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"dovetail-thaw: there is neither cgroup v2 nor the v1 freezer at {tmp_path}\n"


def test_it_needs_no_library_but_pythons_own() -> None:
    code = "import sys, dovetail_agent.turns.watchdog; print({'msgspec', 'structlog', 'aiohttp'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

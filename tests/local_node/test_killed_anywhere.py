"""A local node that is killed at each of its effects: the job of a pod runs once, and its end is reported as it was.

The process of the job is real, and so are the files of its run. The API server has one pod in memory.
"""

import asyncio
import itertools
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail import names
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import GPUJOBS, PODS
from dovetail_local_node import processes
from dovetail_local_node.environments import Environments
from dovetail_local_node.limits import choice
from dovetail_local_node.pod_life import Node, PodLife
from dovetail_local_node.pod_object import LocalPod, LocalPodStatus, Submitted
from dovetail_local_node.pods import Pods
from dovetail_local_node.runs import Runs
from tests.faults import Effects, Killed, at_each_effect
from tests.local_node import builders
from tests.local_node.test_pod_life import ENDED, NOW

PATIENCE_SECONDS = 60.0
SUBMITTED = Submitted(metadata=ObjectMeta(annotations={names.USER: "alice"}))
# It ends by itself once it may, and by SIGTERM otherwise: either is an end of its own.
WAITS = 'echo run >>"$0/count"; until [ -e "$0/go" ]; do sleep 0.01; done; exit 3'


@dataclass(kw_only=True)
class Machine:
    """What outlives a local node: the API server with one pod, and the folder of this machine's runs."""

    folder: Path
    effects: Effects
    is_ended_by_deletion: bool
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    statuses: list[dict[str, Any]] = field(default_factory=list)
    is_deleting: bool = False
    is_deleted: bool = False
    # Of the local node that runs: whether it was killed within a request.
    dead: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def phase(self) -> str:
        return str(self.statuses[-1]["phase"]) if self.statuses else ""

    def pod(self) -> LocalPod:
        made = builders.pod("sh", "-c", WAITS, str(self.folder))
        deleted = {"deletion_timestamp": "2026-01-31T18:00:00Z"} if self.is_deleting else {}
        return replace(
            made,
            metadata=replace(made.metadata, uid=self.uid, **deleted),
            status=LocalPodStatus(phase=self.phase),
        )

    # --- the requests of the local node ------------------------------------------------------------------------

    async def get(self, resource: Any, **_: Any) -> Any:
        assert resource == GPUJOBS
        return await self._answer("read of the job", lambda: SUBMITTED)

    async def patch(self, resource: Any, *, name: str, patch: Any, **_: Any) -> None:
        assert (resource, name, patch["metadata"]["uid"]) == (PODS, "train-0-abcde", self.uid)
        assert not self.is_deleted
        await self._answer(f"report of {patch['status']['phase']}", lambda: self.statuses.append(patch["status"]))

    async def delete(self, resource: Any, *, uid: str, grace_period_seconds: int, **_: Any) -> None:
        assert (resource, uid, grace_period_seconds) == (PODS, self.uid, 0)
        await self._answer("deletion", lambda: setattr(self, "is_deleted", True))

    async def _answer(self, what: str, effect: Any) -> Any:
        try:
            if not self.dead.is_set():
                return self.effects.around(what, effect)()
        except Killed:
            self.dead.set()
        # A process that is dead gets no answer.
        return await asyncio.Event().wait()

    # --- the local node ----------------------------------------------------------------------------------------

    def node(self) -> Node:
        return Node(
            client=self,  # type: ignore[arg-type] # it has the requests that a life makes
            runs=Runs(folder=self.folder / "runs"),
            environments=Environments(folder=self.folder / "environments", own={"PATH": os.defpath}),
            place=builders.place(self.folder, user="alice"),
            boot_id="this",
            now=lambda: NOW,
            extra={},
            groups=choice.none("a test"),
        )

    async def run(self) -> None:
        """A local node, until nothing of the pod is left, or it is killed."""
        self.dead = asyncio.Event()
        node = self.node()
        if self.is_deleted:
            await Pods(node, name="local")._end_orphans()
            return
        life = PodLife(node=node, pod=self.pod(), unreported_seconds=0)
        living = asyncio.create_task(life.run())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not living.done() and not self.dead.is_set():
                await asyncio.sleep(0.005)
                self._go_on(life)
        if living.done():
            await living

    @property
    def ran(self) -> list[str]:
        """A line for each time the job ran. The shell makes the file before it writes to it."""
        counted = self.folder / "count"
        return counted.read_text().splitlines() if counted.exists() else []

    def _go_on(self, life: PodLife) -> None:
        """What others do: let the job end, delete its pod, and tell of that."""
        if self.phase == "Running" and not self.is_ended_by_deletion:
            (self.folder / "go").touch()
        wanted = "Running" if self.is_ended_by_deletion else "Failed"
        if self.phase == wanted and self.ran and not self.is_deleting:
            self.is_deleting = True
            life.seen(self.pod())
        if self.is_deleted:
            life.gone()


def journey(machine: Machine) -> None:
    """One process of the local node. What is killed within a request leaves by an exception too."""
    asyncio.run(machine.run())
    if machine.dead.is_set():
        raise Killed


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in itertools.count())


@pytest.mark.parametrize(
    ("is_ended_by_deletion", "code"), [(False, 3), (True, 143)], ids=["by itself", "by a deletion"]
)
def test_a_job_runs_once_wherever_the_local_node_is_killed(
    folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch, is_ended_by_deletion: bool, code: int
) -> None:
    real = {"write": Runs.write, "remove": Runs.remove, "start": processes.start}

    def make(effects: Effects) -> Machine:
        folder = next(folders)
        folder.mkdir()
        monkeypatch.setattr(Runs, "write", effects.around("write of the run", real["write"]))
        monkeypatch.setattr(Runs, "remove", effects.around("removal of the run", real["remove"]))
        monkeypatch.setattr(processes, "start", effects.around("start of the shim", real["start"]))
        return Machine(folder=folder, effects=effects, is_ended_by_deletion=is_ended_by_deletion)

    def end(machine: Machine) -> Any:
        last = machine.statuses[-1]
        assert last["phase"] in ENDED
        phases = [phase for phase, _ in itertools.groupby(each["phase"] for each in machine.statuses)]
        left = sorted(path.name for path in (machine.folder / "runs").iterdir())
        terminated = last["containerStatuses"][0]["state"]["terminated"]
        return phases, terminated["exitCode"], terminated["reason"], machine.ran, machine.is_deleted, left

    number = at_each_effect(make, journey=journey, end=end, restart=lambda machine: machine)
    assert number >= 7
    untouched = make(Effects())
    journey(untouched)
    assert end(untouched) == (["Running", "Failed"], code, "Error", ["run"], True, [])

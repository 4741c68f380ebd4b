"""Turns and suspend to host together: the turns' own loop and freezer, CUDA's calls on our stand-in for its library."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dovetail.api.gpunode import GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.checkpoint.admission import Candidate, OnDevice
from dovetail_agent.checkpoint.calls import LibraryCalls, ProcessState
from dovetail_agent.checkpoint.state_files import CheckpointMarks
from dovetail_agent.checkpoint.suspend_to_host import SuspendToHost
from dovetail_agent.devices.cuda import Driver
from dovetail_agent.devices.model import Process
from dovetail_agent.turns.cgroup_freezer import freezer_at
from dovetail_agent.turns.feature import TurnsFeature
from dovetail_agent.turns.freezer import Freezer
from dovetail_agent.turns.state_files import Marks
from dovetail_agent.turns.suspender import Suspender
from dovetail_agent.turns.watchdog import WATCHDOG
from tests.agent.builders import NOON
from tests.agent.cuda_stub import CudaStub
from tests.agent.fake_cgroups import OTHER, UID, FakeKernel
from tests.agent.suspension import CARD, CARD_MIB
from tests.agent.turns.test_feature import FIRST, SECOND, Probed, seen

LARGE = 60_000
PIDS = {UID: 1, OTHER: 2}


class Careful(LibraryCalls):
    """The calls, which none may make of a frozen process, nor bring one back onto a card without room."""

    def __init__(self, node: "Node") -> None:
        super().__init__(Driver(node.stub.path))
        self._node = node
        self.restored: list[int] = []

    def _call(self, name: str, pid: int, argument: object) -> None:
        if not name.endswith("GetState"):
            assert not self._node.stands(pid), "a call to a frozen process hangs"
        if name.endswith("Restore"):
            assert self._node.stub.resident_mib + LARGE <= CARD_MIB, "a restore without room is final"
            self.restored.append(pid)
        super()._call(name, pid=pid, argument=argument)


class Node:
    """One card that has room for one of its two tenants."""

    def __init__(self, folder: Path, *, context_mib: int = 300) -> None:
        self.context_mib = context_mib
        self.kernel = FakeKernel(folder / "cgroup", version=1)
        self.groups = {PIDS[uid]: self.kernel.add(f"kubepods/pod{uid}") for uid in PIDS}
        self.stub = CudaStub(f"process 1 {LARGE}")
        self.folder = folder
        self.looks = 0
        self.calls = Careful(self)
        self.mover: SuspendToHost | None = None
        self.marks = Marks(folder / "marks", clock=time.monotonic)
        self.marks.prepare()
        self.turns = TurnsFeature(
            lambda: Probed(freezer_at(self.kernel.mount).root),
            marks=self.marks,
            turn_seconds=0.02,
            around=self.around,
            away=lambda: self.mover.away if self.mover else frozenset(),
            in_the_way=self.crowded,
        )

    def around(self, freezer: Freezer) -> Suspender:
        marks = CheckpointMarks(self.folder / "at-host", proc=self.folder)
        marks.prepare()
        self.mover = SuspendToHost(freezer, calls=self.calls, marks=marks, world=self)
        return self.mover

    def stands(self, pid: int) -> bool:
        return self.kernel.stands(self.groups[pid])

    def candidate(self, tenant: NodeTenant) -> Candidate:
        pid = PIDS[tenant.uid]
        there = self.stub.state(pid) in {ProcessState.RUNNING, ProcessState.LOCKED}
        return Candidate(
            name=tenant.name,
            processes=[OnDevice(pid=pid, uuid=CARD, used_mib=LARGE)] if there else [],
            promised_mib={CARD: LARGE},
            host_free_mib=1 << 20,
        )

    def crowded(self, tenant: NodeTenant) -> bool:
        return True

    def free_mib(self) -> Mapping[str, int]:
        return {CARD: CARD_MIB - self.stub.resident_mib}

    def started(self, pid: int, *, pod_uid: str = "") -> int:
        return pid

    def look(self) -> None:
        """One look of the agent, which sees on the card who is on the card. All are measured to compute nothing, and
        the second begins with a mere context, or with nothing at all."""
        self.marks.beat(WATCHDOG)
        if self.stub.state(2) < 0 and not self.stub.resident_mib:
            self.stub.add(f"process 2 {LARGE}")
        on_card = {ProcessState.RUNNING, ProcessState.LOCKED}
        used = {uid: LARGE for uid, pid in PIDS.items() if self.stub.state(pid) in on_card}
        if self.stub.state(2) < 0 and self.context_mib:
            used[OTHER] = self.context_mib
        look = seen(FIRST, SECOND, used=used)
        assert look.sample is not None
        self.looks += 1
        idle = tuple(Process(pid=PIDS[uid], used_mib=mib, pod_uid=uid, utilization=0.0) for uid, mib in used.items())
        sample = replace(
            look.sample,
            measured_at=NOON + timedelta(seconds=self.looks),
            devices=tuple(replace(each, processes=idle) for each in look.sample.devices),
        )
        self.turns.amend(GPUNodeStatus(), seen=replace(look, sample=sample))


@pytest.mark.parametrize("context_mib", [300, 0])
async def test_two_tenants_of_a_card_with_room_for_one_come_and_go_by_turns_though_they_idle(
    tmp_path: Path, context_mib: int
) -> None:
    node = Node(tmp_path, context_mib=context_mib)
    node.look()
    task = asyncio.create_task(node.turns.run(lambda: None))
    try:
        async with asyncio.timeout(60):
            while node.calls.restored.count(1) < 3 or node.calls.restored.count(2) < 3:
                node.look()
                await asyncio.sleep(0.005)
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=10)
    assert node.mover is not None
    assert not any(trouble.lost for trouble in node.mover.troubles.values())

"""Who gets MPS's folders: every part of a request may be wrong, alone and with others, and requests come together."""

import asyncio
import threading
import time
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any

import pytest
from grpclib.exceptions import GRPCError
from msgspec.structs import replace as with_fields

from dovetail import names
from dovetail_agent.mps import pod_modes
from dovetail_agent.mps.volume_driver.mounts import MountError
from dovetail_agent.mps.volume_driver.volumes import MpsVolumes
from tests.agent.mps_machine import fractional

UID, OTHER = "0" * 32, "1" * 32
ABOUT_POD = "csi.storage.k8s.io/"


class OneByOne:
    """Mounts that are only noted. They share a staging folder, so two at a time would mount the wrong one."""

    def __init__(self) -> None:
        self.mounted: dict[PurePosixPath, tuple[str, bool]] = {}
        self.fails = False
        self._at_work = threading.Lock()

    def bind(self, source: Path, *, target: PurePosixPath, read_only: bool) -> None:
        self._work()
        self.mounted[target] = source.name, read_only

    def unbind(self, target: PurePosixPath) -> None:
        self._work()
        self.mounted.pop(target, None)

    def _work(self) -> None:
        assert self._at_work.acquire(blocking=False), "two at a time"
        try:
            time.sleep(0.002)
            if self.fails:
                raise MountError(Path("x"), problem="it fails")
        finally:
            self._at_work.release()


class Node:
    """A node whose supervisor lists one pod with a share, and others without."""

    def __init__(self, folder: Path) -> None:
        (folder / "state").mkdir()
        self.pods = folder / "pods"
        self.mounts = OneByOne()
        mounts: Any = self.mounts
        self.volumes = MpsVolumes(mounts, directory=folder, pods=self.pods, pipe_read_only=True, wait_seconds=0)
        self._list = pod_modes.path_in(folder)

    def tell(self, mode: str | None) -> None:
        """List the pod with devices of this mode; None leaves it out."""
        tenants = [with_fields(fractional(0, uid=OTHER), mode="Fractional")]
        if mode is not None:
            made = with_fields(fractional(0, uid=UID), mode=mode or "Exclusive")
            tenants.append(made if mode else with_fields(made, devices=[]))
        pod_modes.write(self._list, tenants=tenants)

    async def takes(self, target: str, context: dict[str, str]) -> bool:
        try:
            await self.volumes.publish(target, context=context)
        except GRPCError:
            return False
        return True


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def target_of(folder: Path, *, uid: str = UID, volume: str = "dovetail-mps-pipe") -> str:
    return f"{folder}/{uid}/volumes/kubernetes.io~csi/{volume}/mount"


@pytest.mark.parametrize("seed", range(40))
async def test_a_pod_gets_a_folder_if_all_of_its_request_is_right(node: Node, seed: int) -> None:
    random = Random(seed)
    for _ in range(8):
        modes = ["Fractional"] * 6 + ["Exclusive", "TimeShared", "", None]
        mode, folder = random.choice(modes), random.choice(["pipe", "shm"])
        said = {names.MPS_FOLDER_ATTRIBUTE: folder, "pod.uid": UID, "pod.name": "p", "pod.namespace": "team"}
        said |= {"ephemeral": "true"}
        context = {key if key == names.MPS_FOLDER_ATTRIBUTE else f"{ABOUT_POD}{key}": it for key, it in said.items()}
        volume, uid, wrong = f"dovetail-mps-{folder}", UID, mode != "Fractional"
        for key, values in {
            names.MPS_FOLDER_ATTRIBUTE: [None, "", "state", "pipe" if folder == "shm" else "shm"],
            f"{ABOUT_POD}pod.uid": [None, "", OTHER],
            f"{ABOUT_POD}ephemeral": [None, "", "false"],
        }.items():
            if random.random() < 0.12:
                value, wrong = random.choice(values), True
                context = {name: it for name, it in context.items() if name != key} | (
                    {} if value is None else {key: value}
                )
        if random.random() < 0.1:
            uid, wrong = OTHER, True
        if random.random() < 0.1:
            volume, wrong = random.choice(["dovetail-mps-pipe-2", "pipe", f"{volume}x"]), True
        node.tell(mode)
        node.mounts.mounted.clear()
        assert await node.takes(target_of(node.pods, uid=uid, volume=volume), context) != wrong
        where = PurePosixPath(f"{UID}/volumes/kubernetes.io~csi/{volume}/mount")
        assert node.mounts.mounted == (
            {} if wrong else {where: ("clients" if folder == "pipe" else "shm", folder == "pipe")}
        )


async def test_of_many_requests_at_a_time_one_mounts_after_the_other(node: Node) -> None:
    node.tell("Fractional")
    context = {names.MPS_FOLDER_ATTRIBUTE: "pipe", f"{ABOUT_POD}pod.uid": UID, f"{ABOUT_POD}ephemeral": "true"}
    target = target_of(node.pods)
    await asyncio.gather(
        *(node.volumes.publish(target, context=context) for _ in range(3)),
        *(node.volumes.unpublish(target) for _ in range(3)),
        *(node.volumes.unpublish(target_of(node.pods, uid=OTHER)) for _ in range(3)),
    )
    node.mounts.fails = True
    for call in (node.volumes.publish(target, context=context), node.volumes.unpublish(target)):
        with pytest.raises(GRPCError, match="it fails"):
            await call
    node.mounts.fails = False
    await node.volumes.unpublish(target)
    assert node.mounts.mounted == {}

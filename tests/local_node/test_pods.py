"""The pods of the local node: one life for each UID, and the end of what was deleted while no local node ran."""

import asyncio
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.process.identity import ProcessId
from dovetail_local_node import processes
from dovetail_local_node.environments import Environments
from dovetail_local_node.launch import MARK
from dovetail_local_node.limits import choice
from dovetail_local_node.pod_life import Node, PodLife
from dovetail_local_node.pod_object import LocalPod, LocalPodStatus
from dovetail_local_node.pods import Pods
from dovetail_local_node.runs import Run, Runs
from tests.background import eventually
from tests.core import hostile
from tests.local_node import builders
from tests.local_node.test_pod_life import NOW

# Of this run alone: a pod's processes are found by its UID on the whole machine.
MINE, OTHER = str(uuid.uuid4()), str(uuid.uuid4())


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with Client(Connection(server="http://127.0.0.1:1")) as client:
        yield Node(
            client=client,
            runs=Runs(folder=tmp_path / "runs"),
            environments=Environments(folder=tmp_path / "environments", own={"PATH": os.defpath}),
            place=builders.place(tmp_path),
            boot_id="this",
            now=lambda: NOW,
            extra={},
            groups=choice.none("a test"),
        )


def pod(uid: str, *, version: int) -> LocalPod:
    made = builders.pod("true")
    return replace(made, metadata=replace(made.metadata, uid=uid, resource_version=str(version)))


class Followed:
    """Pods whose lives are noted and not lived."""

    def __init__(self, node: Node) -> None:
        self.lives: list[PodLife] = []
        self.pods = Pods(node, name="local")
        self.pods._start = self.lives.append

    def told(self, found: LocalPod, *, event: str = "MODIFIED") -> None:
        hostile.feed(self.pods.reflector, msgspec.json.encode(found), event=event)
        assert hostile.unhandled(self.pods.reflector) == []


def test_of_a_pod_that_has_ended_only_what_its_end_needs_is_kept(node: Node) -> None:
    scene = Followed(node)
    begun = replace(pod(MINE, version=1), status=LocalPodStatus(phase="Running"))
    scene.told(begun)
    (life,) = scene.lives
    assert life.pod == begun
    scene.told(replace(pod(MINE, version=2), status=LocalPodStatus(phase="Succeeded")))
    kept = life.pod
    assert (kept.metadata.uid, kept.metadata.name, kept.status.phase) == (MINE, "train-0-abcde", "Succeeded")
    assert [each.name for each in kept.spec.containers] == ["main"]
    # Of what is not deleted, each has these: they are most of a pod.
    assert (kept.spec.containers[0].command, kept.metadata.labels, kept.metadata.owner_references) == ([], {}, ())
    scene.told(kept, event="DELETED")
    assert life._gone.is_set()


def test_a_pod_has_one_life_that_learns_each_version_and_its_end(node: Node) -> None:
    scene = Followed(node)
    for version in (1, 2):
        scene.told(pod(MINE, version=version))
    (life,) = scene.lives
    assert life.pod.metadata.resource_version == "2"
    assert not life._going.is_set()
    scene.told(pod(MINE, version=3), event="DELETED")
    assert life._gone.is_set()


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_pod_that_is_made_again_under_its_name_has_a_life_of_its_own(node: Node, *, is_seen: bool) -> None:
    scene = Followed(node)
    scene.told(pod(MINE, version=1))
    if is_seen:
        scene.told(pod(MINE, version=2), event="DELETED")
    scene.told(pod(OTHER, version=3))
    first, second = scene.lives
    assert (first._gone.is_set(), second._gone.is_set()) == (True, False)
    assert (first.pod.metadata.uid, second.pod.metadata.uid) == (MINE, OTHER)
    assert scene.pods.uid_of("default", "train-0-abcde") == OTHER


async def test_a_life_that_fails_or_ends_is_forgotten_and_ends_no_other(node: Node) -> None:
    scene = Followed(node)

    class Failing(PodLife):
        async def run(self) -> None:
            raise ZeroDivisionError

    scene.told(pod(MINE, version=1))
    await scene.pods._live(Failing(node=node, pod=scene.lives[0].pod))
    assert scene.pods._lives == {}


@pytest.fixture
def sleeper() -> Iterator[Any]:
    """Starts processes with the mark of a pod, and ends them."""
    made: list[subprocess.Popen[bytes]] = []

    def start(uid: str, *words: str) -> "subprocess.Popen[bytes]":
        command, variables = words or ("sleep", "600"), {**os.environ, MARK: uid}
        made.append(subprocess.Popen(command, env=variables, start_new_session=True, stdout=subprocess.PIPE))
        return made[-1]

    yield start
    for each in made:
        each.kill()
        with each:
            each.wait()


def record(node: Node, uid: str, *, boot_id: str, pid: int) -> None:
    folder = node.runs.of(uid)
    folder.mkdir(parents=True)
    run = Run(uid=uid, namespace="default", name="p", boot_id=boot_id, output="/dev/null")
    (folder / "run.json").write_bytes(msgspec.json.encode(run))
    (folder / "started").write_text(Path(f"/proc/{pid}/stat").read_text())


@pytest.mark.parametrize(
    ("known", "boot_id", "ends", "stays"),
    [
        pytest.param([], "this", True, False, id="a deleted pod's"),
        pytest.param([MINE], "this", False, True, id="a pod's that is there"),
        pytest.param([OTHER], "this", True, False, id="of one that was made again"),
        pytest.param([], "earlier", False, False, id="of an earlier boot, whose number another one has"),
    ],
)
async def test_a_process_ends_with_its_pod_also_where_no_local_node_ran(
    node: Node, sleeper: Any, *, known: list[str], boot_id: str, ends: bool, stays: bool
) -> None:
    process = sleeper(MINE)
    record(node, MINE, boot_id=boot_id, pid=process.pid)
    scene = Followed(node)
    for version, uid in enumerate(known, start=1):
        scene.told(pod(uid, version=version))
    async with asyncio.timeout(60):
        await scene.pods._end_orphans()
    assert (process.poll() is not None) is ends
    assert (node.runs.read(MINE) is not None) is stays


async def test_what_an_orphan_has_started_elsewhere_ends_too(node: Node, sleeper: Any) -> None:
    shim, left = sleeper(MINE), sleeper(MINE)
    other = sleeper(OTHER)
    record(node, MINE, boot_id="this", pid=shim.pid)
    await Followed(node).pods._end_orphans()
    assert left.wait(timeout=60) == -9
    assert other.poll() is None


async def test_the_cgroups_of_an_orphan_go_with_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = list[Path]()

    async def end(groups: list[Path]) -> None:
        ended.extend(groups)

    monkeypatch.setattr("dovetail_local_node.limits.groups.end", end)
    run = Run(uid=MINE, namespace="default", name="p", boot_id="earlier", output="/dev/null", groups=("/a", "/b"))
    node.runs.of(MINE).mkdir(parents=True)
    (node.runs.of(MINE) / "run.json").write_bytes(msgspec.json.encode(run))
    await Followed(node).pods._end_orphans()
    assert (ended, node.runs.read(MINE)) == ([Path("/a"), Path("/b")], None)


async def test_a_deleted_pods_process_is_asked_first_and_killed_if_it_does_not_end(
    node: Node, sleeper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def over(_process: ProcessId) -> None:
        """Its time is over once it was asked."""
        await eventually((tmp_path / "asked").exists)
        raise TimeoutError

    monkeypatch.setattr(processes, "until_gone", over)
    trap = f"trap 'echo asked > {tmp_path}/asked' TERM; echo ready; while :; do sleep 0.02; done"
    stubborn = sleeper(MINE, "sh", "-c", trap)
    assert await asyncio.to_thread(stubborn.stdout.readline) == b"ready\n"
    record(node, MINE, boot_id="this", pid=stubborn.pid)
    await Followed(node).pods._end_orphans()
    assert stubborn.wait(timeout=60) == -9
    assert (tmp_path / "asked").exists()
    assert node.runs.all() == []


async def test_each_of_several_orphans_ends_whatever_the_others_are(node: Node, sleeper: Any) -> None:
    """A run that was never started, one of an earlier boot, and one that runs."""
    process = sleeper(MINE)
    record(node, MINE, boot_id="this", pid=process.pid)
    record(node, OTHER, boot_id="earlier", pid=process.pid)
    record(node, "never", boot_id="this", pid=process.pid)
    (node.runs.of("never") / "started").unlink()
    await Followed(node).pods._end_orphans()
    assert process.wait(timeout=60) == -15
    assert node.runs.all() == []


async def test_orphans_end_once_the_pods_are_known(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first list every run looks like an orphan's."""
    happened, ended = list[str](), asyncio.Event()
    pods = Pods(node, name="local")

    async def follow() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        happened.append("listed")
        pods.reflector.synced.set()
        await asyncio.Event().wait()

    async def end_orphans() -> None:
        happened.append("orphans ended")
        ended.set()

    monkeypatch.setattr(pods.reflector, "run", follow)
    monkeypatch.setattr(pods, "_end_orphans", end_orphans)
    running = asyncio.create_task(pods.run())
    async with asyncio.timeout(60):
        await ended.wait()
    running.cancel()
    await asyncio.wait([running])
    assert happened == ["listed", "orphans ended"]


def test_the_pods_of_other_nodes_are_not_asked_for(node: Node) -> None:
    assert Pods(node, name="local").reflector._selectors == {"fieldSelector": "spec.nodeName=local"}

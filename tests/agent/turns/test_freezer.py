"""Pods that stand still and go on, on cgroup trees of plain files: v1 and v2, kubelet's both drivers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.turns.cgroup_freezer import FreezerV1, Freezing, NoFreezer, freezer_at, group_of_pod, probe
from dovetail_agent.turns.freezer import DEADLINE_SECONDS, Freezer
from dovetail_agent.turns.state_files import Marks
from tests.agent.fake_cgroups import OTHER, UID, FakeKernel
from tests.faults import Effects, at_each_effect

TENANT = NodeTenant(uid=UID, namespace="ns", name="job-0", running=True)
PATHS = (
    f"kubepods/pod{UID}",
    f"kubepods/besteffort/pod{UID}",
    f"dovetail-1a2b3c4d/kubepods/burstable/pod{UID}",
    f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice",
    f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice",
)


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def kernel(tmp_path: Path, request: pytest.FixtureRequest) -> FakeKernel:
    return FakeKernel(tmp_path / "cgroup", version=request.param)


@pytest.fixture
def marks(tmp_path: Path, kernel: FakeKernel) -> Marks:
    marks = Marks(tmp_path / "marks", clock=kernel.clock)
    marks.prepare()
    return marks


@pytest.fixture
def freezer(kernel: FakeKernel, marks: Marks) -> Freezer:
    return Freezer(freezer_at(kernel.mount), marks=marks, clock=kernel.clock, sleep=kernel.sleep)


@pytest.mark.parametrize("path", PATHS)
def test_a_pods_cgroup_is_found_wherever_kubelet_keeps_it(kernel: FakeKernel, path: str) -> None:
    group = kernel.add(path)
    kernel.add(str(Path(path).parent / f"pod{OTHER}"))
    assert group_of_pod(freezer_at(kernel.mount).root, uid=UID) == group


def test_the_pods_of_a_cluster_within_a_pod_are_not_searched(kernel: FakeKernel) -> None:
    kernel.add(f"kubepods/pod{OTHER}/nested/kubepods/pod{UID}")
    assert group_of_pod(freezer_at(kernel.mount).root, uid=UID) is None


def test_a_pod_stands_still_and_goes_on(kernel: FakeKernel, freezer: Freezer, marks: Marks) -> None:
    group, other = kernel.add(f"kubepods/pod{UID}"), kernel.add(f"kubepods/pod{OTHER}")
    assert freezer.suspend(TENANT) is None
    assert (kernel.stands(group), kernel.stands(other), marks.has(UID)) == (True, False, True)
    assert freezer.resume(TENANT) is None
    assert (kernel.stands(group), marks.has(UID)) == (False, False)


def test_freezing_twice_and_thawing_twice_is_as_good_as_once(kernel: FakeKernel, freezer: Freezer) -> None:
    group = kernel.add(f"kubepods/pod{UID}")
    assert [freezer.suspend(TENANT), freezer.suspend(TENANT)] == [None, None]
    assert kernel.stands(group)
    assert [freezer.resume(TENANT), freezer.resume(TENANT)] == [None, None]
    assert not kernel.stands(group)


def test_a_group_that_takes_a_while_to_freeze_is_waited_for(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path / "cgroup", version=2)
    marks = Marks(tmp_path / "marks", clock=kernel.clock)
    marks.prepare()
    kernel.add(f"kubepods/pod{UID}")
    kernel.late = 20
    freezer = Freezer(freezer_at(kernel.mount), marks=marks, clock=kernel.clock, sleep=kernel.sleep)
    assert freezer.suspend(TENANT) is None
    assert 0 < kernel.seconds < DEADLINE_SECONDS


class Lingering(FreezerV1):
    """v1 as it is while processes fork: FREEZING, and FROZEN only once it was let go and asked again."""

    thawed = 0

    def freeze(self, group: Path) -> None:
        (group / "freezer.state").write_text("FROZEN\n" if self.thawed else "FREEZING\n")

    def thaw(self, group: Path) -> None:
        super().thaw(group)
        self.thawed += 1


class Stuck(FreezerV1):
    """v1 with a process in a call of the kernel that does not return."""

    def freeze(self, group: Path) -> None:
        (group / "freezer.state").write_text("FREEZING\n")


def on_v1(kind: type[FreezerV1], tmp_path: Path) -> tuple[Freezer, Path, FakeKernel, Marks]:
    kernel = FakeKernel(tmp_path / "cgroup", version=1)
    marks = Marks(tmp_path / "marks", clock=kernel.clock)
    marks.prepare()
    group = kernel.add(f"kubepods/pod{UID}")
    freezing: Freezing = kind(kernel.mount / "freezer")
    return Freezer(freezing, marks=marks, clock=kernel.clock, sleep=kernel.sleep), group, kernel, marks


def test_a_group_that_lingers_in_freezing_is_let_go_for_a_moment_and_asked_again(tmp_path: Path) -> None:
    freezer, group, kernel, _ = on_v1(Lingering, tmp_path)
    assert freezer.suspend(TENANT) is None
    assert kernel.stands(group)


def test_a_pod_that_does_not_freeze_runs_on_and_is_refused_with_the_reason(tmp_path: Path) -> None:
    freezer, group, kernel, marks = on_v1(Stuck, tmp_path)
    refusal = freezer.suspend(TENANT)
    assert refusal
    assert (refusal.reason, refusal.lost) == ("FreezeTimedOut", False)
    assert "pod ns/job-0 did not freeze within 2 s" in refusal.message
    assert (kernel.stands(group), marks.has(UID)) == (False, False)


def test_a_pod_that_somebody_else_has_frozen_is_left_alone(kernel: FakeKernel, freezer: Freezer) -> None:
    group = kernel.add(f"kubepods/pod{UID}")
    freezer_at(kernel.mount).freeze(group)
    refusal = freezer.suspend(TENANT)
    assert refusal
    assert refusal.reason == "FrozenByOthers"
    assert freezer.resume(TENANT) is None
    assert kernel.stands(group)


def test_a_pod_that_has_ended_is_no_refusal_and_leaves_no_mark(
    kernel: FakeKernel, freezer: Freezer, marks: Marks
) -> None:
    group = kernel.add(f"kubepods/pod{UID}")
    assert freezer.suspend(TENANT) is None
    for file in group.iterdir():
        file.unlink()
    group.rmdir()
    assert [freezer.resume(TENANT), freezer.suspend(TENANT)] == [None, None]
    assert marks.all() == []


def test_what_an_agent_before_us_left_frozen_is_thawed(kernel: FakeKernel, freezer: Freezer, marks: Marks) -> None:
    group, other = kernel.add(f"kubepods/pod{UID}"), kernel.add(f"kubepods/pod{OTHER}")
    freezer.suspend(TENANT)
    freezer_at(kernel.mount).freeze(other)
    later = Freezer(freezer_at(kernel.mount), marks=marks, clock=kernel.clock, sleep=kernel.sleep)
    assert later.thaw_all() == []
    assert (kernel.stands(group), kernel.stands(other), marks.all()) == (False, True, [])


def test_a_machine_without_a_freezer_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(NoFreezer, match=f"neither cgroup v2 nor the v1 freezer at {tmp_path}"):
        freezer_at(tmp_path)


def test_the_probe_leaves_nothing_behind_where_a_freezer_cannot_be_used(kernel: FakeKernel) -> None:
    freezing = freezer_at(kernel.mount)
    kernel.add(f"kubepods/pod{UID}")
    # A plain folder has no freezer's file, as where the kernel was built without it.
    with pytest.raises(NoFreezer, match="cannot be frozen"):
        probe(freezing)
    assert not list(freezing.root.rglob("dovetail-*"))


def test_where_no_pod_is_there_is_nobody_to_freeze(kernel: FakeKernel) -> None:
    with pytest.raises(NoFreezer, match="no pod has a cgroup below"):
        probe(freezer_at(kernel.mount))


def test_beside_a_v1_freezer_a_mounted_v2_is_not_taken(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path, version=1)
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").touch()
    assert isinstance(freezer_at(kernel.mount), FreezerV1)


@pytest.mark.parametrize("version", [1, 2])
def test_an_agent_that_is_killed_at_any_step_leaves_no_pod_frozen_without_a_mark(tmp_path: Path, version: int) -> None:
    """Whatever it was doing: freezing, or thawing a pod. The next agent thaws what is marked."""
    folders = (tmp_path / str(number) for number in range(1000))

    def make(effects: Effects) -> Node:
        node = Node(FakeKernel(next(folders), version=version))
        for part, names in ((node.freezer._freezing, ("freeze", "thaw")), (node.freezer._marks, ("mark", "drop"))):
            for name in names:
                monkey(part, name, effects.around(name, getattr(part, name)))
        return node

    def journey(node: Node) -> None:
        node.freezer.suspend(TENANT)
        node.freezer.resume(TENANT)
        node.freezer.suspend(TENANT)
        node.freezer.thaw_all()

    def safe(node: Node) -> None:
        assert node.freezer._marks.has(UID) or not node.kernel.stands(node.group), "frozen, and nothing says so"

    def restart(node: Node) -> Node:
        node.freezer.thaw_all()
        assert not node.kernel.stands(node.group)
        return node

    def end(node: Node) -> object:
        return node.kernel.stands(node.group), node.freezer._marks.all()

    assert at_each_effect(make, journey=journey, end=end, restart=restart, safe=safe) >= 8


def monkey(part: object, name: str, by: Callable[..., object]) -> None:
    object.__setattr__(part, name, by)


class Node:
    """A node with one pod, and an agent's freezer."""

    def __init__(self, kernel: FakeKernel) -> None:
        self.kernel = kernel
        self.group = kernel.add(f"kubepods/pod{UID}")
        marks = Marks(kernel.mount / "marks", clock=kernel.clock)
        marks.prepare()
        self.freezer = Freezer(freezer_at(kernel.mount), marks=marks, clock=kernel.clock, sleep=kernel.sleep)

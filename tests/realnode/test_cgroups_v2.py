"""The node's cgroup where the machine has version 2: a tree of plain files, for machines that have version 1."""

import os
import signal
from pathlib import Path

import pytest

from dovetail_sandbox.realnode import cgroups

NAME = "dovetail-node"


class Refusing(type(Path())):  # type: ignore[misc]  # the concrete class depends on the system
    """A path whose kernel refuses to enable some controllers."""

    refused: tuple[str, ...] = ()

    def write_text(self, data: str, *more: object, **options: object) -> int:
        if self.name == "cgroup.subtree_control":
            if data in self.refused:
                raise OSError(16, "Device or resource busy")
            with self.open("a", encoding="utf-8") as file:
                return file.write(data)
        return int(super().write_text(data, *more, **options))


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a unified hierarchy, whose groups get the kernel's files when they are made."""
    monkeypatch.setattr(Refusing, "refused", ())
    root = Refusing(tmp_path / "cgroup")
    _kernel_makes(root)
    made = Refusing.mkdir

    def mkdir(self: Path, *more: object, **options: object) -> None:
        before = [each for each in (self, *self.parents) if not each.exists()]
        made(self, *more, **options)
        for each in before:
            _kernel_makes(each)

    monkeypatch.setattr(Refusing, "mkdir", mkdir)
    monkeypatch.setattr(cgroups, "MOUNT", root)
    return root


def _kernel_makes(group: Path) -> None:
    os.makedirs(group, exist_ok=True)  # noqa: PTH103 - the fixture replaces Path.mkdir
    (group / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    for name in ("cgroup.procs", "cgroup.subtree_control"):
        (group / name).touch()


def test_there_is_one_hierarchy(mount: Path) -> None:
    assert cgroups.hierarchies() == [mount]


def test_controllers_are_handed_down_to_the_nodes_pods_and_not_to_its_programs(mount: Path) -> None:
    cgroups.create(NAME)
    handed_down = "+cpuset+cpu+io+memory+pids"
    assert (mount / "cgroup.subtree_control").read_text() == handed_down
    assert (mount / NAME / "cgroup.subtree_control").read_text() == handed_down
    # A group with processes may hand nothing down: the kernel's rule of no internal processes.
    assert (mount / NAME / cgroups.PROGRAMS / "cgroup.subtree_control").read_text() == ""


def test_a_controller_that_the_kernel_refuses_does_not_keep_the_others(
    mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Refusing, "refused", ("+cpu",))
    cgroups.create(NAME)
    assert (mount / NAME / "cgroup.subtree_control").read_text() == "+cpuset+io+memory+pids"


def test_programs_join_below_the_node(mount: Path) -> None:
    cgroups.create(NAME)
    cgroups.join(NAME)
    assert (mount / NAME / cgroups.PROGRAMS / "cgroup.procs").read_text() == "0"
    assert (mount / NAME / "cgroup.procs").read_text() == ""


def test_processes_of_programs_and_pods_are_found_wherever_kubelet_put_them(mount: Path) -> None:
    cgroups.create(NAME)
    (mount / NAME / cgroups.PROGRAMS / "cgroup.procs").write_text("0\n11\n")
    pod = mount / NAME / "kubepods" / "besteffort" / "pod1"
    pod.mkdir(parents=True)
    (pod / "cgroup.procs").write_text("13\n12\n")
    assert cgroups.pids(NAME) == [11, 12, 13]


def test_ending_kills_each_process_and_says_which_do_not_end(mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroups.create(NAME)
    (mount / NAME / cgroups.PROGRAMS / "cgroup.procs").write_text("11\n12\n")
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    with pytest.raises(TimeoutError, match=r"do not end: \[11, 12\]"):
        cgroups.end(NAME, deadline_s=0)
    assert set(killed) <= {(11, signal.SIGKILL), (12, signal.SIGKILL)}
    with pytest.raises(TimeoutError):
        cgroups.end(NAME, deadline_s=0.06)
    assert set(killed) == {(11, signal.SIGKILL), (12, signal.SIGKILL)}

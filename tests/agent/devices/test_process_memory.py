from pathlib import Path

import pytest

from dovetail_agent.devices.model import Process
from dovetail_agent.devices.process_memory import owned, owner_of, sees_host_processes, used_by_pod
from dovetail_agent.processes.cgroups import Owner
from tests.agent.procfs import make_proc

A, B = "0f2a9c1e-7d3b-4c55-9e10-6b1f2d3c4a5b", "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return make_proc(tmp_path, pods={10: A, 11: A, 20: B, 30: None})


def test_a_process_belongs_to_the_pod_of_its_cgroup(proc: Path) -> None:
    owner = owner_of(10, proc=proc)
    assert owner is not None
    assert owner.pod_uid == A


@pytest.mark.parametrize("pid", [30, 99], ids=["a stranger", "a process that has ended"])
def test_a_process_of_no_pod_has_no_owner(proc: Path, pid: int) -> None:
    assert owner_of(pid, proc=proc) is None


def test_a_process_without_pod_on_this_machine_has_no_owner() -> None:
    assert not isinstance(owner_of(2**22 + 1), Owner)


def test_the_processes_of_a_pod_add_up_and_strangers_are_left_out(proc: Path) -> None:
    assert used_by_pod(owned({10: 100, 11: 50, 20: 7, 30: 1000, 99: 5}, proc=proc)) == {A: 150, B: 7}


def test_every_process_is_named_with_its_pod_and_container(proc: Path) -> None:
    own, stranger = owned({30: None, 10: 100}, proc=proc)
    assert own == Process(pid=10, used_mib=100, pod_uid=A, container_id=f"{10:064x}")
    assert stranger == Process(pid=30)


def test_without_processes_nobody_uses_anything(proc: Path) -> None:
    assert used_by_pod(owned({}, proc=proc)) == {}


def test_memory_that_the_driver_does_not_give_is_not_taken_for_none(proc: Path) -> None:
    assert used_by_pod(owned({10: 100, 20: None}, proc=proc)) is None


def test_only_the_first_namespace_counts_processes_as_the_driver_does(tmp_path: Path) -> None:
    assert sees_host_processes(make_proc(tmp_path / "host", pods={}))
    assert not sees_host_processes(make_proc(tmp_path / "pod", pods={}, namespace="pid:[4026532817]"))
    assert not sees_host_processes(tmp_path / "nothing")

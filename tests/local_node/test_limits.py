"""Limits of CPU and memory: what they mean for a cgroup, where cgroups may be, and what the kernel does with them.

The choice in cgroup v2 is tried on a tree of files in which the kernel's part is played: it refuses controllers to the
children of a cgroup that has processes (cgroups(7), "no internal processes"). What limits do is tried on the kernel's
own cgroups, v1 or v2, where this user may write them.
"""

import errno
import math
import os
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.builtin import Resources
from dovetail.process import identity
from dovetail_agent.devices.process_memory import owner_of
from dovetail_agent.processes.cgroups import Owner
from dovetail_local_node.limits import amounts, choice, groups, scope
from dovetail_local_node.limits.amounts import Limits
from dovetail_local_node.limits.choice import Kernel
from dovetail_local_node.limits.groups import Groups
from dovetail_local_node.limits.scope import ENTERED, Systemd
from tests import virtual_time
from tests.virtual_time import clock

NAME = f"dovetail-test-{os.getpid()}"
GIB = 1024**3
UID = "1b4e28ba-2fa1-41d2-883f-0016d3cca427"


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ({}, {}, Limits()),
        ({"cpu": "2", "memory": "8Gi"}, {}, Limits(cpu_shares=2048)),
        ({"cpu": "500m"}, {"memory": "1Gi", "cpu": 2}, Limits(memory_bytes=GIB, cpu_milli=2000, cpu_shares=512)),
        ({"cpu": "1000"}, {"memory": "0", "cpu": "x"}, Limits(cpu_shares=262_144)),
    ],
)
def test_limits_cap_and_requests_weigh(
    requests: dict[str, str | int | float], limits: dict[str, str | int | float], expected: Limits
) -> None:
    assert amounts.of_container(Resources(requests=requests, limits=limits)) == expected


@pytest.mark.parametrize(("shares", "weight"), [(2, 1), (1024, 39), (262_144, 10_000)])
def test_shares_become_the_weight_that_kubelet_writes(shares: int, weight: int) -> None:
    assert Limits(cpu_shares=shares).cpu_weight == weight


@pytest.mark.parametrize(("cpu_milli", "quota"), [(None, None), (1, 1_000), (500, 50_000), (4000, 400_000)])
def test_a_cap_on_cpu_is_a_quota_of_each_tenth_of_a_second(cpu_milli: int | None, quota: int | None) -> None:
    assert Limits(cpu_milli=cpu_milli).quota_us == quota


MEMORY_OF_FIRST = ("limit_in_bytes", "memsw.limit_in_bytes")
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
CPUS = st.none() | st.integers(1, 400_000)


@given(limit=CPUS, request=CPUS, memory=st.none() | st.tuples(st.integers(1, 999), st.sampled_from(sorted(UNITS))))
def test_both_versions_of_cgroups_enforce_what_is_asked(
    limit: int | None, request: int | None, memory: tuple[int, str] | None
) -> None:
    """Read back from the files' texts, in fractions, with kubelet's bounds."""
    limits: dict[str, str | int | float] = {}
    if limit is not None:
        limits["cpu"] = f"{limit}m" if limit % 1000 else str(limit // 1000)
    if memory is not None:
        limits["memory"] = f"{memory[0]}{memory[1]}"
    requests: dict[str, str | int | float] = {} if request is None else {"cpu": f"{request}m"}
    found = amounts.of_container(Resources(requests=requests, limits=limits))
    second = dict(groups.version_2(found))
    first = dict(groups.memory_of_version_1(found) + groups.cpu_of_version_1(found))
    shares = min(262_144, max(2, math.floor(Fraction(request or 0) * 1024 / 1000)))
    assert first["cpu.shares"] == str(shares)
    assert second["cpu.weight"] == str(1 + math.floor(Fraction((shares - 2) * 9999, 262_142)))
    quota = None if limit is None else max(1000, math.floor(Fraction(limit, 1000) * 100_000))
    assert second.get("cpu.max") == (None if quota is None else f"{quota} 100000")
    assert first.get("cpu.cfs_quota_us") == (None if quota is None else str(quota))
    assert first.get("cpu.cfs_period_us") == (None if quota is None else "100000")
    held = None if memory is None else str(memory[0] * UNITS[memory[1]])
    assert {second.get("memory.max"), *(first.get(f"memory.{each}") for each in MEMORY_OF_FIRST)} == {held}
    # A job that reaches its limit ends as a whole, and does not swap instead.
    one_end = (None, None) if memory is None else ("0", "1")
    assert (second.get("memory.swap.max"), second.get("memory.oom.group")) == one_end


class Tree:
    """The files of cgroup v2 with one cgroup, in which this process is."""

    def __init__(self, mount: Path, *, own: str = "user.slice/scope", controllers: str = "cpu memory pids") -> None:
        self.mount = mount
        self.own = self.group(own, controllers=controllers, processes=[os.getpid()])
        self.group("", controllers=controllers, processes=[1])
        self.membership = mount.parent / "own"
        self.membership.write_text(f"1:name=systemd:/elsewhere\n0::/{own}\n")

    def group(self, path: str, *, controllers: str, processes: list[int]) -> Path:
        folder = self.mount / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text(f"{controllers}\n")
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in processes))
        (folder / "cgroup.subtree_control").write_text("")
        return folder

    def write(self, file: Path, text: str) -> None:
        """What the kernel does: refuse, move a process, or take the value."""
        processes = file.parent / "cgroup.procs"
        if file.name == "cgroup.subtree_control" and processes.exists() and processes.read_text():
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(file))
        if file.name == "cgroup.procs":
            former = file.parents[1] / "cgroup.procs"
            former.write_text(former.read_text().replace(f"{text}\n", ""))
        file.write_text(text)

    def choose(self, *, writable: bool = True) -> Groups:
        kernel = Kernel(
            mount=self.mount,
            own=self.membership,
            pid=os.getpid(),
            write=self.write,
            writable=lambda path: writable and path.exists(),
        )
        return choice.choose(NAME, kernel=kernel)


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def test_a_delegated_cgroup_becomes_the_parent_once_this_process_has_left_it(mount: Path) -> None:
    tree = Tree(mount)
    found = tree.choose()
    assert [each.parent for each in found.hierarchies] == [tree.own / NAME]
    assert found.sentence == f"Limits of CPU and memory are enforced, in {tree.own / NAME}."
    assert (tree.own / "node" / "cgroup.procs").read_text() == str(os.getpid())
    assert [(each / "cgroup.subtree_control").read_text() for each in (tree.own, tree.own / NAME)] == [
        "+cpu +memory"
    ] * 2


def test_other_processes_in_the_cgroup_are_left_alone(mount: Path) -> None:
    tree = Tree(mount)
    (tree.own / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    assert tree.choose() == choice.none(f"other processes run in cgroup {tree.own}")
    assert not (tree.own / NAME).exists()


def test_a_missing_controller_is_named(mount: Path) -> None:
    tree = Tree(mount, controllers="memory pids")
    assert tree.choose() == choice.none(f"cgroup {tree.own} does not have the controller cpu")


def test_a_cgroup_of_root_is_not_this_users(mount: Path) -> None:
    tree = Tree(mount)
    assert tree.choose(writable=False) == choice.none(f"cgroup {tree.own} is not delegated to this user")


def test_cgroup_v1_is_for_root(mount: Path) -> None:
    for controller in ("cpu", "memory"):
        (mount / controller).mkdir(parents=True)
        (mount / controller / "cgroup.procs").touch()
    found = choice.choose(NAME, kernel=Kernel(mount=mount, writable=lambda _: False))
    assert found == choice.none("this machine has cgroup v1, which takes limits from root only")


def test_root_without_systemd_takes_the_root_of_the_hierarchy(mount: Path) -> None:
    tree = Tree(mount)
    (tree.own / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    (tree.mount / "cgroup.procs").write_text("")
    assert [each.parent for each in tree.choose().hierarchies] == [tree.mount / NAME]


def test_a_machine_without_cgroups_says_so(mount: Path) -> None:
    found = choice.choose(NAME, kernel=Kernel(mount=mount))
    assert found == choice.none(f"this machine has no cgroups with CPU and memory at {mount}")
    assert found.sentence.startswith("Limits of CPU and memory are not enforced: ")
    assert found.create("job", limits=Limits(memory_bytes=GIB)) == ()


def test_the_limits_of_a_job_are_files_of_its_cgroup(mount: Path) -> None:
    found = Tree(mount).choose()
    wanted = Limits(memory_bytes=GIB, cpu_milli=1500, cpu_shares=1024)
    (found.hierarchies[0].parent / "podjob").mkdir()
    (found.hierarchies[0].parent / "podjob" / "memory.swap.max").touch()
    (group,) = found.create("job", limits=wanted)
    assert {path.name: path.read_text() for path in group.iterdir()} == {
        "cpu.weight": "39",
        "cpu.max": "150000 100000",
        "memory.max": str(GIB),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
    }


def test_without_swap_the_kernel_has_no_file_about_it(mount: Path) -> None:
    (group,) = Tree(mount).choose().create("job", limits=Limits(memory_bytes=GIB))
    assert not (group / "memory.swap.max").exists()


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("memory.events", "low 0\nmax 9\noom 1\noom_kill 2\n", True),
        ("memory.events", "low 0\nmax 9\noom 1\noom_kill 0\n", False),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", True),
        ("memory.events", "", False),
    ],
)
def test_the_kernel_counts_what_it_has_ended(tmp_path: Path, file: str, text: str, *, expected: bool) -> None:
    (tmp_path / file).write_text(text)
    assert groups.out_of_memory([tmp_path]) is expected


def test_a_cgroup_that_is_gone_has_counted_nothing(tmp_path: Path) -> None:
    assert not groups.out_of_memory([tmp_path / "gone"])


@pytest.fixture
def real() -> Iterator[Groups]:
    found = choice.choose(NAME, kernel=Kernel())
    if not found.hierarchies:
        pytest.skip(found.sentence)
    yield found
    found.leave()
    assert not any(each.parent.exists() for each in found.hierarchies)


def run_in(made: tuple[Path, ...], script: str) -> "subprocess.Popen[str]":
    """A shell that enters the cgroups before it runs the script."""
    enter = "".join(f"echo 0 > {group}/cgroup.procs; " for group in made)
    return subprocess.Popen(["/bin/sh", "-c", enter + script], stdout=subprocess.PIPE, text=True)


class TestOnTheKernelsOwnCgroups:
    async def test_a_job_above_its_memory_is_ended_and_counted(self, real: Groups) -> None:
        made = real.create("memory", limits=Limits(memory_bytes=32 * 1024**2))
        with run_in(made, "exec python3 -c 'bytearray(200_000_000)'") as job:
            assert job.wait(60) == -9
        assert groups.out_of_memory(made)
        await groups.end(made)

    async def test_a_job_below_its_memory_is_not(self, real: Groups) -> None:
        made = real.create("memory", limits=Limits(memory_bytes=256 * 1024**2))
        with run_in(made, "exec python3 -c 'bytearray(20_000_000)'") as job:
            assert job.wait(60) == 0
        assert not groups.out_of_memory(made)
        await groups.end(made)

    async def test_a_job_is_throttled_at_its_cap_of_cpu(self, real: Groups) -> None:
        made = real.create("cpu", limits=Limits(cpu_milli=100))
        cpu = next(group for group in made if (group / "cpu.stat").exists())
        with run_in(made, "exec python3 -c 'import time; a = time.process_time\nwhile a() < 0.1: pass'") as job:
            assert job.wait(60) == 0
        counted = dict(line.split() for line in (cpu / "cpu.stat").read_text().splitlines())
        assert int(counted["nr_throttled"]) > 0
        await groups.end(made)

    async def test_the_node_agent_knows_whose_process_it_is(self, real: Groups) -> None:
        made = real.create(UID, limits=Limits())
        with run_in(made, "echo; exec sleep 600") as job:
            assert job.stdout is not None
            job.stdout.readline()
            owner = owner_of(job.pid)
            await groups.end(made)
        assert owner == Owner(pod_uid=UID)

    async def test_the_end_of_a_job_ends_what_it_left_and_what_it_hid(self, real: Groups) -> None:
        made = real.create("left", limits=Limits())
        nested = made[0] / "own"
        left = "env -i setsid sleep 600 >/dev/null & echo $!"
        with run_in(made, f"mkdir {nested}; {left} | tee {nested}/cgroup.procs; {left}") as job:
            assert job.stdout is not None
            pids = [int(line) for line in job.stdout]
        assert len(pids) == 2
        assert all(identity.identify(pid) for pid in pids)
        await groups.end(made)
        assert not any(group.exists() for group in made)
        assert not any(identity.identify(pid) for pid in pids)


def systemd(folder: Path, *, script: str = "exit 0", **changes: object) -> Systemd:
    """A machine with systemd, on which `systemd-run` is this script."""
    program = folder / "systemd-run"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    (folder / "lingering").mkdir()
    (folder / "lingering" / "alice").touch()
    known = {"user": "alice", "is_root": False, "environ": {"PATH": f"{folder}:{os.defpath}"}}
    return Systemd(**{**known, "running": folder, "lingering": folder / "lingering", **changes})  # type: ignore[arg-type]


def test_a_user_gets_a_delegated_scope_of_the_users_systemd(tmp_path: Path) -> None:
    words = systemd(tmp_path).command()
    assert words == [
        str(tmp_path / "systemd-run"), "--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes", "--",
    ]  # fmt: skip


def test_root_gets_one_of_the_machines(tmp_path: Path) -> None:
    assert "--user" not in systemd(tmp_path, user="root", is_root=True).command()


def test_jobs_must_not_end_at_logout(tmp_path: Path) -> None:
    found = systemd(tmp_path, user="bob").command()
    assert isinstance(found, str)
    assert found.startswith("systemd would end jobs when you log out; allow them to stay with `loginctl enable-linger`")


def test_a_systemd_that_refuses_is_quoted(tmp_path: Path) -> None:
    found = systemd(tmp_path, script="echo Failed to connect to bus >&2; exit 1").command()
    assert found == "systemd-run: Failed to connect to bus"


@pytest.mark.parametrize("environ", [{"PATH": "/nowhere"}, {ENTERED: "1"}])
def test_without_systemd_or_in_a_scope_there_is_nothing_to_enter(tmp_path: Path, environ: dict[str, str]) -> None:
    path = {"PATH": f"{tmp_path}:{os.defpath}"}
    assert systemd(tmp_path, environ={**path, **environ}).command() == ""


def test_entering_runs_this_program_again_in_the_scope(tmp_path: Path) -> None:
    script = f'[ "$7" = true ] || echo "$DOVETAIL_LOCAL_NODE_SCOPE $@" > {tmp_path}/ran'
    child = os.fork()
    if child == 0:
        systemd(tmp_path, script=script).enter()
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ran = (tmp_path / "ran").read_text().split()
    assert ran[:7] == ["1", "--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes", "--"]


def test_systemd_is_asked_with_the_environment_that_jobs_get() -> None:
    asked = ["sh", "-c", 'test "$OF_THE_JOB" = yes || { echo "no bus" >&2; exit 3; }']
    assert scope._problem(asked, environ={"PATH": os.defpath, "OF_THE_JOB": "yes"}) == ""
    assert scope._problem(asked, environ={"PATH": os.defpath}) == "systemd-run: no bus"


def test_a_file_that_the_kernel_refuses_is_named_with_its_problem(mount: Path) -> None:
    tree = Tree(mount)

    def refused(file: Path, _text: str) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(file))

    tree.write = refused  # type: ignore[method-assign]
    assert tree.choose() == choice.none(f"{tree.own}/cgroup.subtree_control: Permission denied")


def test_the_parents_go_when_the_node_ends_and_stay_while_a_job_is_in_them(mount: Path) -> None:
    first, second = (mount / name for name in ("cpu", "memory"))
    for parent in (first, second):
        parent.mkdir(parents=True)
    hierarchies = tuple(groups.Hierarchy(parent=parent, settings=groups.version_2) for parent in (first, second))
    (first / "podjob").mkdir()
    Groups(hierarchies=hierarchies, sentence="").leave()
    assert (first.exists(), second.exists()) == (True, False)


def test_in_version_1_each_controller_gets_its_own_limits(mount: Path) -> None:
    for controller in ("cpu", "memory"):
        (mount / controller).mkdir(parents=True)
        (mount / controller / "cgroup.procs").touch()
    found = choice.choose(NAME, kernel=Kernel(mount=mount, writable=lambda _: True))
    assert found.sentence == f"Limits of CPU and memory are enforced, in {mount}/cpu/{NAME} and {mount}/memory/{NAME}."
    # What is there before is written: without swap, the kernel has no file about it.
    (mount / "memory" / NAME / "podjob").mkdir()
    (mount / "memory" / NAME / "podjob" / "memory.memsw.limit_in_bytes").touch()
    made = found.create("job", limits=Limits(memory_bytes=GIB, cpu_milli=1500, cpu_shares=1024))
    assert made == (mount / "cpu" / NAME / "podjob", mount / "memory" / NAME / "podjob")
    assert [{path.name: path.read_text() for path in group.iterdir()} for group in made] == [
        {"cpu.shares": "1024", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"},
        {"memory.limit_in_bytes": str(GIB), "memory.memsw.limit_in_bytes": str(GIB)},
    ]
    unlimited = found.create("free", limits=Limits())
    assert [sorted(path.name for path in group.iterdir()) for group in unlimited] == [["cpu.shares"], []]


def test_a_cgroup_that_does_not_go_is_left_after_five_seconds(mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of it may hang in the kernel: the job's end is reported all the same."""
    monkeypatch.setattr(groups, "_kill", lambda _group: None)
    monkeypatch.setattr(groups, "_POLL_SECONDS", 0.2)
    stays, goes = mount / "podstays", mount / "podgoes"
    for group in (stays, goes):
        group.mkdir(parents=True)
    (stays / "cgroup.procs").write_text("")

    async def ended() -> float:
        before = clock()
        await groups.end([goes, stays])
        return clock() - before

    assert virtual_time.run(ended()) == pytest.approx(5.0)
    assert (stays.exists(), goes.exists()) == (True, False)


def test_an_out_of_memory_in_any_of_a_jobs_cgroups_counts(tmp_path: Path) -> None:
    made = [tmp_path / name for name in ("cpu", "memory")]
    for group in made:
        group.mkdir()
    assert not groups.out_of_memory(made)
    (tmp_path / "memory" / "memory.oom_control").write_text("oom_kill_disable 0\noom_kill 3\n")
    assert groups.out_of_memory(made)
    assert groups.out_of_memory(made[::-1])


def test_a_systemd_that_does_not_answer_is_no_reason_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "_PROBE_SECONDS", 0.05)
    found = systemd(tmp_path, script="exec sleep 60").command()
    assert isinstance(found, str)
    assert found.startswith("systemd-run: ")
    assert "timed out" in found

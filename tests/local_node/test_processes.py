"""Real processes: started once, waited for, ended with everything that they started."""

import asyncio
import os
import signal
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_local_node import processes
from dovetail_local_node.launch import MARK, Launch
from dovetail_local_node.runs import Ended, Run, Runs
from tests.background import eventually
from tests.local_node.builders import UID

PATIENCE_SECONDS = 30.0


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    while not holds():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.005)


class Started:
    """One run in a temporary folder."""

    def __init__(
        self,
        folder: Path,
        *words: str,
        environment: Mapping[bytes, bytes] | None = None,
        error: Path | None = None,
        groups: tuple[str, ...] = (),
    ) -> None:
        self.runs = Runs(folder=folder / "runs")
        self.output, self.error = folder / "job.log", error
        variables = {b"PATH": os.defpath.encode(), MARK.encode(): UID.encode(), **(environment or {})}
        self.launch = Launch(
            words=tuple(word.encode() for word in words),
            directory=bytes(folder),
            environment=variables,
            output=self.output,
            error=error,
        )
        offset = processes.prepare(self.launch)
        run = Run(
            uid=UID, namespace="default", name="a", boot_id="b", output=str(self.output), offset=offset, groups=groups
        )
        self.runs.write(run, launch=self.launch)
        self.pid = self.shim()

    def shim(self) -> int:
        return processes.start(self.runs.of(UID), output=self.output, error=self.error, umask=0o027)

    async def process(self) -> ProcessId:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await until(lambda: self.runs.process(UID) is not None)
        found = self.runs.process(UID)
        assert found is not None
        return found

    async def end(self) -> Ended | None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            process = await self.process()
            await processes.until_gone(process)
        processes.reap(process.pid)
        return self.runs.ended(UID)

    async def printed(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await until(lambda: text in self.output.read_text())


async def test_a_job_has_its_user_s_umask_and_its_output_is_for_its_user_alone(tmp_path: Path) -> None:
    started = Started(tmp_path, "sh", "-c", "umask; touch made")
    await started.end()
    assert started.output.read_text().strip().endswith("027")
    assert [path.stat().st_mode & 0o777 for path in (started.output, tmp_path / "made")] == [0o600, 0o640]


@pytest.mark.parametrize("code", [0, 3, 255])
async def test_the_exit_code_is_that_of_the_command(tmp_path: Path, code: int) -> None:
    end = await Started(tmp_path, "sh", "-c", f"exit {code}").end()
    assert end is not None
    assert (end.exit_code, end.message) == (code, "")


async def test_a_command_that_ends_by_a_signal_has_the_shells_code(tmp_path: Path) -> None:
    end = await Started(tmp_path, "sh", "-c", "kill -SEGV $$").end()
    assert end is not None
    assert end.exit_code == 128 + signal.SIGSEGV


async def test_both_streams_are_in_the_log_in_order(tmp_path: Path) -> None:
    started = Started(tmp_path, "sh", "-c", "echo a; echo b >&2; echo c")
    await started.end()
    assert started.output.read_text() == "a\nb\nc\n"


async def test_the_environment_is_exactly_the_launchs(tmp_path: Path) -> None:
    odd = {b"BASH_FUNC_f%%": b"() { :; }", b"B": b"\xff", b"LD_PRELOAD": b""}
    started = Started(tmp_path, "env", "-0", environment=odd)
    await started.end()
    entries = {entry for entry in started.output.read_bytes().split(b"\0") if entry}
    assert entries == {name + b"=" + value for name, value in started.launch.environment.items()}


async def test_the_command_runs_in_its_directory(tmp_path: Path) -> None:
    started = Started(tmp_path, "pwd")
    await started.end()
    assert started.output.read_text() == f"{tmp_path}\n"


async def test_a_command_that_does_not_exist_is_127_with_a_sentence(tmp_path: Path) -> None:
    started = Started(tmp_path, "no-such-command", "x")
    end = await started.end()
    assert end is not None
    assert (end.exit_code, end.message) == (127, "no-such-command: No such file or directory")
    assert started.output.read_text() == "dovetail: no-such-command: No such file or directory\n"


async def test_a_file_that_is_no_program_is_126(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    end = await Started(tmp_path, str(tmp_path / "data")).end()
    assert end is not None
    assert (end.exit_code, end.message) == (126, f"{tmp_path}/data: Permission denied")


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    started = Started(folder, "sleep", "0")
    gone = Launch(words=(b"pwd",), directory=b"/nowhere", environment={}, output=folder / "job.log")
    await started.end()
    started.runs.remove(UID)
    started.runs.write(Run(uid=UID, namespace="", name="", boot_id="", output=""), launch=gone)
    started.shim()
    end = await started.end()
    assert end is not None
    assert end.message == "/nowhere: No such file or directory"


async def test_a_second_shim_of_a_run_runs_nothing(tmp_path: Path) -> None:
    started = Started(tmp_path, "sh", "-c", "echo once")
    first = await started.process()
    second = started.shim()
    await started.end()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await until(lambda: identity.identify(second) is None)
    processes.reap(second)
    assert started.runs.process(UID) == first
    assert started.output.read_text() == "once\n"


async def test_two_shims_at_once_run_the_command_once(tmp_path: Path) -> None:
    started = Started(tmp_path, "sh", "-c", "echo once")
    others = [started.shim() for _ in range(5)]
    await started.end()
    for pid in {started.pid, *others}:
        processes.reap(pid)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await until(lambda: not any(identity.identify(pid) for pid in others))
    assert started.output.read_text() == "once\n"


async def test_sigterm_reaches_the_command_and_its_own_exit_code_counts(tmp_path: Path) -> None:
    started = Started(tmp_path, "sh", "-c", "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done")
    await started.printed("ready")
    processes.signal_group(await started.process(), number=signal.SIGTERM)
    end = await started.end()
    assert end is not None
    assert end.exit_code == 7
    assert started.runs.was_terminated(UID)
    assert started.output.read_text().endswith("bye\n")


async def test_a_command_without_a_handler_ends_by_sigterm(tmp_path: Path) -> None:
    started = Started(tmp_path, "sh", "-c", "echo ready; exec sleep 600")
    await started.printed("ready")
    processes.signal_group(await started.process(), number=signal.SIGTERM)
    end = await started.end()
    assert end is not None
    assert end.exit_code == 128 + signal.SIGTERM


async def test_sigkill_ends_the_shim_too_and_leaves_no_exit_code(tmp_path: Path) -> None:
    started = Started(tmp_path, "sh", "-c", "trap '' TERM; echo ready; sleep 600")
    await started.printed("ready")
    processes.signal_group(await started.process(), number=signal.SIGKILL)
    assert await started.end() is None


async def test_what_left_the_process_group_is_killed_by_its_mark(tmp_path: Path) -> None:
    started = Started(tmp_path, "sh", "-c", "setsid sleep 600 & exit 0")
    await started.end()
    await eventually(lambda: bool(identity.marked(MARK, value=UID)))
    await asyncio.to_thread(processes.kill_rest, UID)
    # What is killed takes a moment to be gone.
    await eventually(lambda: not identity.marked(MARK, value=UID))


def test_a_process_that_one_look_misses_is_killed_at_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is executing another program at the first look, and starts a second one before it is killed."""
    first, second = ProcessId(1_000_001, 1), ProcessId(1_000_002, 2)
    looks = iter([[], [first], [first, second], []])
    killed: list[ProcessId] = []
    monkeypatch.setattr(identity, "marked", lambda *_, **__: next(looks, []))
    monkeypatch.setattr(identity, "send", lambda process, **_: killed.append(process))
    processes.kill_rest(UID)
    assert killed == [first, second]


async def test_the_environment_file_is_its_users_alone(tmp_path: Path) -> None:
    started = Started(tmp_path, "true")
    await started.end()
    assert stat.S_IMODE((started.runs.of(UID) / "execute").stat().st_mode) == 0o600
    assert stat.S_IMODE(started.runs.of(UID).stat().st_mode) == 0o700


async def test_a_process_that_is_gone_already_is_not_waited_for() -> None:
    earlier = ProcessId(os.getpid(), 1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await processes.until_gone(earlier)


async def test_standard_error_may_have_a_file_of_its_own_and_neither_file_loses_what_it_had(tmp_path: Path) -> None:
    error = tmp_path / "errors" / "job.err"
    error.parent.mkdir()
    for file in (error, tmp_path / "job.log"):
        file.write_text("before\n")
    started = Started(tmp_path, "sh", "-c", "echo a; echo b >&2", error=error)
    await started.end()
    assert (started.output.read_text(), error.read_text()) == ("before\na\n", "before\nb\n")
    run = started.runs.read(UID)
    assert run is not None
    assert run.offset == len("before\n")


async def test_the_file_of_standard_error_is_made_with_its_folder_for_its_user_alone(tmp_path: Path) -> None:
    error = tmp_path / "errors" / "job.err"
    await Started(tmp_path, "sh", "-c", "echo b >&2", error=error).end()
    assert error.read_text() == "b\n"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (error, error.parent)] == [0o600, 0o700]


async def test_a_job_reads_nothing_and_has_signals_as_a_shell_gives_them(tmp_path: Path) -> None:
    """Python ignores some, and whoever starts the node may block or ignore others: a process inherits both."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    # As nohup and a script's & do.
    ignored = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)}
    try:
        started = Started(tmp_path, "sh", "-c", "cat; grep -E '^Sig(Blk|Ign)' /proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for each, handler in ignored.items():
            signal.signal(each, handler)
    await started.end()
    masks = dict(line.split(":\t") for line in started.output.read_text().splitlines())
    assert int(masks["SigBlk"], 16) == 0
    # Of the standard signals: 32 and 33 are the C library's own.
    assert not int(masks["SigIgn"], 16) & (1 << 31) - 1


async def test_a_job_is_in_each_of_its_cgroups_before_it_runs_and_its_shim_is_in_none(tmp_path: Path) -> None:
    groups = [tmp_path / name for name in ("cpu", "memory")]
    for group in groups:
        group.mkdir()
    processes_of = " ".join(f"{group}/cgroup.procs" for group in groups)
    started = Started(tmp_path, "cat", *processes_of.split(), groups=tuple(map(str, groups)))
    await started.end()
    # 0 is who writes it.
    assert started.output.read_text() == "00"


async def test_a_job_that_cannot_enter_a_cgroup_does_not_run(tmp_path: Path) -> None:
    started = Started(tmp_path, "touch", "ran", groups=(str(tmp_path / "gone"),))
    end = await started.end()
    assert end is not None
    assert (end.exit_code, end.reason) == (127, "StartError")
    assert end.message == f"{tmp_path}/gone/cgroup.procs: No such file or directory"
    assert not (tmp_path / "ran").exists()


def handles() -> list[str]:
    """The handles of processes that this one has open."""
    with os.scandir("/proc/self/fd") as found:
        return sorted(each.name for each in found if "pidfd" in os.path.realpath(each.path))


async def test_waiting_for_a_process_leaves_no_file_open(tmp_path: Path) -> None:
    await Started(tmp_path, "true").end()
    before = handles()
    for _ in range(3):
        process = identity.identify(os.getppid())
        assert process is not None
        waiting = asyncio.create_task(processes.until_gone(process))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await processes.until_gone(ProcessId(os.getpid(), 1))
    assert handles() == before


def test_a_signal_does_not_reach_a_later_process_of_the_same_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = list[int]()
    monkeypatch.setattr(os, "killpg", lambda pid, _number: sent.append(pid))
    this = identity.identify(os.getpid())
    assert this is not None
    processes.signal_group(ProcessId(this.pid, this.started - 1), number=signal.SIGTERM)
    assert sent == []
    processes.signal_group(this, number=signal.SIGTERM)
    assert sent == [this.pid]

"""Programs that share a process, under a real supervisor. Stand-ins have the names of Dovetail's own programs."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from dovetail.process import identity
from dovetail_sandbox import state
from dovetail_sandbox.processes import one_process, processes
from dovetail_sandbox.processes import supervisor as supervising
from dovetail_sandbox.processes.one_process import OneProcess
from dovetail_sandbox.processes.supervisor import SHARED_GRACE_SECONDS, Supervisor
from dovetail_sandbox.state import Component, Desired
from tests.sandbox.processes.conftest import Harness

# Ends with the code in the file `code`, or when it is asked to; one that is deaf only with its process.
STAND_IN = """
import os, threading, time
from pathlib import Path
from dovetail.process import shared_process

def main(words):
    folder, asked = Path(os.environ["FOLDER"]), threading.Event()
    print("begins", *words, flush=True)
    with shared_process.current().listening(asked.set):
        while "deaf" in words or not asked.wait(0.02):
            if (folder / "code").exists():
                code = (folder / "code").read_text()
                (folder / "code").unlink()
                raise SystemExit(int(code) if code.isdigit() else code)
            time.sleep(0.02)
    print("ends", flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """$PYTHONPATH with stand-ins of the operator and the webhook, and a gateway that cannot be imported."""
    for name, text in (
        ("operator", STAND_IN),
        ("webhook", STAND_IN),
        ("extender", ""),
        ("certificates", ""),
        ("agent", ""),
        ("gateway", "import nowhere_to_be_found"),
    ):
        package = tmp_path / "path" / f"dovetail_{name}"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "main.py").write_text(text)
    return str(tmp_path / "path")


def component(name: str, *words: str, folder: Path, epoch: int = 0) -> Component:
    own = folder / name
    own.mkdir(exist_ok=True)
    program = str(Path(sys.executable).with_name(f"dovetail-{name}"))
    log = str(folder / f"{name}.log")
    return Component(name=name, argv=[program, *words], env={"FOLDER": str(own)}, log=log, epoch=epoch)


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.02)


def start(harness: Harness, path: str, *components: Component) -> int:
    """Start them in one process, and return its number."""
    (harness.folder / "logs").mkdir()
    harness.start(*components, one_process=True, PYTHONPATH=path)
    for each in components:
        until(lambda each=each: log_of(each).startswith("begins"))
    (pid,) = {harness.pid(each.name).pid for each in components}
    return pid


def log_of(spec: Component) -> str:
    return Path(spec.log).read_text() if Path(spec.log).exists() else ""


def test_programs_share_a_process_and_one_that_ends_starts_again_there(harness: Harness, path: str) -> None:
    operator = component("operator", "--a", folder=harness.folder)
    webhook = component("webhook", "--b", folder=harness.folder)
    pid = start(harness, path, operator, webhook)

    for code, how in (("7", "exit code 7"), ("no luck", "exit code 1")):
        (harness.folder / "operator" / "code").write_text(code)
        harness.until("operator", lambda each, how=how: each.state == "running" and each.last_exit == how)
    until(lambda: log_of(operator) == "begins --a\nbegins --a\nno luck\nbegins --a\n")
    assert harness.pid("operator").pid == harness.pid("webhook").pid == pid
    assert harness.until("operator", lambda each: True).restarts == 2
    assert log_of(webhook) == "begins --b\n"


def test_one_is_ended_and_started_again_without_the_other(harness: Harness, path: str) -> None:
    operator, webhook = (component(name, folder=harness.folder) for name in ("operator", "webhook"))
    pid = start(harness, path, operator, webhook)
    harness.desire(msgspec.structs.replace(operator, stopped=True), webhook)
    harness.until("operator", lambda each: each.state == "stopped" and each.last_exit == "exit code 0")
    harness.desire(msgspec.structs.replace(operator, epoch=1), webhook)
    harness.until("operator", lambda each: each.epoch == 1 and each.state == "running")
    until(lambda: log_of(operator) == "begins\nends\nbegins\n")
    assert harness.pid("operator").pid == pid
    assert log_of(webhook) == "begins\n"


def test_when_the_process_is_killed_all_its_programs_start_again_in_another(harness: Harness, path: str) -> None:
    operator, webhook = (component(name, folder=harness.folder) for name in ("operator", "webhook"))
    pid = start(harness, path, operator, webhook)
    os.kill(pid, signal.SIGKILL)
    for name in ("operator", "webhook"):
        again = harness.until(name, lambda each: each.restarts == 1 and each.state == "running")
        assert again.last_exit == "signal SIGKILL"
    until(lambda: all(log_of(each) == "begins\nbegins\n" for each in (operator, webhook)))
    assert harness.pid("operator") == harness.pid("webhook") != identity.identify(pid)


def test_a_program_that_cannot_be_imported_says_so_in_its_log_and_ends_no_other(harness: Harness, path: str) -> None:
    webhook, gateway = (component(name, folder=harness.folder) for name in ("webhook", "gateway"))
    start(harness, path, webhook)
    harness.desire(webhook, gateway)
    harness.until("gateway", lambda each: each.crashes >= 2)
    assert "No module named 'nowhere_to_be_found'" in log_of(gateway)
    assert log_of(webhook) == "begins\n"


def test_a_log_that_cannot_be_written_ends_no_other_program(harness: Harness, path: str) -> None:
    webhook, operator = (component(name, folder=harness.folder) for name in ("webhook", "operator"))
    start(harness, path, webhook)
    harness.desire(webhook, msgspec.structs.replace(operator, log=str(harness.folder)))
    harness.until("operator", lambda each: each.crashes >= 2)
    assert "operator: [Errno 21]" in (harness.folder / "logs" / f"{one_process.LOG}.log").read_text()
    assert log_of(webhook) == "begins\n"


def test_the_programs_outlive_their_supervisor(harness: Harness, path: str) -> None:
    webhook = component("webhook", folder=harness.folder)
    pid = start(harness, path, webhook)
    assert harness.process
    harness.process.kill()
    harness.process.wait()
    harness.process = None
    (harness.folder / "webhook" / "code").write_text("3")
    until(lambda: not (harness.folder / "webhook" / "code").exists())
    # Its end could be told to nobody, and the process goes on until `down` or the next `up`.
    found = processes.programs_of(harness.folder)
    assert [each.pid for each in found] == [pid]
    processes.end(found, grace_seconds=60)
    assert not identity.alive(found[0])


def test_the_process_may_open_as_many_files_as_its_servers_have_connections(harness: Harness, path: str) -> None:
    """A login often allows 1,024 for all of them together, which another user could take by connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        pid = start(harness, path, component("webhook", folder=harness.folder))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    most = hard if 0 <= hard < 6144 else 6144
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (most, hard)


@pytest.fixture
def no_hangups() -> None:
    """The shared process tells its parent of each end by SIGHUP."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    yield
    while signal.sigtimedwait([signal.SIGHUP], 0):
        pass
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])


@pytest.mark.usefixtures("no_hangups")
def test_one_that_does_not_end_when_it_is_asked_ends_with_its_process(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv(processes.MARK, str(tmp_path))
    (tmp_path / "logs").mkdir()
    deaf, webhook = component("operator", "deaf", folder=tmp_path), component("webhook", folder=tmp_path)

    def desire(*components: Component) -> None:
        state.write_desired(tmp_path, desired=Desired(components=list(components), one_process=True))

    desire(deaf, webhook)
    supervisor = Supervisor(folder=tmp_path)
    supervisor.reconcile(now=0)
    until(lambda: log_of(deaf) == "begins deaf\n" and log_of(webhook) == "begins\n")
    desire(msgspec.structs.replace(deaf, epoch=1), webhook)
    supervisor.reconcile(now=1)
    supervisor.reconcile(now=SHARED_GRACE_SECONDS)
    process = supervisor.children["webhook"].process
    assert process
    assert identity.alive(process)

    supervisor.reconcile(now=1 + SHARED_GRACE_SECONDS)
    until(lambda: supervisor.reap() or supervisor.children["webhook"].process is None)
    assert {child.last_exit for child in supervisor.children.values()} == {"signal SIGKILL"}
    assert supervisor.children["operator"].crashes == 0
    supervisor.reconcile(now=time.monotonic())
    supervisor.reconcile(now=time.monotonic())
    until(lambda: log_of(deaf) == "begins deaf\n" * 2 and log_of(webhook) == "begins\n" * 2)
    processes.end(processes.programs_of(tmp_path), grace_seconds=0)
    supervisor.reap()


def test_a_process_that_cannot_be_started_is_said_of_each_of_its_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> OneProcess:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(supervising.OneProcess, "started", refuse)
    wanted = Desired(components=[component("operator", folder=tmp_path)], one_process=True)
    state.write_desired(tmp_path, desired=wanted)
    supervisor = Supervisor(folder=tmp_path)
    supervisor.reconcile(now=0)
    assert supervisor.children["operator"].observed().last_exit == "not started: Cannot allocate memory"


def test_a_process_that_could_not_be_started_is_tried_again(harness: Harness, path: str) -> None:
    webhook = component("webhook", folder=harness.folder)
    # There is no folder for the log of the process.
    harness.start(webhook, one_process=True, PYTHONPATH=path)
    harness.until("webhook", lambda each: each.last_exit == "not started: No such file or directory")
    (harness.folder / "logs").mkdir()
    until(lambda: log_of(webhook) == "begins\n")


def test_a_process_that_cannot_be_started_leaves_no_pipe_open(tmp_path: Path) -> None:
    descriptors = Path("/proc/self/fd")
    before = len([*descriptors.iterdir()])
    with pytest.raises(FileNotFoundError):
        OneProcess.started(tmp_path)
    assert len([*descriptors.iterdir()]) == before


def test_a_program_for_which_there_is_no_thread_is_reported_as_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    # Otherwise the parent of the tests would get a SIGHUP.
    monkeypatch.setattr(os, "kill", lambda *_: None)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    read, write = os.pipe()
    programs = one_process._Programs(reports=write)
    start = one_process.Command(start=component("webhook", folder=tmp_path))
    programs.follow(iter([msgspec.json.encode(start)]))
    assert msgspec.json.decode(os.read(read, 4096)) == {"name": "webhook", "code": 1}
    assert capsys.readouterr().err == "webhook: [Errno 11] can't start new thread\n"
    programs.end()
    os.close(read)
    os.close(write)


def test_after_a_command_that_cannot_be_read_the_next_one_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = list[str]()
    monkeypatch.setattr(one_process._Programs, "_start", lambda _self, each: started.append(each.name))
    start = msgspec.json.encode(one_process.Command(start=component("webhook", folder=tmp_path)))
    one_process._Programs(reports=0).follow(iter([b'{"start": 1}\n', b"\xff\n", b"\n", start]))
    assert started == ["webhook"]
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["command ignored"] * 3


def test_only_programs_that_neither_load_the_driver_nor_start_jobs_share_a_process() -> None:
    def module_of(program: str, *words: str, apart: bool = False) -> str | None:
        return one_process.module_of(Component(name="x", argv=[program, *words], log="", apart=apart))

    own = Path(sys.executable)
    assert module_of(str(own.with_name("dovetail-operator"))) == "dovetail_operator.main"
    assert module_of(str(own.with_name("dovetail-agent"))) == "dovetail_agent.main"
    assert module_of(str(own), "-P", "-m", "dovetail_sandbox.installed.secret_volume", "--x") is not None
    apart = [
        module_of(str(own.with_name("dovetail-agent")), apart=True),
        module_of(str(own), "-P", "-m", "dovetail_local_node.main"),
        module_of("/usr/bin/dovetail-operator"),
        module_of("/bin/etcd"),
    ]
    assert apart == [None] * 4


LATER = """
import io, sys
from dovetail_sandbox.processes import one_process

one_process.load()
there = set(sys.modules)
import sqlalchemy
from dovetail import logs

logs.configure(fmt="json", stream=io.StringIO())
logs.get_logger("x").info("a line")
sqlalchemy.create_engine("sqlite://").connect().close()
print(sorted(set(sys.modules) - there))
"""


def test_nothing_is_imported_later_to_log_a_line_or_to_open_a_database() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", LATER], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

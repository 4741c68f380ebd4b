"""A handle to a sandbox, as its files make it out; nothing runs here but this test."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_cli.app import main
from dovetail_sandbox import cluster, credential, progress, state
from dovetail_sandbox.bringup import existing, start
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.errors import (
    ComponentFailedError,
    InvalidInputError,
    NotRunningError,
    OtherVersionError,
    SandboxError,
)
from dovetail_sandbox.nodes import kwok
from dovetail_sandbox.state import Observed, Phase, State


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return cluster.get("one")


def myself() -> ProcessId:
    found = identity.identify(os.getpid())
    assert found
    return found


def write(made: Cluster, *observed: Observed, phase: Phase = "ready", **more: object) -> None:
    """A sandbox that this test supervises."""
    made.folder.mkdir(parents=True, exist_ok=True)
    credential.write(made.credential)
    fields = {"name": "one", "format": state.FORMAT, "phase": phase, "supervisor": myself(), **more}
    state.write(made.folder, state=State(**fields))
    plane = [Observed(name=name, state="running", process=myself()) for name in kwok.CONTROL_PLANE]
    state.write_observed(made.folder, observed=[*plane, *observed])


def make_observed(made: Cluster, **more: object) -> Observed:
    log = made.folder / "extender.log"
    return Observed(**({"name": "extender", "state": "waiting", "last_exit": "exit code 2", "log": str(log)} | more))


@pytest.mark.parametrize(
    "use",
    [
        Cluster.state,
        Cluster.status,
        lambda made: made.pid("etcd"),
        lambda made: made.log_file("etcd"),
        lambda made: made.restart("operator"),
    ],
)
def test_what_is_not_there_is_said_with_how_to_start_it(made: Cluster, use) -> None:
    with pytest.raises(NotRunningError, match=r"no sandbox 'one': start it with `dovetail sandbox up --name one`"):
        use(made)


def test_everything_running_is_ready(made: Cluster) -> None:
    write(made)

    assert made.status().phase == "Ready"
    assert made.pid("etcd") == os.getpid()


def test_a_component_that_waits_is_told_with_the_end_of_its_log(made: Cluster) -> None:
    write(made, make_observed(made))
    (made.folder / "extender.log").write_text("".join(f"line {number}\n" for number in range(99)))

    status = made.status()
    assert status.phase == "Degraded"
    assert status.components[-1].log_tail.splitlines() == [f"line {number}" for number in range(84, 99)]
    with pytest.raises(ComponentFailedError, match=r"extender ended with exit code 2\. .*:\n  \| line 84\n"):
        made.pid("extender")


def test_a_component_that_was_stopped_on_purpose_is_no_crash(made: Cluster) -> None:
    write(made, make_observed(made, state="stopped"))

    assert made.status().components[-1].log_tail == ""


def test_without_its_supervisor_nothing_is_called_running_that_has_ended(made: Cluster) -> None:
    gone = ProcessId(os.getpid(), myself().started - 1)
    write(made, make_observed(made, state="running", process=gone), supervisor=gone)

    status = made.status()
    assert (status.phase, status.components[-1].state) == ("Degraded", "exited")
    assert "supervisor does not run" in status.message


def test_an_up_that_ended_early_is_told(made: Cluster) -> None:
    write(made, phase="starting", starter=ProcessId(os.getpid(), myself().started - 1))

    assert made.status().phase == "Failed"
    assert "starts afresh" in made.status().message


def test_an_up_that_is_at_work_is_starting(made: Cluster) -> None:
    write(made, phase="starting", starter=myself())

    assert made.status().phase == "Starting"


def test_an_up_that_comes_second_leaves_what_the_first_one_starts(
    made: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(made, phase="ready", supervisor=ProcessId(os.getpid(), myself().started - 1))

    @contextmanager
    def after_another() -> Iterator[None]:
        write(made, phase="starting", starter=myself())
        yield

    monkeypatch.setattr(state, "locked", after_another)
    with pytest.raises(SandboxError, match=f"is being started by process {os.getpid()}"):
        start.up(made.name, report=progress.Lines(sys.stderr))
    assert made.state().starter == myself()


def test_an_unknown_component_is_refused_with_those_that_there_are(made: Cluster) -> None:
    write(made)

    with pytest.raises(InvalidInputError, match="component: 'nobody' is not allowed; use default-scheduler, etcd"):
        made.pid("nobody")
    with pytest.raises(InvalidInputError, match="component: 'etcd' is not allowed"):
        made.restart("etcd")


@pytest.mark.parametrize(
    ("local", "end"),
    [
        (False, "To end it: dovetail sandbox down --name one"),
        (True, "To remove it: dovetail sandbox down --purge --name one"),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        lambda made: made.restart("operator"),
        lambda made: made.start("operator"),
        lambda made: existing.is_up(made, report=progress.Lines(sys.stderr)),
    ],
)
def test_a_sandbox_of_another_version_is_refused_with_the_line_to_type(
    made: Cluster, use, local: bool, end: str
) -> None:
    write(made, local_node=local, format=2)
    with pytest.raises(OtherVersionError, match=f"was started by another version of Dovetail. {end}$"):
        use(made)


def test_the_tail_of_no_log_is_empty(tmp_path: Path) -> None:
    assert cluster.tail(tmp_path / "none.log") == ""


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["status", "--name", "nope"], 3, "dovetail: there is no sandbox 'nope': start it with `dovetail sandbox up"),
        (["logs", "etcd", "--name", "nope"], 3, "dovetail: there is no sandbox 'nope'"),
        (["up", "--name", "BAD NAME"], 2, "dovetail: name: 'BAD NAME' is not allowed; use at most 30"),
        (["fetch", "nonesuch"], 2, "dovetail: program: 'nonesuch' is not allowed"),
    ],
)
def test_errors_are_told_as_those_of_every_command(
    words: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sandbox", *words]) == code
    told = capsys.readouterr().err
    assert told.startswith(sentence)
    assert told.count("\n") == 1

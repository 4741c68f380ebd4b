"""gbatch -o and -e on a cluster: run by the shells that images have."""

import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from dovetail_cli.submit.output_files import OutputFiles, with_files

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "DOVETAIL_JOB_ID": "7", "DOVETAIL_ARRAY_TASK_ID": "3"}


@pytest.fixture(params=["dash", "bash", "busybox"])
def shell(request: pytest.FixtureRequest) -> list[str]:
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"no {request.param} here")
    return [program, "sh"] if request.param == "busybox" else [program]


def command(text: str, *, output: str | None = None, error: str | None = None, workers: int = 1) -> list[str]:
    files = OutputFiles(output=output, error=error, name="lr0.1/bs 32", user="ada", workers=workers)
    return with_files(["sh", "-c", text], files=files)


def run(shell: Sequence[str], words: Sequence[str], *, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    assert words[0] == "/bin/sh"
    return subprocess.run(
        [*shell, *words[1:]], cwd=folder, env={**ENVIRONMENT, **more}, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip


def test_without_files_the_command_stays_as_it_is() -> None:
    assert command("true") == ["sh", "-c", "true"]


def test_the_output_goes_to_the_log_and_to_the_file(shell: list[str], tmp_path: Path) -> None:
    done = run(shell, command("echo out; echo err >&2; exit 3", output="logs/%j.log"), folder=tmp_path)
    assert (done.returncode, sorted(done.stdout.split()), done.stderr) == (3, ["err", "out"], "")
    assert sorted((tmp_path / "logs" / "7.log").read_text().split()) == ["err", "out"]


def test_errors_have_a_file_of_their_own(shell: list[str], tmp_path: Path) -> None:
    done = run(shell, command("echo out; echo err >&2", output="out", error="err"), folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "err\n")
    assert ((tmp_path / "out").read_text(), (tmp_path / "err").read_text()) == ("out\n", "err\n")
    done = run(shell, command("echo out; echo err >&2", error="err"), folder=tmp_path)
    assert (done.stdout, (tmp_path / "err").read_text()) == ("out\n", "err\nerr\n")


def test_placeholders_are_filled_in_the_container(shell: list[str], tmp_path: Path) -> None:
    run(shell, command("echo", output="%j-%A-%a-%x-%u-%%-%q it's.log"), folder=tmp_path)
    run(shell, command("echo", output="array-%A"), folder=tmp_path, DOVETAIL_ARRAY_JOB_ID="5")
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["7-7-3-lr0.1-bs 32-ada-%-%q it's.log", "array-5"]


def test_other_workers_write_files_of_their_own(shell: list[str], tmp_path: Path) -> None:
    for index in ("0", "1"):
        run(shell, command("echo", output="a.log", workers=2), folder=tmp_path, JOB_COMPLETION_INDEX=index)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1"]


def test_a_long_output_is_whole_in_both(shell: list[str], tmp_path: Path) -> None:
    done = run(shell, command("seq 1 200000", output="a.log"), folder=tmp_path)
    assert done.stdout == (tmp_path / "a.log").read_text()
    assert done.stdout.endswith("\n200000\n")


def test_a_command_that_does_not_exist_is_127(shell: list[str], tmp_path: Path) -> None:
    files = OutputFiles(output="a.log", error=None, name="a", user="ada")
    assert run(shell, with_files(["no-such-program"], files=files), folder=tmp_path).returncode == 127


def test_sigterm_reaches_the_command_and_its_last_words_the_file(shell: list[str], tmp_path: Path) -> None:
    words = command("trap 'echo saved; exit 9' TERM; echo ready; while :; do sleep 0.05; done", output="a.log")
    with subprocess.Popen(
        [*shell, *words[1:]], cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGTERM)
        assert running.stdout.read() == "saved\n"
        assert running.wait(timeout=60) == 9
    assert (tmp_path / "a.log").read_text() == "ready\nsaved\n"


def test_what_the_command_leaves_running_does_not_keep_the_job(shell: list[str], tmp_path: Path) -> None:
    words = command("sleep 300 & echo $!", output="a.log")
    with subprocess.Popen(
        [*shell, *words[1:]], cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        left = int(running.stdout.readline())
        assert running.wait(timeout=60) == 0
        subprocess.run(["kill", str(left)], check=True)


def test_a_folder_that_cannot_be_written_fails_the_job(shell: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(shell, command("echo", output="file/a.log"), folder=tmp_path)
    assert done.returncode == 1

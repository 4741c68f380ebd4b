"""The environment that a job starts from."""

from pathlib import Path

import pytest

from dovetail import names
from dovetail_local_node.admission import Refusal
from dovetail_local_node.environments import Environments
from tests.local_node import builders

ID = "0123456789abcdef0123456789abcdef"
OWN = {"HOME": "/home/alice", "PATH": "/bin", "SSH_AUTH_SOCK": "/run/agent"}


def of(folder: Path, name: str | None) -> dict[bytes, bytes] | Refusal:
    pod = builders.pod("true", annotations={} if name is None else {names.ENVIRONMENT: name})
    return Environments(folder=folder, own=OWN).environment(pod)


def test_without_one_a_job_gets_the_minimum_of_the_nodes_own(tmp_path: Path) -> None:
    assert of(tmp_path, None) == {b"HOME": b"/home/alice", b"PATH": b"/bin"}


def test_the_file_is_the_environment(tmp_path: Path) -> None:
    path = tmp_path / ID
    path.touch(mode=0o600)
    path.write_bytes(b"A=1\0B=x=y\0")
    assert of(tmp_path, ID) == {b"A": b"1", b"B": b"x=y"}


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ID
    path.write_bytes(b"A=1\0")
    path.chmod(0o640)
    refusal = of(tmp_path, ID)
    assert isinstance(refusal, Refusal)
    assert refusal.message.endswith(f"{path} is not this user's alone.")


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "ABCDEF", f"{ID}/x"])
def test_a_name_that_is_no_id_reaches_no_file(tmp_path: Path, name: str) -> None:
    refusal = of(tmp_path, name)
    assert isinstance(refusal, Refusal)
    assert "is not the name of an environment" in refusal.message


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    refusal = of(tmp_path, ID)
    assert isinstance(refusal, Refusal)
    assert refusal.message.endswith("No such file or directory; submit the job again.")


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ID
    path.touch(mode=0o600)
    monkeypatch.setattr("os.getuid", lambda: path.stat().st_uid + 1)
    refusal = of(tmp_path, ID)
    assert isinstance(refusal, Refusal)
    assert refusal.message.endswith(f"{path} is not this user's alone.")

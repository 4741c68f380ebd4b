"""Programs whose streams are read or fed, and what is said when they fail."""

from pathlib import Path

import pytest

from dovetail_cli.cluster import kubectl
from dovetail_cli.cluster.kubectl import FailedError
from dovetail_cli.ui.errors import CommandError


def test_without_kubectl_the_command_says_what_needs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match=r"^gjob fetch runs kubectl, and there is none on PATH$"):
        kubectl.find(kubeconfig=None, context=None, needed_for="gjob fetch")


def test_the_same_cluster_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = kubectl.find(kubeconfig="mine", context="there", needed_for="gjob fetch")
    assert found.words("exec") == [str(program), "--kubeconfig=mine", "--context=there", "exec"]


def test_what_a_program_sends_is_read(tmp_path: Path) -> None:
    with kubectl.read_from(["sh", "-c", "echo sent; echo noise >&2"]) as stdout:
        assert stdout.read() == b"sent\n"


def test_what_a_program_gets_is_written(tmp_path: Path) -> None:
    with kubectl.fed(["sh", "-c", f"cat >{tmp_path}/got"]) as stdin:
        stdin.write(b"bytes")
    assert (tmp_path / "got").read_bytes() == b"bytes"


def test_a_program_that_fails_says_why() -> None:
    failing = ["sh", "-c", "echo no room >&2; echo command terminated with exit code 3 >&2; exit 3"]
    with pytest.raises(FailedError, match=r"^no room$"), kubectl.read_from(failing):
        pass
    with pytest.raises(FailedError, match=r"^no room$"), kubectl.fed(failing) as stdin:
        stdin.write(bytes(1_000_000))
    with pytest.raises(FailedError, match=r"^kubectl ended with code 3$"), kubectl.read_from(["sh", "-c", "exit 3"]):
        pass


@pytest.mark.parametrize(
    ("option", "variable", "exists", "found"),
    [
        ("mine", None, True, "mine"),
        ("mine", "theirs", True, "mine"),
        # kubectl reads the variable itself.
        (None, "theirs", True, None),
        (None, None, True, "of the sandbox"),
        (None, None, False, None),
    ],
)
def test_kubectl_uses_the_kubeconfig_of_the_command(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    option: str | None,
    variable: str | None,
    *,
    exists: bool,
    found: str | None,
) -> None:
    usual = tmp_path / "sandbox"
    if exists:
        usual.touch()
    monkeypatch.setattr(kubectl, "default_kubeconfigs", lambda: [tmp_path / "nowhere", usual])
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if variable is not None:
        monkeypatch.setenv("KUBECONFIG", variable)
    assert kubectl._file(option) == (str(usual) if found == "of the sandbox" else found)

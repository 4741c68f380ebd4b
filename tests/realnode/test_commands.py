"""Calls of other programs say what failed, and what it said."""

from pathlib import Path

import pytest

from dovetail_sandbox.realnode.commands import call, succeeds
from dovetail_sandbox.realnode.errors import CommandError, NodeFailedError


def test_the_output_is_returned_and_the_input_passed() -> None:
    assert call("cat", stdin="text") == "text"


def test_a_file_can_be_the_input(tmp_path: Path) -> None:
    file = tmp_path / "archive"
    file.write_text("bytes")
    with file.open("rb") as stream:
        assert call("cat", stdin=stream) == "bytes"


def test_a_failure_names_the_command_and_what_it_said() -> None:
    with pytest.raises(CommandError, match=r"^`sh -c echo no room >&2; exit 3` failed: no room$"):
        call("sh", "-c", "echo no room >&2; exit 3")


def test_a_command_that_does_not_end_is_a_failure() -> None:
    with pytest.raises(CommandError, match=r"no end after 0\.05 s"):
        call("sleep", "30", timeout_s=0.05)


def test_success_is_a_question_too() -> None:
    assert succeeds(["true"])
    assert not succeeds(["false"])


def test_a_node_that_failed_shows_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "kubelet.log"
    log.write_text("\n".join(f"line {number}" for number in range(100)))
    text = str(NodeFailedError("The node ended", log=log))
    assert text.startswith("The node ended; the end of kubelet.log:\n")
    assert text.endswith("line 99")
    assert "line 80\n" not in text

import subprocess
import sys

import pytest

from dovetail_cli.submit import scripts
from dovetail_cli.submit.scripts import Script, read_script
from dovetail_cli.ui.errors import UsageError


def script(text: str) -> Script:
    return Script(name="train.sh", text=text)


@pytest.mark.parametrize(
    ("first", "command"),
    [
        ("echo hi", ["/bin/sh", "-c"]),
        ("#!/bin/bash", ["/bin/bash", "-c"]),
        ("#!/bin/bash -eu", ["/bin/bash", "-eu", "-c"]),
        ("#!/usr/bin/env python3", ["/usr/bin/env", "python3", "-c"]),
        ("#!/usr/bin/env -S python3.12 -u", ["/usr/bin/env", "python3.12", "-u", "-c"]),
        ("#!/usr/bin/perl", ["/usr/bin/perl", "-e"]),
        ("#!/bin/sh -", ["/bin/sh", "-c"]),
        ("#!/usr/bin/env -S bash -euo pipefail", ["/usr/bin/env", "bash", "-euo", "pipefail", "-c"]),
    ],
)
def test_the_first_line_says_what_runs_a_script(first: str, command: list[str]) -> None:
    assert scripts.script_command(script(f"{first}\n"), arguments=[])[: len(command)] == command


def test_a_shell_script_sees_its_name_and_arguments() -> None:
    command = scripts.script_command(script('#!/bin/sh\necho "$0 $1 $#"\n'), arguments=["one two", "3"])
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "train.sh one two 2\n"


def test_a_python_script_sees_its_arguments() -> None:
    command = scripts.script_command(
        script(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n"), arguments=["a b"]
    )
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "['a b']\n"


@pytest.mark.parametrize(
    "first", ["#!/usr/bin/gnuplot", "#!", "#!/usr/bin/env", "#!/usr/bin/env A=1 bash", "#!/bin/sh9", "#!-e"]
)
def test_an_interpreter_that_takes_no_text_is_refused(first: str) -> None:
    with pytest.raises(UsageError, match="names no interpreter"):
        scripts.script_command(script(f"{first}\n"), arguments=[])


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ("#!/bin/bash 'half", 'its first line "#!/bin/bash \'half" cannot be read: No closing quotation'),
        ("#!/bin/bash -o pipefail other.sh", 'would run "other.sh" instead of the script'),
        ("#!/bin/bash other.sh", 'would run "other.sh" instead of the script'),
        ("#!/usr/bin/env python3 -u gnuplot", 'would run "gnuplot" instead of the script'),
    ],
)
def test_a_first_line_that_would_run_something_else_is_refused(first: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        scripts.script_command(script(f"{first}\n"), arguments=[])
    assert problem in str(refused.value)


def test_lines_that_windows_has_ended_are_lines() -> None:
    assert read_script(b"#!/bin/bash\r\npython train.py\r\n", name="x").text == "#!/bin/bash\npython train.py\n"


def test_a_mark_of_the_byte_order_is_no_part_of_a_script() -> None:
    assert read_script(b"\xef\xbb\xbf#!/bin/bash\n", name="x").text == "#!/bin/bash\n"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x7fELF\x00\x01", "is neither a script"),
        (b"\xff\xfe", "is neither a script"),
        (b" \n", "is empty"),
        (b"x" * 102_401, "may have at most 102400"),
    ],
)
def test_what_cannot_travel_as_text_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(UsageError, match=f"job.sh {problem}|job.sh has .* {problem}"):
        read_script(data, name="job.sh")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["sleep", "5"], ["sleep", "5"]),
        (["nvidia-smi"], ["nvidia-smi"]),
        (["echo hi && sleep 5"], ["/bin/sh", "-c", "echo hi && sleep 5"]),
        (["python", "-c", "print(1); print(2)"], ["python", "-c", "print(1); print(2)"]),
    ],
)
def test_a_command_is_taken_as_it_is_and_a_line_goes_to_the_shell(words: list[str], command: list[str]) -> None:
    assert scripts.plain_command(words) == command

"""gjob attach: which words make sense; the container itself is entered in tests/realnode."""

import pytest

from dovetail_cli.app import run


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--port", "0", "7"], '--port "0": write a port of the container from 1 to 65535, such as 8888, or one of'),
        (["--port", "1:2:3", "7"], '--port "1:2:3": write a port'),
        (["--port", "http", "7"], '--port "http": write a port'),
        (["--port", "99999", "7"], '--port "99999": write a port'),
        (["--port", "8888", "7", "sh"], '--port 8888 and the command "sh": give one of them'),
        (["7", "--port", "8888"], '"--port" comes too late: options come before the job, such as gjob attach --port'),
    ],
)
def test_words_that_make_no_sense_are_one_sentence(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("gjob", arguments=["attach", *words], prog="gjob") == 2
    assert told in capsys.readouterr().err

"""The application as a whole, run in its own process: exit codes, sentences, and what it imports."""

import os
import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

from dovetail.kube.errors import (
    Forbidden,
    Invalid,
    NotFound,
    Status,
    StatusCause,
    StatusDetails,
    StatusError,
    Unauthorized,
    Unreachable,
)
from dovetail.process import programs
from dovetail.query.errors import InvalidQueryError, NotFoundError
from dovetail_cli import app
from dovetail_cli.ui import error_messages
from dovetail_cli.ui.errors import UsageError


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dovetail_cli", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KUBECONFIG": "/nonexistent/kubeconfig", **environment},
    )


def test_help_lists_every_command_without_importing_any() -> None:
    program = "import sys; from dovetail_cli import app; app.main(['--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    *help_lines, modules = done.stdout.splitlines()
    assert all(any(line.startswith(f"  {name} ") for line in help_lines) for name in app.COMMANDS)
    assert not any(f"'{heavy}'" in modules for heavy in ("typer", "msgspec", "aiohttp", "numpy", "rich", "asyncio"))


@pytest.mark.parametrize(
    "command",
    [
        "gbatch",
        "gqueue",
        "ginfo",
        "gcancel",
        "gjob",
        "gstats",
        "top",
        "quota",
        "explain",
        "cordon",
        "doctor",
        "audit",
        "snapshot",
        "replay",
        "demo",
        "completion",
    ],
)
def test_the_help_of_a_command_imports_nothing_that_takes_time(command: str) -> None:
    program = (
        "import sys; from dovetail_cli import app; "
        f"code = app.run('{command}', arguments=['--help'], prog='{command}'); "
        "print(code, sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    code, modules = done.stdout.splitlines()[-1].split(" ", 1)
    assert code == "0"
    assert f"Usage: {command}" in done.stdout
    assert not any(f"'{heavy}'" in modules for heavy in ("msgspec", "aiohttp", "numpy", "rich", "asyncio"))


@pytest.mark.parametrize("name", app.COMMANDS)
def test_every_command_of_the_table_is_there(name: str) -> None:
    assert app.typer_app(name).registered_commands


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["gqeue"], 2, 'no command "gqeue": did you mean gqueue? allowed are'),
        (["gqueue", "--nope"], 2, "No such option: --nope"),
        (["gqueue", "-o", "xml"], 2, "unknown format, allowed are table, json, yaml, csv"),
        (["gbatch"], 2, "Missing argument"),
        (["gbatch", "-p", "300", "sleep", "5"], 2, "--priority 300: allowed are 0 to 255"),
        (["gbatch", "-g", "x", "sleep", "5"], 2, '--gpus "x": expected a number'),
        (["gjob", "update", "1", "-p", "300"], 2, '--priority "300": should be less than or equal to 255'),
        (["gjob", "update", "1", "--max-retries", "x"], 2, '--max-retries "x": should be a valid integer'),
        (["gqueue", "-f", "%i"], 2, '-f "%i": unknown field, allowed are JOBID'),
        (["replay", "--pods", "p.csv", "--max-run", "5s", "--min-run", "10s"], 2, "--max-run 5s: must not be below"),
        (["gbatch", "./nowhere.sh"], 3, "./nowhere.sh: no such script here"),
        (["gbatch", "--param-file", "/nowhere.csv", "true"], 3, "--param-file /nowhere.csv: there is no such file"),
        (["gjob", "release", "7", "--at", "soon"], 2, '--at "soon": write HH:MM'),
        (["gjob", "log", "7", "--worker", "-1"], 2, '--worker "-1": should be greater than or equal to 0'),
        (["gcancel", "1..2"], 2, "neither a number, a range"),
        (["replay", "--pods", "/nowhere.csv"], 3, "/nowhere.csv: there is no such file"),
        (["gqueue"], 4, "/nonexistent/kubeconfig"),
        (["gbatch", "sleep", "5"], 4, "/nonexistent/kubeconfig"),
        (["ginfo"], 4, "/nonexistent/kubeconfig"),
        (["gcancel", "1"], 4, "/nonexistent/kubeconfig"),
        (["audit"], 4, "/nonexistent/kubeconfig"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_an_exit_code(
    words: list[str],
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")
    assert app.main(words) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert sentence in printed.err
    assert printed.err.startswith("dovetail: ")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_what_the_outputs_encoding_lacks_ends_no_command(encoding: str) -> None:
    done = run("gbatch", "--help", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--param K=V," in done.stdout


def test_the_exit_code_is_the_process_own() -> None:
    done = run("gqueue")
    assert (done.returncode, done.stdout) == (4, "")


def entered(*words: str, stdout: int, buffered: bool) -> subprocess.CompletedProcess[str]:
    """The end of the program `dovetail` with those words."""
    program = f"import sys; from dovetail_cli import app; sys.argv = ['dovetail', *{words}]; app.dovetail()"
    environ = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    words = (sys.executable, "-c", program)
    return subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, env=environ)


@pytest.mark.parametrize("words", [("--help",), ("gbatch", "--help")])
@pytest.mark.parametrize("buffered", [True, False])
def test_a_reader_that_has_ended_gets_no_message(words: tuple[str, ...], *, buffered: bool) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = entered(*words, stdout=writing, buffered=buffered)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("buffered", [True, False])
def test_a_full_disk_below_the_output_is_a_sentence(*, buffered: bool) -> None:
    with Path("/dev/full").open("w") as full:
        done = entered("--help", stdout=full.fileno(), buffered=buffered)
    assert (done.returncode, done.stderr) == (1, "dovetail: standard output: No space left on device\n")


@pytest.mark.parametrize(
    ("closed", "command", "code"),
    [(">&-", "app._exit(lambda: int(output.on_terminal()))", 0), ("2>&-", "app.gqueue()", 4)],
)
def test_a_stream_that_the_shell_has_closed_takes_nothing(closed: str, command: str, code: int) -> None:
    program = f"from dovetail_cli import app; from dovetail_cli.ui import output; {command}"
    environ = {**os.environ, "KUBECONFIG": "/nonexistent/kubeconfig"}
    line = f'"{sys.executable}" -c "{program}" {closed}'
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_word_that_would_fill_the_terminal_is_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["gbatch", "--name", "n" * 10_000, "true"]) == 2
    said = f'dovetail: --name "{"n" * 59}…{"n" * 28}": it has 10000 characters, allowed are 1 to 100\n'
    assert capsys.readouterr().err == said


def test_no_command_at_all_is_a_usage_error_that_shows_the_help() -> None:
    done = run()
    assert done.returncode == 2
    assert re.search(r"^  gbatch +Submit a job$", done.stdout, re.MULTILINE)


def test_debugging_shows_where_an_error_came_from() -> None:
    assert "Traceback" in run("gqueue", DOVETAIL_DEBUG="1").stderr


def test_the_version_is_told() -> None:
    assert run("--version").stdout.startswith("dovetail 0.")
    assert run("version").stdout.startswith("dovetail 0.")
    assert run("gbatch", "--version").stdout.startswith("gbatch 0.")


def test_a_number_alone_shows_the_job() -> None:
    assert app.resolved("gjob", arguments=["7", "-o", "json"]) == ("gjob", ["show", "7", "-o", "json"])
    assert app.resolved("gjob", arguments=["@~1"]) == ("gjob", ["show", "@~1"])
    assert app.resolved("gjob", arguments=["log", "7"]) == ("gjob", ["log", "7"])


def refusal(kind: type[StatusError], code: int, message: str, **details: object) -> StatusError:
    return kind(Status(code=code, reason=kind.__name__, message=message, details=StatusDetails(**details)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (Unreachable("https://x", problem="refused"), 4, "cannot reach the API server at https://x: refused"),
        (refusal(Unauthorized, 401, "no"), 4, "the API server does not know you: no"),
        (refusal(Forbidden, 403, "no pods for you"), 1, "not allowed: no pods for you"),
        (refusal(NotFound, 404, "the server could not find the requested resource"), 3, "install Dovetail's chart"),
        (refusal(NotFound, 404, 'pods "x" not found', name="x"), 3, 'pods "x" not found'),
        (
            refusal(
                Invalid, 422, "long", causes=[StatusCause(field="spec.gpu", message="no request")],
            ),
            1,
            "refused: spec.gpu: no request",
        ),
        (refusal(StatusError, 409, "somebody else wrote"), 1, "somebody else wrote"),
        (UsageError("no"), 2, "no"),
        (InvalidQueryError("what"), 2, "what"),
        (NotFoundError("no job 7"), 3, "no job 7"),
        (ValueError("two\nlines"), 1, "two lines"),
        (FileNotFoundError(2, "No such file or directory", "/a/b"), 1, "/a/b: No such file or directory"),
        (KeyError("surprise"), 1, "KeyError: 'surprise' (this should not happen"),
    ],
)  # fmt: skip
def test_every_error_has_its_sentence_and_code(error: Exception, code: int, sentence: str) -> None:
    failure = error_messages.explain(error)
    assert failure.exit_code == code
    assert sentence in str(failure)
    assert "[Errno" not in str(failure)


def test_a_package_that_is_not_installed_is_named_with_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "requires", lambda _: ["kopf; extra == 'sandbox'", "no-such>=1; extra == 'sandbox'"])
    assert app.run("sandbox", arguments=[], prog="dovetail sandbox") == 1
    said = "dovetail: `sandbox` needs no-such, which is not installed: pip install 'dovetail-gpu[sandbox]'\n"
    assert capsys.readouterr().err == said


def test_a_module_of_ours_that_is_missing_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(app.COMMANDS, "sandbox", app.Entry("dovetail_sandbox.not_there:app", ""))
    assert app.run("sandbox", arguments=[], prog="dovetail sandbox") == 1
    assert "this should not happen" in capsys.readouterr().err


def test_each_command_names_an_extra_of_the_package() -> None:
    extras = metadata("dovetail-gpu").get_all("Provides-Extra") or []
    assert {entry.extra for entry in app.COMMANDS.values()} <= {"", *extras}


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["sandbox"], "Usage: dovetail sandbox [OPTIONS] COMMAND [ARGS]...\n\n"),
        (["gflowd", "service"], "Usage: dovetail gflowd service [OPTIONS] COMMAND [ARGS]...\n\n"),
    ],
)
def test_a_command_of_commands_alone_shows_its_help(
    words: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(words) == 2
    printed = capsys.readouterr()
    assert (printed.out.startswith(usage), printed.err) == (True, "")


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["help"], "Usage: dovetail COMMAND [OPTIONS]\n"),
        (["help", "gcancel"], "Usage: dovetail gcancel [OPTIONS] "),
        (["help", "quota", "set"], "Usage: dovetail quota set [OPTIONS] "),
    ],
)
def test_the_word_help_shows_the_help_of_what_follows(
    words: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(words) == 0
    assert capsys.readouterr().out.startswith(usage)

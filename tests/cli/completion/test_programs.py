"""What a shell gets: by bash itself, and by the protocol of each shell."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dovetail_cli.app import COMMANDS, COMPLETE_VARIABLE, PROGRAMS, main, run

# The folder of the installed programs.
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
BASH = """
eval "$(dovetail completion bash)"
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_{prog}_completion {prog}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


async def bash(*words: str, kubeconfig: str) -> tuple[list[str], str]:
    """What bash offers after these words, and what was printed to standard error."""
    quoted = " ".join(f"'{word}'" for word in words)
    process = await asyncio.create_subprocess_exec(
        "bash", "--norc", "-c", BASH.format(words=quoted, prog=words[0]),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": PATH, "KUBECONFIG": kubeconfig},
    )  # fmt: skip
    out, err = await process.communicate()
    return out.decode().split(), err.decode()


def asked(words: list[str], *, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv(COMPLETE_VARIABLE, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    prog = words[0]
    assert (main([]) if prog == "dovetail" else run(prog, arguments=[], prog=prog)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.split()


async def test_while_the_cluster_is_away_nothing_is_offered_and_nothing_is_said() -> None:
    assert await bash("gcancel", "", kubeconfig="/nonexistent/kubeconfig") == ([], "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["dovetail", "gq"], {"gqueue"}),
        (["dovetail", "gjob", "re"], {"release", "resize", "renew", "redo"}),
        (["gjob", "attach", "--work"], {"--worker"}),
        (["dovetail", "explain", "--n"], set()),
        (["dovetail", "quo"], {"quota"}),
        (["dovetail", "quota", "s"], {"set"}),
        (["dovetail", "limits", "un"], {"unset"}),
        (["dovetail", "limits", "unset", "policy"], {"policy"}),
        (
            ["dovetail", "limits", "set", "preemption.p"],
            {"preemption.priority_gap", "preemption.per_job", "preemption.per_hour"},
        ),
    ],
)
def test_commands_and_options_are_offered(
    words: list[str], offered: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(asked(words, monkeypatch=monkeypatch, capsys=capsys)) == offered


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_offers_its_options(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--help" in asked(["dovetail", *name.split(), "--he"], monkeypatch=monkeypatch, capsys=capsys)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_lines_for_each_program(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command sets it for its own process, so the test restores it.
    monkeypatch.setenv(COMPLETE_VARIABLE, "")
    monkeypatch.delenv(COMPLETE_VARIABLE)
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert all(f"{COMPLETE_VARIABLE}=complete_{shell}" in said and prog in said for prog in ("dovetail", *PROGRAMS))


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err == 'dovetail: SHELL "tcsh": unknown shell, allowed are bash, zsh, fish\n'

"""The transcripts of docs/first-minutes.md: typed into a shell again, and compared line by line.

A line `…` of the page leaves lines out. Numbers of jobs, names that Dovetail chooses, times, ports, sizes of the
machine and the user are whatever they are; everything else is as the page has it.
"""

import difflib
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.guides.blocks import Step, blocks_of

PAGE: Final = Path(__file__).parents[1] / "docs" / "first-minutes.md"
PATIENCE_SECONDS: Final = 180.0
_COMMAND_SECONDS: Final = 600.0
_PAUSE_SECONDS: Final = 0.5
_LEFT_OUT: Final = "…"
_TITLE: Final = re.compile(r"^## (.*)$", re.MULTILINE)
_FILE: Final = re.compile(r"`([\w.-]+)`:\s*$")
_SUBMITTED: Final = re.compile(r"^(?:Submitted batch job )?(\d+)$", re.MULTILINE)
# The queue's answer, which a submission gives up after a second: on a busy machine it may lack.
_ANSWER: Final = re.compile(r"^(?:It |dovetail: simulated)")
# A command that changes nothing is typed again until it shows what the page has.
_ONLY_SHOWS: Final = re.compile(
    r"(?:gqueue|ginfo|gstats|squeue|sinfo|gjob (?:show|log|events)|(?:kubectl )?dovetail explain"
    r"|kubectl (?:get|describe))\b"
)
_NAMES_JOBS: Final = re.compile(
    r"(?:gjob|gcancel|gqueue|scancel|squeue|dovetail explain)\b|.*(?:-d|--dependency=afterok:)"
)
# What differs from run to run, and what takes its place on both sides.
_VARIES: Final = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?: UTC)?\b"), "TIME"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|min|s|m|h|d)(?:\d+s)?\b"), "SPAN"),
    (re.compile(r"\b[a-z]+-[a-z]+-\d{4}\b"), "NAME"),
    (re.compile(r"\b(GPU|MIG)-[0-9a-f-]{36}\b"), "UUID"),
    (re.compile(r"\b([a-z][a-z0-9-]*-\d+)-[a-z0-9]{5}\b"), r"\1-POD"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
    (re.compile(r"^(Code: +)\S+$"), r"\1CODE"),
    (re.compile(r"\b\d+(?:\.\d+)? (CPUs?|GiB|MiB)\b"), r"N \1"),
    (re.compile(r"(fits this machine is) \d+"), r"\1 N"),
    (re.compile(r"^\d+(?=  )"), "NUMBER"),
    (re.compile(r"^Job \d+ \("), "Job NUMBER ("),
    # Of equal nodes, any may be named.
    (re.compile(r"(fits on [a-z0-9]+)-\d+"), r"\1-NODE"),
    (re.compile(r"  +"), "  "),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A section of the page: the files that its reader has, and the commands with what they print."""

    files: Mapping[str, str]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Where a transcript is typed. `words` are what the page has instead of a person, a folder and so on from here."""

    work: Path
    environment: Mapping[str, str]
    words: Mapping[str, str]
    jobs: dict[str, str] = field(default_factory=dict)

    def type(self, command: str) -> list[str]:
        """The lines that a command prints on both streams."""
        done = subprocess.run(
            ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=_COMMAND_SECONDS, cwd=self.work, env=dict(self.environment),
        )  # fmt: skip
        return done.stdout.splitlines()


def transcripts(page: str) -> dict[str, Transcript]:
    """The transcripts of a page by the titles of its sections."""
    parts = _TITLE.split(page)
    return {title: _transcript(text) for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def _transcript(section: str) -> Transcript:
    files: dict[str, str] = {}
    steps: list[Step] = []
    before = section.partition("```")[0]
    for at, block in enumerate(blocks_of(section)):
        if block.language == "console":
            steps += _steps(block.text)
        elif found := _FILE.search(before if at == 0 else _between(section, at)):
            files[found[1]] = block.text
    return Transcript(files=files, steps=tuple(steps))


def _between(section: str, at: int) -> str:
    """The text before the block of this number."""
    return section.split("```")[2 * at]


def _steps(text: str) -> Iterator[Step]:
    command, printed = "", list[str]()
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield Step(command, tuple(printed))
            command, printed = line.removeprefix("$ "), []
        else:
            printed.append(line)
    yield Step(command, tuple(printed))


def replay(told: Transcript, *, shell: Shell) -> list[str]:
    """Type a transcript; returns what is different, and all that was printed."""
    for name, text in told.files.items():
        (shell.work / name).write_text(text, encoding="utf-8")
    wrong, typed = list[str](), list[str]()
    for step in told.steps:
        found = _replayed(step, shell=shell)
        typed += [f"$ {step.command}", *found]
        if not agrees(step.printed, found):
            wrong += [f"$ {step.command}", *difflib.unified_diff(step.printed, found, "page", "printed", lineterm="")]
    return [*wrong, "all of it:", *typed] if wrong else []


def _replayed(step: Step, *, shell: Shell) -> list[str]:
    """What a command prints in the page's words: one that only shows things, once it shows those of the page."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = shell.type(_with_numbers(step.command, jobs=shell.jobs))
        submitted = _SUBMITTED.search("\n".join(found)) if _is_submission(step.command) else None
        expected = _SUBMITTED.search("\n".join(step.printed))
        if submitted and expected:
            shell.jobs[expected[1]] = submitted[1]
        said = [_in_the_pages_words(line, shell=shell) for line in found]
        if agrees(step.printed, said) or time.monotonic() > limit:
            return said
        if submitted and not expected:
            # The queue had no answer within the second that a submission waits, so nothing was refused.
            shell.type(f"gcancel {submitted[1]}")
        elif not _ONLY_SHOWS.match(step.command):
            return said
        time.sleep(_PAUSE_SECONDS)


def _is_submission(command: str) -> bool:
    return command.startswith(("gbatch", "sbatch"))


def _with_numbers(command: str, *, jobs: Mapping[str, str]) -> str:
    """The command with the numbers that the page's jobs have here."""
    if not _NAMES_JOBS.match(command):
        return command
    return re.sub(r"(?<![\w.-])\d+(?![\w.])", lambda number: jobs.get(number[0], number[0]), command)


def _in_the_pages_words(line: str, *, shell: Shell) -> str:
    """The line with the page's words and numbers of jobs."""
    for here, there in shell.words.items():
        line = re.sub(rf"(?<![\w-]){re.escape(here)}(?![\w-])", there, line)
    for there, here in shell.jobs.items():
        line = re.sub(rf"(\b[jJ]obs? |\bafterok:|job=){here}\b", rf"\g<1>{there}", line)
    return line


def agrees(expected: tuple[str, ...] | list[str], printed: list[str]) -> bool:
    """Whether lines are those of the page, apart from what varies, and from an answer that did not come in time."""
    pattern = "".join(_as_pattern(line) for line in expected)
    return re.fullmatch(pattern, "".join(f"{_constant(line)}\n" for line in printed)) is not None


def _as_pattern(line: str) -> str:
    if line.strip() == _LEFT_OUT:
        return r"(?:.*\n)*?"
    exact = re.escape(_constant(line)) + r"\n"
    return f"(?:{exact})?" if _ANSWER.match(line) else exact


def _constant(line: str) -> str:
    for varies, instead in _VARIES:
        line = varies.sub(instead, line)
    return line.rstrip()

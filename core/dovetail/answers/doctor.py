"""What is wrong with an installation or a node: the doctor's answer. Types only."""

from typing import Literal

from dovetail.answers import Row

Level = Literal["ok", "unknown", "warning", "error"]


class CheckResult(Row, frozen=True, kw_only=True):
    """The result of one check. `fix` says how to correct it; empty if there is nothing to do.

    `subject` is what the check is about, such as a node; empty for the whole installation.
    """

    level: Level
    check: str
    subject: str = ""
    message: str
    fix: str = ""


class Diagnosis(Row, frozen=True, kw_only=True):
    """What the doctor finds: the results of all checks, and their numbers by level.

    `unknown` counts what you may not look at.
    """

    items: list[CheckResult]
    ok: int
    unknown: int
    warnings: int
    errors: int

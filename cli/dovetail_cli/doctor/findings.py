"""What the doctor finds, how it is printed, and what it comes to. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

from dovetail_cli.ui import output

Level = Literal["ok", "unknown", "warning", "error"]
COLUMNS: Final = ("level", "check", "subject", "message", "mend")
_MANY: Final = 20
_SHOWN: Final = {"ok": "OK", "unknown": "?", "warning": "WARN", "error": "ERROR"}
_COLOURS: Final = {"ok": "green", "unknown": "dim", "warning": "yellow", "error": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. `mend` says how to put it right; empty where there is nothing to do."""

    level: Level
    check: str
    message: str
    subject: str = ""
    mend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Something that could not be read. `missing`: it is not there; else we may not look."""

    why: str
    missing: bool


def unknown(check: str, *, unseen: Unseen, subject: str = "") -> Finding:
    """What could not be looked at."""
    mend = "" if unseen.missing else "ask somebody who may, or run it with more rights"
    return Finding(level="unknown", check=check, subject=subject, message=f"not looked at: {unseen.why}", mend=mend)


def exit_code(findings: Sequence[Finding]) -> int:
    """1 where something is wrong."""
    return int(any(finding.level == "error" for finding in findings))


def render(findings: Sequence[Finding], *, form: str) -> str:
    """All findings to print."""
    if form != "table":
        return output.render([asdict(finding) for finding in findings], columns=COLUMNS, form=form)
    return "\n".join([*_lines(_shortened(findings)), "", summary(findings)])


def summary(findings: Sequence[Finding]) -> str:
    """The numbers, in one line."""
    counts = {level: sum(finding.level == level for finding in findings) for level in _SHOWN}
    return (
        f"{counts['ok']} in order, {_many(counts['warning'], noun='warning')}, {_many(counts['error'], noun='error')}, "
        f"{counts['unknown']} not looked at"
    )


def _shortened(findings: Sequence[Finding]) -> list[Finding]:
    """Of what there is many of and is in order the number alone: what is wrong must not drown in it."""
    fine = Counter(finding.check for finding in findings if finding.level == "ok")
    many = {check: number for check, number in fine.items() if number > _MANY}
    kept = [finding for finding in findings if finding.level != "ok" or finding.check not in many]
    return [*kept, *(Finding(level="ok", check=check, message=f"{many[check]} in order") for check in many)]


def _lines(findings: Sequence[Finding]) -> list[str]:
    width = max((len(_title(finding)) for finding in findings), default=0)
    lines = []
    for finding in findings:
        shown = output.paint(f"{_SHOWN[finding.level]:<5}", colour=_COLOURS[finding.level])
        lines.append(f"{shown}  {_title(finding):<{width}}  {finding.message}")
        if finding.mend and finding.level in {"warning", "error"}:
            lines.append(f"{'':<{width + 9}}to fix it: {finding.mend}")
    return lines


def _title(finding: Finding) -> str:
    return f"{finding.check} {finding.subject}" if finding.subject else finding.check


def _many(number: int, *, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

"""How the doctor's findings are printed, and its exit code. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from dovetail.query.doctor.findings import Finding, counts
from dovetail_cli.ui import output

COLUMNS: Final = ("level", "check", "subject", "message", "fix")
_MANY: Final = 20
# The level, and the blanks around the title.
_BEFORE_MESSAGE: Final = 9
_SHOWN: Final = {"ok": "OK", "unknown": "?", "warning": "WARN", "error": "ERROR"}
_COLOURS: Final = {"ok": "green", "unknown": "dim", "warning": "yellow", "error": "red"}


def exit_code(findings: Sequence[Finding]) -> int:
    """1 where something is wrong."""
    return int(any(finding.level == "error" for finding in findings))


def render(findings: Sequence[Finding], *, form: str) -> str:
    """All findings to print."""
    if form != "table":
        return output.render([asdict(finding) for finding in findings], columns=COLUMNS, form=form)
    shown = _shortened(findings)
    hang = _title_width(shown) + _BEFORE_MESSAGE
    return "\n".join([output.wrapped("\n".join(_lines(shown)), hang=hang), "", summary(findings)])


def summary(findings: Sequence[Finding]) -> str:
    """The numbers, in one line."""
    found = counts(findings)
    return (
        f"{found['ok']} in order, {_many(found['warning'], noun='warning')}, {_many(found['error'], noun='error')}, "
        f"{found['unknown']} not looked at"
    )


def _shortened(findings: Sequence[Finding]) -> list[Finding]:
    """Replace many findings without a problem by their number, so that problems stay visible."""
    fine = Counter(finding.check for finding in findings if finding.level == "ok")
    many = {check: number for check, number in fine.items() if number > _MANY}
    kept = [finding for finding in findings if finding.level != "ok" or finding.check not in many]
    return [*kept, *(Finding(level="ok", check=check, message=f"{many[check]} in order") for check in many)]


def _lines(findings: Sequence[Finding]) -> list[str]:
    width = _title_width(findings)
    lines = []
    for finding in findings:
        shown = output.paint(f"{_SHOWN[finding.level]:<5}", colour=_COLOURS[finding.level])
        lines.append(f"{shown}  {_title(finding):<{width}}  {finding.message}")
        if finding.fix and finding.level in {"warning", "error"}:
            lines.append(f"{'':<{width + _BEFORE_MESSAGE}}to fix it: {finding.fix}")
    return lines


def _title_width(findings: Sequence[Finding]) -> int:
    return max((len(_title(finding)) for finding in findings), default=0)


def _title(finding: Finding) -> str:
    return f"{finding.check} {finding.subject}" if finding.subject else finding.check


def _many(number: int, *, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

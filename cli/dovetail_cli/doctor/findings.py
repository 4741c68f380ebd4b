"""How the doctor's findings are printed, and its exit code.

A module of its own: pure, where `diagnosis` asks the cluster.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from dovetail.answers.doctor import CheckResult, Diagnosis
from dovetail_cli.ui import output

COLUMNS: Final = ("level", "check", "subject", "message", "fix")
_MANY: Final = 20
# The level, and the blanks around the title.
_BEFORE_MESSAGE: Final = 9
_SHOWN: Final = {"ok": "OK", "unknown": "?", "warning": "WARN", "error": "ERROR"}
_COLOURS: Final = {"ok": "green", "unknown": "dim", "warning": "yellow", "error": "red"}


def exit_code(found: Diagnosis) -> int:
    """1 where something is wrong."""
    return int(found.errors > 0)


def render(found: Diagnosis, *, form: str) -> str:
    """The whole answer to print."""
    match form:
        case "json":
            return output.as_json(msgspec.to_builtins(found))
        case "yaml":
            return output.as_yaml(msgspec.to_builtins(found))
        case "csv":
            return output.as_csv([msgspec.structs.asdict(each) for each in found.items], columns=COLUMNS)
        case _:
            shown = _shortened(found.items)
            hang = _title_width(shown) + _BEFORE_MESSAGE
            return "\n".join([output.wrapped("\n".join(_lines(shown)), hang=hang), "", summary(found)])


def summary(found: Diagnosis) -> str:
    """The numbers, in one line."""
    return (
        f"{found.ok} in order, {_many(found.warnings, noun='warning')}, {_many(found.errors, noun='error')}, "
        f"{found.unknown} not looked at"
    )


def _shortened(findings: Sequence[CheckResult]) -> list[CheckResult]:
    """Replace many findings without a problem by their number, so that problems stay visible."""
    fine = Counter(finding.check for finding in findings if finding.level == "ok")
    many = {check: number for check, number in fine.items() if number > _MANY}
    kept = [finding for finding in findings if finding.level != "ok" or finding.check not in many]
    return [*kept, *(CheckResult(level="ok", check=check, message=f"{many[check]} in order") for check in many)]


def _lines(findings: Sequence[CheckResult]) -> list[str]:
    width = _title_width(findings)
    lines = []
    for finding in findings:
        shown = output.paint(f"{_SHOWN[finding.level]:<5}", colour=_COLOURS[finding.level])
        lines.append(f"{shown}  {_title(finding):<{width}}  {finding.message}")
        if finding.fix and finding.level in {"warning", "error"}:
            lines.append(f"{'':<{width + _BEFORE_MESSAGE}}to fix it: {finding.fix}")
    return lines


def _title_width(findings: Sequence[CheckResult]) -> int:
    return max((len(_title(finding)) for finding in findings), default=0)


def _title(finding: CheckResult) -> str:
    return f"{finding.check} {finding.subject}" if finding.subject else finding.check


def _many(number: int, *, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

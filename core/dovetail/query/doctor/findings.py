"""The findings of the doctor, and their numbers by level. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, get_args

from dovetail.answers.waste import NodeFinding, NodeFindings
from dovetail.formats.timestamps import timestamp

# So many findings, and so many nodes of each, are in one answer.
_MOST_FINDINGS: Final = 100
_MOST_NODES: Final = 8

Level = Literal["ok", "unknown", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check. `fix` says how to correct it; empty if there is nothing to do."""

    level: Level
    check: str
    message: str
    subject: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Something that could not be read. `missing`: it is not there; else we may not look."""

    why: str
    missing: bool


def unknown(check: str, *, unseen: Unseen, subject: str = "") -> Finding:
    """What could not be looked at."""
    fix = "" if unseen.missing else "ask a user who has that right, or run it with more rights"
    return Finding(level="unknown", check=check, subject=subject, message=f"not looked at: {unseen.why}", fix=fix)


def listed(texts: Sequence[str]) -> str:
    """The first three texts, and how many there are more."""
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


def counts(findings: Sequence[Finding]) -> dict[Level, int]:
    """The number of findings at each level."""
    levels: tuple[Level, ...] = get_args(Level)
    return {level: sum(finding.level == level for finding in findings) for level in levels}


def node_findings(findings: Sequence[Finding], *, at: datetime) -> NodeFindings:
    """The problems among the findings as of `at`, one row for all nodes with the same one.

    Errors come first, then what most nodes have.
    """
    found: dict[tuple[str, str], list[Finding]] = {}
    for each in findings:
        if each.level in {"warning", "error"}:
            found.setdefault((each.level, each.message), []).append(each)
    rows = [
        NodeFinding(
            level="error" if level == "error" else "warning",
            message=message,
            nodes=[each.subject for each in same if each.subject][:_MOST_NODES],
            count=len(same),
            fix=same[0].fix,
        )
        for (level, message), same in found.items()
    ]
    rows.sort(key=lambda row: (row.level != "error", -row.count, row.message))
    return NodeFindings(items=rows[:_MOST_FINDINGS], total=len(rows), as_of=timestamp(at))

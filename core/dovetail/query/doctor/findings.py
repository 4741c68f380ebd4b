"""The results of the doctor's checks, summed up. Pure."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from dovetail.answers.doctor import CheckResult, Diagnosis
from dovetail.answers.waste import NodeFinding, NodeFindings
from dovetail.cluster.picture import Unseen
from dovetail.formats.timestamps import timestamp

# So many findings, and so many nodes of each, are in one answer.
_MOST_FINDINGS: Final = 100
_MOST_NODES: Final = 8


def unknown(check: str, *, unseen: Unseen, subject: str = "") -> CheckResult:
    """What could not be looked at."""
    fix = "" if unseen.missing else "ask a user who has that right, or run it with more rights"
    return CheckResult(level="unknown", check=check, subject=subject, message=f"not looked at: {unseen.why}", fix=fix)


def listed(texts: Sequence[str]) -> str:
    """The first three texts, and how many there are more."""
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


def diagnosis_of(results: Sequence[CheckResult]) -> Diagnosis:
    """The results with their numbers by level."""
    counts = Counter(each.level for each in results)
    return Diagnosis(
        items=list(results),
        ok=counts["ok"],
        unknown=counts["unknown"],
        warnings=counts["warning"],
        errors=counts["error"],
    )


def node_findings(findings: Sequence[CheckResult], *, at: datetime) -> NodeFindings:
    """The problems among the findings as of `at`, one row for all nodes with the same one.

    Errors come first, then what most nodes have.
    """
    found: dict[tuple[str, str], list[CheckResult]] = {}
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

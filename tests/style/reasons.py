"""The reference page of reasons, from the table; and where codes and sentences are set outside it.

`python -m tests.style.reasons` writes docs/reasons.md; a test fails while the page differs.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from dovetail.api.reasons import refusals
from dovetail.api.reasons.catalog import clauses_of, every_subject
from dovetail.api.reasons.clause import Clause, ClauseForDevices
from dovetail.api.reasons.codes import REASONS
from tests.style.packages import PARTS, ROOT

PAGE: Final = ROOT / "docs" / "reasons.md"
# The package of the table.
TABLE: Final = ROOT / "core" / "dovetail" / "api" / "reasons"
_HEAD: Final = """# Reasons

Each GPUJob says in `status.reason` why it is in its phase, in `status.message` the same in a sentence with numbers, and
in `status.details` the clauses of that sentence as codes and parameters. A program that speaks another language
renders them from its own templates; the [console](console.md) does so for Chinese (`console/src/reasons`). REST v3,
the SDK and `-o json` have the same three fields. Explanations (`summary`) and problems of REST (`detail`) have their
clauses in `details` too, and so have the notes, changes, causes and nodes of explanations. What an estimated start
rests on (`basis`) has its clauses in `basisDetails`.

This page is generated from `dovetail.api.reasons` (`python -m tests.style.reasons`). What a reason means for a job, and
what to do, is in [gpujob.md](gpujob.md).

## Reasons

"Set by" is the part that decides. "Resolved by" says what a job with this reason waits for: time alone, capacity that
comes free, its user, or an administrator.

"""
_REFUSALS: Final = """
## Refusals of nodes

What `dovetail explain` and kube-scheduler's events say of each node. The contract has which of them preemption cannot
remove ([contracts](contracts.md#2-names)).

"""
_CLAUSES: Final = """
## Clauses

A message consists of one or more clauses, one after the other. `{count}` is a parameter, `{count:GPU|GPUs}` the number
with its word in singular or plural, and `{count!is|are}` the word alone. The last clause that states a reason decides
which reason the job has. Parameters are texts; times are RFC 3339.
"""
_TITLES: Final = {
    "capacity": "Capacity",
    "nodes": "Nodes and GPUs",
    "queue": "Queue, limits, growing pools, estimated starts",
    "moves": "Moves",
    "start": "Before the start",
    "arrays": "Arrays",
    "end": "Ends, and running jobs",
    "conditions": "Conditions",
    "events": "Events",
    "quotas": "GPUQuotas",
    "refusals": "Refusals of nodes",
    "explain": "Explanations",
    "remedies": "What would make a job fit",
    "problems": "Problems of REST",
}


def page() -> str:
    """The whole page."""
    rows = (
        f"| `{each.code}` | {each.set_by} | {each.resolved_by} | {each.means} |"
        for each in sorted(REASONS.values(), key=lambda each: each.code)
    )
    kinds = (f"| `{kind}` | {resolver} |" for kind, resolver in refusals.KINDS.items())
    reasons = _HEAD + _table("reason", "set by", "resolved by", "means", rows=rows)
    return reasons + _REFUSALS + _table("refusal", "resolved by", rows=kinds) + _CLAUSES + "".join(_subjects())


def _subjects() -> Iterator[str]:
    for subject in every_subject():
        rows = (
            f"| `{each.code}` | {_shown(each.template)} | {'' if each.reason is None else f'`{each.reason.code}`'} |"
            for each in clauses_of(subject)
        )
        title = _TITLES[subject.__name__.rpartition(".")[2]]
        yield f"\n### {title}\n\n" + _table("code", "sentence", "reason", rows=rows)


def _shown(template: str) -> str:
    return f"`{template}`".replace("|", "\\|")


def _table(*columns: str, rows: Iterator[str]) -> str:
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
    return head + "".join(f"{row}\n" for row in rows)


class Place(NamedTuple):
    """A line of a module."""

    path: str
    line: int
    what: str


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """The product's modules outside the table."""
    for folder in PARTS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if TABLE not in path.parents:
                yield path, ast.parse(path.read_text(encoding="utf-8"))


def misused(names: Mapping[str, frozenset[str]], *, path: str, tree: ast.Module) -> Iterator[Place]:
    """The calls of clauses whose parameters are not those of the template."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = {each.arg for each in node.keywords if each.arg is not None}
        whole = all(each.arg is not None for each in node.keywords)
        if name in names and (given - names[name] or (whole and given != names[name]) or node.args):
            yield Place(path, node.lineno, f"{name} takes {', '.join(sorted(names[name])) or 'nothing'}")


def parameters() -> dict[str, frozenset[str]]:
    """The parameters of each clause, by the name that the table's modules give it."""
    found = {}
    for subject in every_subject():
        for name, value in vars(subject).items():
            if isinstance(value, Clause):
                found[name] = value.names
            elif isinstance(value, ClauseForDevices):
                found[name] = value.of_instances.names
    return found


def set_elsewhere(*, path: str, tree: ast.Module) -> Iterator[Place]:
    """Reasons and sentences of jobs that are written where they are set, instead of in the table."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in _HOLDERS:
            for each in node.keywords:
                if each.arg in {"reason", "message", "why"} and _is_text(each.value):
                    yield Place(path, node.lineno, f"{each.arg} of {getattr(node.func, 'id', '')}")


# What holds a reason with its sentence.
_HOLDERS: Final = frozenset(
    {"Sentence", "Shortage", "Refused", "Unmet", "Obstacle", "Waits", "Stage", "Retry", "Announcement"}
)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and bool(value.value))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")


def literal_problems(tree: ast.Module) -> Iterator[int]:
    """The lines in which a refused request gets a problem that is a text, and no sentence of the table."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            given = {each.arg: each.value for each in node.keywords}.get("problem")
            if called == "_error" and node.args:
                given = node.args[0]
            elif called != "RequestError" or given is None:
                continue
            parts = [given.body, given.orelse] if isinstance(given, ast.IfExp) else [given]
            if any(isinstance(each, ast.JoinedStr | ast.Constant) for each in parts):
                yield node.lineno

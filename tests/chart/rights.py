"""What each service account of the chart may do, as the rendered chart says, with the comment above each rule.

`python -m tests.chart.rights` writes the table in docs/install.md. `Right` is one verb on one resource: the unit of
which `tests/rights/test_rights.py` shows that it is used.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import yaml

from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import Lines
from tests.chart.generated import CHART, IMAGES

PAGE: Final = CHART.parents[1] / "docs" / "install.md"
BEGIN: Final = "<!-- rights: written by `python -m tests.chart.rights` -->"
END: Final = "<!-- end of rights -->"
# Everything that brings an account or a right with it.
EVERYTHING: Final = ("mps.enabled=true", "agent.turns.enabled=true", "gateway.enabled=true")
_ROLES: Final = ("ClusterRole", "Role")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Right:
    """One verb on one resource: `name` is one object's, or empty for all; `namespace` is empty for all of them."""

    account: str
    resource: str
    verb: str
    group: str = ""
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        named = f" {self.name}" if self.name else ""
        return f"{self.account}: {self.verb} {qualified(self.resource, group=self.group)}{named}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a role as the chart renders it; `why` is the comment above it."""

    role: str
    namespace: str
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...]
    why: str


def qualified(resource: str, *, group: str) -> str:
    """`jobs.batch` for a resource of a group, `pods` for one of the core."""
    base, _, sub = resource.partition("/")
    whole = f"{base}.{group}" if group else base
    return f"{whole}/{sub}" if sub else whole


@cache
def rules_in(text: str) -> tuple[Rule, ...]:
    """Every rule of every role of ours in the rendered chart `text`."""
    return tuple(_rules(text))


def _rules(text: str) -> Iterator[Rule]:
    for document in re.split(r"^---\s*$", text, flags=re.MULTILINE):
        role = yaml.load(document, Loader=yaml.CSafeLoader)
        if not role or role["kind"] not in _ROLES or not role.get("rules"):
            continue
        whys = _comments(document)
        for number, rule in enumerate(role["rules"]):
            yield Rule(
                role=role["metadata"]["name"],
                namespace=role["metadata"].get("namespace", ""),
                groups=tuple(rule["apiGroups"]),
                resources=tuple(rule["resources"]),
                verbs=tuple(rule["verbs"]),
                names=tuple(rule.get("resourceNames", ())),
                why=whys[number],
            )


@cache
def accounts_of(text: str) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """The service accounts that each role is bound to, by its name and namespace."""
    bound: dict[tuple[str, str], tuple[str, ...]] = {}
    for manifest in yaml.load_all(text, Loader=yaml.CSafeLoader):
        if manifest and manifest["kind"] in {"ClusterRoleBinding", "RoleBinding"}:
            key = (manifest["roleRef"]["name"], manifest["metadata"].get("namespace", ""))
            found = [each["name"] for each in manifest["subjects"] if each["kind"] == "ServiceAccount"]
            bound[key] = (*bound.get(key, ()), *found)
    return bound


@cache
def rights_in(text: str) -> frozenset[Right]:
    """Every right that the chart gives to an account of its own."""
    bound = accounts_of(text)
    return frozenset(
        Right(account=account, resource=resource, verb=verb, group=group, name=name, namespace=rule.namespace)
        for rule in rules_in(text)
        for account in bound.get((rule.role, rule.namespace), ())
        for group in rule.groups
        for resource in rule.resources
        for verb in rule.verbs
        for name in rule.names or ("",)
    )


def table(text: str) -> str:
    """The rights of all accounts as a table in Markdown, a row for each rule."""
    bound = accounts_of(text)
    rows = set[tuple[str, str]]()
    for rule in rules_in(text):
        if accounts := ", ".join(f"`{account}`" for account in bound.get((rule.role, rule.namespace), ())):
            row = f"| {accounts} | {_where(rule)} | {', '.join(rule.verbs)} | {_what(rule)} | {rule.why} |"
            rows.add((f"{accounts} {rule.namespace}", row))
    head = ["| Account | Where | May | What | Why |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *(row for _, row in sorted(rows))])


def render(helm: Path, *options: str) -> str:
    """The chart with everything in it that brings a right, and with more options."""
    sets = [f"--set={each}" for each in (*EVERYTHING, *options)]
    command = [str(helm), "template", "dovetail", str(CHART), "--namespace=dovetail-system", IMAGES, *sets]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def _comments(document: str) -> list[str]:
    """For each rule of a role the comment right above its first line, as one sentence or more; empty for none."""
    found, lines, in_rules = list[str](), list[str](), False
    for line in document.splitlines():
        in_rules = in_rules or line.startswith("rules:")
        text = line.strip()
        if not in_rules:
            continue
        if text.startswith("#"):
            lines.append(text.lstrip("# "))
        else:
            if text.startswith("- apiGroups:"):
                found.append(" ".join(lines))
            lines = []
    return found


def _where(rule: Rule) -> str:
    return f"namespace `{rule.namespace}`" if rule.namespace else "cluster"


def _what(rule: Rule) -> str:
    (group, *others) = rule.groups
    assert not others, "a rule of the chart names one API group"
    what = ", ".join(f"`{qualified(resource, group=group)}`" for resource in rule.resources)
    return f"{what} named {', '.join(f'`{name}`' for name in rule.names)}" if rule.names else what


def written(page: str, *, rows: str) -> str:
    """The page with the table in its place."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


def main() -> None:
    """Write the table into the page."""
    helm = locate.resolve(["helm"], report=Lines(sys.stderr))["helm"]
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), rows=table(render(helm))), encoding="utf-8")


if __name__ == "__main__":
    main()

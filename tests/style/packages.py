"""The table of packages in docs/architecture.md, from the packages' docstrings.

`python -m tests.style.packages` writes the table; a test fails while the page differs.
"""

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "architecture.md"
PARTS: Final = {
    "core/dovetail": "Core",
    "operator/dovetail_operator": "Operator",
    "scheduler_extender/dovetail_extender": "Extender",
    "node_agent/dovetail_agent": "Node agent",
    "admission_webhook/dovetail_webhook": "Webhook",
    "admission_webhook/dovetail_certificates": "Certificates",
    "operator/dovetail_release": "Clean-up and test of a release",
    "local_node/dovetail_local_node": "Local node",
    "gateway/dovetail_gateway": "Gateway",
    "cli/dovetail_cli": "Commands",
    "sandbox/dovetail_sandbox": "Sandbox",
}
_TABLE: Final = re.compile(r"(?<=<!-- packages -->\n).*?(?=<!-- /packages -->)", re.DOTALL)


def with_table(page: str) -> str:
    """The page with the table of today's packages between its two markers."""
    return _TABLE.sub(lambda _: table(), page)


def table() -> str:
    """One heading for each part, and one row for each of its packages: path, modules, rule of membership."""
    return "\n".join(_part(ROOT / folder, title=title) for folder, title in PARTS.items()) + "\n"


def _part(folder: Path, *, title: str) -> str:
    rows = [
        f"| `{package.relative_to(folder.parent)}` | {_modules(package)} | {_rule(package)} |"
        for package in _packages(folder)
    ]
    return "\n".join(
        [
            f"### {title}: `{folder.relative_to(ROOT)}`\n",
            "| package | modules | what belongs there |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _packages(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("__init__.py"))


def _modules(package: Path) -> int:
    return sum(path.name not in {"__init__.py", "__main__.py"} for path in package.glob("*.py"))


def _rule(package: Path) -> str:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.partition("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

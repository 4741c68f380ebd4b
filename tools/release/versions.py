"""What a release is made of, for .github/workflows/release.yml and docs/releasing.md.

    python -m tools.release check TAG                        that every file states the tag's version
    python -m tools.release notes TAG                        the version's section of CHANGELOG.md
    python -m tools.release chart TAG --registry REGISTRY    the chart with the released images, in out/chart

A tag is `v` and a version, such as `v0.2.0` or `v0.2.0rc1`.
"""

import argparse
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
_TAG: Final = re.compile(r"v(\d+\.\d+\.\d+(?:rc\d+)?)")
_REGISTRY: Final = re.compile(r"[a-z0-9][a-z0-9.:-]*(?:/[a-z0-9][a-z0-9._-]*)*")


class ReleaseError(Exception):
    """A release cannot be made; the message is one sentence."""


def version_of(tag: str) -> str:
    """The version that a tag names. Raises `ReleaseError`."""
    found = _TAG.fullmatch(tag)
    if found is None:
        raise ReleaseError(f"tag '{tag}' is not allowed; use v and a version, such as v0.2.0 or v0.2.0rc1")
    return found[1]


def chart_version(version: str) -> str:
    """The version as Helm takes it: SemVer has `0.2.0-rc1` for Python's `0.2.0rc1`."""
    return re.sub(r"rc(\d+)$", r"-rc\1", version)


def stated_versions(root: Path) -> dict[str, str]:
    """The version that each file states, by the file and the field."""
    project = _toml(root / "pyproject.toml")["project"]
    legacy = _toml(root / "legacy/pyproject.toml")["project"]
    chart = yaml.safe_load((root / "helm/dovetail/Chart.yaml").read_text(encoding="utf-8"))
    return {
        "pyproject.toml: project.version": project["version"],
        "pyproject.toml: extra legacy": _pin(project["optional-dependencies"]["legacy"]),
        "legacy/pyproject.toml: project.version": legacy["version"],
        "legacy/pyproject.toml: project.dependencies": _pin(legacy["dependencies"]),
        "helm/dovetail/Chart.yaml: version": chart["version"],
        "helm/dovetail/Chart.yaml: appVersion": chart["appVersion"],
    }


def check(tag: str, *, root: Path = ROOT) -> None:
    """Raise `ReleaseError` for the first file that states another version, or if the changelog has no section."""
    version = version_of(tag)
    for place, stated in stated_versions(root).items():
        wanted = chart_version(version) if "Chart.yaml" in place else version
        if stated != wanted:
            raise ReleaseError(f"{place} is {stated}, but the tag {tag} needs {wanted}")
    notes(tag, root=root)


def notes(tag: str, *, root: Path = ROOT) -> str:
    """The version's section of the changelog, without its heading. Raises `ReleaseError`."""
    version = version_of(tag)
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(
        rf"^## {re.escape(version)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", changes, flags=re.MULTILINE | re.DOTALL
    )
    if found is None or not found[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no section '## {version}': rename 'Unreleased', and add the date")
    return found[1].strip()


def write_chart(tag: str, *, registry: str, into: Path, root: Path = ROOT) -> Path:
    """Copy the chart into `into`, with the registry and the tag of the released images. Raises `ReleaseError`."""
    version = version_of(tag)
    if _REGISTRY.fullmatch(registry) is None:
        raise ReleaseError(f"--registry '{registry}' is not allowed; use HOST or HOST/PATH in lower case")
    target = into / "dovetail"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root / "helm/dovetail", target)
    values = target / "values.yaml"
    text = values.read_text(encoding="utf-8")
    for line, released in (
        ('  registry: ""\n', f"  registry: {registry}\n"),
        ("  tag: dev\n", f'  tag: "{version}"\n'),
    ):
        if text.count(line) != 1:
            raise ReleaseError(f"helm/dovetail/values.yaml has {text.count(line)} lines '{line.strip()}' instead of 1")
        text = text.replace(line, released)
    values.write_text(text, encoding="utf-8")
    return target


def main(arguments: list[str]) -> int:
    """Run one of the three commands; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="What a release is made of.")
    parser.add_argument("command", choices=("check", "notes", "chart"))
    parser.add_argument("tag", help="such as v0.2.0")
    parser.add_argument("--registry", default="", help="chart: where the images are, such as registry.example/dovetail")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "check":
            check(chosen.tag)
        elif chosen.command == "notes":
            print(notes(chosen.tag))
        else:
            print(write_chart(chosen.tag, registry=chosen.registry, into=ROOT / "out/chart"))
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _pin(requirements: list[str]) -> str:
    (requirement,) = requirements
    return requirement.partition("==")[2]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""The version of a release: what a tag names, what each file states, and the section of the changelog."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

from tools.release.errors import ReleaseError

_TAG: Final = re.compile(r"v(\d+\.\d+\.\d+(?:rc\d+)?)")


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


def check(tag: str, *, root: Path) -> None:
    """Raise `ReleaseError` for the first file that states another version, or if the changelog has no section."""
    check_files(version_of(tag), by=f"the tag {tag}", root=root)
    notes(tag, root=root)


def check_files(version: str, *, by: str, root: Path) -> None:
    """Raise `ReleaseError` for the first file that states another version than `by` needs."""
    for place, stated in stated_versions(root).items():
        wanted = chart_version(version) if "Chart.yaml" in place else version
        if stated != wanted:
            raise ReleaseError(f"{place} is {stated}, but {by} needs {wanted}")


def stated_version(root: Path) -> str:
    """The version that all files state. Raises `ReleaseError` if one states another."""
    version: str = _toml(root / "pyproject.toml")["project"]["version"]
    check_files(version, by=f"version {version} of pyproject.toml", root=root)
    return version


def notes(tag: str, *, root: Path) -> str:
    """The version's section of the changelog, without its heading. Raises `ReleaseError`."""
    version = version_of(tag)
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(
        rf"^## {re.escape(version)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", changes, flags=re.MULTILINE | re.DOTALL
    )
    if found is None or not found[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no section '## {version}': rename 'Unreleased', and add the date")
    return found[1].strip()


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _pin(requirements: list[str]) -> str:
    (requirement,) = requirements
    return requirement.partition("==")[2]

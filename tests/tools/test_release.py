"""What a release is made of: one version everywhere, its notes, and the chart with the released images."""

import shutil
from pathlib import Path

import pytest
import yaml

from tools import release

FILES = ("pyproject.toml", "legacy/pyproject.toml", "CHANGELOG.md")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what states versions, in which the changelog has the current version's section."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(release.ROOT / name, tmp_path / name)
    shutil.copytree(release.ROOT / "helm/dovetail", tmp_path / "helm/dovetail")
    changes = tmp_path / "CHANGELOG.md"
    text = changes.read_text(encoding="utf-8").replace("## Unreleased", f"## {version(tmp_path)} (2026-12-01)", 1)
    changes.write_text(text, encoding="utf-8")
    return tmp_path


def version(root: Path) -> str:
    return release.stated_versions(root)["pyproject.toml: project.version"]


def test_every_file_of_the_checkout_states_one_version() -> None:
    assert len(set(release.stated_versions(release.ROOT).values())) == 1


def test_a_tag_of_the_stated_version_passes(tree: Path) -> None:
    release.check(f"v{version(tree)}", root=tree)


@pytest.mark.parametrize("place", sorted(release.stated_versions(release.ROOT)))
def test_a_file_of_another_version_is_named(tree: Path, place: str) -> None:
    path = tree / place.partition(":")[0]
    stated, text = version(tree), path.read_text(encoding="utf-8")
    before = {
        "pyproject.toml: project.version": f'\nversion = "{stated}"',
        "pyproject.toml: extra legacy": f"dovetail-gpu-legacy=={stated}",
        "legacy/pyproject.toml: project.version": f'\nversion = "{stated}"',
        "legacy/pyproject.toml: project.dependencies": f"dovetail-gpu=={stated}",
        "helm/dovetail/Chart.yaml: version": f"\nversion: {stated}",
        "helm/dovetail/Chart.yaml: appVersion": f'\nappVersion: "{stated}"',
    }[place]
    assert text.count(before) == 1
    path.write_text(text.replace(before, before.replace(stated, "9.9.9")), encoding="utf-8")
    with pytest.raises(release.ReleaseError, match=f"{place} is 9.9.9, but the tag v{stated} needs {stated}"):
        release.check(f"v{stated}", root=tree)


def test_a_release_candidate_has_the_form_that_helm_takes() -> None:
    assert release.chart_version(release.version_of("v1.2.0rc3")) == "1.2.0-rc3"


@pytest.mark.parametrize("tag", ["1.2.0", "v1.2", "v1.2.0-rc1", "v1.2.0; rm", "v1.2.0\n"])
def test_a_tag_that_is_no_version_is_refused(tag: str) -> None:
    with pytest.raises(release.ReleaseError, match="is not allowed; use v and a version, such as"):
        release.version_of(tag)


def test_the_notes_are_the_sections_text_alone(tree: Path) -> None:
    changes = tree / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## 0.3.0 (2027-01-01)\n\n- New\n\n## 0.2.0\n\n- Old\n", encoding="utf-8")
    assert release.notes("v0.3.0", root=tree) == "- New"
    assert release.notes("v0.2.0", root=tree) == "- Old"
    with pytest.raises(release.ReleaseError, match=r"CHANGELOG\.md has no section '## 0\.4\.0'"):
        release.notes("v0.4.0", root=tree)


def test_the_chart_of_a_release_names_its_images(tree: Path, tmp_path: Path) -> None:
    registry = "registry.example:5000/dovetail"
    written = release.write_chart("v0.2.0rc1", registry=registry, into=tmp_path / "out", root=tree)
    values = yaml.safe_load((written / "values.yaml").read_text(encoding="utf-8"))
    assert (values["image"]["registry"], values["image"]["tag"]) == (registry, "0.2.0rc1")


@pytest.mark.parametrize("registry", ["", "UPPER.example", "a b", "-x"])
def test_a_registry_that_cannot_be_is_refused(tree: Path, tmp_path: Path, registry: str) -> None:
    with pytest.raises(release.ReleaseError, match=f"--registry '{registry}' is not allowed"):
        release.write_chart("v0.2.0", registry=registry, into=tmp_path / "out", root=tree)


def test_a_fault_is_one_sentence_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["check", "0.1"]) == 1
    assert capsys.readouterr().err == (
        "release: tag '0.1' is not allowed; use v and a version, such as v0.2.0 or v0.2.0rc1\n"
    )

"""What a release is made of: one version everywhere, notes, a clean checkout, and a chart with the released images."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from dovetail_sandbox.errors import ToolUnavailableError
from tools.release import build, checkout, sums, versions
from tools.release.__main__ import ROOT, main
from tools.release.chart import package_chart, write_chart
from tools.release.errors import ReleaseError

FILES = ("pyproject.toml", "legacy/pyproject.toml", "CHANGELOG.md")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what states versions, in which the changelog has the current version's section."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "helm/dovetail", tmp_path / "helm/dovetail")
    changes = tmp_path / "CHANGELOG.md"
    text = changes.read_text(encoding="utf-8").replace("## Unreleased", f"## {version(tmp_path)} (2026-12-01)", 1)
    changes.write_text(text, encoding="utf-8")
    return tmp_path


def version(root: Path) -> str:
    return versions.stated_versions(root)["pyproject.toml: project.version"]


def test_every_file_of_the_checkout_states_one_version() -> None:
    assert len(set(versions.stated_versions(ROOT).values())) == 1


def test_a_tag_of_the_stated_version_passes(tree: Path) -> None:
    versions.check(f"v{version(tree)}", root=tree)


@pytest.mark.parametrize("place", sorted(versions.stated_versions(ROOT)))
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
    with pytest.raises(ReleaseError, match=f"{place} is 9.9.9, but the tag v{stated} needs {stated}"):
        versions.check(f"v{stated}", root=tree)


def test_a_release_candidate_has_the_form_that_helm_takes() -> None:
    assert versions.chart_version(versions.version_of("v1.2.0rc3")) == "1.2.0-rc3"


@pytest.mark.parametrize("tag", ["1.2.0", "v1.2", "v1.2.0-rc1", "v1.2.0; rm", "v1.2.0\n"])
def test_a_tag_that_is_no_version_is_refused(tag: str) -> None:
    with pytest.raises(ReleaseError, match="is not allowed; use v and a version, such as"):
        versions.version_of(tag)


def test_the_notes_are_the_sections_text_alone(tree: Path) -> None:
    changes = tree / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## 0.3.0 (2027-01-01)\n\n- New\n\n## 0.2.0\n\n- Old\n", encoding="utf-8")
    assert versions.notes("v0.3.0", root=tree) == "- New"
    assert versions.notes("v0.2.0", root=tree) == "- Old"
    with pytest.raises(ReleaseError, match=r"CHANGELOG\.md has no section '## 0\.4\.0'"):
        versions.notes("v0.4.0", root=tree)


def test_the_chart_of_a_release_names_its_images(tree: Path, tmp_path: Path) -> None:
    registry = "registry.example:5000/dovetail"
    written = write_chart("0.2.0rc1", registry=registry, into=tmp_path / "out", root=tree)
    values = yaml.safe_load((written / "values.yaml").read_text(encoding="utf-8"))
    assert (values["image"]["registry"], values["image"]["tag"]) == (registry, "0.2.0rc1")


@pytest.mark.parametrize("registry", ["UPPER.example", "a b", "-x"])
def test_a_registry_that_cannot_be_is_refused(tree: Path, tmp_path: Path, registry: str) -> None:
    with pytest.raises(ReleaseError, match=f"registry '{registry}' is not allowed"):
        write_chart("0.2.0", registry=registry, into=tmp_path / "out", root=tree)


def test_a_fault_is_one_sentence_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "0.1"]) == 1
    assert capsys.readouterr().err == (
        "release: tag '0.1' is not allowed; use v and a version, such as v0.2.0 or v0.2.0rc1\n"
    )


def test_a_chart_without_a_registry_leaves_that_to_its_installation(tree: Path, tmp_path: Path) -> None:
    written = write_chart("0.2.0", registry="", into=tmp_path / "out", root=tree)
    values = yaml.safe_load((written / "values.yaml").read_text(encoding="utf-8"))
    assert (values["image"]["registry"], values["image"]["tag"]) == ("", "0.2.0")


def test_without_helm_there_is_no_chart(tree: Path, tmp_path: Path) -> None:
    def missing() -> Path:
        raise ToolUnavailableError(["helm"], reason="the releases cannot be reached")

    with pytest.raises(ReleaseError, match=r"^the chart needs Helm, and there is none: Cannot get helm: the releases"):
        package_chart(tree / "helm/dovetail", into=tmp_path, epoch=0, helm=missing)


def test_helm_s_own_words_say_what_is_wrong_with_a_chart(tree: Path, tmp_path: Path) -> None:
    (tree / "helm/dovetail/Chart.yaml").write_text("name: dovetail\n", encoding="utf-8")
    with pytest.raises(ReleaseError, match=r"^helm package: Error: validation: chart.metadata"):
        package_chart(tree / "helm/dovetail", into=tmp_path, epoch=0)


@pytest.fixture
def committed(tree: Path) -> Path:
    """The tree as a checkout with one commit."""
    git(tree, "init", "--quiet")
    git(tree, "add", "--all")
    git(tree, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message=all")
    return tree


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True).stdout


def test_a_release_is_dated_by_the_last_commit(committed: Path, tmp_path: Path) -> None:
    release = build.prepared(committed, out=tmp_path / "dist")
    assert release.epoch == int(git(committed, "log", "-1", "--format=%ct"))
    assert release.version == version(committed)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (["CHANGELOG.md"], r"^CHANGELOG\.md is not committed: commit or stash it$"),
        (["new.txt", "CHANGELOG.md"], r"^CHANGELOG\.md and 1 more is not committed: commit or stash it$"),
    ],
)
def test_a_checkout_with_changes_is_refused(committed: Path, tmp_path: Path, changed: list[str], sentence: str) -> None:
    for name in changed:
        (committed / name).write_text("new", encoding="utf-8")
    with pytest.raises(ReleaseError, match=sentence):
        build.prepared(committed, out=tmp_path / "dist")


def test_a_folder_that_is_no_checkout_is_refused(tree: Path) -> None:
    with pytest.raises(ReleaseError, match="not a git repository"):
        checkout.check_clean(tree)


def test_a_build_names_the_file_that_states_another_version(committed: Path, tmp_path: Path) -> None:
    chart = committed / "helm/dovetail/Chart.yaml"
    stated = version(committed)
    chart.write_text(
        chart.read_text(encoding="utf-8").replace(f"\nversion: {stated}", "\nversion: 9.9.9"), encoding="utf-8"
    )
    sentence = f"Chart.yaml: version is 9.9.9, but version {stated} of pyproject.toml needs {stated}"
    with pytest.raises(ReleaseError, match=sentence):
        build.prepared(committed, out=tmp_path / "dist")
    with pytest.raises(
        ReleaseError, match=r"pyproject\.toml: project\.version is .*, but the tag v7\.0\.0 needs 7\.0\.0"
    ):
        build.prepared(committed, out=tmp_path / "dist", tag="v7.0.0")


def test_checksums_are_by_the_names_that_a_release_page_shows(tmp_path: Path) -> None:
    for name in ("b/two", "a/one", "images/big.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    sums.write_sums(tmp_path, skip=tmp_path / "images")
    lines = (tmp_path / sums.NAME).read_text(encoding="utf-8").splitlines()
    assert lines == [f"{sums.digest(tmp_path / name)}  {name[2:]}" for name in ("a/one", "b/two")]
    assert [line.split()[-1] for line in sums.table(tmp_path).splitlines()] == ["a/one", "b/two", "images/big.tar"]


def test_a_program_that_fails_ends_the_build(committed: Path, tmp_path: Path) -> None:
    script = committed / "images/build.sh"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    script.chmod(0o755)
    release = build.Release(root=committed, out=tmp_path / "dist", version="1.0.0", registry="", epoch=0)
    with pytest.raises(ReleaseError, match=r"^images/build\.sh has failed with exit code 3$"):
        build.build_images(release)


def test_images_are_named_by_version_and_architecture(committed: Path, tmp_path: Path) -> None:
    made = [tmp_path / f"{name}-0123456789abcdef.tar" for name in ("operator", "cli")]
    for path in made:
        path.write_text(path.name, encoding="utf-8")
    script = committed / "images/build.sh"
    script.parent.mkdir()
    lines = "\n".join(f"echo {path}" for path in made)
    script.write_text(f"#!/bin/sh\n[ $SOURCE_DATE_EPOCH = 77 ]\n{lines}\n", encoding="utf-8")
    script.chmod(0o755)
    out = tmp_path / "dist"
    build.build_images(build.Release(root=committed, out=out, version="1.0.0", registry="", epoch=77))
    names = sorted(path.name.rpartition("-")[0] for path in (out / "images").glob("*.tar"))
    assert names == ["cli-1.0.0", "operator-1.0.0"]
    assert len((out / "images" / sums.NAME).read_text(encoding="utf-8").splitlines()) == 2

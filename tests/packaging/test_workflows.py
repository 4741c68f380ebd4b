"""The workflows of the repository, by actionlint and by rules of our own. None of them can run here."""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from dovetail_sandbox import progress
from dovetail_sandbox.programs import locate

SOURCE: Final = Path(__file__).resolve().parents[2]
WORKFLOWS: Final = sorted((SOURCE / ".github/workflows").glob("*.yml"))
PINNED: Final = re.compile(r"uses: (?:\./\S+|[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)")


@pytest.fixture(scope="module")
def actionlint() -> Path:
    return locate.resolve(["actionlint"], report=progress.reporter())["actionlint"]


def test_actionlint_finds_nothing(actionlint: Path) -> None:
    done = subprocess.run([actionlint, *WORKFLOWS], cwd=SOURCE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_actionlint_finds_a_job_that_does_not_exist(actionlint: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    text = (SOURCE / ".github/workflows/release.yml").read_text(encoding="utf-8")
    broken.write_text(text.replace("needs: images", "needs: image"), encoding="utf-8")
    done = subprocess.run([actionlint, broken], cwd=SOURCE, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'needs job "image"' in done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit_with_its_version(path: Path) -> None:
    used = [
        line.strip().removeprefix("- ") for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line
    ]
    assert used
    assert [line for line in used if not PINNED.fullmatch(line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_a_job_that_writes_says_so(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert "uses" in job or "timeout-minutes" in job, f"{name} has no time limit"


def test_the_release_publishes_every_image() -> None:
    release = yaml.safe_load((SOURCE / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    script = (SOURCE / "images/build.sh").read_text(encoding="utf-8")
    (deployables,) = re.findall(r'^readonly DEPLOYABLES="(.*)"$', script, flags=re.MULTILINE)
    assert release["jobs"]["manifests"]["strategy"]["matrix"]["name"] == deployables.split()

"""`make release` twice, from two checkouts of one commit: equal bytes."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tools.release import sums
from tools.release.versions import stated_version

SOURCE = Path(__file__).resolve().parents[2]
REGISTRY = "registry.example/dovetail"
# What may differ from one machine to the next. Kiritimati is a day ahead of most.
ELSEWHERE = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "7"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The results of two builds, in folders of other names and with another umask, time zone and locale."""
    folder = tmp_path_factory.mktemp("release")
    checkout = folder / "checkout"
    for name in _git(SOURCE, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0"):
        if name and (SOURCE / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, checkout / name)
    _git(checkout, "init", "--quiet")
    _git(checkout, "add", "--all")
    _git(checkout, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message=all")
    second = folder / "elsewhere" / "second"
    _git(folder, "clone", "--quiet", checkout, second)
    return _built(checkout, umask=0o022, more={}), _built(second, umask=0o077, more=ELSEWHERE)


def _built(checkout: Path, *, umask: int, more: dict[str, str]) -> Path:
    words = [sys.executable, "-m", "tools.release", "build", "--only", "packages", "--registry", REGISTRY]
    done = subprocess.run(
        words, cwd=checkout, env={**os.environ, **more}, umask=umask, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{sums.table(checkout / 'dist')}\n"
    return checkout / "dist"


def _git(folder: Path, *words: str | Path) -> str:
    return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True).stdout


def test_two_builds_of_a_commit_have_equal_bytes(releases: tuple[Path, Path]) -> None:
    first, second = ({str(path.relative_to(out)): sums.digest(path) for path in _all(out)} for out in releases)
    assert first == second


def _all(out: Path) -> list[Path]:
    return [path for path in out.rglob("*") if path.is_file()]


def test_a_release_has_these_files(releases: tuple[Path, Path]) -> None:
    version = stated_version(SOURCE)
    assert sorted(str(path.relative_to(releases[0])) for path in _all(releases[0])) == [
        "SHA256SUMS",
        f"chart/dovetail-{version}.tgz",
        f"dovetail-gpu-legacy/dovetail_gpu_legacy-{version}-py3-none-any.whl",
        f"dovetail-gpu-legacy/dovetail_gpu_legacy-{version}.tar.gz",
        f"dovetail-gpu/dovetail_gpu-{version}-py3-none-any.whl",
        f"dovetail-gpu/dovetail_gpu-{version}.tar.gz",
        "sbom/dovetail-gpu-legacy.cdx.json",
        "sbom/dovetail-gpu.cdx.json",
    ]


def test_the_chart_has_the_released_images(releases: tuple[Path, Path]) -> None:
    with tarfile.open(next(releases[0].glob("chart/*.tgz"))) as chart:
        values = chart.extractfile("dovetail/values.yaml")
        assert values is not None
        assert yaml.safe_load(values)["image"]["registry"] == REGISTRY


def test_an_sbom_lists_what_the_wheel_needs_and_no_path_of_the_build(releases: tuple[Path, Path]) -> None:
    text = (releases[0] / "sbom/dovetail-gpu.cdx.json").read_text(encoding="utf-8")
    found = json.loads(text)
    assert found["metadata"]["component"]["name"] == "dovetail-gpu"
    purls = {each["purl"].partition("@")[0] for each in found["components"]}
    assert {"pkg:pypi/aiohttp", "pkg:pypi/kopf", "pkg:pypi/multidict"} <= purls
    assert "pkg:pypi/pytest" not in purls
    assert str(releases[0].parent) not in text
    legacy = json.loads((releases[0] / "sbom/dovetail-gpu-legacy.cdx.json").read_text(encoding="utf-8"))
    assert "dovetail-gpu" in {each["name"] for each in legacy["components"]}


def test_the_wheel_has_the_console(releases: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(next(releases[0].glob("dovetail-gpu/*.whl"))) as wheel:
        assert "dovetail_gateway/console/assets/index.html" in wheel.namelist()

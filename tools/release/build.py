"""Builds all that a release publishes. The same commit gives the same bytes, wherever and whenever it is built.

Images are the exception: they have what Debian's archive has that day.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tools.release import checkout, sums, versions
from tools.release.chart import find_helm, package_chart, write_chart
from tools.release.errors import ReleaseError

Part = Literal["packages", "images"]
PARTS: Final[tuple[Part, ...]] = ("packages", "images")
# The distributions and the folder of each in the checkout. PyPI's trusted publishers want a folder for each project.
DISTRIBUTIONS: Final = {"dovetail-gpu": ".", "dovetail-gpu-legacy": "legacy"}
_BIN: Final = Path(sys.executable).parent
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What is built, and where.

    - `root`: the checkout
    - `out`: the folder of the results
    - `version`: that of all files of the checkout
    - `registry`: where the chart finds the images; empty leaves that to its installation
    - `epoch`: the date of the commit, in seconds since 1970
    - `helm`: finds Helm; raises `SandboxError`
    """

    root: Path
    out: Path
    version: str
    registry: str
    epoch: int
    helm: Callable[[], Path] = find_helm


def prepared(root: Path, *, out: Path, tag: str = "", registry: str = "") -> Release:
    """The release of a checkout. Raises `ReleaseError` if it has changes, or if a file states another version."""
    if tag:
        versions.check(tag, root=root)
    version = versions.version_of(tag) if tag else versions.stated_version(root)
    checkout.check_clean(root)
    return Release(root=root, out=out, version=version, registry=registry, epoch=checkout.epoch(root))


def build(release: Release, *, parts: tuple[Part, ...] = PARTS) -> None:
    """Build these parts, each in place of what its last build has left. Raises `ReleaseError`."""
    if "packages" in parts:
        build_packages(release)
    if "images" in parts:
        build_images(release)


def build_packages(release: Release) -> None:
    """Wheels, source distributions, their SBOMs, the chart, and the checksums of all these."""
    images = release.out / "images"
    release.out.mkdir(parents=True, exist_ok=True)
    for old in release.out.iterdir():
        if old != images:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    with tempfile.TemporaryDirectory(prefix="dovetail-release-") as folder:
        work = Path(folder)
        _say("the chart")
        chart = write_chart(release.version, registry=release.registry, into=work, root=release.root)
        (release.out / "chart").mkdir()
        package_chart(chart, into=release.out / "chart", epoch=release.epoch, helm=release.helm)
        for name, source in DISTRIBUTIONS.items():
            _say(f"{name}: source distribution and wheel")
            target = release.out / name
            python = ("--no-build-isolation", "--python", sys.executable)
            _uv("build", "--quiet", *python, "--out-dir", target, release.root / source, release=release)
            (target / ".gitignore").unlink(missing_ok=True)
        _write_sboms(release, work=work)
    sums.write_sums(release.out, skip=images)


def build_images(release: Release) -> None:
    """An archive of each image for this machine's architecture, and their checksums."""
    target = release.out / "images"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    _say("the images")
    listed = _run([release.root / "images/build.sh"], what="images/build.sh", release=release)
    machine = platform.machine()
    for archive in map(Path, listed.split()):
        name = archive.stem.rpartition("-")[0]
        shutil.copyfile(archive, target / f"{name}-{release.version}-{_ARCHITECTURES.get(machine, machine)}.tar")
    sums.write_sums(target)


def _write_sboms(release: Release, *, work: Path) -> None:
    """What each wheel brings, the programs' extras too: licences and who needs whom, from the locked versions."""
    project = tomllib.loads((release.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock, python = work / "wheel.lock", work / "env/bin/python"
    extras = project["optional-dependencies"]
    # One of them, `sandbox`, names the others.
    (programs,) = extras["sandbox"]
    names = programs.partition("[")[2].rstrip("]").split(",")
    packages = [*project["dependencies"], *(package for name in names for package in extras[name])]
    words = [sys.executable, release.root / "images/lock.py", "--names", *packages]
    lock.write_text(_run(words, what="images/lock.py", release=release), encoding="utf-8")
    _say("the packages that the wheels need")
    _uv("venv", "--quiet", "--python", sys.executable, work / "env", release=release)
    install = ("pip", "install", "--quiet", "--python", python)
    _uv(*install, "--link-mode=symlink", "--require-hashes", "--requirement", lock, release=release)
    target = release.out / "sbom"
    target.mkdir()
    for name, source in DISTRIBUTIONS.items():
        # By name: an installation from a path would leave the path in the SBOM.
        found = ("--no-deps", "--no-index", "--find-links", release.out / name)
        _uv(*install, *found, f"{name}=={release.version}", release=release)
        options = ("--output-reproducible", "--output-format", "JSON", "--output-file", target / f"{name}.cdx.json")
        about = ("--pyproject", release.root / source / "pyproject.toml", "--mc-type", "application")
        _run([_BIN / "cyclonedx-py", "environment", *about, *options, python], what="cyclonedx-py", release=release)


def _uv(*words: str | Path, release: Release) -> None:
    _run([_BIN / "uv", *words], what=f"uv {words[0]}", release=release)


def _run(words: list[str | Path], *, what: str, release: Release) -> str:
    """The output of a program, dated by the commit. Raises `ReleaseError`; what it says of errors is shown."""
    environment = _environment(release.epoch)
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        raise ReleaseError(f"{what} has failed with exit code {done.returncode}")
    return done.stdout


def _environment(epoch: int) -> Mapping[str, str]:
    """This process's variables with the date of the commit, and with the index that pip is configured for."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    index = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    index = index or os.environ.get("PIP_INDEX_URL", "")
    return {**os.environ, **({"UV_DEFAULT_INDEX": index} if index else {}), "SOURCE_DATE_EPOCH": str(epoch)}


def _say(text: str) -> None:
    print(f"release: {text}", file=sys.stderr, flush=True)

"""The wheel, installed alone in an empty environment without the repository."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).resolve().parents[2]
BIN: Final = Path(sys.executable).parent
PROGRAMS: Final = sorted(
    each.name for each in entry_points(group="console_scripts") if each.value.startswith("dovetail")
)


def environment(**more: str) -> dict[str, str]:
    """This process's variables, with the index that pip is configured for."""
    asked = subprocess.run(
        [BIN / "python", "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    index = asked.stdout.strip() or os.environ.get("PIP_INDEX_URL", "")
    return {**os.environ, **({"UV_DEFAULT_INDEX": index} if index else {}), **more}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs that `pipx install dovetail-gpu` brings."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ["build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder]
    for arguments in (
        [*build, SOURCE],
        ["venv", "--quiet", "--python", sys.executable, folder / "env"],
        [
            "pip",
            "install",
            "--quiet",
            "--python",
            folder / "env/bin/python",
            "--constraint",
            _versions(folder),
            "WHEEL",
        ],
    ):
        ready = [next(folder.glob("*.whl")) if each == "WHEEL" else each for each in arguments]
        done = subprocess.run([BIN / "uv", *ready], env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return folder / "env/bin"


def _versions(folder: Path) -> Path:
    """The versions that the tests run with, without the hashes: a wheel of ours has none yet."""
    lines = (SOURCE / "requirements.lock").read_text(encoding="utf-8").splitlines()
    path = folder / "versions.txt"
    path.write_text("\n".join(line.rstrip(" \\") for line in lines if line[:1].isalnum()), encoding="utf-8")
    return path


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_the_wheel_shows_its_help(installed: Path, tmp_path: Path, program: str) -> None:
    done = subprocess.run([installed / program, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout.lower()


def test_the_programs_of_the_wheel_are_those_of_the_checkout(installed: Path) -> None:
    assert {each.name for each in installed.iterdir() if each.name in PROGRAMS} == set(PROGRAMS)


def test_the_wheel_has_what_the_sandbox_reads(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [installed / "dovetail", "sandbox", "status", "-o", "json"],
        cwd=tmp_path,
        env=environment(XDG_DATA_HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    (chart,) = installed.parent.glob("lib/python*/site-packages/dovetail_sandbox/chart/Chart.yaml")
    assert chart.read_bytes() == (SOURCE / "helm/dovetail/Chart.yaml").read_bytes()


@pytest.mark.slow
@pytest.mark.cluster
def test_the_demo_runs_from_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    alone = environment(XDG_DATA_HOME=str(tmp_path / "data"), XDG_STATE_HOME=str(tmp_path / "state"))
    try:
        done = subprocess.run(
            [installed / "dovetail", "demo"], cwd=tmp_path, env=alone, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "audit       clean" in done.stdout
    finally:
        subprocess.run([installed / "dovetail", "demo", "--down"], cwd=tmp_path, env=alone, check=True)

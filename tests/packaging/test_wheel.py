"""The wheel, installed alone in an empty environment without the repository."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import pytest

from dovetail_cli.app import COMMANDS

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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, SOURCE)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The folder of the programs that `pipx install 'dovetail-gpu[sandbox]'` brings."""
    return _installed(wheel, extra="[sandbox]")


@pytest.fixture(scope="module")
def plain(wheel: Path) -> Path:
    """The folder of the programs that `pipx install dovetail-gpu` brings."""
    return _installed(wheel, extra="")


def _installed(wheel: Path, *, extra: str) -> Path:
    folder = wheel.parent / f"env{extra.strip('[]')}"
    uv("venv", "--quiet", "--python", sys.executable, folder)
    versions = _versions(wheel.parent)
    asked = f"dovetail-gpu{extra} @ file://{wheel}"
    uv("pip", "install", "--quiet", "--python", folder / "bin/python", "--constraint", versions, asked)
    return folder / "bin"


def uv(*arguments: str | Path) -> None:
    done = subprocess.run([BIN / "uv", *arguments], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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


def test_an_installation_without_extras_has_the_commands_and_the_sdk(plain: Path, tmp_path: Path) -> None:
    for command in [name for name, entry in COMMANDS.items() if not entry.extra]:
        done = run(plain / "dovetail", *command.split(), "--help", at=tmp_path)
        assert (done.returncode, "Usage" in done.stdout) == (0, True), (command, done.stderr)
    assert run(plain / "python", "-c", "import dovetail.sdk", at=tmp_path).returncode == 0
    listed = run(BIN / "uv", "pip", "list", "--python", plain / "python", at=tmp_path).stdout.lower()
    assert "msgspec" in listed
    for package in ("kopf", "sqlalchemy", "psycopg", "cryptography", "nvidia-ml-py", "grpclib", "prometheus-client"):
        assert package not in listed


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["dovetail", "demo"], "sandbox"),
        (["gflowd", "up"], "sandbox"),
        (["dovetail", "sandbox", "up"], "sandbox"),
        (["dovetail", "console"], "gateway"),
        (["dovetail-operator"], "operator"),
        (["dovetail-agent"], "agent"),
        (["dovetail-gateway"], "gateway"),
    ],
)
def test_what_needs_an_extra_says_the_line_to_type(plain: Path, tmp_path: Path, words: list[str], extra: str) -> None:
    done = run(plain / words[0], *words[1:], at=tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith(f"which is not installed: pip install 'dovetail-gpu[{extra}]'\n"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not any(tmp_path.iterdir())


def run(program: Path, *words: str | Path, at: Path) -> "subprocess.CompletedProcess[str]":
    alone = environment(XDG_DATA_HOME=str(at), XDG_STATE_HOME=str(at), KUBECONFIG=str(at / "none"))
    return subprocess.run([program, *words], cwd=at, env=alone, capture_output=True, text=True, check=False)


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

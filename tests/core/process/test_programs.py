"""Programs of an installation that lacks their extra."""

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, requires
from pathlib import Path
from typing import Final

import pytest

from dovetail.process import programs
from dovetail_cli import app, consoles

PYPROJECT: Final = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
PROGRAMS: Final = {
    each.name: each.attr for each in entry_points(group="console_scripts") if each.module == "dovetail.process.programs"
}
# The programs of an image, and the package that each imports.
LACKING: Final = [
    ("dovetail-operator", "kopf", "operator"),
    ("dovetail-extender", "prometheus_client", "extender"),
    ("dovetail-agent", "prometheus_client", "agent"),
    ("dovetail-mps", "prometheus_client", "agent"),
    ("dovetail-webhook", "prometheus_client", "webhook"),
    ("dovetail-certificates", "cryptography", "certificates"),
    ("dovetail-gateway", "prometheus_client", "gateway"),
]


def started(program: str, *, without: str) -> "subprocess.CompletedProcess[str]":
    """The program's help, where a package cannot be imported."""
    script = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {without!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from dovetail.process import programs
sys.argv = [{program!r}, "--help"]
sys.exit(programs.{PROGRAMS[program]}())
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("program", "package", "extra"), LACKING)
def test_a_program_without_its_packages_says_what_to_type(program: str, package: str, extra: str) -> None:
    done = started(program, without=package)
    said = f"dovetail: {program} needs {package}, which is not installed: pip install 'dovetail-gpu[{extra}]'\n"
    assert (done.returncode, done.stderr, done.stdout) == (1, said, "")
    assert extra in PYPROJECT["project"]["optional-dependencies"]


def test_a_module_of_ours_that_is_missing_is_a_fault_and_not_an_extra() -> None:
    done = started("dovetail-operator", without="dovetail_operator")
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
    assert "pip install" not in done.stderr


def test_everything_brings_the_sandbox_and_the_sandbox_every_program() -> None:
    programs = set(PYPROJECT["tool"]["dovetail"]["images"]["names"]) - {"cli"}
    assert brought("sandbox") == set.union(*map(brought, programs))
    assert brought("sandbox") < brought("all")


def brought(extra: str) -> set[str]:
    """The requirements that an extra adds, as the installed package says."""
    return {text.partition(";")[0].strip() for text in requires("dovetail-gpu") or () if f"'{extra}'" in text}


def test_the_console_of_another_machine_needs_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[str]()
    monkeypatch.setattr(programs, "requires", lambda _: ["no-such; extra == 'gateway'"])
    monkeypatch.setattr(consoles, "open_at", lambda url, **_: opened.append(url))
    assert app.run("console", arguments=["--gateway", "https://gpus.example.com"], prog="dovetail console") == 0
    assert opened == ["https://gpus.example.com"]
    assert app.run("console", arguments=[], prog="dovetail console") == 1

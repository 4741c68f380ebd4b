"""The console in wheels: what the build hook adds, how a failed build is said, and what the lockfile lets in."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hatch_build
from dovetail_gateway.console import build

CONSOLE = Path(build.__file__).resolve().parents[3] / "console"


def hook(target: str) -> hatch_build.ConsoleHook:
    config: Any = SimpleNamespace()
    return hatch_build.ConsoleHook(str(CONSOLE.parent), {}, config, config, str(CONSOLE), target)


def added(target: str, *, version: str = "standard") -> dict[str, str]:
    data: dict[str, Any] = {"force_include": {}}
    hook(target).initialize(version, data)
    return dict(data["force_include"])


def test_a_wheel_has_the_built_files_and_a_source_distribution_has_them_too() -> None:
    built = str(build.build())
    assert added("wheel") == {built: "dovetail_gateway/console/assets"}
    assert added("sdist") == {built: "console/shipped"}
    assert (Path(built) / "index.html").is_file()


def test_an_editable_install_and_a_wheel_without_the_console_build_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert added("wheel", version="editable") == {}
    monkeypatch.setenv("DOVETAIL_WITHOUT_CONSOLE", "1")
    assert added("wheel") == {}


def test_a_build_that_fails_says_what_failed_and_how_to_do_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(tmp_path / "node", says="echo v22.1.0")
    program(tmp_path / "npm", says="echo no way out >&2; exit 3")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(RuntimeError) as caught:
        added("wheel")
    said = str(caught.value)
    assert "DOVETAIL_WITHOUT_CONSOLE=1 leaves it out" in said
    assert "`npm ci --ignore-scripts` failed with exit code 3:\nno way out" in said


@pytest.mark.parametrize(
    ("version", "taken"), [("v20.18.3", False), ("v20.19.0", True), ("v24.1.0", True), ("none", False)]
)
def test_a_node_that_is_too_old_is_replaced_by_that_of_pypi(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, taken: bool
) -> None:
    program(tmp_path / "node", says=f"echo {version}")
    program(tmp_path / "npm", says="exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "_wheel_of_node", lambda: tmp_path / "wheel")
    assert build._path_of_node().startswith(str(tmp_path / "wheel" / "bin")) is not taken


def test_without_sources_there_is_no_console_to_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "_SOURCES", tmp_path)
    monkeypatch.setattr(build, "_SHIPPED", tmp_path / "shipped")
    assert build.target() is None
    with pytest.raises(build.BuildError, match="the console's sources are not in"):
        build.build()


def test_the_lockfile_pins_each_package_by_its_content_and_none_runs_a_script() -> None:
    locked = json.loads((CONSOLE / "package-lock.json").read_text())["packages"]
    own = locked.pop("")
    assert [name for name, each in locked.items() if not each.get("integrity", "").startswith("sha512-")] == []
    assert [name for name, each in locked.items() if each.get("hasInstallScript")] == []
    wanted = {**own["dependencies"], **own["devDependencies"]}
    assert [name for name, version in wanted.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []
    assert "ignore-scripts=true" in (CONSOLE / ".npmrc").read_text().split()


def program(path: Path, *, says: str) -> None:
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)


def test_this_python_builds_the_same_place_that_the_gateway_serves() -> None:
    from dovetail_gateway.console import serve

    assert serve.folder() == build.build(), sys.executable

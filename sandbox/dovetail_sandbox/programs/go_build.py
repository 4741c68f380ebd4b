"""Builds programs from Go modules: go.mod pins every version, go.sum every content."""

import os
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

import yaml

from dovetail_sandbox.errors import BuildFailedError
from dovetail_sandbox.programs.catalog import Tool

_TAIL_LINES: Final = 25


def module_folder(folder: str) -> Path:
    """The folder of some tools' module files, in a checkout or an installed wheel."""
    return Path(str(resources.files("dovetail_sandbox").joinpath("gomod", folder)))


def module_files() -> list[Path]:
    """The go.mod of every module."""
    return sorted(module_folder("").glob("*/go.mod"))


def build(
    tools: Sequence[Tool],
    *,
    go: str,
    target: Path,
    detail: Callable[[str], None],
    module: Path | None = None,
) -> None:
    """Build programs of one module together into `target`: shared packages compile once.

    Programs of one package are links to one file, which reads its name to know which one it is. `detail` gets each
    package as it is compiled. Raises `BuildFailedError` with the end of the compiler's output.
    """
    flags = " ".join(dict.fromkeys(["-s", "-w", *(tool.ldflags for tool in tools if tool.ldflags)]))
    target.mkdir(parents=True, exist_ok=True)
    packages = list(dict.fromkeys(tool.package for tool in tools))
    folder = module or module_folder(tools[0].folder)
    command = [go, "build", "-v", "-trimpath", f"-ldflags={flags}", f"-o={target}/"]
    if source := tools[0].source:
        command.append(f"-modfile={folder / 'go.mod'}")  # go.sum is the one next to it
        folder = module_folder(source)
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with subprocess.Popen(
        [*command, *packages],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as compiling:
        assert compiling.stdout
        for line in compiling.stdout:
            tail.append(line.rstrip())
            detail(line.strip())
    if compiling.returncode != 0:
        raise BuildFailedError(", ".join(tool.name for tool in tools), output_tail="\n".join(tail))
    for package in packages:
        _name(target / _built_name(package), names=[tool.name for tool in tools if tool.package == package])


def copy_chart(tool: Tool, *, go: str, target: Path, module: Path | None = None) -> None:
    """Copy the Helm chart in the project's Go module to `target`. Raises `BuildFailedError`.

    The module has no copies of other projects' charts, and Helm renders no chart that lacks one: the list is left out.
    """
    found = subprocess.run(
        [go, "list", "-f={{.Module.Dir}}", tool.package],
        cwd=module or module_folder(tool.folder),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    source = Path(found.stdout.strip()) / tool.chart
    if found.returncode != 0 or not (source / "Chart.yaml").exists():
        raise BuildFailedError(tool.name, output_tail=found.stderr or f"there is no chart in {source}")
    for path in source.rglob("*"):
        if path.is_file():
            # Contents only: in the module cache everything is read-only, including folders.
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())
    facts = yaml.safe_load((target / "Chart.yaml").read_text(encoding="utf-8"))
    if facts.pop("dependencies", None):
        (target / "Chart.yaml").write_text(yaml.safe_dump(facts, sort_keys=False), encoding="utf-8")


def environment() -> dict[str, str]:
    """Return the environment of our `go` commands.

    A GOROOT that was set for one Go misleads another: each finds its own.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "GOROOT"}
    return {**inherited, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}


def _built_name(package: str) -> str:
    """What `go build` calls the program of a package: its last part; for `…/server/v3` that is `server`."""
    return [part for part in package.split("/") if not (part.startswith("v") and part[1:].isdecimal())][-1]


def _name(built: Path, *, names: Sequence[str]) -> None:
    """Give a built program its names."""
    for name in names:
        if name != built.name:
            built.with_name(name).hardlink_to(built)
    if built.name not in names:
        built.unlink()

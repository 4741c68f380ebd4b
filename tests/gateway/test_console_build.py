"""The build of the console: once for what it reads, again when any of it changes, and nothing half done is left."""

import fcntl
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail_gateway.console import build
from dovetail_gateway.console.build import BuildError

FILES = {
    "console/package.json": "{}",
    "console/package-lock.json": "{1}",
    "console/.npmrc": "ignore-scripts=true",
    "console/index.html": "<page>",
    "console/src/main.ts": "main",
    "console/src/deep/row.ts": "row",
    "docs/openapi.json": "{openapi}",
}
LOCK = ("console/package.json", "console/package-lock.json", "console/.npmrc")


class Checkout:
    """A checkout with sources, and an npm that says what it was asked to do in `ran`. `fails` is what fails."""

    def __init__(self, folder: Path, *, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "checkout"
        self.cache = folder / "cache"
        self.ran: list[str] = []
        self.fails = ""
        for name, text in FILES.items():
            self.write(name, text)
        console = self.folder / "console"
        monkeypatch.setenv("XDG_CACHE_HOME", str(self.cache))
        monkeypatch.setattr(build, "_SOURCES", console)
        monkeypatch.setattr(build, "_SHIPPED", console / "shipped")
        monkeypatch.setattr(build, "_API", self.folder / "docs" / "openapi.json")
        monkeypatch.setattr(build, "_path_of_node", lambda: "/node/bin")
        monkeypatch.setattr(build, "_run", self._run)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def built(self) -> list[str]:
        """The folders of the cache that others use."""
        return sorted(each.name for each in (self.cache / "dovetail" / "console").glob("assets-*"))

    def _run(self, command: list[str], *, path: str, folder: Path) -> None:
        said = " ".join(command)
        self.ran.append(said)
        assert path == "/node/bin"
        if said.startswith("npm ci"):
            assert "--ignore-scripts" in command
            assert sorted(each.name for each in folder.iterdir()) == sorted(name.rpartition("/")[2] for name in LOCK)
            (folder / "node_modules").mkdir()
            (folder / "node_modules" / "lock").write_text((folder / "package-lock.json").read_text())
        else:
            self._build(folder)
        if self.fails and said.startswith(self.fails):
            raise BuildError(f"{said} failed")

    def _build(self, folder: Path) -> None:
        assert self._is_alone(), "two builds at a time"
        assert (folder / "node_modules" / "lock").read_text() == (folder / "package-lock.json").read_text()
        assert (folder.parent / "docs" / "openapi.json").read_text() == (self.folder / "docs/openapi.json").read_text()
        assert not (folder / "src" / "schema.ts").exists(), "it is made of the document at each build"
        (folder / "dist").mkdir()
        (folder / "dist" / "index.html").write_text((folder / "src" / "main.ts").read_text())

    def _is_alone(self) -> bool:
        with (self.cache / "dovetail" / "console" / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    return Checkout(tmp_path, monkeypatch=monkeypatch)


def test_the_console_is_built_once_and_its_packages_are_installed_once(checkout: Checkout) -> None:
    checkout.write("console/src/schema.ts", "old")
    first = build.build()
    assert (first / "index.html").read_text() == "main"
    assert [each.partition(" --")[0] for each in checkout.ran] == ["npm ci", "npm run build"]
    assert (build.build(), build.target(), len(checkout.ran)) == (first, first, 2)
    checkout.write("console/src/main.ts", "other")
    second = build.build()
    assert (second != first, (second / "index.html").read_text()) == (True, "other")
    assert checkout.ran[2:] == ["npm run build"]
    checkout.write("console/package-lock.json", "{2}")
    build.build()
    assert [each.partition(" --")[0] for each in checkout.ran[3:]] == ["npm ci", "npm run build"]


@pytest.mark.parametrize("name", [*FILES, "console/src/new.ts", "console/src/deep/new.css", "console/vite.config.ts"])
def test_each_file_that_a_build_reads_makes_another_build(checkout: Checkout, name: str) -> None:
    before = build.target()
    checkout.write(name, "changed")
    assert build.target() != before


@pytest.mark.parametrize(
    "name", ["console/src/schema.ts", "console/node_modules/x/index.js", "console/dist/index.html"]
)
def test_what_a_build_makes_itself_makes_no_other_build(checkout: Checkout, name: str) -> None:
    before = build.target()
    checkout.write(name, "changed")
    assert build.target() == before


def test_files_that_are_cut_elsewhere_are_other_files(checkout: Checkout) -> None:
    checkout.write("console/src/a.ts", "12")
    checkout.write("console/src/b.ts", "3")
    before = build.target()
    checkout.write("console/src/a.ts", "1")
    checkout.write("console/src/b.ts", "23")
    assert build.target() != before


@pytest.mark.parametrize("fails", ["npm ci", "npm run"])
def test_a_build_that_fails_leaves_nothing_that_another_one_would_take(checkout: Checkout, fails: str) -> None:
    checkout.fails = fails
    with pytest.raises(BuildError):
        build.build()
    assert checkout.built() == []
    checkout.fails = ""
    built = build.build()
    assert checkout.built() == [built.name]
    assert sorted({each.name.partition("-")[0] for each in built.parent.iterdir()}) == ["assets", "lock", "packages"]


def test_one_who_waited_for_another_s_build_takes_it(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    place = build.target()
    assert place is not None
    alone: Callable[[], object] = build._alone

    def another_builds() -> object:
        place.mkdir(parents=True)
        return alone()

    monkeypatch.setattr(build, "_alone", another_builds)
    assert (build.build(), checkout.ran) == (place, [])


def test_the_files_of_a_source_distribution_are_taken_as_they_are(checkout: Checkout) -> None:
    checkout.write("console/shipped/index.html", "shipped")
    assert (build.build(), checkout.ran) == (checkout.folder / "console" / "shipped", [])


def test_a_program_of_the_build_gets_no_settings_of_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_registry", "x")
    monkeypatch.setenv("OTHER", "kept")
    wanted = (
        "import os, sys; sys.exit('npm_config_registry' in os.environ or (os.environ['PATH'], os.environ['CI'], "
        f"os.environ['OTHER'], os.getcwd()) != ('/p', '1', 'kept', {os.path.realpath(tmp_path)!r}))"
    )
    build._run([sys.executable, "-c", wanted], path="/p", folder=tmp_path)


def test_a_program_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"`/nowhere/npm run build` failed: .*No such file"):
        build._run(["/nowhere/npm", "run", "build", "--more"], path="", folder=tmp_path)

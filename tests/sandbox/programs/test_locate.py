"""Where programs come from, against a release server on loopback and a Go module of a few lines."""

import fcntl
import functools
import hashlib
import http.server
import io
import json
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail_sandbox.errors import BuildFailedError, DownloadError, ToolchainError, ToolUnavailableError
from dovetail_sandbox.programs import catalog, download, go_build, locate, toolchain
from dovetail_sandbox.programs.catalog import Tool
from dovetail_sandbox.programs.locate import Binaries
from dovetail_sandbox.progress import Lines

SCRIPT = b"#!/bin/sh\necho thing v1.2.3\n"
NOWHERE = "http://127.0.0.1:9/thing"  # the discard port: refused at once


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *args):
        pass


@pytest.fixture
def releases(tmp_path: Path) -> Iterator[Path]:
    """A folder that is served; its address is in the file `.address`."""
    folder = tmp_path / "releases"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    (folder / ".address").write_text(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


def publish(folder: Path, payload: bytes, *, checksum: str | None = None, member: str = "") -> Tool:
    (folder / "thing").write_bytes(payload)
    (folder / "SUMS").write_text(f"{checksum or hashlib.sha256(payload).hexdigest()}  thing\n")
    address = (folder / ".address").read_text()
    return make_tool(release=f"{address}/thing", checksum=f"{address}/SUMS", member=member)


def make_tool(**more: object) -> Tool:
    fields = {"name": "thing", "version": "v1.2.3", "os": "linux", "arch": "amd64", "folder": "thing", "package": "./."}
    return Tool(**(fields | more))


@pytest.fixture
def told() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def local(tmp_path: Path, told: io.StringIO) -> Binaries:
    return Binaries(cache=tmp_path / "cache", report=Lines(told), search_path=str(tmp_path / "bin"), go=no_go)


def no_go() -> str:
    raise ToolchainError("the index cannot be reached")


def install(folder: Path, text: bytes) -> Path:
    folder.mkdir(parents=True)
    (folder / "thing").write_bytes(text)
    (folder / "thing").chmod(0o755)
    return folder / "thing"


def test_what_is_in_the_cache_is_taken(local: Binaries) -> None:
    cached = install(local.cache / "thing-v1.2.3-linux-amd64", SCRIPT)

    assert local.resolve([make_tool()]) == {"thing": cached}


def test_another_version_in_the_cache_is_not_taken(local: Binaries) -> None:
    install(local.cache / "thing-v1.2.2-linux-amd64", SCRIPT)

    with pytest.raises(ToolUnavailableError):
        local.resolve([make_tool()])


def test_a_program_of_other_module_files_is_not_taken(local: Binaries) -> None:
    built = make_tool(modules="0123456789ab")
    install(local.cache / built.key, SCRIPT)
    assert local.resolve([built]) == {"thing": local.cache / "thing-v1.2.3-linux-amd64-0123456789ab" / "thing"}
    with pytest.raises(ToolUnavailableError):
        local.resolve([make_tool(modules="ba9876543210")])


def test_a_program_of_an_earlier_cache_is_adopted_once_and_stays_for_the_checkouts_that_know_it(
    local: Binaries,
) -> None:
    earlier = install(local.cache / "thing-v1.2.3-linux-amd64", SCRIPT)
    (chart := go_build_chart(earlier)).parent.mkdir()
    chart.write_text("name: thing")
    adopted = local.resolve([make_tool(modules="0123456789ab")])["thing"]
    assert (adopted.read_bytes(), go_build_chart(adopted).read_text()) == (SCRIPT, "name: thing")
    assert earlier.exists()
    with pytest.raises(ToolUnavailableError):
        local.resolve([make_tool(modules="ba9876543210")])


def go_build_chart(program: Path) -> Path:
    return locate.chart_of(program) / "Chart.yaml"


def test_every_change_of_a_module_file_is_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog.resources, "files", lambda package: tmp_path)
    digests = set()
    for number, text in enumerate(("go 1.26", "go 1.27")):
        folder = tmp_path / "gomod" / f"m{number}"
        folder.mkdir(parents=True)
        (folder / "go.mod").write_text(text)
        digests.add(catalog.module_digest(f"m{number}"))
    assert len(digests) == 2
    assert {len(each) for each in digests} == {12}


def test_the_program_of_another_folder_is_part_of_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog.resources, "files", lambda package: tmp_path)
    for name, text in (("old/go.mod", "go 1.26"), ("new/main.go", "package main"), ("new/go.mod", "go 1.27")):
        (tmp_path / "gomod" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "gomod" / name).write_text(text)
    digests = [catalog.module_digest("old", source="new")]
    for changed in ("new/go.mod", "new/main.go", "old/go.mod"):
        (tmp_path / "gomod" / changed).write_text("changed")
        catalog.module_digest.cache_clear()
        digests.append(catalog.module_digest("old", source="new"))
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_the_right_version_on_path_is_taken_and_said(local: Binaries, tmp_path: Path, told: io.StringIO) -> None:
    installed = install(tmp_path / "bin", SCRIPT)

    assert local.resolve([make_tool(version_arguments=("--version",))]) == {"thing": installed}
    assert told.getvalue() == f"thing v1.2.3: {installed}, from PATH\n"


@pytest.mark.parametrize("words", [b"thing v1.2.30", b"thing v1.2.3-rc.1", b"thing 11.2.3"])
def test_a_version_on_path_that_only_looks_alike_is_not_taken(local: Binaries, tmp_path: Path, words: bytes) -> None:
    install(tmp_path / "bin", b"#!/bin/sh\necho " + words)

    with pytest.raises(ToolUnavailableError):
        local.resolve([make_tool(version_arguments=("--version",))])


def test_a_release_is_downloaded_once_and_verified(local: Binaries, releases: Path) -> None:
    tool = publish(releases, SCRIPT)
    first = local.resolve([tool])["thing"]
    shutil.rmtree(releases)

    assert first.read_bytes() == SCRIPT
    assert os.access(first, os.X_OK)
    assert local.resolve([tool]) == {"thing": first}


def test_a_release_that_is_an_archive_is_unpacked(local: Binaries, releases: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("linux/thing")
        entry.size = len(SCRIPT)
        archive.addfile(entry, io.BytesIO(SCRIPT))
    tool = publish(releases, packed.getvalue(), member="linux/thing")

    assert local.resolve([tool])["thing"].read_bytes() == SCRIPT


def test_a_release_with_another_checksum_is_not_taken(local: Binaries, releases: Path) -> None:
    tool = publish(releases, SCRIPT, checksum="0" * 64)

    with pytest.raises(ToolUnavailableError, match=r"has SHA-256 .* but 0000"):
        local.resolve([tool])
    assert list(local.cache.glob("thing*")) == []


def publish_on_github(folder: Path, payload: bytes, *, digest: str | None) -> Tool:
    """A release as GitHub serves it: the file, and an answer of the API that states its digest."""
    (folder / "thing").write_bytes(payload)
    assets = [{"name": "other", "digest": f"sha256:{'cd' * 32}"}, {"name": "thing", "size": 1, "digest": digest}]
    (folder / "repos" / "example" / "thing" / "releases" / "tags").mkdir(parents=True)
    (folder / "repos" / "example" / "thing" / "releases" / "tags" / "v1.2.3").write_text(
        json.dumps({"tag_name": "v1.2.3", "draft": False, "assets": assets})
    )
    address = (folder / ".address").read_text()
    return make_tool(release=f"{address}/thing", digests=f"{address}/repos/example/thing/releases/tags/v1.2.3")


def test_a_release_without_checksums_is_verified_by_the_digest_of_github_s_api(local: Binaries, releases: Path) -> None:
    tool = publish_on_github(releases, SCRIPT, digest=f"sha256:{hashlib.sha256(SCRIPT).hexdigest()}")

    assert local.resolve([tool])["thing"].read_bytes() == SCRIPT


@pytest.mark.parametrize(
    ("digest", "reason"),
    [
        (f"sha256:{'0' * 64}", r"has SHA-256 .* but 0000"),
        (None, "no SHA-256 for thing is published"),
        (f"sha512:{'0' * 128}", "no SHA-256 for thing is published"),
        ("sha256:0000", "no SHA-256 for thing is published"),
    ],
)
def test_a_digest_that_is_wrong_or_missing_refuses_the_release(
    local: Binaries, releases: Path, digest: str | None, reason: str
) -> None:
    tool = publish_on_github(releases, SCRIPT, digest=digest)

    with pytest.raises(ToolUnavailableError, match=reason):
        local.resolve([tool])
    assert list(local.cache.glob("thing*")) == []


def test_an_answer_of_the_api_that_is_none_is_refused() -> None:
    with pytest.raises(DownloadError, match="the answer about the release of thing cannot be read"):
        download.asset_digest(b"<html>rate limit</html>", file="thing")


def test_a_release_that_is_not_there_leaves_the_others_to_be_downloaded(local: Binaries, releases: Path) -> None:
    here = publish(releases, SCRIPT)
    address = (releases / ".address").read_text()
    gone = make_tool(name="gone", release=f"{address}/gone", checksum=f"{address}/gone.sha256")

    with pytest.raises(ToolUnavailableError, match=r"^Cannot get gone: .*404"):
        local.resolve([gone, here])
    assert [path.name for path in local.cache.glob("*/thing")] == ["thing"]


def test_a_host_that_does_not_answer_speaks_for_all(local: Binaries, releases: Path) -> None:
    here = publish(releases, SCRIPT)
    far = make_tool(name="far", release=NOWHERE, checksum=NOWHERE)

    with pytest.raises(ToolUnavailableError, match=r"^Cannot get far, thing: official releases cannot be reached"):
        local.resolve([far, here])


def test_an_archive_without_the_program_is_said(releases: Path, tmp_path: Path) -> None:
    tool = publish(releases, SCRIPT, member="linux/thing")

    with pytest.raises(DownloadError, match="has no linux/thing"):
        download.fetch(tool, target=tmp_path / "thing")


def test_no_network_and_no_go_is_one_sentence(local: Binaries) -> None:
    with pytest.raises(ToolUnavailableError) as refused:
        local.resolve([make_tool(release=NOWHERE, checksum=NOWHERE)])

    message = str(refused.value)
    assert message.startswith("Cannot get thing: official releases cannot be reached from here (http://127.0.0.1:9/")
    assert message.endswith(
        "Go 1.26.6 or later, which could build them, is neither on PATH (https://go.dev/dl) nor can it be installed "
        "from the Python package index: the index cannot be reached."
    )
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("ab" * 32, "thing"),
        (f"{'ab' * 32}  thing\n", "thing"),
        (f"{'cd' * 32}  other\n{'AB' * 32} *thing\n", "thing"),
    ],
)
def test_a_published_checksum_is_found_in_each_form(text: str, file: str) -> None:
    assert download.published_checksum(text.encode(), file=file) == "ab" * 32


@pytest.mark.parametrize("text", ["", "<html>not found</html>", f"{'cd' * 32}  other\n{'ab' * 32}  thing2\n"])
def test_a_text_without_the_file_s_checksum_is_refused(text: str) -> None:
    with pytest.raises(DownloadError, match="no SHA-256 for thing"):
        download.published_checksum(text.encode(), file="thing")


def test_a_server_that_does_not_answer_does_not_hold_us_up(tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as deaf:  # listens, and nobody serves
        tool = make_tool(release=NOWHERE, checksum=f"http://127.0.0.1:{deaf.server_port}/SUMS")
        with pytest.raises(DownloadError):
            download.fetch(tool, target=tmp_path / "thing", first_answer_seconds=0.1)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Go module whose program tells its version."""
    folder = tmp_path / "gomod" / "thing"
    (folder / "cmd" / "thing").mkdir(parents=True)
    (folder / "go.mod").write_text("module example.com/thing\n\ngo 1.22\n")
    (folder / "cmd" / "thing" / "main.go").write_text(
        'package main\n\nvar version = "none"\n\nfunc main() { println("thing", version) }\n'
    )
    monkeypatch.setattr(go_build, "module_folder", lambda name: tmp_path / "gomod" / name)
    return folder


@pytest.fixture
def building(local: Binaries) -> Binaries:
    go = toolchain.on_path()
    if go is None:
        pytest.skip("Go is not installed")
    local.go = lambda: go
    return local


def test_what_has_no_release_is_built_and_the_time_remembered(
    building: Binaries, module: Path, told: io.StringIO
) -> None:
    tool = make_tool(package="./cmd/thing", ldflags="-X main.version=v1.2.3", version_arguments=("--version",))
    built = building.resolve([tool])["thing"]
    building.search_path = str(built.parent)
    built_again = Binaries(cache=building.cache / "other", report=Lines(told), search_path=str(built.parent), go=no_go)

    assert built_again.resolve([tool]) == {"thing": built}, "it tells the version that was linked into it"
    assert "for the cache: thing v1.2.3\nBuilding thing …" in told.getvalue()
    assert list(building._durations()) == ["thing-v1.2.3-linux-amd64"]


def test_the_second_build_says_how_long_the_first_took(building: Binaries, module: Path, told: io.StringIO) -> None:
    tool = make_tool(package="./cmd/thing")
    built = building.resolve([tool])["thing"]
    built.unlink()
    building._remember(tool.key, seconds=196)
    building.resolve([tool])

    assert "Building thing … (took 3 min 16 s last time)" in told.getvalue()


def test_programs_of_one_package_are_one_file_that_knows_its_name(building: Binaries, module: Path) -> None:
    (module / "cmd" / "thing" / "main.go").write_text(
        'package main\n\nimport "os"\n\nfunc main() { os.Stdout.WriteString(os.Args[0]) }\n'
    )
    built = building.resolve([make_tool(name=name, package="./cmd/thing") for name in ("one", "two")])

    assert built["one"].samefile(built["two"])
    for name, path in built.items():
        assert subprocess.run([path], capture_output=True, text=True, check=True).stdout == str(path)
        assert [each.name for each in path.parent.iterdir()] == [name]


def test_one_source_is_built_with_the_dependencies_of_another_folder(building: Binaries, module: Path) -> None:
    (module / "cmd" / "thing" / "main.go").write_text(
        'package main\n\nimport "example.com/part"\n\nfunc main() { println(part.Version) }\n'
    )
    for version, folder in (("new", module), ("old", module.parent / "thing-old")):
        part = module.parent / f"part-{version}"
        part.mkdir()
        (part / "go.mod").write_text("module example.com/part\n\ngo 1.22\n")
        (part / "part.go").write_text(f'package part\n\nconst Version = "{version}"\n')
        folder.mkdir(exist_ok=True)
        (folder / "go.mod").write_text(
            "module example.com/thing\n\ngo 1.22\n\nrequire example.com/part v0.0.0\n\n"
            f"replace example.com/part => {part}\n"
        )
    package = "example.com/thing/cmd/thing"
    built = building.resolve([make_tool(package=package, folder="thing-old", source="thing", version="v1.1.0")])
    newest = building.resolve([make_tool(package=package)])
    words = [subprocess.run([each["thing"]], capture_output=True, text=True, check=True) for each in (built, newest)]
    assert [done.stderr for done in words] == ["old\n", "new\n"]


def test_a_failed_build_shows_the_compiler_s_words(building: Binaries, module: Path) -> None:
    (module / "cmd" / "thing" / "main.go").write_text("package main\n\nfunc main() { undefined() }\n")

    with pytest.raises(BuildFailedError, match=r"Building thing failed:\n(.*\n)*.*undefined: undefined"):
        building.resolve([make_tool(package="./cmd/thing")])
    assert list(building.cache.glob("thing*")) == []


def test_a_chart_of_the_module_lies_beside_the_program(building: Binaries, module: Path) -> None:
    (module / "charts" / "thing" / "templates").mkdir(parents=True)
    (module / "charts" / "thing" / "Chart.yaml").write_text("name: thing\n")
    (module / "charts" / "thing" / "templates" / "all.yaml").write_text("kind: Secret\n")
    (module / "charts" / "thing" / "templates" / "all.yaml").chmod(0o444)

    built = building.resolve([make_tool(package="./cmd/thing", chart="charts/thing")])["thing"]
    copy = locate.chart_of(built)
    assert (copy / "Chart.yaml").read_text() == "name: thing\n"
    assert (copy / "templates" / "all.yaml").stat().st_mode & 0o200, "it can be removed again"


def test_without_its_chart_a_program_does_not_count_as_built(building: Binaries, module: Path) -> None:
    with pytest.raises(BuildFailedError, match="there is no chart in"):
        building.resolve([make_tool(package="./cmd/thing", chart="charts/thing")])
    assert list(building.cache.glob("thing*/thing")) == []


def test_who_comes_second_waits_and_finds_it_done(local: Binaries, told: io.StringIO) -> None:
    local.cache.mkdir(parents=True)
    with (local.cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found: list[dict[str, Path]] = []
        second = threading.Thread(target=lambda: found.append(local.resolve([make_tool()])))
        second.start()
        while "waiting for it" not in told.getvalue():
            assert second.is_alive()
        cached = install(local.cache / "thing-v1.2.3-linux-amd64", SCRIPT)
    second.join()

    assert found == [{"thing": cached}]


def test_the_table_has_every_program_of_a_sandbox() -> None:
    table = catalog.table()

    assert set(catalog.CONTROL_PLANE) <= set(table)
    assert {"kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr", "coredns"} <= set(table)


@pytest.mark.parametrize("name", sorted(catalog.table()))
def test_every_tool_has_a_module_that_pins_it_and_a_checksum_for_each_release(name: str) -> None:
    tool = catalog.tool(name)
    folder = go_build.module_folder(tool.folder)
    pinned = (folder / "go.mod").read_text()

    assert f"{tool.version}\n" in pinned
    # Either the module is the program, or it imports it.
    if pinned.startswith(f"module {tool.package}\n"):
        assert (folder / "main.go").exists()
    else:
        assert f'"{tool.package}"' in (folder / "tools.go").read_text()
    assert (folder / "go.sum").stat().st_size > 0
    assert bool(tool.release) == bool(tool.checksum or tool.digests)
    assert not (tool.checksum and tool.digests)
    assert "{" not in tool.release + tool.checksum + tool.digests + tool.member + tool.ldflags


def test_the_cache_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")

    assert locate.cache_folder() == Path("/somewhere/dovetail/bin")

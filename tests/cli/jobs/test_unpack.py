"""What a container may send: regular files and folders below one folder; nothing else on the machine changes."""

import gzip
import io
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import tracemalloc
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail_cli.cluster import kubectl
from dovetail_cli.jobs import unpack as unpacking
from dovetail_cli.jobs.unpack import Unpacked, unpack
from dovetail_cli.submit.workdir.root_folder import MAX_DEPTH, Limits, shown
from dovetail_cli.ui.errors import CommandError

KINDS = (
    tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE,
    tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, b"Z",
)  # fmt: skip


def packed(*members: tarfile.TarInfo, text: bytes = b"text") -> io.BytesIO:
    """An archive as a container sends it; its files have this text."""
    sent = io.BytesIO()
    with tarfile.open(fileobj=sent, mode="w:gz") as file:
        for member in members:
            member.size = len(text) if member.isreg() else 0
            file.addfile(member, io.BytesIO(text))
    sent.seek(0)
    return sent


def member(name: str, *, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, target, mode
    return made


def folder(name: str) -> tarfile.TarInfo:
    return member(name, kind=tarfile.DIRTYPE)


def link(name: str, target: str) -> tarfile.TarInfo:
    return member(name, kind=tarfile.SYMTYPE, target=target)


def sent_as(*headers: bytes) -> io.BytesIO:
    return io.BytesIO(gzip.compress(b"".join(headers) + bytes(1024), compresslevel=1))


def header(name: str, *, kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    made = member(name, kind=kind)
    made.size = size
    return made.tobuf(format=tarfile.GNU_FORMAT)


def test_files_come_with_their_time_and_whether_they_can_be_run(tmp_path: Path) -> None:
    tool = member("b", mode=0o4777)
    tool.mtime = 1_700_000_000
    sent = packed(folder("./"), folder("./out"), member("./out/a"), tool)
    assert unpack(sent, into=tmp_path / "job-7") == Unpacked(count=2)
    assert (tmp_path / "job-7" / "out" / "a").read_text() == "text"
    about = (tmp_path / "job-7" / "b").stat()
    assert (about.st_mode & 0o7777 & ~0o022, about.st_mtime) == (0o755, 1_700_000_000)


def test_a_second_fetch_replaces_files_and_writes_through_no_link(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("own")
    into = tmp_path / "job-7"
    into.mkdir()
    (into / "a").write_text("before")
    (into / "b").symlink_to(own)
    os.link(own, into / "c")
    assert unpack(packed(member("a"), member("b"), member("c")), into=into) == Unpacked(count=3)
    assert [each.read_text() for each in sorted(into.iterdir())] == ["text"] * 3
    assert (own.read_text(), (into / "b").is_symlink()) == ("own", False)


def past_path_max(escaped: str) -> list[tarfile.TarInfo]:
    """CVE-2025-4517: beyond PATH_MAX, `realpath` takes links for folders, and the kernel follows them."""
    names = "abcdefghijklmnop"
    long, members, at = "d" * 247, [], ""
    for name in names:
        members += [folder(f"{at}{long}"), link(f"{at}{name}", long)]
        at += f"{long}/"
    deep = "/".join(names) + "/" + "l" * 254
    return [*members, link(deep, "../" * len(names)), link("escape", f"{deep}/../"), member(f"escape/{escaped}")]


HOSTILE = {
    "past PATH_MAX": past_path_max("escaped"),
    "parent": [member("../escaped")],
    "parent in the middle": [folder("a"), member("a/../../escaped")],
    "absolute": [member("{outside}/escaped")],
    "absolute after a dot": [member(".//{outside}/../{outside}/escaped")],
    "link to a folder": [link("out", "{outside}"), member("out/escaped")],
    "link to a parent": [link("out", ".."), member("out/escaped")],
    "chain of links": [link("a", "b"), link("b", "c"), link("c", ".."), member("a/escaped")],
    "link in place of a folder": [folder("a"), link("a", ".."), member("a/escaped")],
    "link to a file, and its content": [link("a", "{outside}/own"), member("a")],
    "hard link": [member("a", kind=tarfile.LNKTYPE, target="../outside/own"), member("a")],
    "hard link by a link": [link("a", ".."), member("b", kind=tarfile.LNKTYPE, target="a/outside/own"), member("b")],
    "device": [member("disk", kind=tarfile.BLKTYPE), member("console", kind=tarfile.CHRTYPE)],
    "pipe": [member("pipe", kind=tarfile.FIFOTYPE)],
    "control characters": [member("a\x1b[2Jb"), member("line\nbreak"), member("right\u202eleft"), member("\udc80")],
    "long": [member("n" * 256)],
    "deep": [member("d/" * MAX_DEPTH + "f")],
    "folder that was not sent": [member("nowhere/f")],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_leads_out_stays_and_the_rest_comes(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "own").write_text("own")
    members = [member("good")]
    for each in HOSTILE[name]:
        made = member(each.name.replace("{outside}", str(outside)), kind=each.type)
        made.linkname = each.linkname.replace("{outside}", str(outside))
        members.append(made)
    before = tree(tmp_path)
    found = unpack(packed(*members), into=tmp_path / "job-7")
    assert found.refused_count >= 1
    came = {path: what for path, what in tree(tmp_path).items() if not path.startswith("job-7")}
    assert came == before
    assert (tmp_path / "job-7" / "good").read_text() == "text"
    assert all(path.is_dir() or path.is_file() for path in (tmp_path / "job-7").rglob("*"))
    assert not any(path.is_symlink() for path in (tmp_path / "job-7").rglob("*"))


def test_what_stays_is_named_with_its_reason_in_characters_that_change_no_terminal(tmp_path: Path) -> None:
    members = [link("latest", "epoch-7"), member("a\x1b[2Jb"), member("../" + "x" * 200), member("/x"), member("..")]
    found = unpack(packed(*members), into=tmp_path / "job-7")
    assert found == Unpacked(
        refused=(
            "latest (it is a link)",
            r"a\x1b[2Jb (its name has characters that cannot be printed)",
            f"../{'x' * 76}… (its path has ..)",
        ),
        refused_count=5,
    )
    assert shown("right\u202e\udc80") == r"right\u202e\udc80"


def test_a_link_that_is_in_the_way_on_this_machine_is_not_followed(tmp_path: Path) -> None:
    outside, into = tmp_path / "outside", tmp_path / "job-7"
    outside.mkdir()
    into.mkdir()
    (into / "out").symlink_to(outside)
    (into / "file").write_text("own")
    (into / "taken").mkdir()
    found = unpack(packed(member("out/a"), folder("out"), folder("file"), member("taken")), into=into)
    assert [each.partition(" ")[2] for each in found.refused] == [
        "(a file or link is in its way)", "(a file or link is in its way)", "(a file or link is in its way)",
    ]  # fmt: skip
    assert (found.refused_count, list(outside.iterdir()), (into / "file").read_text()) == (4, [], "own")
    assert sorted(each.name for each in into.iterdir()) == ["file", "out", "taken"]


def tree(root: Path) -> dict[str, object]:
    """All below a folder: kinds, contents, numbers of names, and where links lead."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        about = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        target = str(path.readlink()) if path.is_symlink() else ""
        found[str(path.relative_to(root))] = (about.st_mode, about.st_nlink * path.is_file(), content, target)
    return found


PARTS = st.sampled_from(["a", "b", "c", "..", ".", "", "outside", "own", "job", "e\x07", "d" * 250, "l" * 256])
NAMES = st.one_of(
    st.lists(PARTS, min_size=1, max_size=6).map("/".join),
    st.lists(PARTS, max_size=3).map(lambda parts: "/".join(["{root}", "outside", *parts])),
    st.text(max_size=12),
)
MEMBERS = st.lists(st.tuples(NAMES, st.sampled_from(KINDS), NAMES, st.binary(max_size=20)), max_size=12)


def drawn(members: list[tuple[str, bytes, str, bytes]], *, root: str) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as file:
        for name, kind, target, text in members:
            made = member(name.replace("{root}", root), kind=kind, target=target.replace("{root}", root))
            made.size = len(text)
            with suppress(UnicodeEncodeError):
                file.addfile(made, io.BytesIO(text))
    return raw.getvalue()


@given(MEMBERS)
def test_no_archive_changes_anything_outside_of_the_folder(members: list[tuple[str, bytes, str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for each in ("outside", "job", "job/b"):
            (root / each).mkdir()
        (root / "outside" / "own").write_text("own")
        (root / "job" / "a").symlink_to("../outside")
        os.link(root / "outside" / "own", root / "job" / "c")
        before = {path: what for path, what in tree(root).items() if path.startswith("outside")}
        sent = io.BytesIO(gzip.compress(drawn(members, root=name), compresslevel=1))
        with suppress(CommandError):
            unpack(sent, into=root / "job")
        after = {path: what for path, what in tree(root).items() if not path.startswith("job")}
        # A file of the archive may take the place of the second name of `own`.
        assert {path: what[2:] for path, what in after.items()} == {path: what[2:] for path, what in before.items()}


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_bytes_that_are_no_archive_are_one_sentence(seed: int, changes: int) -> None:
    rng = random.Random(seed)
    good = packed(folder("a"), member("a/" + "n" * 200), link("b", "a"), member("c"), text=bytes(700))
    raw = bytearray(gzip.decompress(good.getvalue()))
    for _ in range(changes):
        raw[rng.randrange(4096)] = rng.choice([0, 0x30, 0x37, 0x78, 0x80, 0xFF, rng.randrange(256)])
    for at in range(0, 4096, 512):
        # With right checksums, so that what is changed is read.
        block = bytes(raw[at : at + 148]) + b" " * 8 + bytes(raw[at + 156 : at + 512])
        raw[at + 148 : at + 156] = b"%06o\0 " % sum(block)
    with tempfile.TemporaryDirectory() as name:
        with suppress(CommandError):
            unpack(io.BytesIO(gzip.compress(bytes(raw), compresslevel=1)), into=Path(name) / "job")
        assert {each.name for each in Path(name).iterdir()} <= {"job"}


@pytest.mark.parametrize("sent", [b"", b"no archive", packed(member("a"), text=bytes(99999)).getvalue()[:60]])
def test_a_part_of_an_archive_is_told_and_no_part_of_a_file_stays(tmp_path: Path, sent: bytes) -> None:
    with pytest.raises(CommandError, match="the container sent no whole archive"):
        unpack(io.BytesIO(sent), into=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="file/job-7: Not a directory"):
        unpack(packed(member("a")), into=tmp_path / "file" / "job-7")


def test_a_million_entries_end_at_the_limit(tmp_path: Path) -> None:
    thousand = gzip.compress(header("a", kind=tarfile.DIRTYPE) * 1000)
    with pytest.raises(CommandError, match=r"sends more than 5000 files and folders .* fetch a part of it"):
        unpack(io.BytesIO(thousand * 1000), into=tmp_path, limits=Limits(size=0, entries=5000))
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_more_bytes_than_the_limit_are_not_written(tmp_path: Path) -> None:
    sent = packed(member("a"), member("b"), text=bytes(600))
    with pytest.raises(CommandError, match="sends more than 1000 bytes"):
        unpack(sent, into=tmp_path, limits=Limits(size=1000, entries=10))
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_the_disk_keeps_some_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = unpacking.SPARE_BYTES + 500
    monkeypatch.setattr(unpacking.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(CommandError, match=r"sends more than 500 bytes \(of the disk, 256 MiB stay free\)"):
        unpack(packed(member("a"), text=bytes(501)), into=tmp_path)


def sparse(size: int) -> bytes:
    """A file of GNU tar that says it has `size` bytes, of which none is sent."""
    made = bytearray(header("sparse", kind=tarfile.GNUTYPE_SPARSE))
    made[386:483] = b"%011o\0%011o\0" % (size - 1, 1) + bytes(73)
    made[483:495] = b"%011o\0" % size
    made[124:136] = b"%011o\0" % 512
    made[148:156] = b" " * 8
    made[148:156] = b"%06o\0 " % sum(made)
    return bytes(made) + bytes(512)


def test_a_sparse_file_stays_however_large_it_says_it_is(tmp_path: Path) -> None:
    assert unpack(sent_as(sparse(4 << 30), header("a")), into=tmp_path) == Unpacked(
        count=1, refused=("sparse (it is neither file nor folder)",), refused_count=1
    )


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_of_gigabytes_does_not_come_into_memory(tmp_path: Path, kind: bytes) -> None:
    sent = sent_as(header("x", kind=kind, size=1 << 30), bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(CommandError, match="a header of 1073741824 bytes"):
        unpack(sent, into=tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_header_that_leads_back_ends_the_archive(tmp_path: Path) -> None:
    backwards = bytearray(header("a"))
    # A negative size, as GNU tar writes it (CVE-2025-8194).
    backwards[124:136] = tarfile.itn(-512, 12, tarfile.GNU_FORMAT)
    backwards[148:156] = b" " * 8
    backwards[148:156] = b"%06o\0 " % sum(backwards)
    with pytest.raises(CommandError, match="the container sent no whole archive"):
        unpack(sent_as(header("good") * 2, bytes(backwards)), into=tmp_path)


def test_headers_of_headers_are_no_archive(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="the container sent no whole archive"):
        unpack(sent_as(header("x", kind=tarfile.XHDTYPE) * 5000), into=tmp_path)


def test_a_container_that_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    program = "import sys, time; sys.stdout.buffer.write(b'no archive'); sys.stdout.flush(); time.sleep(3600)"
    command = [sys.executable, "-c", program]
    with pytest.raises(CommandError, match="no whole archive"), kubectl.read_from(command) as stdout:
        unpack(stdout, into=tmp_path)


def test_an_archive_comes_through_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "src" / "a").mkdir(parents=True)
    (tmp_path / "src" / "a" / "noise").write_bytes(random.Random(1).randbytes(300_000))
    command = ["tar", "-czf", "-", "-C", str(tmp_path / "src"), "."]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert unpack(running.stdout, into=tmp_path / "job-7") == Unpacked(count=1)
    assert (tmp_path / "job-7/a/noise").read_bytes() == (tmp_path / "src/a/noise").read_bytes()

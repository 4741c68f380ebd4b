"""The script that unpacks, run by the shells and tars that images have: what it makes, and what it refuses."""

import gzip
import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail_cli.submit.workdir import archive, listing
from dovetail_cli.submit.workdir.root_folder import MAX_DEPTH
from dovetail_cli.submit.workdir.unpack import SCRIPT, arguments


@pytest.fixture(params=["dash", "bash", "busybox"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """A shell with its tar; all of busybox's own programs in the last case."""
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"no {request.param} here")
    if request.param != "busybox":
        return [program]
    programs = tmp_path / "busybox"
    programs.mkdir()
    for name in ("sh", "tar", "gzip", "mktemp", "mkdir", "mv", "rm", "chmod", "cat", "head", "wc"):
        (programs / name).symlink_to(program)
    return ["/usr/bin/env", f"PATH={programs}", "sh"]


def command(shell: list[str], packed: bytes, *, into: Path, most_bytes: int = 1 << 20) -> list[str]:
    """What unpacks, with the archive in its place."""
    file = into.parent / "directory.tar.gz"
    into.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(packed)
    words = arguments(archive=str(file), target=str(into), above=str(into.parent), most_bytes=most_bytes)
    return [*shell, "-c", SCRIPT, "dovetail-unpack", *words]


def unpack(shell: list[str], packed: bytes, *, into: Path) -> subprocess.CompletedProcess[str]:
    words = command(shell, packed, into=into)
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def hostile(*members: tarfile.TarInfo, text: bytes = b"hostile") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.GNU_FORMAT) as file:
        for member in members:
            member.size = len(text) if member.isreg() else 0
            file.addfile(member, io.BytesIO(text))
    return packed.getvalue()


def member(name: str, *, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


def test_a_directory_is_unpacked_as_it_was(shell: list[str], tmp_path: Path) -> None:
    root = tmp_path / "src"
    long = "a" * 120
    for name in ("train.py", f"net/{long}/model.py", "net/Größe 1.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o700)
    (root / "empty").mkdir()
    into = tmp_path / "runs" / "train-1"
    done = unpack(shell, archive.pack(listing.of(root)), into=into)
    assert (done.returncode, done.stderr) == (0, "")
    assert (into / "net" / long / "model.py").read_text() == f"net/{long}/model.py"
    assert {path.relative_to(into) for path in into.rglob("*")} == {path.relative_to(root) for path in root.rglob("*")}
    assert ((into / "run.sh").stat().st_mode & 0o777, into.stat().st_mode & 0o777) == (0o755, 0o755)
    assert sorted(path.name for path in into.parent.iterdir()) == ["directory.tar.gz", "train-1"]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([member("../escaped")], "the archive names ../escaped, which is outside of the directory"),
        ([member("a/../../escaped")], "outside of the directory"),
        ([member("a/.."), member("b")], "outside of the directory"),
        ([member("ok"), member("/tmp/dovetail-escaped")], "names /tmp/dovetail-escaped, which is outside"),
        ([member("a\n/b")], ""),
    ],
    ids=["parent", "parent below", "parent at the end", "absolute", "line break"],
)  # fmt: skip
def test_a_name_outside_of_the_directory_is_refused_or_stripped(
    shell: list[str], tmp_path: Path, members: list[tarfile.TarInfo], said: str
) -> None:
    into = tmp_path / "runs" / "train-1"
    done = unpack(shell, hostile(*members), into=into)
    if done.returncode == 0:
        # busybox's tar strips such names by itself, and GNU's shows a line break as two characters.
        assert shell[-1] == "sh" or not said
    else:
        assert (said in done.stderr, into.exists()) == (True, False), done.stderr
    assert {path.name for path in into.parent.iterdir()} <= {"directory.tar.gz", "train-1"}
    assert {path.name for path in tmp_path.iterdir()} <= {"runs", "busybox"}
    assert not Path("/tmp/dovetail-escaped").exists()


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([member("link", kind=tarfile.SYMTYPE, target=".."), member("link/escaped")], "the archive has a link"),
        ([member("a"), member("link", kind=tarfile.SYMTYPE, target="a")], "the archive has a link"),
        ([member("link", kind=tarfile.LNKTYPE, target="/etc/passwd")], "the archive has a link"),
        ([member("pipe", kind=tarfile.FIFOTYPE)], "the archive has more than files and folders"),
        ([member("disk", kind=tarfile.BLKTYPE)], "the archive has more than files and folders"),
    ],
    ids=["link out of it", "link in it", "hard link", "pipe", "device"],
)  # fmt: skip
def test_anything_but_files_and_folders_is_refused(
    shell: list[str], tmp_path: Path, members: list[tarfile.TarInfo], said: str
) -> None:
    into = tmp_path / "runs" / "train-1"
    done = unpack(shell, hostile(*members), into=into)
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    assert [path.name for path in into.parent.iterdir()] == ["directory.tar.gz"]


def many(count: int) -> bytes:
    """An archive with one file, `count` times."""
    header = member("a").tobuf(format=tarfile.GNU_FORMAT)
    return gzip.compress(header * count + bytes(1024), compresslevel=1)


def zeros(size: int) -> bytes:
    made = member("zeros")
    made.size = size
    return gzip.compress(made.tobuf(format=tarfile.GNU_FORMAT) + bytes(size + 1024), compresslevel=1)


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (lambda: many(20_001), "the archive has 20001 files and folders or more"),
        (lambda: zeros(100 << 20), "the archive has more than 82968576 bytes"),
        (lambda: hostile(member("d/" * MAX_DEPTH + "f")), "a file or folder that is more than 64 deep"),
    ],
    ids=["entries", "bytes", "depth"],
)
def test_more_than_the_limits_is_refused_before_anything_is_written(
    shell: list[str], tmp_path: Path, packed: Callable[[], bytes], said: str
) -> None:
    into = tmp_path / "runs" / "train-1"
    done = unpack(shell, packed(), into=into)
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    assert [path.name for path in into.parent.iterdir()] == ["directory.tar.gz"]


def test_as_much_as_the_limits_allow_is_unpacked(shell: list[str], tmp_path: Path) -> None:
    into = tmp_path / "runs" / "train-1"
    done = unpack(shell, hostile(member("d/" * (MAX_DEPTH - 1) + "f")), into=into)
    assert (done.returncode, done.stderr) == (0, "")
    assert unpack(shell, many(20_000), into=tmp_path / "runs" / "train-2").returncode == 0


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"no archive"], ids=["cut", "none"]
)
def test_a_damaged_archive_fails_and_leaves_nothing(
    shell: list[str], tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    into = tmp_path / "runs" / "train-1"
    done = unpack(shell, damage(hostile(member("a"), text=bytes(range(256)) * 100)), into=into)
    assert done.returncode != 0
    assert not into.exists()


def test_a_directory_that_is_there_stays_with_its_results(shell: list[str], tmp_path: Path) -> None:
    into = tmp_path / "runs" / "train-1"
    into.mkdir(parents=True)
    (into / "checkpoint").write_text("epoch 7")
    done = unpack(shell, hostile(member("train.py")), into=into)
    assert (done.returncode, [path.name for path in into.iterdir()]) == (0, ["checkpoint"])


def test_workers_that_share_a_volume_unpack_at_the_same_time(shell: list[str], tmp_path: Path) -> None:
    into, packed = tmp_path / "runs" / "train-1", hostile(member("train.py"))
    words = command(shell, packed, into=into)
    running = [subprocess.Popen(words) for _ in range(8)]
    assert [each.wait(timeout=60) for each in running] == [0] * 8
    assert [path.name for path in into.iterdir()] == ["train.py"]
    assert sorted(path.name for path in into.parent.iterdir()) == ["directory.tar.gz", "train-1"]


def test_an_image_without_tar_is_told_what_it_needs(tmp_path: Path) -> None:
    into = tmp_path / "runs" / "train-1"
    shell = ["/usr/bin/env", f"PATH={tmp_path}", shutil.which("sh") or "/bin/sh"]
    done = unpack(shell, hostile(member("a")), into=into)
    assert (done.returncode, "the image has no tar, which unpacks the working directory" in done.stderr) == (1, True)

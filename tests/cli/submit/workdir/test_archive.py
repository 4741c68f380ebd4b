"""The archive of a directory: bounded, and a sentence for one that is too large or changes."""

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from dovetail_cli.submit.workdir import archive, listing, send
from dovetail_cli.submit.workdir.archive import TooLargeError
from dovetail_cli.ui.errors import CommandError


def names_in(packed: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as file:
        return file.getnames()


def test_a_directory_of_the_allowed_size_is_packed(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(os.urandom(archive.MAX_BYTES - 8192))
    packed = archive.pack(listing.of(tmp_path))
    assert names_in(packed) == ["noise"]
    assert len(packed) <= archive.MAX_BYTES


def test_what_does_not_compress_to_900_kib_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(os.urandom(archive.MAX_BYTES + 1))
    with pytest.raises(TooLargeError):
        archive.pack(listing.of(tmp_path))


def test_what_unpacks_to_more_than_64_mib_is_too_large_however_small_it_packs(tmp_path: Path) -> None:
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(archive.MAX_UNPACKED_BYTES + 1)
    with pytest.raises(TooLargeError):
        archive.pack(listing.of(tmp_path))


def test_a_file_that_becomes_shorter_or_vanishes_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    found = listing.of(tmp_path)
    (tmp_path / "a").unlink()
    with pytest.raises(CommandError, match=r"^a cannot go along: No such file or directory$"):
        archive.pack(found)


@pytest.mark.parametrize("changed", ["file", "folder"])
def test_what_becomes_a_link_after_it_was_listed_does_not_go_along(tmp_path: Path, changed: str) -> None:
    secret, work = tmp_path / "secret", tmp_path / "work"
    for each in (secret, work / "data"):
        each.mkdir(parents=True)
        (each / "key").write_text("key")
    found = listing.of(work)
    shutil.rmtree(work / "data")
    if changed == "folder":
        (work / "data").symlink_to(secret)
    else:
        (work / "data").mkdir()
        (work / "data" / "key").symlink_to(secret / "key")
    with pytest.raises(
        CommandError, match=r"^data/key cannot go along: it changed while it was read: a .* in its way$"
    ):
        archive.pack(found)


def test_a_pipe_in_place_of_a_file_is_named_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    found = listing.of(tmp_path)
    (tmp_path / "a").unlink()
    os.mkfifo(tmp_path / "a")
    with pytest.raises(CommandError, match=r"^a cannot go along: it changed while it was read: it is no regular file$"):
        archive.pack(found)


def test_a_link_goes_along_as_the_file_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("content")
    (tmp_path / "b").symlink_to("a")
    with tarfile.open(fileobj=io.BytesIO(archive.pack(listing.of(tmp_path)))) as file:
        b = file.getmember("b")
        assert (b.isreg(), file.extractfile(b).read()) == (True, b"content")


def test_the_sentence_names_sizes_files_and_ways_out(tmp_path: Path) -> None:
    for name, size in (("a.pt", 3_000_000), ("data/b.bin", 2_000_000), ("c", 1_000), ("d", 10)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    told = send.refusal(listing.of(tmp_path))
    assert told.startswith(
        f"{tmp_path} has 4 files with 4.8 MiB, and at most 900 KiB compressed (64 MiB unpacked) go along with a job: "
        "the largest are a.pt (2.9 MiB), data/b.bin (1.9 MiB), c (1000 bytes); name what the job does not need in "
        ".dovetailignore, or set a directory on a volume, which takes up to 1.0 GiB"
    )
    assert told.endswith("or leave the directory out with --no-upload")


def test_a_file_keeps_its_time_and_whether_it_is_a_program_and_nothing_else_of_its_owner(tmp_path: Path) -> None:
    for name, mode in (("data", 0o600), ("run.sh", 0o700)):
        (tmp_path / name).write_text("12345")
        (tmp_path / name).chmod(mode)
        os.utime(tmp_path / name, (1_000_000_000, 1_000_000_000))
    with tarfile.open(fileobj=io.BytesIO(archive.pack(listing.of(tmp_path)))) as file:
        found = {each.name: (each.mode, each.size, each.mtime, each.uid, each.uname) for each in file.getmembers()}
    assert found == {
        "data": (0o644, 5, 1_000_000_000, 0, ""),
        "run.sh": (0o755, 5, 1_000_000_000, 0, ""),
    }

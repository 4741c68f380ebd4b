"""A text in parts as gzip: any decoder reads it, and only new parts are compressed again."""

import gzip
import subprocess
import zlib
from random import Random
from typing import Any

import pytest

from dovetail_gateway.stream import gzip_pieces
from dovetail_gateway.stream.gzip_pieces import GzipPieces


@pytest.mark.parametrize("parts", [[], [b""], [b"a"], [b"", b"ab" * 100_000, b"", b"c"]])
def test_it_is_gzip(parts: list[bytes]) -> None:
    text = GzipPieces().compressed(parts)
    assert gzip.decompress(text) == b"".join(parts)


def test_another_program_reads_it() -> None:
    parts = [str(at).encode() * 50 for at in range(300)]
    found = subprocess.run(["gzip", "-d"], input=GzipPieces().compressed(parts), capture_output=True, check=True)
    assert found.stdout == b"".join(parts)


def test_of_many_versions_each_is_whole_and_only_new_parts_are_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[bytes]()

    def counted(part: bytes) -> bytes:
        made.append(part)
        return piece(part)

    piece: Any = gzip_pieces._piece
    monkeypatch.setattr(gzip_pieces, "_piece", counted)
    random, pieces = Random(7), GzipPieces()
    parts = [random.randbytes(20) for _ in range(40)]
    before = set[bytes]()
    for _ in range(50):
        made.clear()
        assert zlib.decompress(pieces.compressed(parts), zlib.MAX_WBITS + 16) == b"".join(parts)
        assert set(made) == set(parts) - before
        assert len(pieces) == len(set(parts)), "nothing else is kept"
        before = set(parts)
        match random.choice(["change", "remove", "insert"]):
            case "change":
                parts[random.randrange(len(parts))] = random.randbytes(20)
            case "remove":
                del parts[random.randrange(len(parts))]
            case _:
                parts.insert(random.randrange(len(parts)), random.randbytes(20))

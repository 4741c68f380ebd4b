"""A container's log as bytes: the place of a reader, and lines with a prefix. Pure."""

import re
from collections.abc import Iterator
from typing import Final

# As kubelet writes the time of a line: RFC 3339 with nanoseconds, and a blank.
_STAMP: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|[+-]\d\d:\d\d) ")
_MOST_STAMP_BYTES: Final = 40
_PIECES: Final = re.compile(rb"[^\n]*\n|[^\n]+")


class LogCursor:
    """The place of a reader in a container's log.

    A broken stream continues without a gap and without repetitions. The cursor takes the times off that kubelet writes
    before the lines. `tail` is the number of last lines to begin with; None begins with the first. A node that writes
    no times serves the whole log again, of which the cursor drops what was shown; with a tail it cannot know where that
    ends, so it continues with new lines, and `may_lack_lines` is true.
    """

    def __init__(self, *, tail: int | None = None) -> None:
        self.may_lack_lines = False
        self._tail = tail
        self._stamp = b""
        self._key = b""
        # Lines with the newest time that were shown, and how many of them the resumed stream has sent again.
        self._equal = 0
        self._passed = 0
        self._resuming = False
        # The bytes of the newest line that were shown, and of all lines.
        self._shown_of_line = 0
        self._shown = 0
        self._head = b""
        self._in_line = False
        self._drop = 0
        self._drop_line = False

    @property
    def tail_lines(self) -> int | None:
        """The number of last lines to ask for in the next request; None for all."""
        if not self._shown:
            return self._tail
        return 0 if self.may_lack_lines else None

    @property
    def since(self) -> str | None:
        """The time from which to ask for lines; None before the first line with a time."""
        return self._stamp.decode() or None

    def resume(self) -> None:
        """Prepare for the next stream, after the last one has ended or broken."""
        self._head, self._in_line, self._drop_line = b"", False, False
        self._resuming, self._passed = bool(self._stamp), 0
        if self._stamp or not self._shown:
            self._drop = 0
        elif self._tail is None:
            self._drop = self._shown
        else:
            self.may_lack_lines = True

    def feed(self, chunk: bytes) -> bytes:
        """What to show of the next bytes of a stream."""
        return b"".join(self._piece(piece) for piece in _PIECES.findall(chunk))

    def end(self) -> bytes:
        """What to show at the end of a stream: what might have become the time of a line."""
        rest, self._head = self._head, b""
        return self._body(rest)

    def _piece(self, piece: bytes) -> bytes:
        """A line, its beginning or its rest."""
        ends = piece.endswith(b"\n")
        if not self._in_line:
            self._head += piece
            found = _STAMP.match(self._head)
            if found is None and not ends and len(self._head) < _MOST_STAMP_BYTES and self._head[:1].isdigit():
                return b""
            piece, self._head = self._head[found.end() if found else 0 :], b""
            self._begin_line(found)
        shown = self._body(piece)
        self._in_line = not ends
        return shown

    def _begin_line(self, found: re.Match[bytes] | None) -> None:
        self._in_line, self._drop_line = True, False
        if found is None:
            return
        key = found[1] + (found[2] or b"").ljust(9, b"0")
        if self._resuming and key <= self._key:
            self._begin_line_again(is_newest=key == self._key)
            return
        self._resuming = False
        self._equal = self._equal + 1 if key == self._key else 1
        self._key, self._stamp, self._shown_of_line = key, found[0].strip(), 0

    def _begin_line_again(self, *, is_newest: bool) -> None:
        self._passed += is_newest
        if is_newest and self._passed == self._equal:
            # The line in which the stream broke: its rest is new.
            self._drop = self._shown_of_line
        elif is_newest and self._passed > self._equal:
            self._equal, self._shown_of_line = self._passed, 0
        else:
            self._drop_line = True

    def _body(self, piece: bytes) -> bytes:
        if self._drop_line:
            return b""
        dropped = min(self._drop, len(piece))
        self._drop -= dropped
        kept = piece[dropped:]
        self._shown += len(kept)
        self._shown_of_line += len(kept)
        return kept


class Prefixed:
    """Whole lines, each with a name before it."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """The lines that this chunk completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return b"".join(self._lines(lines))

    def end(self) -> bytes:
        """The last line, if it has no end."""
        rest, self._rest = self._rest, b""
        return b"".join(self._lines([rest] if rest else []))

    def _lines(self, lines: list[bytes]) -> Iterator[bytes]:
        return (self._prefix + line + b"\n" for line in lines)

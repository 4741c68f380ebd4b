"""Where a reader is in a log: whatever way a stream breaks, each line is shown once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail_cli.jobs.log_lines import LogCursor, Prefixed

TIMES = st.sampled_from(["2026-11-21T12:00:00.000000001Z", "2026-11-21T12:00:00.5Z", "2026-11-21T12:00:01Z"])
TEXTS = st.text(alphabet="0a\r .", max_size=6)


def stamped(lines: list[tuple[str, str]]) -> bytes:
    return "".join(f"{time} {text}\n" for time, text in lines).encode()


def served(lines: list[tuple[str, str]], *, since: str | None) -> bytes:
    """As kubelet answers: lines from that second on."""
    return stamped([(time, text) for time, text in lines if since is None or time[:19] >= since[:19]])


@given(lines=st.lists(st.tuples(TIMES, TEXTS), max_size=8), breaks=st.lists(st.integers(0, 200), max_size=4))
def test_a_stream_that_breaks_anywhere_shows_each_line_once(lines: list[tuple[str, str]], breaks: list[int]) -> None:
    lines = sorted(lines, key=lambda line: (line[0][:19], line[0] if "." in line[0] else line[0][:19]))
    cursor, shown = LogCursor(), b""
    for length in breaks:
        shown += cursor.feed(served(lines, since=cursor.since)[:length])
        cursor.resume()
    shown += cursor.feed(served(lines, since=cursor.since)) + cursor.end()
    assert shown == "".join(f"{text}\n" for _, text in lines).encode()


@given(text=st.binary(max_size=60), breaks=st.lists(st.integers(0, 60), max_size=4), chunk=st.integers(1, 7))
def test_without_times_the_bytes_that_were_shown_are_dropped(text: bytes, breaks: list[int], chunk: int) -> None:
    cursor, shown = LogCursor(), b""
    for length in breaks:
        shown += cursor.feed(text[:length])
        cursor.resume()
        assert cursor.tail_lines is None
    for at in range(0, len(text), chunk):
        shown += cursor.feed(text[at : at + chunk])
    assert shown + cursor.end() == text


def test_the_last_lines_are_asked_for_once_and_a_gap_is_known() -> None:
    cursor = LogCursor(tail=2)
    assert (cursor.tail_lines, cursor.since) == (2, None)
    assert cursor.feed(b"2026-11-21T12:00:00.5Z one\n") == b"one\n"
    cursor.resume()
    assert (cursor.tail_lines, cursor.since, cursor.may_lack_lines) == (None, "2026-11-21T12:00:00.5Z", False)
    plain = LogCursor(tail=2)
    plain.feed(b"one\n")
    plain.resume()
    assert (plain.tail_lines, plain.since, plain.may_lack_lines) == (0, None, True)


@pytest.mark.parametrize("text", [b"12%|#  | 3/25\r16%|#  | 4/25\r", b"2026", b"2026-11-21T12:00:00.5Z"])
def test_a_line_without_an_end_is_shown_as_it_comes(text: bytes) -> None:
    cursor = LogCursor()
    assert cursor.feed(b"2026-11-21T12:00:00.5Z " + text) == text
    alone = LogCursor()
    assert alone.feed(text) + alone.end() == text


@given(text=st.text(alphabet="ab\n", max_size=20), at=st.integers(0, 20))
def test_lines_get_their_prefix_however_they_arrive(text: str, at: int) -> None:
    lines = Prefixed("worker 1 | ")
    shown = lines.feed(text[:at].encode()) + lines.feed(text[at:].encode()) + lines.end()
    parts = text.removesuffix("\n").split("\n") if text else []
    assert shown.decode() == "".join(f"worker 1 | {part}\n" for part in parts)

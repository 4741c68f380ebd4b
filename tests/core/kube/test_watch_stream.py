import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube import watch_stream
from dovetail.kube.errors import Undecodable
from tests.core.kube.api import bookmark, line, make_object


@given(lines=st.lists(st.binary(min_size=1).filter(lambda text: b"\n" not in text and text.strip())), data=st.data())
def test_lines_come_out_whole_however_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(text + b"\n" for text in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    buffer = watch_stream.LineBuffer()
    bounds = [0, *cuts, len(stream)]
    found = [text for start, end in itertools.pairwise(bounds) for text in buffer.feed(stream[start:end])]
    assert found == lines


def test_an_unfinished_line_stays_inside() -> None:
    assert watch_stream.LineBuffer().feed(b'{"type"') == []


def test_kinds_of_events_are_told_apart() -> None:
    assert isinstance(watch_stream.event(line("ADDED", make_object("a", version=1))), watch_stream.Added)
    assert isinstance(watch_stream.event(line("DELETED", make_object("a", version=2))), watch_stream.Deleted)


def test_a_bookmark_is_read_for_its_version_alone() -> None:
    event = watch_stream.event(bookmark(17))
    assert isinstance(event, watch_stream.Bookmark)
    assert event.object.metadata.resource_version == "17"


def test_an_error_event_carries_its_status() -> None:
    event = watch_stream.event(line("ERROR", {"kind": "Status", "metadata": {}, "code": 410, "reason": "Expired"}))
    assert isinstance(event, watch_stream.Failure)
    assert event.object.code == 410


@pytest.mark.parametrize("text", [b"<html>", b'{"type": "NEW", "object": {}}', b"{}", b'{"type": "ADDED"'])
def test_what_is_no_event_is_said_to_be_none(text: bytes) -> None:
    with pytest.raises(Undecodable, match="answer to a watch cannot be read"):
        watch_stream.event(text)

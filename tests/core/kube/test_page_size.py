"""How many objects a page asks for: few after a page that was too large, and more again as long as they fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube.errors import TooLarge
from dovetail.kube.page_size import PAGE_BYTES, PageSize
from dovetail.kube.watch_stream import LineBuffer

MEBIBYTE = 1 << 20


def test_ordinary_objects_come_in_full_pages() -> None:
    size = PageSize(500)
    size.arrived(objects=500, size_bytes=500 * 4_000)
    assert size.count == 500


def test_pages_of_large_objects_are_half_full() -> None:
    size = PageSize(500)
    assert [size.shrink() and size.count for _ in range(3)] == [125, 31, 7]
    for _ in range(5):
        size.arrived(objects=size.count, size_bytes=size.count * MEBIBYTE)
    assert size.count == 8


def test_pages_grow_again_no_more_than_twofold() -> None:
    size = PageSize(500)
    while size.shrink():
        pass
    counts = []
    for _ in range(10):
        size.arrived(objects=size.count, size_bytes=size.count * 100)
        counts.append(size.count)
    assert counts == [2, 4, 8, 16, 32, 64, 128, 256, 500, 500]


@given(st.lists(st.integers(1, 3 * MEBIBYTE // 2), min_size=1, max_size=400), st.integers(1, 500))
def test_every_list_is_read_to_its_end_within_few_attempts(sizes: list[int], most: int) -> None:
    """Objects of whatever sizes: all are read, in order, and few pages are given up."""
    size, read, given_up = PageSize(most), 0, 0
    while read < len(sizes):
        page = sizes[read : read + size.count]
        if sum(page) > PAGE_BYTES:
            assert size.shrink(), "one object is never too large"
            given_up += 1
            continue
        size.arrived(objects=len(page), size_bytes=sum(page))
        assert 1 <= size.count <= most
        read += len(page)
    assert given_up <= 5 + len(sizes) // 4


def test_a_line_that_never_ends_is_given_up() -> None:
    buffer = LineBuffer()
    for _ in range(PAGE_BYTES // MEBIBYTE):
        assert buffer.feed(b"x" * MEBIBYTE) == []
    with pytest.raises(TooLarge, match="a watch"):
        buffer.feed(b"x")

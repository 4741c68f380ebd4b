"""Rows that come page by page are those of a list, however they are taken, by how many readers, and if a page fails."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.sdk.aio.listing import AsyncListing
from dovetail.sdk.blocking.listing import Listing

sizes = st.lists(st.integers(0, 4), min_size=1, max_size=5)
ends = st.none() | st.integers(-6, 14)
places = st.builds(slice, ends, ends, st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3])) | st.integers(-14, 14)


@dataclass(frozen=True, kw_only=True)
class Page:
    items: list[int]
    next: str | None


@dataclass(kw_only=True)
class Pages:
    """Numbered rows in pages of these sizes. The pages at `failing` fail once; each waits until others have run."""

    sizes: list[int]
    failing: set[int] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)

    @property
    def rows(self) -> list[str]:
        return [f"row {number}" for number in range(sum(self.sizes))]

    def page_at(self, cursor: str) -> Page:
        number = int(cursor or 0)
        self.asked.append(number)
        if number in self.failing:
            self.failing.discard(number)
            raise ConnectionError
        first = sum(self.sizes[:number])
        following = str(number + 1) if number + 1 < len(self.sizes) else None
        return Page(items=list(range(first, first + self.sizes[number])), next=following)

    async def page_later(self, cursor: str) -> Page:
        await asyncio.sleep(0)
        return self.page_at(cursor)

    def listing(self) -> AsyncListing[str]:
        return AsyncListing(self.page_later, shown=_shown)

    def blocking(self) -> Listing[str]:
        return Listing(self.page_at, shown=_shown)


def _shown(row: Any) -> str:
    return f"row {row}"


def taken(rows: Any, at: Any) -> Any:
    try:
        return rows[at]
    except IndexError:
        return IndexError


@given(sizes=sizes, taking=st.lists(places, min_size=1, max_size=4))
@example(sizes=[2, 2, 2], taking=[slice(-3, 5)])
@example(sizes=[2, 2, 2], taking=[slice(5, 1, -1)])
def test_every_index_and_slice_is_that_of_a_list(sizes: list[int], taking: list[int | slice]) -> None:
    pages = Pages(sizes=sizes)
    listing = pages.blocking()
    for at in taking:
        assert taken(listing, at) == taken(pages.rows, at)
    assert list(listing) == listing.all() == pages.rows
    assert len(pages.asked) == len(set(pages.asked)), "each page is read once"


@given(sizes=sizes, taking=st.lists(places, min_size=2, max_size=4))
def test_readers_at_the_same_time_see_the_same_rows(sizes: list[int], taking: list[int | slice]) -> None:
    pages = Pages(sizes=sizes)

    async def read(listing: AsyncListing[str], at: int | slice) -> Any:
        try:
            return await listing[at]
        except IndexError:
            return IndexError

    async def all_of(listing: AsyncListing[str]) -> list[str]:
        return [row async for row in listing]

    async def together() -> list[Any]:
        listing = pages.listing()
        return await asyncio.gather(*(read(listing, at) for at in taking), all_of(listing), listing.all())

    *some, iterated, everything = asyncio.run(together())
    assert some == [taken(pages.rows, at) for at in taking]
    assert iterated == everything == pages.rows


@given(sizes=sizes, data=st.data())
def test_after_a_page_that_failed_it_goes_on_with_that_page(sizes: list[int], data: st.DataObject) -> None:
    failing = data.draw(st.sets(st.integers(0, len(sizes) - 1)))
    pages = Pages(sizes=sizes, failing=set(failing))
    listing = pages.blocking()
    for _ in failing:
        with pytest.raises(ConnectionError):
            list(listing)
    assert list(listing) == pages.rows
    assert sorted(set(pages.asked)) == list(range(len(sizes)))


@pytest.mark.parametrize(
    ("at", "pages"), [(0, 1), (3, 1), (4, 2), (slice(4), 1), (slice(5), 2), (slice(2, 4), 1), (slice(0, 0), 0), (-1, 3)]
)
def test_no_more_pages_are_read_than_it_takes(at: int | slice, pages: int) -> None:
    made = Pages(sizes=[4, 4, 4])
    taken(made.blocking(), at)
    assert len(made.asked) == pages


def test_rows_are_taken_one_after_another_and_then_it_ends() -> None:
    pages = Pages(sizes=[1, 0, 2])
    listing = pages.blocking()
    assert [next(listing) for _ in range(3)] == pages.rows
    with pytest.raises(StopIteration):
        next(listing)
    assert list(listing) == pages.rows

"""The rows of an answer, read page by page, and shown by a notebook as a table.

A module of its own: it takes any function that returns pages, and knows no gateway.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, TypeVar, overload

from dovetail.sdk import notebook
from dovetail.sdk.aio import runtime

T = TypeVar("T")


class AsyncListing(Generic[T]):
    """Rows that are read when they are needed, each page once.

    It can be iterated more than once, and `anext` takes one row after another.
    """

    def __init__(self, page_at: Callable[[str], Awaitable[Any]], *, shown: Callable[[Any], T]) -> None:
        self._page_at = page_at
        self._shown = shown
        self._known: list[T] = []
        self._cursor: str | None = ""
        self._taken = 0

    async def __aiter__(self) -> AsyncIterator[T]:
        at = 0
        while await self._reaches(at):
            yield self._known[at]
            at += 1

    async def __anext__(self) -> T:
        if not await self._reaches(self._taken):
            raise StopAsyncIteration
        self._taken += 1
        return self._known[self._taken - 1]

    @overload
    async def __getitem__(self, at: int) -> T: ...

    @overload
    async def __getitem__(self, at: slice) -> list[T]: ...

    async def __getitem__(self, at: int | slice) -> T | list[T]:
        """The row at a place, or a slice as a list; reads no more pages than it takes, from the end all of them."""
        last = _last(at)
        if last is None:
            await self.all()
        else:
            await self._reaches(last)
        return notebook.Listed(self._known[at]) if isinstance(at, slice) else self._known[at]

    async def all(self) -> list[T]:
        """All rows. Raises `DovetailError`."""
        while self._cursor is not None:
            await self._read()
        return notebook.Listed(self._known)

    async def _reaches(self, at: int) -> bool:
        """Whether there is a row at that place; reads pages up to it."""
        while at >= len(self._known) and self._cursor is not None:
            await self._read()
        return at < len(self._known)

    async def _read(self) -> None:
        cursor = self._cursor
        page = await self._page_at(cursor or "")
        # Meanwhile another reader may have read the same page.
        if self._cursor == cursor:
            self._known += map(self._shown, page.items)
            self._cursor = page.next

    def _ipython_display_(self) -> None:
        view = notebook.view()
        if view is None:
            raise NotImplementedError  # IPython then shows the repr
        runtime.begin(lambda: self._draw(view))

    async def _draw(self, view: notebook.View) -> None:
        await self._reaches(notebook.MOST_ROWS - 1)
        view.show(notebook.table(self._known, more=self._cursor is not None), text=repr(self))

    def __repr__(self) -> str:
        more = "" if self._cursor is None else ", and more when they are read"
        return f"<{len(self._known)} rows{more}>"


def _last(at: int | slice) -> int | None:
    """The last row that an index or a slice takes at most; None for one that counts from the end."""
    if not isinstance(at, slice):
        return None if at < 0 else at
    if at.stop is None or min(at.stop, at.start or 0, at.step or 1) < 0:
        return None
    return int(at.stop) - 1

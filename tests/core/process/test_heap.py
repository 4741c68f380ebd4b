import asyncio
import ctypes
import gc
import weakref
from collections.abc import Iterator

import pytest

from dovetail.process import heap


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """What was set aside is collected again by the tests that follow."""
    yield
    gc.unfreeze()


class Cyclic:
    """An object that only a garbage collection frees."""

    def __init__(self) -> None:
        self.itself = self


class Library:
    """A glibc that counts its trims."""

    def __init__(self) -> None:
        self.trims = 0

    def malloc_trim(self, pad: int) -> int:
        assert pad == 0
        self.trims += 1
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    return made


def test_later_collections_pass_over_what_is_kept_for_good() -> None:
    heap.keep_for_good()
    assert gc.get_freeze_count() > 0


def test_what_was_kept_for_good_is_freed_when_the_next_caches_are_kept() -> None:
    earlier = Cyclic()
    seen = weakref.ref(earlier)
    heap.keep_for_good()
    del earlier
    gc.collect()
    assert seen() is not None, "a frozen cycle outlives a collection, so this test shows something"
    heap.keep_for_good()
    assert seen() is None


def test_free_memory_goes_back_when_the_caches_are_complete(library: Library) -> None:
    heap.keep_for_good()
    assert library.trims == 1


async def test_free_memory_goes_back_every_minute(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await heap.trim_always()
    assert (pauses, library.trims) == ([60.0, 60.0, 60.0], 2)


def test_another_c_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    heap.trim()

import ctypes
import gc

import pytest

from dovetail_agent import trim_heap


@pytest.fixture(autouse=True)
def thawed() -> object:
    """What was set aside is collected again by the tests that follow."""
    yield
    gc.unfreeze()


def test_what_is_there_when_it_begins_is_walked_through_no_more() -> None:
    trim_heap.give_back()
    assert gc.get_freeze_count() > 0


def test_another_c_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    trim_heap.give_back()

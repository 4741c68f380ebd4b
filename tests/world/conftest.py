"""What all tests of drawn worlds need."""

import logging
import time
from collections.abc import Iterator
from typing import Final

import pytest
import structlog

_CLOCK: Final = time.monotonic


@pytest.fixture(autouse=True)
def _errors_only() -> Iterator[None]:
    """The operator of a drawn world logs thousands of lines."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True)
def _clock_is_restored() -> Iterator[None]:
    """A world that ends before one that began earlier would leave its clock to all later tests."""
    yield
    assert time.monotonic is _CLOCK

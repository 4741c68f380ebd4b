"""What all tests of drawn worlds need."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _errors_only() -> Iterator[None]:
    """The operator of a drawn world logs thousands of lines."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.configure(**before)

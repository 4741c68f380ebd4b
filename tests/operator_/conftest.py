import pytest

from tests.clock import Clock
from tests.core.kube.conftest import api, client

__all__ = ["api", "client"]


@pytest.fixture
def clock() -> Clock:
    return Clock()

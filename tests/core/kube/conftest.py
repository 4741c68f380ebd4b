from collections.abc import AsyncIterator

import pytest

from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.retry import Backoff
from tests.core.kube.api import Api

QUICK = Backoff(first_seconds=0.001, longest_seconds=0.002)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    api = Api()
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
async def client(api: Api) -> AsyncIterator[Client]:
    async with Client(Connection(server=api.url), backoff=QUICK) as client:
        yield client

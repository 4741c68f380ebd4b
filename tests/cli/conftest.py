"""An API server that answers what a test tells it to, and a cluster of the commands on it."""

from collections.abc import AsyncIterator

import pytest

from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_cli.cluster.connection import Cluster
from tests.core.kube.api import Api
from tests.core.kube.conftest import api

__all__ = ["api"]


@pytest.fixture
async def cluster(api: Api) -> AsyncIterator[Cluster]:
    async with Client(Connection(server=api.url)) as client:
        yield Cluster(client=client, namespace="default")

"""An API server that answers what a test tells it to, and a cluster of the commands on it."""

from collections.abc import AsyncIterator

import pytest

from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_cli.cluster.connection import Cluster
from tests.core.kube.api import Api, refusal
from tests.core.kube.conftest import api as scripted

__all__ = ["scripted"]
# More than a command asks for it.
_TIMES = 20


@pytest.fixture
def api(scripted: Api) -> Api:
    """No PriorityClass says where the release is, so it is in the default namespace."""
    scripted.answer("GET /apis/scheduling.k8s.io/v1/priorityclasses/dovetail-gpujob", *[refusal(403)] * _TIMES)
    return scripted


@pytest.fixture
async def cluster(api: Api) -> AsyncIterator[Cluster]:
    async with Client(Connection(server=api.url)) as client:
        yield Cluster(client=client, namespace="default")

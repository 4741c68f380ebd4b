from collections.abc import AsyncIterator

import pytest

from dovetail_gateway.app import Options
from tests.gateway.canary.cluster import fill
from tests.gateway.canary.objects import ONE, SETTINGS
from tests.gateway.canary.rbac import RbacApiServer
from tests.gateway.served import Face, serving


@pytest.fixture
async def cluster() -> AsyncIterator[RbacApiServer]:
    """Two tenants with equal names everywhere."""
    async with RbacApiServer().running() as server:
        fill(server)
        yield server


@pytest.fixture
async def face(cluster: RbacApiServer) -> AsyncIterator[Face]:
    """A gateway whose allocations and tasks are in the namespace of the first tenant."""
    options = Options(rates=None, allocation_namespace=ONE.namespace)
    async with serving(cluster, options=options, settings=SETTINGS, wait_seconds=0.1) as started:
        yield started

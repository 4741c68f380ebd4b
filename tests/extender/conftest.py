from collections.abc import AsyncIterator, Iterator

import pytest

from dovetail.process import heap
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_gpunode, make_node
from tests.extender.harness import Face, watching


@pytest.fixture(scope="package", autouse=True)
def _heap_as_it_is() -> Iterator[None]:
    """An extender would look for garbage in all that the process of the tests has, twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heap, "keep_for_good", lambda: None)
        yield


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """An API server with two nodes, `a` and `b`, of 8 V100 each."""
    async with ApiServer().running() as server:
        for name in ("a", "b"):
            server.put("nodes", make_node(name))
            server.put("gpunodes", make_gpunode(name))
        yield server


@pytest.fixture
async def face(api: ApiServer) -> AsyncIterator[Face]:
    """A running extender whose caches are synced."""
    async with watching(api) as started:
        await started.ready()
        yield started

"""Whatever a user stores, the agent and the MPS supervisor see the other tenants of the node all the same."""

import asyncio
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.config.settings import Settings
from dovetail.kube.client import Client
from dovetail.kube.connection import Connection
from dovetail.vendor import DEFAULT_VENDORS
from dovetail_agent.agent import Agent
from dovetail_agent.beside import Beside
from dovetail_agent.looking import Eyes
from dovetail_agent.main import rules_of
from dovetail_agent.mps_main import Work, parser
from dovetail_agent.simulated import SimulatedProvider
from tests.agent.builders import NOON, allocated, make_node
from tests.agent.builders import make_pod as make_healthy
from tests.core import hostile

HOSTILE = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
NODE = "v100-0"


def nobody() -> Client:
    return Client(Connection(server="http://127.0.0.1:1"))


@HOSTILE
@given(pods=st.lists(hostile.pods(node=NODE), min_size=1, max_size=3))
async def test_no_pod_ends_the_agents_look_at_the_others(pods: list[bytes]) -> None:
    provider = SimulatedProvider()
    agent = Agent(nobody(), provider=provider, rules=rules_of(Settings()), clock=lambda: NOON)
    for text in pods:
        hostile.feed(agent.pods, text)
    assert hostile.unhandled(agent.pods) == []
    agent._on_pod("ADDED", make_healthy(allocated(0)))
    tenants = tuple(agent._tenants[NODE].values())
    assert any(tenant.devices for tenant in tenants)
    eyes = Eyes(provider, vendors=DEFAULT_VENDORS, beside=Beside())
    _seen, look = eyes.look(make_node(), gpunode=None, tenants=tenants, now=NOON)
    assert len(look.status.devices) == 2
    for text in pods:
        hostile.feed(agent.pods, text, event="DELETED")
    assert hostile.unhandled(agent.pods) == []


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> Namespace:
    folder: Path = tmp_path_factory.mktemp("mps")
    return parser().parse_args([f"--directory={folder}", f"--node={NODE}", "--metrics-port=0"])


@HOSTILE
@given(pods=st.lists(hostile.pods(node=NODE), min_size=1, max_size=3))
async def test_no_pod_ends_the_mps_supervisors_list_of_tenants(arguments: Namespace, pods: list[bytes]) -> None:
    work = Work(nobody(), args=arguments, settings=Settings())
    for text in pods:
        hostile.feed(work.pods, text)
    work._on_pod("ADDED", make_healthy(allocated(0)))
    assert any(tenant.devices for tenant in work._tenants.values())
    listing: asyncio.Task[Any] = asyncio.create_task(work.list_tenants())
    work.pods.synced.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not listing.done()
    listing.cancel()
    assert hostile.unhandled(work.pods) == []

"""Whatever a user stores, the agent and the MPS supervisor see the other tenants of the node all the same."""

import asyncio
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.config.settings import Settings
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_agent.agent import Agent
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.feature.runner import FeatureRunner
from dovetail_agent.main import rules_of
from dovetail_agent.mps.main import Work, parser
from dovetail_agent.report.collect import Collector
from tests.agent.builders import NOON, allocated, make_node
from tests.agent.builders import make_pod as make_healthy
from tests.core import hostile

HOSTILE = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
NODE = "v100-0"
# The agent that meets what users store; by default the operator does, in its place.
READING = Settings(agents_read_pods=True)


def nobody() -> Client:
    return Client(Connection(server="http://127.0.0.1:1"))


@HOSTILE
@given(pods=st.lists(hostile.pods(node=NODE), min_size=1, max_size=3))
async def test_no_pod_ends_the_agents_look_at_the_others(pods: list[bytes]) -> None:
    provider = SimulatedProvider()
    agent = Agent(nobody(), provider=provider, rules=rules_of(READING), clock=lambda: NOON)
    for text in pods:
        hostile.feed(agent.tenants.reflector, text)
    assert hostile.unhandled(agent.tenants.reflector) == []
    agent.tenants._on_pod("ADDED", make_healthy(allocated(0)))
    tenants = agent.tenants.tenants(NODE)
    assert any(tenant.devices for tenant in tenants)
    eyes = Collector(provider, vendors=DEFAULT_VENDORS, beside=FeatureRunner())
    _seen, look = eyes.collect(make_node(), gpunode=None, tenants=tenants, now=NOON)
    assert len(look.status.devices) == 2
    for text in pods:
        hostile.feed(agent.tenants.reflector, text, event="DELETED")
    assert hostile.unhandled(agent.tenants.reflector) == []


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> Namespace:
    folder: Path = tmp_path_factory.mktemp("mps")
    return parser().parse_args([f"--directory={folder}", f"--node={NODE}", "--metrics-port=0"])


@HOSTILE
@given(pods=st.lists(hostile.pods(node=NODE), min_size=1, max_size=3))
async def test_no_pod_ends_the_mps_supervisors_list_of_tenants(arguments: Namespace, pods: list[bytes]) -> None:
    work = Work(nobody(), args=arguments, settings=READING)
    for text in pods:
        hostile.feed(work.tenants.reflector, text)
    work.tenants._on_pod("ADDED", make_healthy(allocated(0)))
    assert any(tenant.devices for tenant in work.tenants.tenants(NODE))
    listing: asyncio.Task[Any] = asyncio.create_task(work.list_tenants())
    work.tenants.reflector.synced.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not listing.done()
    listing.cancel()
    assert hostile.unhandled(work.tenants.reflector) == []

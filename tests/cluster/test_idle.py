"""The idle policy on a node whose simulated work holds memory and computes nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.cluster.gate import operator_instead
from tests.cluster.jobs import FOR_EVER, Jobs, condition
from tests.cluster.notebooks import node_of_notebooks

pytestmark = pytest.mark.cluster

POLICY = {"DOVETAIL_IDLE__AFTER": "3", "DOVETAIL_IDLE__GRACE": "3", "DOVETAIL_IDLE__ACTION": "Suspend"}


@pytest.fixture
async def notebooks(client: Client) -> AsyncIterator[str]:
    """The model that asks for the node of notebooks."""
    async with node_of_notebooks(client) as model:
        yield model


@pytest.fixture
async def watchful(sandbox: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """An operator with an idle policy in the place of the sandbox's own."""
    for name, value in POLICY.items():
        monkeypatch.setenv(name, value)
    async with operator_instead(sandbox, identity="watchful", folder=tmp_path):
        yield


async def test_a_job_that_leaves_its_gpu_idle_is_warned_and_then_held(
    jobs: Jobs, notebooks: str, watchful: None
) -> None:
    await jobs.submit("left-open", gpu=f"1({notebooks})", run=FOR_EVER)
    await jobs.until("left-open", lambda status: condition(status, "Idle") == ("True", "NoGPUWork"))
    await jobs.phase("Suspended", "left-open")
    events = [event.message for event in await jobs.announced("Idle", "left-open")]
    assert any("the job is held if that goes on for 3 s" in message for message in events)
    await jobs.without_pods("left-open")

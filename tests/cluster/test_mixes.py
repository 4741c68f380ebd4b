"""What the prices of plans have learned is stored on a real control plane, and outlives the operator."""

import asyncio
import json
import subprocess
import sys

import pytest

from dovetail.api.builtin import ConfigMap
from dovetail.api.resources import CONFIGMAPS
from dovetail.engine.score.mix_record import EXTENDER_CONFIGMAP, QUEUE_CONFIGMAP, MixRecord, record_in
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs

pytestmark = pytest.mark.cluster
HOME = "dovetail-system"
# What was counted is stored once a minute.
STORED_SECONDS = 90
# A share that no other test requests.
SHARE = "0.37"
SHARE_MILLI = 370


async def stored(client: Client, *, name: str, arrivals: int = 0) -> MixRecord:
    """The record once it has more than so many arrivals, and one of them is the share."""
    async with asyncio.timeout(STORED_SECONDS + PATIENCE_SECONDS):
        while True:
            try:
                found = await client.get(CONFIGMAPS, name=name, as_type=ConfigMap, namespace=HOME)
            except NotFound:
                found = ConfigMap()
            record = record_in(found.data)
            if record is not None and record.arrivals > arrivals and _has_share(record):
                return record
            await asyncio.sleep(0.5)


def _has_share(record: MixRecord) -> bool:
    return any(each.share_milli == SHARE_MILLI for each in record.counted)


async def test_what_the_queue_has_learned_outlives_the_operator(sandbox: Cluster, client: Client, jobs: Jobs) -> None:
    await jobs.submit("share", gpu=SHARE)
    await jobs.phase("Running", "share")
    before = await stored(client, name=QUEUE_CONFIGMAP)
    await asyncio.to_thread(sandbox.stop, "operator")
    await asyncio.to_thread(sandbox.start, "operator")
    await jobs.submit("later", gpu=SHARE)
    await jobs.phase("Running", "later")
    after = await stored(client, name=QUEUE_CONFIGMAP, arrivals=before.arrivals)
    assert {each.shape for each in before.counted} <= {each.shape for each in after.counted}


async def test_explain_judges_by_what_the_queue_and_the_extender_have_stored(
    sandbox: Cluster, client: Client, jobs: Jobs
) -> None:
    await jobs.submit("share", gpu=SHARE)
    await jobs.phase("Running", "share")
    await stored(client, name=EXTENDER_CONFIGMAP)
    words = ["explain", "request", SHARE, "--kubeconfig", str(sandbox.kubeconfig), "-o", "json"]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "dovetail_cli", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "the mix of the pods that the extender has seen" in json.loads(done.stdout)["basis"]

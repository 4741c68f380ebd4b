"""Jobs that merely run cost the API server nothing, and their figures are shown all the same.

The last that is written of their arrival is what the queue and the extender have learned from it, once a minute.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest

from dovetail.api.builtin import ConfigMap
from dovetail.api.resources import CONFIGMAPS
from dovetail.engine.score.mix_record import EXTENDER_CONFIGMAP, QUEUE_CONFIGMAP, MixRecord, record_in
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests import commands
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs, run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

JOBS: Final = 6
# More than a minute, after which the last learned mix is stored, and the time between two looks for it.
REST_SECONDS: Final = 75.0
# Tests before this one have something to write for some minutes on a busy machine.
UNTIL_REST_SECONDS: Final = 400.0
LOOK_SECONDS: Final = 1.0
WRITES: Final = frozenset({"create", "update", "patch", "delete"})
# These follow the clock and the devices, and are the same without any job.
OF_NODES: Final = frozenset({"leases", "gpunodes"})
HOME: Final = "dovetail-system"
# A share that no other test requests.
SHARE: Final = "0.23"
SHARE_MILLI: Final = 230


class Writes:
    """What our programs write from now on, by the API server's own record: verb, resource and name."""

    def __init__(self, sandbox: Cluster) -> None:
        self._log = sandbox.request_log
        self._offset = self._log.stat().st_size

    def more(self) -> list[str]:
        """Those since the last look."""
        with self._log.open("rb") as log:
            log.seek(self._offset)
            # The last line may still be being written.
            whole = log.read().rpartition(b"\n")[0]
        self._offset += len(whole) + bool(whole)
        events = [json.loads(line) for line in whole.splitlines()]
        return [_written(event) for event in events if _is_write(event)]


def _is_write(event: dict[str, Any]) -> bool:
    ours = event.get("userAgent", "").startswith("dovetail-") and event["verb"] in WRITES
    return ours and event.get("objectRef", {}).get("resource") not in OF_NODES


def _written(event: dict[str, Any]) -> str:
    about = event["objectRef"]
    return f"{event['verb']} {about['resource']}/{about.get('subresource', '')} {about.get('name', '')}"


async def rest(sandbox: Cluster) -> None:
    """Return when nothing was written for so long: what goes on by a clock never lets it."""
    writes, clock = Writes(sandbox), asyncio.get_running_loop().time
    began = quiet_since = clock()
    last: list[str] = []
    while clock() - quiet_since < REST_SECONDS:
        assert clock() - began < UNTIL_REST_SECONDS, last
        await asyncio.sleep(LOOK_SECONDS)
        if more := writes.more():
            quiet_since, last = clock(), more


async def shown(jobs: Jobs, sandbox: Cluster, name: str) -> Sequence[str]:
    words = ("gjob", "show", "--kubeconfig", str(sandbox.kubeconfig), "--namespace", jobs.namespace, name)
    found = await run(*commands.dovetail(), *words)
    return [line.strip() for line in found.stdout.splitlines()]


async def learned(client: Client, name: str) -> MixRecord:
    """What is stored of what a program has learned; the share is in it."""
    found = await client.get(CONFIGMAPS, name=name, as_type=ConfigMap, namespace=HOME)
    record = record_in(found.data)
    assert record is not None
    assert any(each.share_milli == SHARE_MILLI for each in record.counted)
    return record


async def learned_more(client: Client, *, arrivals: int) -> MixRecord:
    """What the queue has learned once it is stored with more than so many arrivals."""
    async with asyncio.timeout(REST_SECONDS + PATIENCE_SECONDS):
        while True:
            record = await learned(client, QUEUE_CONFIGMAP)
            if record.arrivals > arrivals:
                return record
            await asyncio.sleep(LOOK_SECONDS)


async def test_running_jobs_at_rest_are_not_written_and_what_was_learned_of_them_outlives_the_operator(
    jobs: Jobs, sandbox: Cluster, client: Client
) -> None:
    names = [f"rests-{at}" for at in range(JOBS)]
    for name in names:
        await jobs.submit(name, gpu=f"{SHARE}(V100)")
    for name in names:
        await jobs.phase("Running", name)
    await rest(sandbox)

    status = await jobs.phase("Running", names[0])
    assert (status.elapsed, status.measured, status.memory) == ("", None, None)
    lines = await shown(jobs, sandbox, names[0])
    assert any(line.startswith("MeanUtilization=0.") for line in lines), lines
    assert any(line.startswith("PeakMemoryMiB=") for line in lines), lines
    await jobs.end(names[0])
    ended = await jobs.until(names[0], lambda status: status.phase == "Succeeded")
    assert ended.elapsed
    assert ended.measured is not None
    assert ended.measured.device_seconds >= REST_SECONDS
    assert ended.memory is not None
    assert ended.memory.peak_mib > 0

    await learned(client, EXTENDER_CONFIGMAP)
    words = ["explain", "request", SHARE, "--kubeconfig", str(sandbox.kubeconfig), "-o", "json"]
    done = await run(*commands.dovetail(), *words)
    assert done.returncode == 0, done.stderr
    assert "the mix of the pods that the extender has seen" in json.loads(done.stdout)["basis"]

    before = await learned(client, QUEUE_CONFIGMAP)
    await asyncio.to_thread(sandbox.stop, "operator")
    await asyncio.to_thread(sandbox.start, "operator")
    await jobs.submit("later", gpu=f"{SHARE}(V100)")
    await jobs.phase("Running", "later")
    after = await learned_more(client, arrivals=before.arrivals)
    assert {each.shape for each in before.counted} <= {each.shape for each in after.counted}

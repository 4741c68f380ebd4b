"""One operator acts: another takes over, and one that was stopped between its last look and the write does no harm."""

import asyncio
import signal
from pathlib import Path

import pytest

from dovetail import names
from dovetail.api.builtin import Lease
from dovetail.api.resources import JOBS, LEASES
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.cluster.gate import Forward, Gate, Operator, Write
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs
from tests.cluster.test_operator_faults import stopped

pytestmark = pytest.mark.cluster

__all__ = ["stopped"]


async def until_held_by(client: Client, identity: str) -> Lease:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await client.get(LEASES, name=names.OPERATOR_LEASE, as_type=Lease, namespace="dovetail-system")
            if found.spec.holder_identity == identity:
                return found
            await asyncio.sleep(0.05)


async def test_a_write_that_arrives_when_another_operator_is_in_office_makes_no_second_child(
    sandbox: Cluster, jobs: Jobs, stopped: None, tmp_path: Path
) -> None:
    held, late = asyncio.Event(), asyncio.Event()
    answers: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

    async def stop_the_sender(write: Write, forward: Forward) -> tuple[int, bytes]:
        if write.method != "POST" or not write.path.endswith("/jobs"):
            return await forward()
        old.signal(signal.SIGSTOP)
        held.set()
        await late.wait()
        answer = await forward()
        answers.put_nowait(answer)
        return answer

    gate = Gate(sandbox=sandbox, keeper=stop_the_sender)
    async with gate.open():
        old = Operator(sandbox, identity="old", folder=tmp_path, server=gate.url)
        new = Operator(sandbox, identity="new", folder=tmp_path)
        try:
            await old.start()
            await until_held_by(jobs.client, "old")
            await new.start()
            await jobs.submit(run=1)
            await asyncio.wait_for(held.wait(), PATIENCE_SECONDS)
            await until_held_by(jobs.client, "new")
            await jobs.phase("Succeeded")
            # The name is free again by now: only the end of the old one's term keeps the write out.
            await jobs.client.delete(JOBS, name="x", namespace=jobs.namespace)
            await jobs.gone(JOBS)
            late.set()
            code, said = await asyncio.wait_for(answers.get(), PATIENCE_SECONDS)
            assert (code, b"of the lease dovetail-operator" in said) == (403, True), said
            old.signal(signal.SIGCONT)
            assert await old.ended() == 0
            await jobs.submit("next", run=1)
            await jobs.phase("Succeeded", "next")
            found, _ = await jobs.client.list(JOBS, as_type=dict, namespace=jobs.namespace)
            assert [each["metadata"]["name"] for each in found] == ["next"]
        finally:
            old.signal(signal.SIGCONT)
            await old.close()
            await new.close()

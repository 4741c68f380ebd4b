"""GPUJobs that are too large, nested too deeply or too many cost only themselves.

`DOVETAIL_LARGE_JOBS=200` stores as many as the acceptance test of the limit asks for, `DOVETAIL_ATTEMPTS=100000` tries
as many as that of the quota; CI does less.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS, Resource
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, Forbidden, KubeError, NotFound, StatusError
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs, manifest
from tests.cluster.killing import kill, running
from tests.cluster.tenants import new_namespace

pytestmark = pytest.mark.cluster

MANY = int(os.environ.get("DOVETAIL_LARGE_JOBS", "40"))
MOST_MIB = 512
SECONDS = 5.0
AT_ONCE = 4
ATTEMPTS = int(os.environ.get("DOVETAIL_ATTEMPTS", "400"))
RESOURCE_QUOTAS = Resource(group="", version="v1", plural="resourcequotas", kind="ResourceQuota")
# Below the 1 MiB from which aiohttp warns of a body in one piece.
SIZE = 1_040_000


@pytest.fixture
async def operators(sandbox: Cluster) -> AsyncIterator[Client]:
    """The operator's account, which the webhook lets pass: as if the jobs were older than the limit."""
    async with Client(load_connection(sandbox.folder / "kubeconfigs" / "operator"), deadline_seconds=60) as client:
        yield client


@pytest.fixture
async def crowded(client: Client) -> AsyncIterator[str]:
    """A namespace of its own for the jobs that flood."""
    async with new_namespace(client, prefix="crowded") as name:
        yield name
    with suppress(KubeError):
        await client._transport.send("DELETE", path=GPUJOBS.path(namespace=name), body={}, deadline_seconds=60)


def large(number: int) -> dict[str, Any]:
    """A GPUJob of 1 MiB; every tenth is of many small values, which take the most memory as Python's."""
    body = manifest(f"large-{number}")
    (container,) = body["spec"]["template"]["spec"]["containers"]
    container["args"] = ["a"] * (SIZE // 4) if number % 10 == 0 else ["x" * SIZE]
    return body


async def store(client: Client, bodies: Iterator[dict[str, Any]], *, namespace: str) -> None:
    async def some() -> None:
        for body in bodies:
            await client.create(GPUJOBS, body=body, as_type=_Nothing, namespace=namespace)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


class _Nothing(msgspec.Struct, frozen=True):
    """Of an answer nothing."""


def peak_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024


async def starts_soon(jobs: Jobs, name: str) -> None:
    began = time.monotonic()
    await jobs.submit(name, gpu="1(T4)")
    await jobs.until(name, lambda status: status.phase in {"Starting", "Running"})
    assert time.monotonic() - began < SECONDS


async def until_all_are_invalid(client: Client, *, namespace: str, count: int) -> None:
    """Until every job of the namespace says what is wrong with it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found, _ = await client.list(GPUJOBS, as_type=_Seen, namespace=namespace)
            seen = [each.status for each in found if each.status.reason == "Invalid"]
            if len(seen) == count:
                break
            await asyncio.sleep(0.5)
    assert {(each.phase, each.message.startswith("spec has 1,04")) for each in seen} == {("Queued", True)}


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""


class _Seen(msgspec.Struct, frozen=True):
    status: _Status = _Status()


async def test_jobs_from_before_the_limit_cost_little_memory_and_no_other_start(
    sandbox: Cluster, client: Client, operators: Client, crowded: str, jobs: Jobs
) -> None:
    await store(operators, iter([large(number) for number in range(MANY)]), namespace=crowded)
    await until_all_are_invalid(client, namespace=crowded, count=MANY)
    await starts_soon(jobs, "beside")
    # The next one has all of them to read before it decides anything.
    await kill(sandbox, "operator")
    await asyncio.to_thread(sandbox.wait_ready, ["operator"])
    await starts_soon(jobs, "after")
    peak = peak_mib(await running(sandbox, "operator"))
    print(f"{MANY} GPUJobs of 1 MiB: the operator's peak is {peak} MiB")
    assert peak < MOST_MIB


async def test_attempts_beyond_a_quota_keep_no_other_job_waiting(client: Client, crowded: str, jobs: Jobs) -> None:
    await bind_to(ATTEMPTS // 20, client, namespace=crowded)
    flooding = asyncio.create_task(flood(client, namespace=crowded))
    seconds = []
    while not flooding.done() or len(seconds) < 20:
        seconds.append(await seconds_to_a_reason(jobs, f"honest-{len(seconds)}"))
    made = await flooding
    worst = sorted(seconds)[max(0, round(len(seconds) * 0.99) - 1)]
    print(f"{ATTEMPTS} attempts, {made} made: {len(seconds)} others have a reason within {worst:.2f} s (p99)")
    assert made <= ATTEMPTS // 20
    assert worst < SECONDS


async def bind_to(most: int, client: Client, *, namespace: str) -> None:
    """Let the namespace have so many GPUJobs: until the quota controller has counted the API server admits none.

    The controller looks for kinds that CRDs brought every half minute. It counts a quota that is older than such a kind
    again only after five minutes, so a quota that is not counted soon is created again.
    """
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"count/gpujobs.dovetail.dev": str(most)}}}
    async with asyncio.timeout(3 * PATIENCE_SECONDS):
        while True:
            await client.create(RESOURCE_QUOTAS, body=quota, as_type=_Nothing, namespace=namespace)
            for _ in range(50):
                found = await client.get(RESOURCE_QUOTAS, name="few", as_type=dict[str, Any], namespace=namespace)
                if (found.get("status") or {}).get("used"):
                    return
                await asyncio.sleep(0.1)
            await client.delete(RESOURCE_QUOTAS, name="few", namespace=namespace)


async def flood(client: Client, *, namespace: str) -> int:
    """Try to make as many jobs; how many were made."""
    names, made = iter(range(ATTEMPTS)), 0

    async def some() -> None:
        nonlocal made
        for number in names:
            with suppress(Forbidden, Conflict):
                await client.create(
                    GPUJOBS, body=manifest(f"more-{number}", gpu="1(A100)"), as_type=_Nothing, namespace=namespace
                )
                made += 1

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return made


async def seconds_to_a_reason(jobs: Jobs, name: str) -> float:
    """From a submission until the owner reads why the job waits."""
    began = time.monotonic()
    await jobs.submit(name, gpu="8(A100)")
    await jobs.until(name, lambda status: status.reason not in {"", None, "Evaluating"})
    return time.monotonic() - began


async def test_no_user_creates_or_changes_a_job_beyond_the_limit(client: Client, namespace: str, jobs: Jobs) -> None:
    with pytest.raises(StatusError, match=r"spec has 1,04.* at most"):
        await client.create(GPUJOBS, body=large(1), as_type=GPUJob, namespace=namespace)
    await jobs.submit("small", suspend=True)
    with pytest.raises(StatusError, match=r"spec has 1,04.* at most"):
        await jobs.change("small", template=large(1)["spec"]["template"])
    array = {**large(1), "metadata": {"name": "array"}}
    array["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * 100_000]
    array["spec"]["array"] = {"indexes": "0-999"}
    with pytest.raises(StatusError, match=r"the specs of 1,000 tasks with 100,.* 67,108,864 at most"):
        await client.create(GPUJOBS, body=array, as_type=GPUJob, namespace=namespace)


async def test_the_owner_of_a_job_that_cannot_be_read_reads_why(operators: Client, crowded: str, jobs: Jobs) -> None:
    deep = b'{"a":' * 1_100 + b"1" + b"}" * 1_100
    head = (
        b'{"apiVersion":"dovetail.dev/v1beta1","kind":"GPUJob","metadata":{"name":"deep"},"spec":{"gpu":1,"template":'
    )
    body = head + b'{"spec":{"containers":[{"name":"main","image":"x"}],"a":' + deep + b"}}}}"
    path = GPUJOBS.path(namespace=crowded)
    await operators._transport.send("POST", path=path, body=msgspec.Raw(body), deadline_seconds=30)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            stored = await operators._transport.send("GET", path=f"{path}/deep", deadline_seconds=30)
            if b"spec.template is nested too deeply: it may be 64 levels deep at most" in stored:
                break
            await asyncio.sleep(0.1)
    await starts_soon(jobs, "beside")
    with suppress(NotFound):
        await operators.delete(GPUJOBS, name="deep", namespace=crowded)

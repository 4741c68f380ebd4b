"""Guarantees of GPUQuotas on a real control plane: a borrower is reclaimed on full devices, and returns afterwards."""

import asyncio
from collections.abc import AsyncIterator
from subprocess import CalledProcessError
from typing import Any

import pytest

from dovetail.api.builtin import Node
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpuquota import GPUQuota, QuotaReserve
from dovetail.api.meta import find_condition
from dovetail.api.resources import GPUJOBS, GPUQUOTAS, NODES
from dovetail.kube.client import Client
from dovetail.kube.errors import StatusError
from dovetail.names import LABEL_POOL, LABEL_PROJECT
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import Jobs, manifest
from tests.cluster.test_cli import main_output
from tests.cluster.test_limits import Quotas, until

pytestmark = pytest.mark.cluster


@pytest.fixture
async def quotas(client: Client, namespace: str) -> AsyncIterator[Quotas]:
    made = Quotas(client, namespace=namespace)
    yield made
    for name in list(made.names):
        await made.drop(name)


async def submit_for(project: str, client: Client, namespace: str, *, name: str, gpu: str) -> None:
    """Create a job of a project."""
    body = manifest(name, gpu=gpu)
    body["metadata"]["labels"] = {LABEL_PROJECT: project}
    await client.create(GPUJOBS, body=body, as_type=GPUJob, namespace=namespace)


async def test_a_guarantee_comes_back_from_a_borrower(
    client: Client, jobs: Jobs, quotas: Quotas, namespace: str
) -> None:
    await quotas.make("department", namespaces=[], guaranteed={"gpus": 2})
    team = await quotas.make_known("team", projects=["team"], guaranteed={"gpus": 2}, parent=f"{namespace}-department")
    await jobs.submit("borrows", gpu="2(A100)")
    before = await jobs.phase("Running", "borrows")
    await submit_for("team", client, namespace, name="owns", gpu="2(A100)")
    notified = await jobs.until("borrows", lambda status: status.preemption is not None and bool(status.preemption.by))
    assert notified.preemption is not None
    assert notified.preemption.message.startswith(f"Is ended for GPUQuota {team}: it is guaranteed 2 GPUs, uses 0")
    await jobs.phase("Preempted", "borrows")
    owner = await jobs.phase("Running", "owns")
    assert owner.nodes == before.nodes
    quota = await until(
        lambda: quotas.get(team),
        lambda found: found.status.guarantee is not None and found.status.guarantee.used == 2,
    )
    assert quota.status.guarantee is not None
    assert (quota.status.guarantee.gpus, quota.status.guarantee.borrowed, quota.status.guarantee.waiting) == (2, 0, 0)
    # Beyond its guarantee the project takes nothing back, and the one that was ended does not return by force.
    await submit_for("team", client, namespace, name="more", gpu="1(A100)")
    await jobs.phase("Queued", "more", reason="Resources")
    await jobs.delete("owns")
    assert (await jobs.phase("Running", "more")).preemption is None


async def test_a_missing_parent_is_named_and_the_limit_stays(jobs: Jobs, quotas: Quotas, namespace: str) -> None:
    name = await quotas.make_known("orphan", parent="nowhere", limit={"gpus": 1})
    quota = await until(lambda: quotas.get(name), lambda found: bool(found.status.conditions))
    valid = find_condition(quota.status.conditions, type="Valid")
    assert valid is not None
    assert (valid.status, valid.reason) == ("False", "ParentMissing")
    assert valid.message == f"GPUQuota {name}: its parent nowhere does not exist: it acts without one"
    await jobs.submit("two", gpu=2)
    waits = await jobs.phase("Queued", "two", reason="Quota")
    assert waits.message.startswith(f"Namespace {namespace} may run 1 GPU, 0 run")


async def test_a_guarantee_above_the_limit_is_refused_with_the_numbers(quotas: Quotas) -> None:
    with pytest.raises(StatusError, match=r"guaranteed\.gpus must not be above limit\.gpus"):
        await quotas.make("wrong", guaranteed={"gpus": 4}, limit={"gpus": 2})
    quotas.names.clear()


async def test_commands_change_the_limit_and_refuse_a_circle_before_they_write_it(
    quotas: Quotas, namespace: str, sandbox: Cluster
) -> None:
    where = ("--kubeconfig", str(sandbox.kubeconfig))
    name = await quotas.make(limit={"gpus": 2, "memory": "1Ti"})
    child = await quotas.make("child", parent=name)
    said = await asyncio.to_thread(main_output, "quota", "set", *where, name, "--gpus", "3")
    assert said == f"GPUQuota {name} changed: gpus 3, memory 1Ti, for {namespace}.\n"
    with pytest.raises(CalledProcessError) as refused:
        await asyncio.to_thread(main_output, "quota", "set", *where, name, "--parent", child)
    circle = f"{name} > {child} > {name}"
    assert refused.value.stderr == f"dovetail: --parent {child}: the parents would form a circle ({circle})\n"
    assert (await quotas.get(name)).spec.parent is None


async def test_device_memory_is_limited_and_a_wrong_amount_is_refused(
    client: Client, jobs: Jobs, quotas: Quotas, namespace: str
) -> None:
    await quotas.make_known("memory", projects=["memory"], limit={"memory": "1Gi"})
    await submit_for("memory", client, namespace, name="large", gpu="1(A100)")
    waits = await jobs.phase("Queued", "large", reason="Quota")
    assert "may use 1 GiB of device memory, 0 GiB are in use, this job would never fit" in (waits.message or "")
    with pytest.raises(StatusError, match="such as 640Gi"):
        await quotas.make("wrong", guaranteed={"memory": "640"})
    quotas.names.remove(f"{namespace}-wrong")


async def test_a_reserve_is_lent_to_jobs_that_leave_in_time_and_others_leave_it(
    client: Client, jobs: Jobs, quotas: Quotas, namespace: str
) -> None:
    # A reserve is of any model, so a pool says of which nodes.
    pool: dict[str, Any] = {"metadata": {"labels": {LABEL_POOL: namespace}}}
    await client.patch(NODES, name="a100-0", patch=pool, as_type=Node)
    try:
        await jobs.submit("slow", gpu="2(A100)")
        await jobs.phase("Running", "slow")
        chat = await quotas.make(
            "chat",
            projects=["chat"],
            pools=[namespace],
            guaranteed={"gpus": 2},
            reserve={"gpus": 2, "leaveWithinSeconds": 10},
        )
        # Its pods may take 30 s to end, so it leaves without a job of the quota that waits.
        notified = await jobs.until("slow", lambda status: status.preemption is not None and bool(status.preemption.by))
        assert notified.preemption is not None
        assert notified.preemption.by == f"reserve/{chat}"
        assert notified.preemption.message.startswith(
            f"Is ended for GPUQuota {chat}: 2 GPUs of its guarantee are to be"
        )
        waits = await jobs.phase("Preempted", "slow", reason="Reserved")
        assert waits.message.endswith(
            f"ready for GPUQuota {chat} (reserve): jobs may use them whose pods end within 10 s"
        )
        quota = await until(
            lambda: quotas.get(chat), lambda found: found.status.reserve == QuotaReserve(gpus=2, ready=2)
        )
        assert [room.keeps for room in quota.status.kept] == [["2"]], "pods without a GPUJob may not use them"
        quick = manifest("quick", gpu="2(A100)")
        quick["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 2
        await client.create(GPUJOBS, body=quick, as_type=GPUJob, namespace=namespace)
        lent = await jobs.phase("Running", "quick")
        await until(
            lambda: quotas.get(chat), lambda found: found.status.reserve == QuotaReserve(gpus=2, ready=2, lent=2)
        )
        await submit_for("chat", client, namespace, name="replica", gpu="2(A100)")
        replica = await jobs.phase("Running", "replica")
        assert replica.nodes == lent.nodes
        assert (await jobs.until("quick", lambda status: status.phase != "Running")).phase in {"Preempted", "Queued"}
        await until(lambda: quotas.get(chat), lambda found: found.status.reserve == QuotaReserve())
    finally:
        pool["metadata"]["labels"] = {LABEL_POOL: None}
        await client.patch(NODES, name="a100-0", patch=pool, as_type=Node)


async def test_a_forecast_is_learned_in_the_status_and_guarantees_what_it_expects(
    client: Client, jobs: Jobs, quotas: Quotas, namespace: str
) -> None:
    chat = await quotas.make("chat", projects=["chat"], forecast={"gpus": 3, "marginPercent": 0})
    await submit_for("chat", client, namespace, name="replica", gpu="2(A100)")
    await jobs.phase("Running", "replica")
    quota = await until(
        lambda: quotas.get(chat),
        lambda found: found.status.forecast is not None and found.status.forecast.peak == 2,
    )
    known = quota.status.forecast
    assert known is not None
    assert (known.expected, known.windows, set(known.profile)) == (None, [], {-1.0}), "no hour is over"
    # As after a week of two GPUs at any time, which an operator finds when it starts.
    learned = {"status": {"forecast": {"profile": [2.0] * 168}}}
    await client.patch(GPUQUOTAS, name=chat, patch=learned, as_type=GPUQuota, subresource="status")
    quota = await until(
        lambda: quotas.get(chat),
        lambda found: found.status.guarantee is not None and found.status.guarantee.gpus == 2,
    )
    assert quota.status.forecast is not None
    assert quota.status.forecast.expected == 2
    assert {each.gpus for each in quota.status.forecast.windows} == {2}

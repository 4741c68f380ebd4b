"""The audit on a real API server: what it finds there, and that it is clean again afterwards.

The jobs are of another controller, so that the operator leaves the statuses as they are written here.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.formats.durations import timestamp
from dovetail_cli.cluster.audit import run_audit
from dovetail_cli.cluster.connection import Cluster
from tests.cluster.jobs import Jobs

pytestmark = pytest.mark.cluster

THEIRS = "example.com/controller"


async def said(jobs: Jobs, name: str, **status: Any) -> None:
    await jobs.client.patch(
        GPUJOBS, name=name, patch={"status": status}, as_type=GPUJob, namespace=jobs.namespace, subresource="status"
    )


async def found(jobs: Jobs) -> list[tuple[str, str]]:
    """The findings about the namespace, without time to put anything right."""
    report = await run_audit(Cluster(client=jobs.client, namespace=jobs.namespace), older_than_seconds=0.0)
    mine = [each for each in report.items if each.subject.startswith(jobs.namespace)]
    return [(each.kind, each.subject.removeprefix(f"{jobs.namespace}/")) for each in mine]


async def test_a_plan_whose_pods_never_come_is_withheld_capacity(jobs: Jobs) -> None:
    await jobs.submit("ghost", gpu="2(A100)", managedBy=THEIRS)
    plan = {
        "generation": 1,
        "nodes": [{"name": "a100-0", "workers": 1}],
        "worker": {"request": "2(A100)", "mode": "Exclusive"},
    }
    before = timestamp(datetime.now(UTC) - timedelta(hours=1))
    await said(jobs, "ghost", phase="Running", admittedTime=before, placement=plan, plans=1)
    assert await found(jobs) == [("CapacityWithheld", "ghost")]
    await jobs.delete("ghost")
    assert await found(jobs) == []


async def test_a_job_that_nothing_keeps_from_its_gpus_waits_though_it_fits(jobs: Jobs) -> None:
    await jobs.submit("forgotten", gpu="2(A100)", managedBy=THEIRS)
    await jobs.submit("too-large", gpu="3(A100)", managedBy=THEIRS)
    for name in ("forgotten", "too-large"):
        await said(jobs, name, phase="Queued", reason="Resources", message="Need 2 GPUs, only 0 available")
    assert await found(jobs) == [("WaitsThoughItFits", "forgotten")]
    await said(jobs, "forgotten", reason="Held")
    assert await found(jobs) == []

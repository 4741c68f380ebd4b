"""A real Prometheus scrapes the sandbox while jobs run, wait and end: every panel has data, and every rule is sound."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.chart.test_dashboards import expressions
from tests.cluster.jobs import Jobs
from tests.cluster.prometheus import Prometheus, scraping
from tests.cluster.test_extender import Scene

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE_SECONDS: Final = 240
LOOK_SECONDS: Final = 5
# What this sandbox cannot show: nothing is sent, since no address is configured.
WITHOUT_DATA: Final = {"sum by (outcome) (rate(dovetail_notifications_total[5m]))"}


@pytest.fixture
async def prometheus(sandbox: Cluster, tmp_path: Path) -> AsyncIterator[Prometheus]:
    async with scraping(sandbox, folder=tmp_path) as found:
        yield found


async def keep_jobs_coming(jobs: Jobs) -> None:
    """Jobs that run for a moment, one after the other, so that there are rates."""
    number = 0
    while True:
        number += 1
        await jobs.submit(f"short-{number}", run=1)
        await asyncio.sleep(3)


async def all_have_data(prometheus: Prometheus, queries: Mapping[str, str]) -> dict[str, str]:
    """The queries without a sample once all others have one, or after some minutes."""
    lacking = prometheus.without_data(queries)
    for _ in range(PATIENCE_SECONDS // LOOK_SECONDS):
        if not lacking:
            break
        await asyncio.sleep(LOOK_SECONDS)
        lacking = prometheus.without_data(lacking)
    return lacking


async def test_every_panel_has_data_and_every_rule_is_sound(
    prometheus: Prometheus, jobs: Jobs, sandbox: Cluster, client: Client
) -> None:
    scene = Scene(client, namespace=jobs.namespace, sandbox=sandbox)
    await jobs.submit("runs")
    await jobs.submit("never-fits", gpu=900)
    await jobs.submit("holds", gpu="2(A100)", maximumExecutionTimeSeconds=3600)
    await jobs.submit("waits", gpu="2(A100)")
    await scene.create("refused", "4(T4)", milli=4000)
    queries = {f"{panel} {number}": query for number, (panel, query) in enumerate(expressions())}
    queries = {panel: query for panel, query in queries.items() if query not in WITHOUT_DATA}
    coming = asyncio.create_task(keep_jobs_coming(jobs))
    try:
        lacking = await all_have_data(prometheus, queries)
    finally:
        coming.cancel()
        await scene.clear()
    assert not lacking
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) > 30
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
    # The sandbox is well: nothing that would wake someone.
    firing = [
        rule["name"] for rule in rules if rule.get("state") == "firing" and rule["labels"]["severity"] == "critical"
    ]
    assert firing == []
    recorded = {rule["name"] for rule in rules if rule["type"] == "recording"}
    assert not prometheus.without_data({name: name for name in recorded})

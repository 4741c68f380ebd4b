"""What is kept of jobs that have ended: it outlives their objects, and nothing is lost to an operator that was away."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.historyquery import HistoryQuerySpec, JobRecord
from dovetail.api.reasons.problems import NO_HISTORY
from dovetail.api.resources import GPUJOBS
from dovetail.sdk import Client
from dovetail.sdk.errors import RefusedError
from dovetail_cli.cluster.connection import Cluster as Commands
from dovetail_cli.jobs import history
from dovetail_sandbox import user_token
from dovetail_sandbox.cluster import Cluster
from tests import commands
from tests.cluster.gate import operator_instead
from tests.cluster.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs, run

pytestmark = pytest.mark.cluster


async def until_recorded(jobs: Jobs, count: int) -> dict[str, JobRecord]:
    """The records of the namespace by name, once there are so many."""
    commands = Commands(client=jobs.client, namespace=jobs.namespace)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await history.records(commands, question=HistoryQuerySpec())
            if len(found) >= count:
                assert len(found) == count
                return {record.name: record for record in found}
            await asyncio.sleep(0.1)


async def until_begun(sandbox: Cluster, jobs: Jobs, count: int) -> None:
    """Wait until so many jobs of the namespace have a record, if without an end: read where the operator keeps them."""
    file = sandbox.folder / "volumes" / "dovetail-operator" / "history" / "history.db"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with closing(sqlite3.connect(file)) as database:
                wanted = "SELECT count(*) FROM dovetail_jobs WHERE namespace = ? AND ended IS NULL"
                if database.execute(wanted, (jobs.namespace,)).fetchone() == (count,):
                    return
            await asyncio.sleep(0.1)


async def dovetail(sandbox: Cluster, jobs: Jobs, *words: str) -> Any:
    """What a command says, as JSON."""
    where = (f"--kubeconfig={sandbox.kubeconfig}", f"--namespace={jobs.namespace}")
    done = await run(*commands.dovetail(), *words, *where, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_a_job_that_is_deleted_at_its_end_is_in_the_lists_and_the_sums(sandbox: Cluster, jobs: Jobs) -> None:
    await jobs.submit("brief", gpu="2(V100)", run=1, ttlSecondsAfterFinished=0)
    await jobs.submit("broken", gpu="0.5(T4)", run=0, exit_code=3, ttlSecondsAfterFinished=0)
    for name in ("brief", "broken"):
        await jobs.gone(GPUJOBS, name)
    found = await until_recorded(jobs, 2)
    brief, broken = found["brief"], found["broken"]
    assert (brief.phase, brief.gpus, len(brief.devices), brief.user != "") == ("Succeeded", 2.0, 2, True)
    assert brief.gpu_seconds == 2 * brief.run_seconds > 0
    assert (broken.phase, broken.gpus) == ("Failed", 0.5)
    listed = await dovetail(sandbox, jobs, "gqueue", "--since", "1h")
    assert [(each["name"], each["phase"]) for each in listed] == [("brief", "Succeeded"), ("broken", "Failed")]
    (sums,) = await dovetail(sandbox, jobs, "gstats", "--by", "user")
    assert (sums["jobs"], sums["successRate"], sums["group"]) == (2, 0.5, brief.user)
    assert (await dovetail(sandbox, jobs, "gjob", "show", "brief"))["uid"] == brief.uid


async def test_what_went_while_no_operator_looked_is_recorded_when_one_looks_again(
    sandbox: Cluster, jobs: Jobs
) -> None:
    for name in ("running", "ending"):
        await jobs.submit(name, gpu="1(A100)", run=FOR_EVER)
        await jobs.phase("Running", name)
    await until_begun(sandbox, jobs, 2)
    await asyncio.to_thread(sandbox.stop, "operator")
    await jobs.end("ending")
    await jobs.completed_child("ending")
    await jobs.delete("running")
    await jobs.gone(GPUJOBS, "running")
    await asyncio.to_thread(sandbox.start, "operator")
    found = await until_recorded(jobs, 2)
    assert (found["running"].phase, found["running"].reason) == ("Cancelled", "Deleted")
    assert found["running"].gpu_seconds > 0
    assert found["ending"].phase == "Succeeded"


@pytest.fixture
async def without_history(sandbox: Cluster, tmp_path: Path) -> AsyncIterator[None]:
    """An operator without a history in the place of the sandbox's own."""
    async with operator_instead(sandbox, identity="forgetful", folder=tmp_path, DOVETAIL_HISTORY_URL="none"):
        yield


async def test_without_a_history_jobs_run_and_go_and_whoever_asks_for_them_is_told(
    sandbox: Cluster, jobs: Jobs, without_history: None
) -> None:
    await jobs.submit("brief", run=1, ttlSecondsAfterFinished=0)
    await jobs.gone(GPUJOBS, "brief")
    said = NO_HISTORY().message
    where = (f"--kubeconfig={sandbox.kubeconfig}", f"--namespace={jobs.namespace}")
    for code, words, sentence in (
        (1, ("gqueue", "--since", "1h"), said),
        (1, ("gstats",), said),
        (3, ("gjob", "show", "brief"), f"no job brief, and {said}"),
    ):
        done = await run(*commands.dovetail(), *words, *where)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert f"dovetail: {sentence}" in " ".join(done.stderr.split())
    token = user_token.read(sandbox.user_token)
    with (
        Client(sandbox.status().gateway, token=token, namespace=jobs.namespace) as client,
        pytest.raises(RefusedError) as refused,
    ):
        await asyncio.to_thread(lambda: list(client.history()))
    assert [each.code for each in refused.value.details] == ["NoHistory"]


async def test_a_question_that_cannot_be_answered_is_answered_with_a_sentence(jobs: Jobs) -> None:
    commands = Commands(client=jobs.client, namespace=jobs.namespace)
    with pytest.raises(Exception, match='phases "Lost": a job that has ended is one of'):
        await history.ask(commands, question=HistoryQuerySpec(phases=["Lost"]))

"""The queue on a real control plane: who goes first, who waits for whom, and what those who wait are told."""

from datetime import UTC, datetime, timedelta

import pytest

from dovetail.api.gpujob import GPUJobStatus
from dovetail.api.reasons.catalog import rendered
from dovetail.api.resources import GPUJOBS
from dovetail.formats.durations import moment, timestamp
from dovetail.kube.client import Client
from dovetail.kube.errors import StatusError
from dovetail_sandbox.cluster import Cluster
from tests import commands
from tests.cluster.jobs import Jobs, condition, run
from tests.cluster.test_extender import until

pytestmark = pytest.mark.cluster

HOUR = 3600


async def test_a_pipeline_runs_in_order_whatever_the_order_of_submission(jobs: Jobs) -> None:
    await jobs.submit("last", run=1, dependencies=[{"name": "middle"}])
    await jobs.phase("Queued", "last", reason="Dependency")
    await jobs.submit("middle", run=1, dependencies=[{"name": "first", "condition": "Started"}])
    await jobs.submit("first", run=2)
    done = {name: await jobs.phase("Succeeded", name) for name in ("first", "middle", "last")}
    assert [each.state for each in done["last"].dependencies] == ["Met"]
    starts = [done[name].start_time or "" for name in ("first", "middle", "last")]
    assert starts == sorted(starts)


async def test_a_job_that_goes_at_its_end_is_not_missed_by_those_that_wait_for_it(jobs: Jobs) -> None:
    names = [f"waits-{number}" for number in range(5)]
    for name in names:
        await jobs.submit(name, run=1, resources={"device": "cpu"}, dependencies=[{"name": "brief"}])
    await jobs.submit("brief", run=1, resources={"device": "cpu"}, ttlSecondsAfterFinished=0)
    for name in names:
        await jobs.phase("Succeeded", name)
    await jobs.gone(GPUJOBS, "brief")


async def test_a_job_whose_dependency_fails_is_cancelled_and_those_behind_it_too(jobs: Jobs) -> None:
    await jobs.submit("behind", dependencies=[{"name": "next"}])
    await jobs.submit("waits", dependencies=[{"name": "bad"}], onDependencyFailure="Wait")
    await jobs.submit("next", dependencies=[{"name": "bad"}])
    await jobs.submit("bad", run=1, exit_code=1)
    status = await jobs.phase("Cancelled", "behind", reason="DependencyFailed")
    number = (await jobs.phase("Cancelled", "next")).number
    assert status.message == f"A dependency cannot be met: job {number} (next) did not succeed"
    assert condition(status, "Failed") == ("True", "DependencyFailed")
    await jobs.phase("Queued", "waits", reason="DependencyFailed")


async def test_a_job_starts_when_its_time_has_come(jobs: Jobs) -> None:
    begin = datetime.now(UTC) + timedelta(seconds=8)
    await jobs.submit(run=1, beginTime=timestamp(begin))
    await jobs.phase("Queued", reason="BeginTime")
    done = await jobs.phase("Succeeded")
    assert done.start_time is not None
    assert done.start_time >= timestamp(begin)
    with pytest.raises(StatusError, match=r"spec\.beginTime"):
        await jobs.submit("y", beginTime="tomorrow")


async def test_jobs_that_wait_for_each_other_are_told_so(jobs: Jobs) -> None:
    await jobs.submit("x", dependencies=[{"name": "y"}])
    await jobs.submit("y", dependencies=[{"name": "x"}])
    status = await jobs.phase("Queued", "x", reason="Invalid")
    assert status.message.startswith("The dependencies go round in a circle, x → y → x:")
    with pytest.raises(StatusError, match="names the job itself: it would wait for ever"):
        await jobs.submit("own", dependencies=[{"name": "own"}])
    with pytest.raises(StatusError, match="condition must be one of Finished, Started, Succeeded"):
        await jobs.submit("z", dependencies=[{"name": "x", "condition": "Done"}])


def has_estimate(status: GPUJobStatus) -> bool:
    return status.queue is not None and status.queue.estimated_start is not None


async def test_a_large_job_is_not_starved_by_those_behind_it(jobs: Jobs) -> None:
    """The node with A100s has two of them."""
    await jobs.submit("runs", gpu="1(A100)", activeDeadlineSeconds=2 * HOUR)
    running = await jobs.phase("Running", "runs")
    await jobs.submit("large", gpu="2(A100)", activeDeadlineSeconds=HOUR)
    large = await jobs.until("large", has_estimate)
    assert (large.reason, large.message) == ("Resources", "Need 2 GPUs, only 1 available")
    assert large.queue is not None
    assert large.queue.position == 1
    # By the time limit, unless earlier tests on this sandbox have taught otherwise: never later than the limit.
    assert "ended on a100-0 by then" in large.queue.basis
    assert rendered(large.queue.basis_details).message == large.queue.basis
    expected = moment(large.queue.estimated_start or "") - moment(running.start_time or "")
    assert 0 < expected.total_seconds() <= 2 * HOUR + 60
    # What was learned moves it without a word by a tenth at most.
    if large.queue.basis.endswith("at the latest, by the time limits"):
        assert expected.total_seconds() >= 0.9 * 2 * HOUR
    await jobs.submit("long", gpu="1(A100)")
    long = await jobs.phase("Queued", "long", reason="Reserved")
    kept = f"2 GPUs are kept for job {large.number} (large), which is older"
    assert long.message == f"Need 1 GPU, only 0 available; {kept}"
    await jobs.submit("short", gpu="1(A100)", activeDeadlineSeconds=HOUR)
    await jobs.phase("Running", "short")
    for name in ("runs", "short"):
        await jobs.delete(name)
    started = await jobs.phase("Running", "large")
    assert started.queue is None
    await jobs.phase("Queued", "long")


async def test_a_job_that_passes_is_planned_off_the_node_that_is_kept(jobs: Jobs) -> None:
    """The nodes with V100s have four each: one is left on each, and only the earlier one is needed."""
    await jobs.submit("early", gpu="3(V100)", activeDeadlineSeconds=HOUR)
    early = await jobs.phase("Running", "early")
    await jobs.submit("late", gpu="3(V100)", activeDeadlineSeconds=3 * HOUR)
    late = await jobs.phase("Running", "late")
    await jobs.submit("large", gpu="4(V100)")
    await jobs.phase("Queued", "large", reason="Resources")
    await jobs.submit("long", gpu="1(V100)")
    passed = await jobs.phase("Running", "long")
    assert passed.nodes == late.nodes != early.nodes


async def test_a_limit_that_let_a_job_start_before_others_only_shrinks(
    jobs: Jobs, client: Client, canary: str, sandbox: Cluster
) -> None:
    """The attack: start before the large job of another tenant by a short limit, and lift the limit afterwards."""
    theirs = Jobs(client, namespace=canary)
    await theirs.submit("runs", gpu="1(A100)", activeDeadlineSeconds=2 * HOUR)
    await theirs.phase("Running", "runs")
    # Of jobs that were created in one second, the one with the lower number in its namespace comes first.
    await theirs.submit("large", gpu="2(A100)", activeDeadlineSeconds=HOUR, priority=11)
    await theirs.until("large", lambda status: status.queue is not None and status.queue.reserved is not None)
    await jobs.submit("short", gpu="1(A100)", activeDeadlineSeconds=HOUR)
    started = await jobs.phase("Running", "short")
    assert started.placement is not None
    assert started.placement.limit_seconds == HOUR
    for limit in (864_000, None):
        with pytest.raises(StatusError, match=r"spec\.activeDeadlineSeconds may only be lowered while the job runs"):
            await jobs.change("short", activeDeadlineSeconds=limit)
    where = (f"--kubeconfig={sandbox.kubeconfig}", f"--namespace={jobs.namespace}")
    said = await run(*commands.dovetail(), "gjob", "update", "short", "--time", "240:00:00", *where)
    assert said.returncode == 1
    assert "spec.activeDeadlineSeconds may only be lowered while the job runs" in said.stderr
    await jobs.change("short", activeDeadlineSeconds=HOUR // 2)
    await until(lambda: jobs.child("short"), lambda child: child.spec.active_deadline_seconds == HOUR // 2)
    # A job that passed no one has a limit that may be raised, and one that waits again too.
    await theirs.change("runs", activeDeadlineSeconds=3 * HOUR)
    await jobs.change("short", suspend=True)
    await jobs.phase("Suspended", "short")
    await jobs.change("short", activeDeadlineSeconds=864_000)
    await theirs.clear()

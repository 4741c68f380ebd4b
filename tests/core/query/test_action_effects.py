"""What a change to a job does to others: known small clusters, and random ones against a cluster without the job."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as with_fields

from dovetail.answers.effects import Effects
from dovetail.answers.jobs import JobReference
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.objects import ClusterObjects
from dovetail.query.action_effects import Change, effects_of, future_of
from dovetail.query.dry_run import prepare
from tests.core.query.clusters import RandomCluster, random_cluster
from tests.operator_.builders import NOW
from tests.spec_values import RANKED

HOUR = 3600
# A run of an hour, and the grace period of its pods.
BEHIND = HOUR + 30.0


@pytest.fixture
def cluster() -> RandomCluster:
    """One node of V100s without jobs."""
    found = random_cluster(1)
    for emptied in (found.nodes, found.gpunodes, found.pods, found.jobs, found.children, found.quotas):
        emptied.clear()
    found.settings = found.settings.model_copy(update={key: {} for key in RANKED})
    found.free.clear()
    found.add_node("n")
    return found


def waiting(cluster: RandomCluster, *, created: int = -100, **spec: Any) -> GPUJob:
    """A job of the namespace `team` that the queue has not started; it may run for an hour."""
    status = {"phase": "Held" if spec.get("suspend") else "Queued", "reason": "Resources", "message": ""}
    spec = {"gpu": len(cluster.free["n"]), "activeDeadlineSeconds": HOUR, **spec}
    job = cluster.new_job("wait", status=status, namespace="team", **spec)
    job = with_fields(
        job, metadata=with_fields(job.metadata, creation_timestamp=f"2026-01-01T00:00:{len(cluster.jobs):02}Z")
    )
    cluster.jobs.append(job)
    return job


def effects(cluster: RandomCluster, job: GPUJob, **changes: Any) -> Effects:
    changed = with_fields(job, spec=with_fields(job.spec, **changes))
    return effects_of(prepare(cluster.objects(), now=NOW), job=job, changed=changed)


def starts(found: Effects) -> dict[str, tuple[float | None, float | None]]:
    return {shift.job.name: (shift.before_seconds, shift.after_seconds) for shift in found.shifted}


def named(jobs: list[JobReference]) -> list[str]:
    return [job.name for job in jobs]


@pytest.mark.parametrize("change", [{"cancel": True}, {"suspend": True}])
def test_who_waits_behind_a_job_starts_sooner_without_it(cluster: RandomCluster, change: dict[str, Any]) -> None:
    first, second = waiting(cluster), waiting(cluster)
    found = effects(cluster, first, **change)
    assert starts(found) == {second.metadata.name: (BEHIND, 0.0)}
    assert (found.own, found.simulated_seconds) == (None, None)


def test_a_higher_priority_delays_those_that_it_overtakes(cluster: RandomCluster) -> None:
    first, second = waiting(cluster), waiting(cluster)
    found = effects(cluster, second, priority=second.spec.priority + 10)
    assert starts(found) == {first.metadata.name: (0.0, BEHIND)}
    assert found.own is not None
    assert found.own.outcome == "Starts"


def test_an_unchanged_priority_changes_nothing(cluster: RandomCluster) -> None:
    first, second = waiting(cluster), waiting(cluster)
    found = effects(cluster, second, priority=second.spec.priority)
    assert starts(found) == {}
    assert found.own is not None
    assert (found.own.outcome, found.own.position) == ("Waits", 1)
    assert first.metadata.name not in starts(found)


def test_a_released_job_keeps_its_age(cluster: RandomCluster) -> None:
    held, other = waiting(cluster, suspend=True), waiting(cluster)
    found = effects(cluster, held, suspend=False)
    assert starts(found) == {other.metadata.name: (0.0, BEHIND)}


def test_jobs_that_depend_on_a_job_are_cancelled_with_it_released_by_its_end_or_held_up(cluster: RandomCluster) -> None:
    first = waiting(cluster)
    needs = waiting(cluster, dependencies=[{"name": first.metadata.name}], onDependencyFailure="Cancel")
    then = waiting(cluster, dependencies=[{"name": needs.metadata.name}], onDependencyFailure="Cancel")
    over = waiting(cluster, dependencies=[{"name": first.metadata.name, "condition": "Finished"}])
    found = effects(cluster, first, cancel=True)
    assert [(each.job.name, each.after) for each in found.cancelled] == [
        (needs.metadata.name, first.metadata.name),
        (then.metadata.name, needs.metadata.name),
    ]
    assert (named(found.released), named(found.held_up)) == ([over.metadata.name], [])
    found = effects(cluster, first, suspend=True)
    assert (found.cancelled, named(found.held_up)) == ([], [needs.metadata.name, over.metadata.name])


def test_who_is_held_or_begins_later_is_not_released_by_what_it_waits_for(cluster: RandomCluster) -> None:
    first, other = waiting(cluster), waiting(cluster)
    ends = [{"name": first.metadata.name, "condition": "Finished"}]
    over = waiting(cluster, dependencies=ends)
    waiting(cluster, dependencies=ends, suspend=True)
    waiting(cluster, dependencies=ends, beginTime="2100-01-01T00:00:00Z")
    waiting(cluster, dependencies=[*ends, {"name": other.metadata.name}])
    assert named(effects(cluster, first, cancel=True).released) == [over.metadata.name]


@pytest.mark.parametrize("change", [{"cancel": True}, {"suspend": True}])
def test_the_end_or_hold_of_a_running_job_frees_its_devices(cluster: RandomCluster, change: dict[str, Any]) -> None:
    cluster.add_running()
    while not any(
        each.job == cluster.jobs[-1].metadata.uid for each in prepare(cluster.objects(), now=NOW).queue.leaving
    ):
        # Its batch Job is over already: only its pods still hold devices.
        cluster.add_node("n")
        cluster.jobs.clear()
        cluster.add_running()
    runs, behind = cluster.jobs[0], waiting(cluster, gpu=2)
    found = effects(cluster, runs, **change)
    assert found.own is None
    assert [after for _, after in starts(found).values()] == [0.0]
    assert list(starts(found)) == [behind.metadata.name]


def test_the_tasks_of_an_array_go_with_it(cluster: RandomCluster) -> None:
    array = waiting(cluster, array={"indexes": "0-1"})
    waiting(cluster, labels={"dovetail.dev/array": array.metadata.name})
    behind = waiting(cluster)
    found = effects(cluster, array, cancel=True)
    assert found.tasks == 1
    assert starts(found) == {behind.metadata.name: (BEHIND, 0.0)}


def test_of_an_array_only_its_own_unfinished_tasks_go_with_it(cluster: RandomCluster) -> None:
    array = waiting(cluster, array={"indexes": "0-2"})
    label = {"dovetail.dev/array": array.metadata.name}
    _, ended = waiting(cluster, labels=label), waiting(cluster, labels=label)
    waiting(cluster, labels={"dovetail.dev/array": "another"})
    cluster.jobs[cluster.jobs.index(ended)] = with_fields(ended, status=with_fields(ended.status, phase="Succeeded"))
    assert effects(cluster, array, cancel=True).tasks == 1


def test_an_ended_job_has_no_effects(cluster: RandomCluster) -> None:
    job = waiting(cluster)
    over = with_fields(job, status=with_fields(job.status, phase="Succeeded"))
    found = effects(cluster, over, cancel=True)
    assert not any(msgspec.to_builtins(found).values())


def test_a_limit_on_simulated_cycles_says_how_far_starts_are_compared(cluster: RandomCluster) -> None:
    jobs = [waiting(cluster) for _ in range(4)]
    changed = with_fields(jobs[0], spec=with_fields(jobs[0].spec, cancel=True))
    found = effects_of(prepare(cluster.objects(), now=NOW), job=jobs[0], changed=changed, most_cycles=1)
    assert found.simulated_seconds is not None
    # The one that gains most comes first: it would have had no start.
    assert list(starts(found).items()) == [
        (jobs[2].metadata.name, (None, BEHIND)),
        (jobs[1].metadata.name, (BEHIND, 0.0)),
    ]


def _without(objects: ClusterObjects, *, job: GPUJob) -> ClusterObjects:
    """The cluster in which the job, its batch Job and its pods never were."""
    owned = {child.metadata.uid for child in objects.batch_job_of([job]).values()}
    return replace(
        objects,
        jobs=[each for each in objects.jobs if each is not job],
        batch_jobs=[each for each in objects.batch_jobs or () if each.metadata.uid not in owned],
        pods=[pod for pod in objects.pods if not owned & {owner.uid for owner in pod.metadata.owner_references}],
    )


def test_those_who_gain_most_come_first(cluster: RandomCluster) -> None:
    first, small, large = waiting(cluster, gpu=1, priority=30), waiting(cluster, gpu=1), waiting(cluster, priority=20)
    found = effects(cluster, first, cancel=True)
    assert list(starts(found).items()) == [(large.metadata.name, (BEHIND, 0.0)), (small.metadata.name, (0.0, BEHIND))]


def _limits_alone(quota: GPUQuota) -> GPUQuota:
    """The quota without what counts past use: that of a job stays once it is cancelled."""
    spec = quota.spec
    return with_fields(quota, spec=with_fields(spec, shares=None, parent=None, guaranteed=None))


@pytest.mark.parametrize("seed", range(1, 11))
def test_the_starts_after_a_cancellation_are_those_of_a_cluster_without_the_job(seed: int) -> None:
    cluster = random_cluster(seed)
    cluster.quotas = list(map(_limits_alone, cluster.quotas))
    objects = cluster.objects()
    prepared = prepare(objects, now=NOW)
    judged = {each.key for each in prepared.queue.waiting} | {each.job for each in prepared.queue.leaving}
    for job in (each for each in cluster.jobs if each.metadata.uid in judged):
        changed = with_fields(job, spec=with_fields(job.spec, cancel=True))
        change = Change(prepared, job=job, changed=changed, most_cycles=None)
        expected = future_of(prepare(_without(objects, job=job), now=NOW).queue, most_cycles=None)
        if change.effects().released:
            continue
        assert change.after().starts == expected.starts

"""What `gbatch --dry-run` says of a job that is not submitted yet."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from dovetail.api.builtin import Pod, SelectorRequirement
from dovetail.api.gpujob import ArraySpec, Dependency, GPUJob, Placement, Preemption, ResourceRequest
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.karpenter import (
    NodePool,
    NodePoolMetadata,
    NodePoolNodes,
    NodePoolSpec,
    NodePoolTemplate,
)
from dovetail.api.meta import ObjectMeta, OwnerReference
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.growing import Growing
from dovetail.config.settings import Settings
from dovetail.query.dry_run import dry_run
from tests.cli.builders import make_pod, make_quota
from tests.core.query.explain.test_explain import SETTINGS, job_pod, make_job, make_picture

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def asked(gpu: str | None = "1", *, workers: int = 1, limit: int | None = None, **spec: Any) -> GPUJob:
    job = make_job("new", workers=workers, limit=limit, phase=None)
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, gpu=gpu, **spec))


def changed(job: GPUJob, **spec: Any) -> GPUJob:
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **spec))


def running(name: str, *, node: str, started: str, limit: int | None) -> tuple[GPUJob, Pod]:
    job = make_job(name, gpu="2", limit=limit, start_time=started)
    pod = job_pod(name, 1, node=node)
    owner = OwnerReference(api_version="batch/v1", kind="Job", name=name, uid=f"child-{name}", controller=True)
    return job, msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=[owner]))


def told(job: GPUJob, *others: GPUJob, pods: list[Pod] | None = None, quotas: list[GPUQuota] | None = None) -> str:
    picture = replace(make_picture(jobs=list(others), pods=pods), quotas=quotas or [])
    return foretold(job, objects=picture)


def foretold(job: GPUJob, *, objects: ClusterObjects) -> str:
    return dry_run(job, objects=objects, now=NOW).text


def full(*, limit: int | None = 3600) -> tuple[list[GPUJob], list[Pod]]:
    """Both nodes are taken: `a` by a job that began an hour before noon, `b` by one that began at noon."""
    early, its = running("early", node="a", started="2026-01-01T11:00:00Z", limit=None if limit is None else 2 * limit)
    late, others = running("late", node="b", started="2026-01-01T12:00:00Z", limit=limit and 4 * limit)
    return [early, late], [its, others]


def test_a_job_that_fits_is_told_where_it_would_start() -> None:
    assert told(asked("2")) in {"It would start now on a (2 GPUs).", "It would start now on b (2 GPUs)."}
    assert told(asked("2", workers=2)) == "It would start now on a (2 GPUs), b (2 GPUs)."


def test_an_elastic_job_is_told_how_many_workers_would_start() -> None:
    assert told(asked("2", workers=9, min_workers=1)) == "It would start now on a (2 GPUs), b (2 GPUs)."


def test_of_an_array_it_is_told_when_its_first_task_would_start() -> None:
    assert told(asked("2", array=ArraySpec(indexes="0-9"))).startswith("Its first task: It would start now on ")


def test_a_job_without_a_gpu_would_start_wherever_there_is_room() -> None:
    found = told(asked(gpu=None, resources=ResourceRequest(device="cpu")))
    assert found == "It would start now, wherever enough CPU and memory is free."


def test_a_job_that_would_wait_is_told_its_place_the_reason_and_when_it_would_start() -> None:
    jobs, pods = full()
    assert told(asked("2"), *jobs, pods=pods) == (
        "It would wait at place 1. Resources: Need 2 GPUs, only 0 available. It would start in about 1h00m, at "
        "2026-01-01T13:00:30Z: 1 job has ended on a by then at the latest, by the time limits."
    )


def test_a_job_that_would_fall_back_on_the_cpu_is_told_when() -> None:
    jobs, pods = full()
    found = told(asked("2", on_no_gpu="RunOnCPU", on_no_gpu_after_seconds=600), *jobs, pods=pods)
    assert found == (
        "It would wait at place 1. Resources: Need 2 GPUs, only 0 available. It would start in about 10m00s, at "
        "2026-01-01T12:10:00Z: It runs on the CPU from then on."
    )
    found = told(asked("2", on_no_gpu="RunOnCPU", on_no_gpu_after_seconds=86400), *jobs, pods=pods)
    assert found.endswith("by the time limits. If it still waits at 2026-01-02T12:00:00Z, it runs on the CPU.")


def test_a_job_that_would_start_on_the_cpu_is_told_why() -> None:
    found = told(asked("9", on_no_gpu="RunOnCPU"))
    assert found.startswith("It would start now, wherever enough CPU and memory is free. Runs on the CPU: Need 9")


def test_those_who_wait_already_go_first() -> None:
    jobs, pods = full()
    before = make_job("before", gpu="2", phase="Queued", reason="Resources", limit=600)
    found = told(asked("2"), *jobs, before, pods=pods)
    assert found.startswith("It would wait at place 2. Resources: Need 2 GPUs, only 0 available.")
    assert "at 2026-01-01T13:11:00Z" in found


def test_those_who_are_held_or_wait_for_others_are_not_in_its_way() -> None:
    held = changed(make_job("held", gpu="2", phase="Held", reason="Held"), suspend=True)
    depends = changed(
        make_job("depends", gpu="2", phase="Queued", reason="Dependency"), dependencies=[Dependency(name="first")]
    )
    assert told(asked("2", workers=2), held, depends).startswith("It would start now")


def test_a_job_that_asks_a_pool_is_told_of_that_pool() -> None:
    found = told(asked("1", pool="elsewhere"))
    assert found.startswith("It could never start here. ExceedsCapacity: Need 1 GPU, only 0 available")


def test_room_that_is_planned_for_another_job_is_taken_on_its_own_nodes() -> None:
    placement = {"generation": 1, "nodes": [{"name": "b", "workers": 1}], "worker": {"request": "2"}}
    starting = make_job("starting", gpu="2", phase="Starting", placement=msgspec.convert(placement, Placement))
    assert told(asked("2"), starting) == "It would start now on a (2 GPUs)."


def test_nodes_that_a_growing_pool_can_get_would_be_requested() -> None:
    shape = {"gpus": 8, "model": "V100", "cpu": "64", "memory": "256Gi", "max_nodes": 2, "labels": {"pool": "grows"}}
    growing = SETTINGS.model_copy(update={"growing": Growing.model_validate({"pools": {"grows": shape}})})
    found = told_by(growing, asked("8", workers=2), pods=[])
    assert found == "It would wait at place 1. Provisioning: 2 nodes of pool grows would be requested."
    assert told_by(growing, asked("9"), pods=[]).startswith("It could never start here.")


def test_a_node_pool_of_karpenter_counts_as_a_pool_that_grows() -> None:
    shape = {"gpu-count": "8", "gpu-name": "v100", "gpu-memory": "32768", "cpu": "96", "memory": "262144"}
    wants = [SelectorRequirement(key=f"karpenter.k8s.aws/instance-{key}", operator="In", values=[value])
             for key, value in shape.items()]  # fmt: skip
    labels = NodePoolMetadata(labels={"dovetail.dev/managed": "true"})
    template = NodePoolTemplate(metadata=labels, spec=NodePoolNodes(requirements=wants))
    pool = NodePool(metadata=ObjectMeta(name="grows"), spec=NodePoolSpec(template=template))
    found = foretold(asked("8"), objects=replace(make_picture(), node_pools=[pool]))
    assert found == "It would wait at place 1. Provisioning: 1 node of pool grows would be requested."


def test_what_can_never_run_is_told_so() -> None:
    assert told(asked("8")).startswith("It could never start here. ExceedsCapacity: Need 8 GPUs, only 2 available")


def test_an_estimate_on_a_job_without_a_limit_says_so() -> None:
    jobs, pods = full(limit=None)
    assert "if 1 without a time limit run as long as is configured" in told(asked("2"), *jobs, pods=pods)


def test_a_time_to_begin_and_dependencies_come_first() -> None:
    assert told(asked(begin_time="2026-01-01T18:00:00Z")) == ("It would not start before 2026-01-01T18:00:00Z.")
    first = make_job("first", phase="Running")
    waits = told(asked(dependencies=[Dependency(name="first")]), first)
    assert waits == "Dependency: Waits for job 1 (first) to succeed."


def test_a_limit_is_told_as_the_operator_tells_it_and_when_it_is_over() -> None:
    early, its = running("early", node="a", started="2026-01-01T11:00:00Z", limit=7200)
    quota = make_quota("vision", namespaces=["default"], limit={"gpus": 3})
    assert told(asked("2"), early, pods=[its], quotas=[quota]) == (
        "It would wait at place 1. Quota: Namespace default may run 3 GPUs, 2 run, this job needs 2 (GPUQuota vision). "
        "It would start in about 1h00m, at 2026-01-01T13:00:30Z: 1 job has ended on a by then at the latest, by the "
        "time limits."
    )
    assert told(asked("1"), early, pods=[its], quotas=[quota]).startswith("It would start now")


def test_pods_that_are_no_jobs_count_for_the_limit_and_starting_jobs_too() -> None:
    notebook = make_pod("notebook", node="a", held=((0, 1000, 32768),))
    starting = make_job("starting", phase="Starting")
    quota = make_quota("vision", namespaces=["default"], limit={"gpus": 2})
    found = told(asked("1"), starting, pods=[notebook], quotas=[quota])
    assert "Namespace default may run 2 GPUs, 2 run, this job needs 1 (GPUQuota vision)" in found


def test_more_than_a_limit_ever_allows_is_told_so() -> None:
    found = told(asked("2"), quotas=[make_quota("small", limit={"gpus": 1})])
    assert "may run 1 GPU, 0 run, this job would never fit, it needs 2" in found
    assert found.endswith("No end that is known makes room for it.")


def test_a_users_limit_binds_that_user_alone() -> None:
    quota = make_quota("each", per="User", users=["ada"], limit={"runningJobs": 0})
    job = asked("1")
    by_ada = msgspec.structs.replace(
        job, metadata=msgspec.structs.replace(job.metadata, annotations={"dovetail.dev/user": "ada"})
    )
    assert "User ada may run 0 jobs at a time, 0 run (GPUQuota each)" in told(by_ada, quotas=[quota])
    assert told(job, quotas=[quota]).startswith("It would start now")


def test_a_queue_that_is_full_and_a_group_keep_a_job_back() -> None:
    jobs, pods = full()
    before = make_job("before", gpu="2", phase="Queued", reason="Quota")
    found = told(asked("1"), *jobs, before, pods=pods, quotas=[make_quota("q", limit={"queuedJobs": 1})])
    assert "may have 1 job in the queue, 1 are before this one" in found
    runs = make_job("runs", phase="Running", start_time="2026-01-01T11:00:00Z")
    runs = msgspec.structs.replace(runs, spec=msgspec.structs.replace(runs.spec, group="g"))
    assert "Group g may run 1 job at a time, 1 run" in told(asked("1", group="g", max_concurrent=1), runs)


def test_a_pool_that_a_quota_keeps_a_job_to_is_told() -> None:
    quota = make_quota("vision", pools=["big"])
    assert told(asked("1"), quotas=[quota]).endswith("(in pool big).")
    assert "Asks for pool x, GPUQuota vision allows big alone" in told(asked("1", pool="x"), quotas=[quota])


def test_gpus_that_are_kept_for_a_time_are_free_for_those_who_end_before_it() -> None:
    window = {"name": "exam", "startTime": "2026-01-01T14:00:00Z", "endTime": "2026-01-01T18:00:00Z", "gpus": 5}
    quota = make_quota("course", namespaces=["course"], advanceReservations=[window])
    found = told(asked("1"), quotas=[quota])
    assert "Reserved: " in found
    assert found.endswith(
        "5 GPUs are kept by GPUQuota course until 2026-01-01T18:00:00Z from 2026-01-01T14:00:00Z on (reservation exam)."
        " It would start in about 6h00m, at 2026-01-01T18:00:00Z: A reservation is over by then."
    )
    assert told(asked("1", limit=3600), quotas=[quota]).startswith("It would start now")


def test_those_who_have_used_less_of_late_go_first() -> None:
    jobs, pods = full()
    before = make_job("before", gpu="2", phase="Queued", reason="Resources", limit=600)
    mine = make_quota("mine", namespaces=["mine"], shares=1)
    theirs = make_quota("theirs", namespaces=["default"], shares=1)
    job = asked("2")
    of_mine = msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, namespace="mine"))
    assert told(of_mine, *jobs, before, pods=pods, quotas=[mine, theirs]).startswith("It would wait at place 1.")
    assert told(job, *jobs, before, pods=pods, quotas=[mine, theirs]).startswith("It would wait at place 2.")


def test_who_may_not_see_quotas_is_told_that_they_are_not_counted() -> None:
    found = foretold(asked("1"), objects=replace(make_picture(), quotas=None))
    assert found.endswith("Limits are not counted: that takes the right to list GPUQuotas.")


ONE_MAKES_WAY = Settings.model_validate({"preemption": {"priority_gap": 5, "grace": 20, "min_run": 300}})


def told_by(rules: Settings, job: GPUJob, *others: GPUJob, pods: list[Pod]) -> str:
    picture = replace(make_picture(jobs=list(others), pods=pods), settings=rules)
    return foretold(job, objects=picture)


def with_preemption(job: GPUJob, **said: Any) -> GPUJob:
    return msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, preemption=Preemption(**said)))


def test_a_job_for_which_another_would_make_way_is_told_which_after_which_grace_and_when_it_would_start() -> None:
    jobs, pods = full()
    assert told_by(ONE_MAKES_WAY, asked("2", priority=20), *jobs, pods=pods) == (
        "It would wait at place 1. Resources: Need 2 GPUs, only 0 available. early (priority 10) would be preempted "
        "for it, with a warning 20 s before: it would start in about 50 s, at 2026-01-01T12:00:50Z."
    )


def test_a_gang_is_told_all_that_would_make_way() -> None:
    jobs, pods = full(limit=None)
    older = msgspec.structs.replace(jobs[1].status, start_time="2026-01-01T11:30:00Z")
    jobs[1] = msgspec.structs.replace(jobs[1], status=older)
    found = told_by(ONE_MAKES_WAY, asked("2", priority=20, workers=2), *jobs, pods=pods)
    assert (
        "late (priority 10) and early (priority 10) would be preempted for it, each with a warning 20 s before" in found
    )


def test_no_other_makes_way_where_the_operator_sends_none_away() -> None:
    jobs, pods = full()
    too_near = asked("2", priority=14)
    assert "be preempted" not in told_by(ONE_MAKES_WAY, too_near, *jobs, pods=pods)
    assert "be preempted" not in told_by(SETTINGS, asked("2", priority=200), *jobs, pods=pods)
    spent = [with_preemption(job, count=3) for job in jobs]
    assert "be preempted" not in told_by(ONE_MAKES_WAY, asked("2", priority=20), *spent, pods=pods)


def test_the_budget_of_the_hour_counts_for_the_dry_run_too() -> None:
    jobs, pods = full()
    rules = Settings.model_validate({"preemption": {"priority_gap": 5, "min_run": 0, "per_hour": 1}})
    gone = with_preemption(make_job("gone", phase="Succeeded"), count=1, last_time="2026-01-01T11:30:00Z")
    assert "be preempted" in told_by(rules, asked("2", priority=20), *jobs, pods=pods)
    assert "be preempted" not in told_by(rules, asked("2", priority=20), *jobs, gone, pods=pods)


def test_a_job_that_has_not_run_for_long_enough_may_make_way_later() -> None:
    young, its = running("young", node="a", started="2026-01-01T11:59:00Z", limit=None)
    other, others = running("other", node="b", started="2026-01-01T11:58:00Z", limit=None)
    found = told_by(ONE_MAKES_WAY, asked("2", priority=20), young, other, pods=[its, others])
    assert found.endswith(
        "In 3m00s other (priority 10) may be preempted for it, with a warning 20 s before: it would start in about "
        "3m50s, at 2026-01-01T12:03:50Z."
    )


def test_an_end_that_is_foreseen_before_that_spares_the_others() -> None:
    soon, its = running("soon", node="a", started="2026-01-01T11:00:00Z", limit=3600)
    other, others = running("other", node="b", started="2026-01-01T11:00:00Z", limit=None)
    found = told_by(ONE_MAKES_WAY, asked("2", priority=20), soon, other, pods=[its, others])
    assert "be preempted" not in found
    assert "by the time limits" in found


def test_who_has_made_way_stands_in_the_queue_again() -> None:
    jobs, pods = full()
    victim = make_job("victim", gpu="2", phase="Preempted", reason="Resources", limit=600)
    assert told(asked("2"), *jobs, victim, pods=pods).startswith("It would wait at place 2.")


def test_of_a_request_that_cannot_be_read_it_is_told_why() -> None:
    assert told(asked("lots")).startswith("Invalid: ")
    assert "lots" in told(asked("lots"))


def test_a_limit_over_all_runs_ends_a_job_too() -> None:
    early, its = running("early", node="a", started="2026-01-01T11:00:00Z", limit=None)
    late, others = running("late", node="b", started="2026-01-01T11:00:00Z", limit=None)
    in_all = msgspec.structs.replace(early.spec, maximum_execution_time_seconds=9000)
    run_before = msgspec.structs.replace(early.status, earlier_run_seconds=1800)
    limited = msgspec.structs.replace(early, spec=in_all, status=run_before)
    assert "at 2026-01-01T13:00:30Z" in told(asked("2"), limited, late, pods=[its, others])

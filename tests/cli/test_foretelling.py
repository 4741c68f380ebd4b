"""What `gbatch --dry-run` says of a job that is not submitted yet."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from dovetail.api.gpujob import Dependency, GPUJob, Placement, ResourceRequest
from dovetail.kube.objects import Pod
from dovetail_cli.foretelling import foretell
from tests.cli.test_explain import job_pod, make_job, make_picture

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def asked(gpu: str | None = "1", *, workers: int = 1, limit: int | None = None, **spec: Any) -> GPUJob:
    job = make_job("new", workers=workers, limit=limit, phase=None)
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, gpu=gpu, **spec))


def running(name: str, *, node: str, started: str, limit: int | None) -> tuple[GPUJob, Pod]:
    job = make_job(name, gpu="2", limit=limit, start_time=started)
    return job, job_pod(name, 1, node=node)


def told(job: GPUJob, *others: GPUJob, pods: list[Pod] | None = None) -> str:
    return foretell(job, picture=make_picture(jobs=list(others), pods=pods), now=NOW)


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


def test_a_job_without_a_gpu_would_start_wherever_there_is_room() -> None:
    found = told(asked(gpu=None, resources=ResourceRequest(device="cpu")))
    assert found == "It would start now, wherever kube-scheduler finds CPU and memory for it."


def test_a_job_that_would_wait_is_told_its_place_the_reason_and_when_it_would_start() -> None:
    jobs, pods = full()
    assert told(asked("2"), *jobs, pods=pods) == (
        "It would wait at place 1. Resources: Need 2 GPUs, only 0 available. It would start in about 1h00m, at "
        "2026-01-01T13:00:30Z: 1 job has ended on a by then at the latest, by the time limits."
    )


def test_those_who_wait_already_go_first() -> None:
    jobs, pods = full()
    before = make_job("before", gpu="2", phase="Queued", reason="Resources", limit=600)
    found = told(asked("2"), *jobs, before, pods=pods)
    assert found.startswith("It would wait at place 2. Resources: Need 2 GPUs, only 0 available.")
    assert "at 2026-01-01T13:11:00Z" in found


def test_those_who_are_held_or_wait_for_others_are_not_in_its_way() -> None:
    held = make_job("held", gpu="2", phase="Held", reason="Held")
    depends = make_job("depends", gpu="2", phase="Queued", reason="Dependency")
    assert told(asked("2", workers=2), held, depends).startswith("It would start now")


def test_a_job_that_asks_a_pool_is_told_of_that_pool() -> None:
    found = told(asked("1", pool="elsewhere"))
    assert found.startswith("It could never start here. ExceedsCapacity: Need 1 GPU, only 0 available")


def test_room_that_is_planned_for_another_job_is_taken_on_its_own_nodes() -> None:
    placement = {"generation": 1, "nodes": [{"name": "b", "workers": 1}], "worker": {"request": "2"}}
    starting = make_job("starting", gpu="2", phase="Starting", placement=msgspec.convert(placement, Placement))
    assert told(asked("2"), starting) == "It would start now on a (2 GPUs)."


def test_what_can_never_run_is_told_so() -> None:
    assert told(asked("8")).startswith("It could never start here. ExceedsCapacity: Need 8 GPUs, only 2 available")


def test_an_estimate_on_a_job_without_a_limit_says_so() -> None:
    jobs, pods = full(limit=None)
    assert "if 1 without a time limit run as long as is configured" in told(asked("2"), *jobs, pods=pods)


def test_a_time_to_begin_and_dependencies_come_first() -> None:
    assert told(asked(begin_time="2026-01-01T18:00:00Z")) == (
        "It would not start before 2026-01-01T18:00:00Z (spec.beginTime)."
    )
    first = make_job("first", phase="Running")
    waits = told(asked(dependencies=[Dependency(name="first")]), first)
    assert waits == "Dependency: Waits for first to succeed."

"""What Dynamic learns: runs of one name, what is believed of them, and what is promised to the next."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Job
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import GPUJob, MemoryUse
from dovetail.api.gpunode import GPUNode
from dovetail.gpu.memory_strategy import text_of
from dovetail.jobs.memory_use import HISTORY, Learning, name_of_runs
from dovetail.jobs.records import record_of
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.manifests.batch_job import build_job
from dovetail_operator.state.state import State
from tests.operator_.builders import LET_GO, NOW, at, make_child, make_job, make_pod, make_state

DYNAMIC = {"strategy": "Dynamic"}


def run(
    number: int,
    peak_mib: int,
    *,
    limited: bool = False,
    phase: str = "Succeeded",
    seconds: float = 600,
    earlier: Any = (),
    **spec: Any,
) -> GPUJob:
    """A run of `train` that began `number` hours after the first."""
    name = "train" if number == 1 else f"train-{number}"
    memory = {"strategy": "Dynamic", "basis": "", "peakMiB": peak_mib, "limited": limited, "earlierRuns": list(earlier)}
    start = number * 3600
    status = {"phase": phase, "startTime": at(start), "completionTime": at(start + seconds), "memory": memory}
    meta = {"generateName": "train-", "creationTimestamp": at(start), "resourceVersion": str(100 + number)}
    return make_job(name, status=status, meta=meta, gpu="0.5", memory=DYNAMIC, **spec)


def next_run(gpu: str = "0.5", **spec: Any) -> GPUJob:
    meta = {"generateName": "train-", "creationTimestamp": at(360_000), "resourceVersion": "900"}
    return make_job("train-99", meta=meta, gpu=gpu, **({"memory": DYNAMIC} | spec))


def state_with(*jobs: GPUJob) -> State:
    state = make_state(a=2)
    for job in jobs:
        state.store.job_changed(job)
    return state


def promised(*runs: GPUJob, job: GPUJob | None = None) -> tuple[str, str | None, str]:
    """Request, guard and basis of the run that comes after `runs`."""
    job = job or next_run()
    state = state_with(*runs, job)
    ask, use = state.requests.ask_of(job), state.requests.memory_of(job)
    assert ask is not None
    assert use is not None
    return str(ask.gpu), None if ask.guard_fraction is None else text_of(ask.guard_fraction), use.basis


CASES = [
    pytest.param(
        [], ("0.5", "Conservative", "No estimate: no run of train has shown yet what it needs; as Conservative"),
        id="nothing is known",
    ),
    pytest.param(
        [run(1, 2048), run(2, 3072), run(3, 1024)],
        ("3379M,0.5", "Aggressive", "Estimated 3,379 MiB from 3 runs of train, peak 3,072 MiB"),
        id="the highest of several, and a tenth",
    ),
    pytest.param(
        [run(1, 1000)], ("1100M,0.5", "Aggressive", "Estimated 1,100 MiB from 1 run of train, peak 1,000 MiB"),
        id="one run is enough",
    ),
    pytest.param(
        [run(1, 1000, phase="TimedOut")],
        ("1100M,0.5", "Aggressive", "Estimated 1,100 MiB from 1 run of train, peak 1,000 MiB"),
        id="one that ran to its time limit",
    ),
    *[
        pytest.param(
            [broken],
            ("0.5", "Conservative", "No estimate: no run of train has shown yet what it needs; as Conservative"),
            id=why,
        )
        for why, broken in {
            "a run that failed teaches nothing": run(1, 1000, phase="Failed"),
            "a run that was ended may not have got far": run(1, 1000, phase="Cancelled"),
            "a run that goes on may need more yet": run(1, 1000, phase="Running"),
            "agents look too rarely for a short run": run(1, 1000, seconds=59),
            "a run that was never measured": run(1, 0),
        }.items()
    ],
    pytest.param(
        [run(1, 1000), run(2, 3300, limited=True)],
        ("0.5", "Conservative", "No estimate: the last run of train used all that it was promised; as Conservative"),
        id="whoever used all of its promise may have needed more",
    ),
    pytest.param(
        [run(1, 1000, limited=True, phase="Failed")],
        ("0.5", "Conservative", "No estimate: the last run of train used all that it was promised; as Conservative"),
        id="also if it failed for that",
    ),
    pytest.param(
        [run(1, 1000), run(2, 3300, limited=True), run(3, 5000)],
        ("5500M,0.5", "Aggressive", "Estimated 5,500 MiB from 1 run of train, peak 5,000 MiB"),
        id="what comes after is believed again, what was before is not",
    ),
    pytest.param(
        [run(1, 30_000)], ("31129M,0.5", "Aggressive", "Estimated 31,129 MiB from 1 run of train, peak 30,000 MiB"),
        id="never more than the largest device has to promise",
    ),
    pytest.param(
        [run(1, 40_000)], ("40000M,0.5", "Aggressive", "Estimated 40,000 MiB from 1 run of train, peak 40,000 MiB"),
        id="but never less than the peak",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("runs", "expected"), CASES)
def test_the_next_run_is_promised_what_earlier_ones_teach(runs: list[GPUJob], expected: tuple[str, str, str]) -> None:
    assert promised(*runs) == expected
    assert promised(*reversed(runs)) == expected


def test_memory_that_was_asked_is_the_most_that_is_promised() -> None:
    lower = promised(run(1, 1000), job=next_run("8G,0.5"))
    assert lower == ("1100M,0.5", "Aggressive", "Estimated 1,100 MiB from 1 run of train, peak 1,000 MiB")
    higher = promised(run(1, 9000), job=next_run("8G,0.5"))
    assert higher == ("8G,0.5", "Aggressive", "As asked, 8,192 MiB: 1 run of train used up to 9,000 MiB")


OF_MODEL = {"strategy": "Dynamic", "parameters": 100_000_000}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ("2662M,0.5", "Aggressive", "Estimated 2,662 MiB from 100,000,000 parameters and a batch of 1")),
        (
            {"memory": OF_MODEL | {"batchSize": 16}},
            ("8956M,0.5", "Aggressive", "Estimated 8,956 MiB from 100,000,000 parameters and a batch of 16"),
        ),
        (
            {"memory": OF_MODEL | {"batchSize": 16, "sampleMiB": 100}},
            ("4001M,0.5", "Aggressive", "Estimated 4,001 MiB from 100,000,000 parameters and a batch of 16"),
        ),
        (
            {"workload": "Inference"},
            ("1025M,0.5", "Aggressive", "Estimated 1,025 MiB from 100,000,000 parameters and a batch of 1"),
        ),
        (
            {"gpu": "2G,0.5"},
            ("2G,0.5", "Aggressive", "As asked, 2,048 MiB: 100,000,000 parameters and a batch of 1 may need 2,662 MiB"),
        ),
    ],
)
def test_before_the_first_run_the_parameters_of_the_model_say_what_it_needs(
    spec: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    assert promised(job=next_run(**({"memory": OF_MODEL} | spec))) == expected


def test_a_model_that_fits_no_device_keeps_its_estimate() -> None:
    found, _, _ = promised(job=next_run(memory=OF_MODEL | {"parameters": 7_000_000_000}))
    assert found == "147429M,0.5"


def test_what_a_run_has_used_counts_more_than_the_parameters_of_its_model() -> None:
    assert promised(run(1, 1000), job=next_run(memory=OF_MODEL))[0] == "1100M,0.5"
    used_up = promised(run(1, 3300, limited=True), job=next_run(memory=OF_MODEL))
    assert used_up[0] == "0.5"


def test_a_whole_device_comes_with_all_its_memory() -> None:
    assert promised(run(1, 1000), job=next_run("1")) == (
        "1", "Conservative", "Whole devices come with all their memory",
    )  # fmt: skip


def test_percent_of_memory_stays_what_was_asked() -> None:
    assert promised(run(1, 1000), job=next_run("50%,0.5")) == (
        "50%,0.5", "Conservative", "As asked, 50 % of each device's memory",
    )  # fmt: skip


@pytest.mark.parametrize("spec", [{"memory": {"strategy": "Aggressive"}}, {"memory": {}}])
def test_nothing_is_learned_for_who_does_not_say_dynamic(spec: dict[str, Any]) -> None:
    job = next_run(**spec)
    state = state_with(run(1, 1000), job)
    ask = state.requests.ask_of(job)
    assert ask is not None
    assert str(ask.gpu) == "0.5"
    assert state.requests.memory_of(job) is None


def test_the_configuration_may_say_dynamic_for_all() -> None:
    state = make_state(a=2, learning=Learning(default="Dynamic"))
    for job in (run(1, 1000), unsaid := next_run(memory={})):
        state.store.job_changed(job)
    use = state.requests.memory_of(unsaid)
    assert use is not None
    assert (use.strategy, use.estimate_mib) == ("Dynamic", 1100)


@pytest.mark.parametrize(
    ("meta", "name"),
    [
        ({"name": "train"}, "train"),
        ({"name": "train-2", "generateName": "train-"}, "train"),
        ({"name": "train-x7k2p", "generateName": "train-"}, "train"),
        ({"name": "resnet-50"}, "resnet-50"),
    ],
)
def test_numbered_and_generated_names_are_runs_of_one(meta: dict[str, Any], name: str) -> None:
    assert name_of_runs(make_job(meta=meta)) == ("team", name)


def test_another_namespace_teaches_nothing() -> None:
    other = msgspec.structs.replace(
        run(1, 1000), metadata=msgspec.structs.replace(run(1, 1000).metadata, namespace="others")
    )
    assert promised(other)[0] == "0.5"


def test_what_was_learned_outlives_the_runs_as_long_as_one_job_of_the_name_is_there() -> None:
    job = next_run()
    state = state_with(run(1, 2048), run(2, 3072), job)
    noted = msgspec.structs.replace(job.status, memory=state.requests.memory_of(job))
    job = msgspec.structs.replace(job, status=noted)
    # After a restart, when the first two are gone.
    following = make_job("train-100", meta={"generateName": "train-"}, gpu="0.5", memory=DYNAMIC)
    assert promised(job, job=following)[2] == "Estimated 3,379 MiB from 2 runs of train, peak 3,072 MiB"


def test_with_the_last_job_of_a_name_everything_is_forgotten() -> None:
    state = state_with(run(1, 2048))
    state.store.job_deleted("team/train", uid="uid-train")
    job = next_run()
    state.store.job_changed(job)
    assert str(state.requests.ask_of(job).gpu) == "0.5"  # type: ignore[union-attr]


def test_only_the_newest_runs_count() -> None:
    runs = [run(number, 10_000 - number * 100) for number in range(1, HISTORY + 4)]
    assert promised(*runs)[2] == f"Estimated 10,560 MiB from {HISTORY} runs of train, peak 9,600 MiB"


def let_go(state: State, job: GPUJob) -> Job:
    """The batch Job of the job as the operator makes it."""
    ask = state.requests.ask_of(job)
    assert ask is not None
    made = build_job(job, ask=ask, number=7, memory=state.requests.memory_of(job))
    made["metadata"] |= {"uid": "uid-child", "resourceVersion": "950"}
    pod = made["spec"]["template"]["metadata"]["annotations"]
    assert pod[names.REQUEST] == str(ask.gpu)
    assert pod[names.MEMORY_STRATEGY] == "Aggressive"
    return msgspec.convert(made, Job)


def test_what_a_job_was_let_go_with_stays_whatever_others_use_meanwhile() -> None:
    job = next_run()
    state = state_with(run(1, 1000), job)
    state.store.child_changed(let_go(state, job))
    state.store.job_changed(run(2, 5000))
    use = state.requests.memory_of(job)
    assert use is not None
    assert use.basis == "Estimated 1,100 MiB from 1 run of train, peak 1,000 MiB"
    assert str(state.requests.ask_of(job).gpu) == "1100M,0.5"  # type: ignore[union-attr]


def test_a_broken_note_on_the_batch_job_is_as_none() -> None:
    job = next_run()
    state = state_with(run(1, 1000), job)
    child = make_child(job)
    state.store.child_changed(
        msgspec.structs.replace(
            child, metadata=msgspec.structs.replace(child.metadata, annotations={names.MEMORY_ESTIMATE: "{"})
        )
    )
    use = state.requests.memory_of(job)
    assert use is not None
    assert use.estimate_mib == 1100


def bound_pod(*, memory_mib: int = 4000) -> Any:
    device = AllocatedDevice(uuid="GPU-a-0", index=0, share_milli=500, memory_mib=memory_mib)
    allocation = Allocation(node="a", mode="Fractional", containers=[ContainerAllocation(index=0, devices=[device])])
    meta = {"annotations": annotations_of(allocation), "labels": {names.LABEL_JOB: "train-99"}}
    return make_pod(node="a", meta=meta)


class Follower:
    """Keeps the jobs that were deleted."""

    def __init__(self, dropped: list[GPUJob]) -> None:
        self._dropped = dropped

    def observe(self, job: GPUJob) -> None:
        pass

    def drop(self, job: GPUJob) -> None:
        self._dropped.append(job)


def report(
    used_mib: int, *, pod: str = "uid-pod-0--50", peak_mib: int = 0, seconds: float = 0, mean: float = 0
) -> GPUNode:
    totals = [{"uid": pod, "peakMiB": peak_mib, "seconds": seconds, "meanUtilization": mean}]
    device = {"index": 0, "uuid": "GPU-a-0", "vendor": "nvidia", "model": "V100", "memoryMiB": 32768}
    tenants = [{"uid": pod, "usedMiB": used_mib}, {"uid": "nobody's", "usedMiB": 9999}]
    return msgspec.convert(
        {"metadata": {"name": "a"}, "status": {"devices": [device | {"tenants": tenants, "totals": totals}]}}, GPUNode
    )


def use_in(state: State, job: GPUJob) -> tuple[int, bool]:
    use = state.requests.memory_of(job)
    assert use is not None
    return use.peak_mib, use.limited


def test_the_peak_of_a_running_job_is_the_most_that_was_reported() -> None:
    job = next_run()
    state = state_with(job)
    state.store.pod_event("ADDED", bound_pod())
    for used in (1000, 3000, 500):
        state.store.gpunode_changed(report(used))
    assert use_in(state, job) == (3000, False)


def test_a_started_process_continues_from_the_peak_that_the_agent_has_seen() -> None:
    job = next_run()
    state = state_with(job)
    state.store.pod_event("ADDED", bound_pod())
    state.store.gpunode_changed(report(500, peak_mib=3000))
    assert use_in(state, job) == (3000, False)
    state.store.gpunode_changed(report(500, peak_mib=3900))
    assert use_in(state, job) == (3900, True)


def test_the_record_of_a_running_job_that_is_deleted_has_its_last_figures() -> None:
    job = next_run()
    job = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, phase="Running", start_time=at(0)))
    state, seen = state_with(job), list[GPUJob]()
    state.store.follow(Follower(seen))
    state.store.pod_event("ADDED", bound_pod())
    state.store.gpunode_changed(report(500, peak_mib=3000, seconds=100, mean=0.25))
    state.store.job_deleted("team/train-99", uid=job.metadata.uid)
    record = record_of(seen[0])
    assert (record.peak_mib, record.mean_utilization) == (3000, 0.25)


def test_a_report_that_came_before_its_pod_counts() -> None:
    job = next_run()
    state = state_with(job)
    state.store.gpunode_changed(report(1000))
    state.store.pod_event("ADDED", bound_pod())
    assert use_in(state, job) == (1000, False)


def test_a_worker_that_comes_up_to_its_promise_was_limited() -> None:
    job = next_run()
    state = state_with(job)
    state.store.pod_event("ADDED", bound_pod(memory_mib=1000))
    state.store.gpunode_changed(report(949))
    assert use_in(state, job) == (949, False)
    state.store.gpunode_changed(report(950))
    assert use_in(state, job) == (950, True)


def test_a_higher_peak_is_no_news_but_kept() -> None:
    job = next_run()
    state = state_with(job)
    state.store.pod_event("ADDED", bound_pod())
    state.store.gpunode_changed(report(1000))
    written = MemoryUse(strategy="Dynamic", basis="", peak_mib=1000)
    told = msgspec.structs.replace(
        job,
        status=msgspec.structs.replace(job.status, memory=written),
        metadata=msgspec.structs.replace(job.metadata, resource_version="901"),
    )
    state.store.job_changed(told)
    assert state.store.gpunode_changed(report(2010)) == []
    assert use_in(state, told) == (2010, False)


def test_the_status_says_what_the_promise_rests_on() -> None:
    job = next_run()
    state = state_with(run(1, 3072), job)
    state.decisions.set_verdict(job.metadata.uid, verdict=LET_GO)
    state.decisions.set_number(job.metadata.uid, number=7)
    seen = state.observe("team/train-99", now=NOW)
    assert seen is not None
    status = reconcile(seen).status
    assert status.memory is not None
    assert status.memory.estimate_mib == 3379
    assert status.request == "3379M,0.5"

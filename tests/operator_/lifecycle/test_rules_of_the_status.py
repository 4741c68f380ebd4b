"""Rules of one GPUJob's status, each in a sentence: what a table of whole scenarios leaves open."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from dovetail.api.gpujob import Measured, MemoryUse, Placement
from dovetail.api.gpunode import Overuse
from dovetail.api.meta import find_condition
from dovetail.engine.model.claims import Ask
from dovetail.jobs.batch_job import is_past
from dovetail.jobs.start_times import begin_of, due_again
from dovetail.names import GUESTS_MANAGER
from dovetail.queue.verdicts import Admitted
from dovetail_operator.job.actions import CreateJob, DeleteGPUJob, DeleteJob, PatchJob
from dovetail_operator.job.drain import DRAIN
from dovetail_operator.job.observation import Notice, Observed, Obstacle
from dovetail_operator.lifecycle import stages
from dovetail_operator.lifecycle.reconcile import Outcome, reconcile
from tests.operator_.builders import LET_GO, NO_ROOM, NOW, at, condition, make_child, make_job, make_pod, see
from tests.operator_.lifecycle.test_preemption import NOTICE, running, told

STARTED = {"phase": "Running", "startTime": at(-600)}


def over(reason: str, *pods: Any, message: str = "said", failed: int = 0, **job: Any) -> Outcome:
    """A job whose batch Job has failed for this reason."""
    made = make_job(status={**STARTED, **job.pop("status", {})}, **job)
    status = {"conditions": [condition("Failed", reason=reason, message=message)], "failed": failed}
    return reconcile(see(made, *pods, child=make_child(made, status=status)))


# --- how it ended --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "status", "says"),
    [
        ({"activeDeadlineSeconds": 60}, {}, "60 s"),
        ({"maximumExecutionTimeSeconds": 300}, {}, "300 s in all"),
        (
            {"maximumExecutionTimeSeconds": 900, "activeDeadlineSeconds": 60},
            {},
            "60 s",
        ),
        ({}, {}, "(activeDeadlineSeconds)"),
        (
            {"reservation": {"durationSeconds": 60, "image": "pause"}, "activeDeadlineSeconds": 60},
            {},
            "was not renewed in time",
        ),
    ],
)
def test_a_job_that_ran_too_long_names_the_limit(spec: dict[str, Any], status: dict[str, Any], says: str) -> None:
    outcome = over("DeadlineExceeded", status=status, **spec)
    assert outcome.status.phase == "TimedOut"
    assert says in outcome.status.message


@pytest.mark.parametrize(
    ("reason", "failed", "pods", "missing"),
    [
        pytest.param("BackoffLimitExceeded", 1, (), True, id="a worker failed, and its pod is gone"),
        pytest.param("BackoffLimitExceeded", 0, (), False, id="no worker failed"),
        pytest.param("PodFailurePolicy", 1, (), False, id="a rule says why"),
        pytest.param("BackoffLimitExceeded", 1, (make_pod(phase="Failed"),), False, id="the pod is there"),
        pytest.param("BackoffLimitExceeded", 1, (make_pod(1),), True, id="another worker's pod is there"),
    ],
)
def test_a_pod_that_is_gone_is_named_as_missing(reason: str, failed: int, pods: tuple[Any, ...], missing: bool) -> None:
    message = over(reason, *pods, failed=failed).status.message
    assert ("deleted?" in message) == missing
    assert message.startswith("said")


LIMIT = {"activeDeadlineSeconds": 60}
TAKEN_AWAY = {"deletionTimestamp": at(-1)}


def failed_after(
    seconds: float, *pods: Any, reason: str = "BackoffLimitExceeded", message: str = "said", **spec: Any
) -> Outcome:
    """A job with a limit of 60 s whose batch Job failed that long after its start, and ended 90 s later."""
    made = make_job(status=STARTED, **LIMIT, **spec)
    conditions = [
        condition("FailureTarget", reason=reason, message=message, seconds=seconds - 600),
        condition("Failed", reason=reason, message=message, seconds=seconds - 510),
    ]
    status = {"startTime": at(-600), "conditions": conditions, "failed": 1}
    return reconcile(see(made, *pods, child=make_child(made, status=status)))


@pytest.mark.parametrize(
    ("seconds", "reason", "message", "pods"),
    [
        pytest.param(60, "BackoffLimitExceeded", "said", (), id="the pod is gone"),
        pytest.param(
            75, "BackoffLimitExceeded", "said", (make_pod(phase="Failed", exit_code=137, meta=TAKEN_AWAY),),
            id="the deletion ended the pod",
        ),
        pytest.param(
            75, "PodFailurePolicy", "exit code 137 matching FailJob rule at index 1", (), id="a rule on its exit code"
        ),
    ],
)  # fmt: skip
def test_a_job_whose_pods_were_deleted_after_its_limit_has_timed_out(
    seconds: float, reason: str, message: str, pods: tuple[Any, ...]
) -> None:
    status = failed_after(seconds, *pods, reason=reason, message=message, backoffLimit=3).status
    assert (status.phase, status.reason) == ("TimedOut", "DeadlineExceeded")
    assert "Ran longer than its time limit of 60 s" in status.message
    shown = find_condition(status.conditions, type="Failed")
    assert shown is not None
    assert shown.reason == "DeadlineExceeded"


def test_a_job_that_missed_its_deadline_runs_again_where_its_policy_retries_timeouts() -> None:
    outcome = failed_after(60, backoffLimit=3, retryPolicy={"onTimeout": True})
    (ended,) = outcome.status.attempts
    assert (outcome.status.phase, ended.reason, ended.counted) == ("Queued", "DeadlineExceeded", True)


@pytest.mark.parametrize(
    ("seconds", "reason", "message", "pods"),
    [
        pytest.param(59, "BackoffLimitExceeded", "said", (), id="a user deleted the pod before the limit"),
        pytest.param(
            75, "BackoffLimitExceeded", "said", (make_pod(phase="Failed", exit_code=3),),
            id="the worker failed by itself",
        ),
        pytest.param(
            75, "BackoffLimitExceeded", "said",
            (make_pod(0, phase="Failed", exit_code=137, meta=TAKEN_AWAY), make_pod(1, phase="Failed", exit_code=3)),
            id="another worker failed by itself",
        ),
        pytest.param(75, "PodFailurePolicy", "matching FailJob rule at index 0", (), id="its node was drained"),
        pytest.param(75, "MaxFailedIndexesExceeded", "said", (), id="another reason"),
    ],
)  # fmt: skip
def test_a_job_that_failed_otherwise_has_not_timed_out(
    seconds: float, reason: str, message: str, pods: tuple[Any, ...]
) -> None:
    status = failed_after(seconds, *pods, reason=reason, message=message).status
    assert status.reason != "DeadlineExceeded"
    assert status.phase != "TimedOut"


def test_without_the_times_of_the_batch_job_its_own_reason_counts() -> None:
    made = make_job(status=STARTED, **LIMIT)
    failed = condition("Failed", reason="BackoffLimitExceeded")
    for status in (
        {"conditions": [failed]},
        {"startTime": at(-600), "conditions": [failed | {"lastTransitionTime": None}]},
    ):
        assert reconcile(see(made, child=make_child(made, status=status))).status.phase == "Failed"


@pytest.mark.parametrize(
    ("retries", "attempts", "limit", "says"),
    [
        (1, 1, 1, "(attempt 2, 1 retry used)"),
        (2, 2, 2, "(attempt 3, 2 retries used)"),
        (0, 0, 0, None),
        (0, 1, 0, None),
    ],
)
def test_the_last_failure_counts_the_retries_that_were_used(
    retries: int, attempts: int, limit: int, says: str | None
) -> None:
    past = [
        {
            "number": at_ + 1,
            "startTime": at(-900),
            "endTime": at(-800),
            "reason": "Error",
            "message": "",
            "counted": True,
        }
        for at_ in range(attempts)
    ]
    status = {"retries": retries, "attempt": attempts + 1, "attempts": past}
    made = make_job(status=STARTED | status, backoffLimit=limit)
    child = make_child(
        made, status={"conditions": [condition("Failed", reason="BackoffLimitExceeded", message="said")]}
    )
    annotations = {"dovetail.dev/attempt": str(attempts + 1)}
    child = msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, annotations=annotations))
    outcome = reconcile(see(made, child=child))
    assert outcome.status.phase == "Failed"
    assert ("used)" in outcome.status.message) == (says is not None)
    assert says is None or outcome.status.message.endswith(says)


# --- when it is looked at again, and cleared away ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("awaited", "recorded", "deleted"),
    [(False, True, True), (True, True, False), (False, False, False), (True, False, False)],
)
def test_a_job_whose_time_to_be_kept_is_over_goes_once_nobody_waits_and_its_record_is_kept(
    awaited: bool, recorded: bool, deleted: bool
) -> None:
    job = make_job(status={"phase": "Succeeded", "completionTime": at(-60)}, ttlSecondsAfterFinished=60)
    outcome = reconcile(replace(see(job), awaited=awaited, recorded=recorded))
    assert outcome.actions == ((DeleteGPUJob(),) if deleted else ())
    assert deleted or (outcome.wake_at is not None and outcome.wake_at > NOW)


def test_a_job_that_is_kept_until_a_moment_is_looked_at_then() -> None:
    job = make_job(status={"phase": "Succeeded", "completionTime": at(-59)}, ttlSecondsAfterFinished=60)
    outcome = reconcile(see(job))
    assert (outcome.actions, outcome.wake_at) == ((), NOW + timedelta(seconds=1))


def test_a_job_with_an_obstacle_that_ends_is_looked_at_then() -> None:
    until = NOW + timedelta(seconds=90)
    assert reconcile(see(make_job(), obstacle=Obstacle(message="not yet", until=until))).wake_at == until
    assert reconcile(see(make_job(), obstacle=Obstacle(message="never"))).wake_at is None


# --- times ---------------------------------------------------------------------------------------------------------


COMPLETE = {"completionTime": at(-1), "conditions": [condition("Complete")]}


@pytest.mark.parametrize(
    ("phase", "child", "written"),
    [
        pytest.param("Running", {}, "before", id="it goes on"),
        pytest.param("Starting", {}, "before", id="it begins"),
        pytest.param("Running", COMPLETE, "seen", id="it ends"),
    ],
)
def test_the_figures_of_a_run_are_written_at_its_end(phase: str, child: dict[str, Any], written: str) -> None:
    figures = {
        "before": Measured(mean_utilization=0.1, device_seconds=1),
        "seen": Measured(mean_utilization=0.9, device_seconds=9),
    }
    peaks = {"before": MemoryUse(strategy="Dynamic", basis="b", peak_mib=1)}
    peaks["seen"] = msgspec.structs.replace(peaks["before"], peak_mib=9)
    job = make_job(status={"phase": phase, "startTime": at(-600)})
    status = msgspec.structs.replace(job.status, measured=figures["before"], memory=peaks["before"])
    job = msgspec.structs.replace(job, status=status)
    seen = see(job, make_pod(started=-600), child=make_child(job, status=child))
    outcome = reconcile(replace(seen, measured=figures["seen"], memory=peaks["seen"]))
    assert (outcome.status.measured, outcome.status.memory) == (figures[written], peaks[written])


@pytest.mark.parametrize(
    ("before", "seen", "written"),
    [
        pytest.param(None, {"peak_mib": 5}, None, id="a first peak"),
        pytest.param(None, {"peak_mib": 5, "limited": True}, (5, True), id="a first peak that is the promise"),
        pytest.param(None, {"strategy": "Dynamic", "peak_mib": 5}, (0, False), id="a basis that was learned"),
        pytest.param((3, False), {"peak_mib": 5}, (3, False), id="a higher peak"),
        pytest.param((3, False), {"peak_mib": 5, "limited": True}, (5, True), id="the promise is reached"),
        pytest.param((5, True), {"peak_mib": 9, "limited": True}, (5, True), id="it was reached before"),
    ],
)
def test_of_a_running_job_only_a_reached_promise_is_written(
    before: tuple[int, bool] | None, seen: dict[str, Any], written: tuple[int, bool] | None
) -> None:
    use = MemoryUse(**{"strategy": "Conservative", "basis": "b"} | seen)
    job = make_job(status={"phase": "Running", "startTime": at(-600)})
    if before is not None:
        had = msgspec.structs.replace(use, peak_mib=before[0], limited=before[1])
        job = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, memory=had))
    outcome = reconcile(replace(see(job, make_pod(started=-600), child=make_child(job)), memory=use))
    memory = outcome.status.memory
    assert (None if memory is None else (memory.peak_mib, memory.limited)) == written


@pytest.mark.parametrize(
    ("renewed", "expires"),
    [(None, -600 + 3600), (-100, -100 + 3600), (-900, -600 + 3600)],
)
def test_a_lease_ends_its_duration_after_the_later_of_start_and_renewal(renewed: int | None, expires: int) -> None:
    spec = {"durationSeconds": 3600, "image": "pause", **({} if renewed is None else {"renewTime": at(renewed)})}
    job = make_job(status=STARTED, reservation=spec)
    outcome = reconcile(see(job, make_pod(started=-600), child=make_child(job)))
    assert outcome.status.lease is not None
    assert outcome.status.lease.expiration_time == at(expires)


def test_a_lease_is_told_only_of_a_reservation_that_runs() -> None:
    spec = {"durationSeconds": 3600, "image": "pause"}
    waiting = make_job(reservation=spec)
    assert reconcile(see(waiting, verdict=NO_ROOM)).status.lease is None
    assert reconcile(see(waiting, child=make_child(waiting))).status.lease is None, "no worker has started"
    plain = make_job(status=STARTED)
    assert reconcile(see(plain, make_pod(started=-600), child=make_child(plain))).status.lease is None


def test_a_job_that_is_not_admitted_keeps_the_time_of_its_last_admission() -> None:
    status = {"admittedTime": at(-900), "conditions": [condition("Admitted", status="False")]}
    assert reconcile(see(make_job(status=status), verdict=NO_ROOM)).status.admitted_time == at(-900)
    assert reconcile(see(make_job(), verdict=NO_ROOM)).status.admitted_time is None
    assert reconcile(see(make_job(status=status), verdict=LET_GO)).status.admitted_time == at(0)


def test_a_job_that_ended_before_any_pod_was_seen_starts_when_its_batch_job_did() -> None:
    job = make_job()
    status = {"conditions": [condition("Complete")], "startTime": at(-30), "completionTime": at(-10)}
    outcome = reconcile(see(job, child=make_child(job, status=status)))
    assert (outcome.status.start_time, outcome.status.completion_time) == (at(-30), at(-10))


# --- conditions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "mirrored"), [(0, True), (3, False)])
def test_a_failing_attempt_is_a_condition_of_the_job_unless_another_attempt_follows(limit: int, mirrored: bool) -> None:
    job = make_job(status=STARTED, backoffLimit=limit)
    target = condition("FailureTarget", reason="BackoffLimitExceeded")
    child = make_child(job, status={"conditions": [target], "failed": 1})
    outcome = reconcile(see(job, make_pod(started=-600), child=child))
    assert outcome.status.phase == "Running"
    assert (find_condition(outcome.status.conditions, type="FailureTarget") is not None) == mirrored


# --- stages --------------------------------------------------------------------------------------------------------


def admitted(outcome: Outcome) -> str:
    found = find_condition(outcome.status.conditions, type="Admitted")
    return "" if found is None else found.status


def test_a_running_job_is_admitted_whether_or_not_all_its_workers_are_there() -> None:
    job = make_job(status=STARTED, workers=2)
    for pods in ((make_pod(0, started=-600),), (make_pod(0, started=-600), make_pod(1, started=-600))):
        assert admitted(reconcile(see(job, *pods, child=make_child(job, completions=2, parallelism=2)))) == "True"


def test_the_last_pods_of_a_job_that_is_over_leave_it_running_and_admitted() -> None:
    job = make_job(status=STARTED)
    child = make_child(job, status={"conditions": [condition("SuccessCriteriaMet")]})
    outcome = reconcile(see(job, make_pod(started=-600), child=child))
    assert (outcome.status.phase, admitted(outcome)) == ("Running", "True")


def test_a_job_whose_pods_are_leaving_is_still_running() -> None:
    job = make_job(status=STARTED)
    leaving = make_pod(started=-600, meta={"deletionTimestamp": at(-1)})
    outcome = reconcile(see(job, leaving, child=make_child(job)))
    assert (outcome.status.phase, admitted(outcome)) == ("Running", "True")


@pytest.mark.parametrize(("evict", "phase"), [(True, "Failed"), (False, "Running")])
def test_memory_beyond_the_promise_ends_a_job_where_the_check_confirms_it(evict: bool, phase: str) -> None:
    job = make_job(status=STARTED)
    overuse = msgspec.convert(
        {
            "uid": "uid-pod-0--50", "namespace": "team", "name": "x-0", "device": "GPU-n1-0", "index": 0,
            "usedMiB": 2000, "promisedMiB": 1000, "since": at(-60), "evict": evict,
        },
        Overuse,
    )  # fmt: skip
    seen = see(job, make_pod(started=-600), child=make_child(job))
    outcome = reconcile(replace(seen, overuses=(overuse,)))
    assert outcome.status.phase == phase
    assert (DeleteJob(disrupts=True) in outcome.actions) == evict
    assert evict == ("2,000 MiB" in outcome.status.message)


def past(**spec: Any) -> Observed:
    """A job whose first attempt is over, and whose batch Job is still there."""
    job = make_job(status={"phase": "Queued", "attempt": 2}, **spec)
    return see(job, child=make_child(job), verdict=LET_GO)


def test_the_batch_job_of_an_attempt_that_is_over_is_deleted_once() -> None:
    outcome = reconcile(past())
    assert (outcome.status.phase, outcome.actions, admitted(outcome)) == ("Queued", (DeleteJob(),), "False")
    seen = past()
    assert seen.child is not None
    going = msgspec.structs.replace(
        seen.child, metadata=msgspec.structs.replace(seen.child.metadata, deletion_timestamp=at(-1))
    )
    assert reconcile(replace(seen, child=going)).actions == ()


@pytest.mark.parametrize(("spec", "phase"), [({"cancel": True}, "Cancelled"), ({"suspend": True}, "Held")])
def test_a_job_that_is_cancelled_or_held_between_attempts_says_so(spec: dict[str, Any], phase: str) -> None:
    outcome = reconcile(past(**spec))
    assert (outcome.status.phase, outcome.actions) == (phase, (DeleteJob(),))


NO_GPU = Admitted(key="uid-x", ask=Ask(gpu=None), on_cpu="Need 4 GPUs, the cluster has 0")


def test_a_job_that_falls_back_gets_a_batch_job_on_the_cpu() -> None:
    job = make_job(gpu=4, onNoGPU="RunOnCPU")
    outcome = reconcile(see(job, verdict=NO_GPU))
    (create,) = outcome.actions
    assert isinstance(create, CreateJob)
    assert create.manifest["metadata"]["annotations"]["dovetail.dev/device"] == "cpu"
    assert (outcome.status.phase, admitted(outcome)) == ("Starting", "True")
    assert NO_GPU.on_cpu in outcome.status.message


def test_a_job_that_falls_back_has_its_batch_job_for_gpus_deleted_first() -> None:
    job = make_job(gpu=4, onNoGPU="RunOnCPU")
    outcome = reconcile(see(job, child=make_child(job, suspend=True), verdict=NO_GPU))
    assert outcome.actions == (DeleteJob(),)
    assert admitted(outcome) == "True"


def test_a_job_without_a_number_does_not_fall_back_yet() -> None:
    outcome = reconcile(see(make_job(gpu=4, onNoGPU="RunOnCPU"), verdict=NO_GPU, number=None))
    assert (outcome.status.phase, outcome.actions, admitted(outcome)) == ("Queued", (), "False")


def test_a_suspended_batch_job_of_another_size_is_made_again() -> None:
    job = make_job(workers=2)
    outcome = reconcile(see(job, child=make_child(job, suspend=True, completions=3), verdict=LET_GO))
    assert (outcome.actions, admitted(outcome)) == ((DeleteJob(),), "True")


# --- preemption ----------------------------------------------------------------------------------------------------


def test_the_time_of_a_notice_stays_while_it_is_for_the_same_job() -> None:
    seen = running(preemption=told(31))
    later = reconcile(replace(seen, now=NOW + timedelta(seconds=10)))
    assert later.status.preemption is not None
    assert later.status.preemption.at == at(31)


def test_a_notice_that_was_taken_back_gives_the_whole_time_again() -> None:
    seen = running(preemption={"by": NOTICE.by, "message": NOTICE.message, "count": 1})
    made = reconcile(replace(seen, now=NOW + timedelta(seconds=10))).status.preemption
    assert made is not None
    assert (made.at, made.count) == (at(41), 1)


# --- plans ---------------------------------------------------------------------------------------------------------


_PLANS = st.builds(
    lambda generation, replaced, node: {
        "generation": generation, "replaced": replaced, "nodes": [{"name": node, "workers": 1}],
        "worker": {"request": "1"},
    },
    st.integers(1, 3), st.integers(0, 2), st.sampled_from(["a", "b"]),
)  # fmt: skip


@given(known=_PLANS, found=_PLANS, phase=st.sampled_from(["Pending", "Running"]))
def test_a_plan_is_followed_by_a_replacement_of_its_own_alone(
    known: dict[str, Any], found: dict[str, Any], phase: Any
) -> None:
    job = make_job(status={**STARTED, "number": 7, "plans": 3, "placement": known}, restart="Worker")
    seen = see(job, make_pod(phase=phase, started=-60), child=make_child(job))
    placement = reconcile(replace(seen, replacement=msgspec.convert(found, Placement))).status.placement
    assert placement is not None
    assert placement.generation == known["generation"]
    assert placement.replaced >= known["replaced"]


def test_conditions_are_never_those_of_a_batch_job_whose_attempt_is_over() -> None:
    made = make_job(status={"phase": "Queued", "attempt": 2, "retries": 1})
    ended = {"conditions": [condition("FailureTarget", reason="x"), condition("Failed", reason="x")]}
    child = make_child(made, status=ended)
    assert is_past(made, child=child)
    shown = {each.type for each in reconcile(see(made, child=child)).status.conditions if each.status == "True"}
    assert not shown & {"Failed", "FailureTarget"}


# --- what each figure counts ---------------------------------------------------------------------------------------


def test_a_request_that_cannot_be_read_any_more_is_told_as_it_was() -> None:
    job = make_job(status={**STARTED, "request": "2(V100)", "gpus": 2})
    status = reconcile(replace(see(job, make_pod(), child=make_child(job)), ask=None)).status
    assert (status.request, status.gpus) == ("2(V100)", 2)


@pytest.mark.parametrize(
    ("status", "spec", "device"),
    [
        ({}, {"cancel": True}, None),
        ({"phase": "Queued"}, {"cancel": True}, None),
        ({**STARTED, "device": "cpu"}, {"cancel": True}, "cpu"),
        ({**STARTED, "device": "cuda"}, {"cancel": True}, "cuda"),
        ({**STARTED, "device": "cuda"}, {"suspend": True}, None),
    ],
)
def test_a_job_that_is_over_tells_on_what_it_ran_and_one_that_never_began_on_nothing(
    status: dict[str, Any], spec: dict[str, Any], device: str | None
) -> None:
    assert reconcile(see(make_job(status=status, **spec))).status.device == device


def test_a_run_begins_with_its_first_container_and_not_with_the_images_that_its_pod_pulls() -> None:
    pod = make_pod(started=-60)
    pulled = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, start_time=at(-500)))
    job = make_job()
    assert reconcile(see(job, pulled, child=make_child(job))).status.start_time == at(-60)
    bare = msgspec.structs.replace(pulled, status=msgspec.structs.replace(pulled.status, container_statuses=[]))
    assert reconcile(see(job, bare, child=make_child(job))).status.start_time == at(-500)


def test_a_worker_that_has_ended_is_not_ready_whatever_its_pod_says() -> None:
    ready = [condition("Ready")]
    pods = [make_pod(index, phase=phase, conditions=ready) for index, phase in enumerate(("Running", "Succeeded"))]
    job = make_job(workers=2, status=STARTED)
    status = reconcile(see(job, *pods, child=make_child(job))).status
    assert (status.workers_active, status.workers_ready) == (1, 1)


# --- what is held, goes on or starts again -------------------------------------------------------------------------


def test_a_held_guest_is_told_what_lets_it_go_on_which_is_not_its_own_field() -> None:
    record = make_job("job-train", suspend=True, managedBy=GUESTS_MANAGER)
    status = reconcile(see(record, child=make_child(record, suspend=True))).status
    assert (status.phase, status.message) == ("Held", "Held: gjob release job-train lets it go on")
    assert reconcile(see(make_job(suspend=True))).status.message == "Held: gjob release lets it go on"


def test_an_elastic_job_goes_on_with_the_batch_job_of_its_present_size() -> None:
    job = make_job(workers=2, minWorkers=1)
    child = make_child(job, suspend=True, completions=2)
    outcome = reconcile(replace(see(job, child=child, verdict=LET_GO), asked_workers=4))
    assert [type(action) for action in outcome.actions] == [PatchJob]


@pytest.mark.parametrize("on_cpu", [True, False])
def test_what_was_learned_of_a_job_on_gpus_is_not_promised_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, on_cpu: bool
) -> None:
    given, learned = list[Any](), MemoryUse(strategy="Dynamic", basis="", estimate_mib=1000)
    made = stages.build_job

    def build(*args: Any, memory: Any, **options: Any) -> dict[str, Any]:
        given.append(memory)
        return made(*args, memory=memory, **options)

    monkeypatch.setattr(stages, "build_job", build)
    seen = see(make_job(gpu=4, onNoGPU="RunOnCPU"), verdict=NO_GPU if on_cpu else LET_GO)
    reconcile(replace(seen, memory=learned))
    assert given == [None if on_cpu else learned]


REQUEST = {"pool": "v100", "nodes": 1, "workers": 1, "requestedTime": at(-10)}


@pytest.mark.parametrize(("verdict", "stays"), [(None, True), (NO_ROOM, False)])
def test_a_request_for_nodes_stays_until_the_queue_has_looked(verdict: Any, stays: bool) -> None:
    """A new operator continues it; what the queue says then counts."""
    job = make_job(status={"phase": "Queued", "number": 7, "provisioning": REQUEST})
    status = reconcile(see(job, verdict=verdict)).status
    assert (status.provisioning == job.status.provisioning) is stays


@pytest.mark.parametrize(
    ("spec", "phase"), [({}, "Queued"), ({"reservation": {"durationSeconds": 3600, "image": "pause"}}, "Running")]
)
def test_a_lease_keeps_its_devices_though_one_is_ill(spec: dict[str, Any], phase: str) -> None:
    """Nothing of it could go on elsewhere: its owner uses these devices."""
    job = make_job(status=STARTED, **spec)
    seen = see(job, make_pod(started=-60), child=make_child(job, activeDeadlineSeconds=3600 if spec else None))
    ill = "GPU 0 of n1 (GPU-n1-0) is unhealthy: XID 79"
    assert reconcile(replace(seen, bad_cards=(ill,), leaves_bad_cards=True)).status.phase == phase


def test_a_failed_worker_whose_next_pod_waits_has_not_ended() -> None:
    job = make_job(workers=2, status=STARTED)
    pods = [make_pod(0, started=-60), make_pod(1, phase="Failed", created=-90), make_pod(1, phase="Pending", node="")]
    status = reconcile(see(job, *pods, child=make_child(job))).status
    assert (status.phase, status.reason) == ("Running", "GangWaiting")
    assert status.message.startswith("1 of 2 workers wait")


@pytest.mark.parametrize(
    ("spec", "status", "limit"),
    [
        ({"maximumExecutionTimeSeconds": 900}, {"earlierRunSeconds": 300}, 600),
        ({"activeDeadlineSeconds": 60, "maximumExecutionTimeSeconds": 900}, {"earlierRunSeconds": 860}, 40),
        ({"reservation": {"durationSeconds": 60, "image": "pause", "renewTime": at(-500)}}, {}, 160),
    ],
)
def test_the_limit_of_a_running_batch_job_follows_all_that_limits_the_job(
    spec: dict[str, Any], status: dict[str, Any], limit: int
) -> None:
    job = make_job(status={**STARTED, **status}, **spec)
    child = make_child(job, status={"startTime": at(-600)}, activeDeadlineSeconds=1)
    assert reconcile(see(job, make_pod(started=-60), child=child)).actions == (
        PatchJob(spec={"activeDeadlineSeconds": limit}),
    )


@pytest.mark.parametrize(
    ("seconds", "pod", "told_"),
    [
        (31, make_pod(), True),
        (0, make_pod(), False),
        (31, make_pod(meta={"deletionTimestamp": at(-1)}), False),
        (31, make_pod(phase="Succeeded"), False),
    ],
)
def test_pods_are_told_of_their_end_while_they_can_act_on_it(seconds: float, pod: Any, told_: bool) -> None:
    job = make_job(status={**STARTED, "preemption": told(seconds)})
    assert bool(reconcile(see(job, pod, child=make_child(job))).notify) is told_


@pytest.mark.parametrize(("by", "reason"), [("uid-y", "Priority"), (DRAIN, "NodeUnhealthy")])
def test_a_job_that_ends_for_others_or_for_its_node_says_which(by: str, reason: str) -> None:
    notice = Notice(by=by, message="Ends", grace_seconds=0.0)
    job = make_job(status={**STARTED, "preemption": {"at": at(0), "by": by, "message": "Ends"}})
    status = reconcile(replace(see(job, make_pod(), child=make_child(job)), notice=notice)).status
    assert (status.phase, status.reason, status.message) == ("Preempted", reason, "Ends")


def test_a_job_that_may_begin_later_and_rests_is_looked_at_when_both_are_over() -> None:
    attempt = {"number": 1, "reason": "R", "message": "m", "counted": True, "endTime": at(-5)}
    policy = {"backoffSeconds": 60}
    job = make_job(
        beginTime=at(20), backoffLimit=3, retryPolicy=policy, status={"phase": "Queued", "attempts": [attempt]}
    )
    obstacle = Obstacle(reason="BeginTime", message="not yet")
    dues = [due for due in (begin_of(job), due_again(job)) if due is not None]
    assert len(dues) == 2
    assert reconcile(see(job, obstacle=obstacle)).wake_at == max(dues) > min(dues)


def test_a_cancelled_job_deletes_its_batch_job_once() -> None:
    job = make_job(cancel=True, status={"phase": "Cancelled"})
    child = make_child(job)
    assert reconcile(see(job, child=child)).actions == (DeleteJob(),)
    going = msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, deletion_timestamp=at(-1)))
    assert reconcile(see(job, child=going)).actions == ()


def test_a_condition_that_changes_gets_the_time_of_its_change() -> None:
    before = [condition("Admitted", status="True", reason="Admitted", seconds=-600)]
    job = make_job(status={"phase": "Queued", "conditions": before})
    found = find_condition(reconcile(see(job, verdict=NO_ROOM)).status.conditions, type="Admitted")
    assert found is not None
    assert (found.status, found.last_transition_time) == ("False", at(0))

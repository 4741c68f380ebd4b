"""One GPUJob from what is observed to status and actions: scenarios as data, then what a table cannot say."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs

from dovetail.api.builtin import Pod
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.meta import find_condition
from dovetail.formats.durations import moment
from dovetail.jobs.obstacle import Obstacle
from dovetail_operator.job.actions import CreateJob, DeleteGPUJob, DeleteJob, PatchJob
from dovetail_operator.job.observation import Observed
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.manifests.batch_job import build_job
from tests.operator_.builders import (
    LET_GO,
    NO_ROOM,
    NOW,
    at,
    condition,
    make_child,
    make_job,
    make_pod,
    see,
)

IN_PLACE = {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main"}]}}
STARTED = {"phase": "Running", "startTime": at(-60)}
UNSCHEDULABLE = condition(
    "PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes are available: 3 busy."
)


@dataclass(frozen=True, kw_only=True)
class Case:
    says: str
    seen: Callable[[], Observed]
    phase: str
    reason: str = ""
    message: str | None = None
    actions: tuple[type, ...] = ()
    conditions: dict[str, str] = field(default_factory=dict)


def with_sidecar(pod: Pod) -> Pod:
    """The pod with a second container, which goes on."""
    (main,) = pod.status.container_statuses
    both = [structs.replace(main, name="sidecar", state=structs.replace(main.state, terminated=None)), main]
    return structs.replace(pod, status=structs.replace(pod.status, container_statuses=both))


def with_child(
    *pods: Any, spec: dict[str, Any] | None = None, child: dict[str, Any] | None = None, **more: Any
) -> Callable[[], Observed]:
    """A job with its batch Job; `child` are that one's spec fields, `child_status` its status."""
    child_status = more.pop("child_status", None)
    status = more.pop("status", None)

    def build() -> Observed:
        job = make_job(status=status, **(spec or {}))
        return see(job, *pods, child=make_child(job, status=child_status, **(child or {})), **more)

    return build


CASES = (
    # --- waiting
    Case(
        says="without room it waits with the queue's reason and numbers",
        seen=lambda: see(make_job(gpu=4), verdict=NO_ROOM),
        phase="Queued",
        reason="Resources",
        message="Need 4 GPUs, only 1 available",
        conditions={"Admitted": "False"},
    ),
    Case(
        says="let go by the queue it gets its batch Job",
        seen=lambda: see(make_job(), verdict=LET_GO),
        phase="Starting",
        reason="Evaluating",
        actions=(CreateJob,),
        conditions={"Admitted": "True"},
    ),
    Case(
        says="let go without a number it gets none yet",
        seen=lambda: see(make_job(), verdict=LET_GO, number=None),
        phase="Queued",
        reason="Evaluating",
    ),
    Case(
        says="before the queue has looked it is being evaluated",
        seen=lambda: see(make_job()),
        phase="Queued",
        reason="Evaluating",
    ),
    Case(
        says="a job that cannot be run as written is invalid, whatever the queue says",
        seen=lambda: see(make_job(), verdict=LET_GO, obstacle=Obstacle(message="no such thing")),
        phase="Queued",
        reason="Invalid",
        message="no such thing",
        conditions={"Admitted": "False"},
    ),
    Case(
        says="a batch Job that somebody deleted sends the job back to the queue",
        seen=lambda: see(make_job(status=STARTED), verdict=NO_ROOM),
        phase="Queued",
        reason="Resources",
    ),
    # --- held
    Case(
        says="held before it ran it has no batch Job",
        seen=lambda: see(make_job(suspend=True), verdict=LET_GO),
        phase="Held",
        reason="Held",
        conditions={"Suspended": "True", "Admitted": "False"},
    ),
    Case(
        says="held while it runs its batch Job is suspended",
        seen=with_child(make_pod(started=-60), spec={"suspend": True}, status=STARTED),
        phase="Suspended",
        reason="Held",
        actions=(PatchJob,),
    ),
    Case(
        says="held and suspended already nothing is left to do",
        seen=with_child(spec={"suspend": True}, child={"suspend": True}, status=STARTED),
        phase="Suspended",
        reason="Held",
    ),
    Case(
        says="released it waits for the queue again",
        seen=with_child(child={"suspend": True}, status=STARTED, verdict=NO_ROOM),
        phase="Queued",
        reason="Resources",
    ),
    Case(
        says="released and let go its batch Job goes on",
        seen=with_child(child={"suspend": True}, status=STARTED, verdict=LET_GO),
        phase="Starting",
        reason="Evaluating",
        actions=(PatchJob,),
    ),
    # --- starting
    Case(
        says="without pods it waits for the Job controller",
        seen=with_child(),
        phase="Starting",
        reason="Evaluating",
        message="Waiting for its workers to be created",
    ),
    Case(
        says="a pod that kube-scheduler refuses tells its words",
        seen=with_child(make_pod(phase="Pending", node="", conditions=[UNSCHEDULABLE])),
        phase="Starting",
        reason="Resources",
        message="kube-scheduler: 0/3 nodes are available: 3 busy.",
    ),
    Case(
        says="a pod that kube-scheduler has not seen says so",
        seen=with_child(make_pod(phase="Pending", node="")),
        phase="Starting",
        reason="Evaluating",
        message="Waiting for the scheduler to place a worker",
    ),
    Case(
        says="an image that cannot be pulled is told in kubelet's word",
        seen=with_child(
            make_pod(phase="Pending", state={"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})
        ),
        phase="Starting",
        reason="ImagePullBackOff",
        message="n1: no such image",
    ),
    Case(
        says="a bound pod without a word from its kubelet is being created",
        seen=with_child(make_pod(phase="Pending")),
        phase="Starting",
        reason="ContainerCreating",
    ),
    Case(
        says="pods that are deleted before it runs are waited for",
        seen=with_child(make_pod(meta={"deletionTimestamp": at(-1)})),
        phase="Starting",
        reason="Evaluating",
        message="Waiting for its ending workers to be gone",
    ),
    Case(
        says="a worker that is tried again is starting",
        seen=with_child(
            make_pod(phase="Failed", exit_code=1, created=-90),
            make_pod(phase="Pending", created=-5),
            spec={"backoffLimit": 2, "template": IN_PLACE},
        ),
        phase="Starting",
        reason="ContainerCreating",
    ),
    # --- running
    Case(
        says="with its pod running it runs",
        seen=with_child(make_pod(started=-60)),
        phase="Running",
        message="",
        conditions={"Admitted": "True"},
    ),
    Case(
        says="a gang whose workers are not all there says how many wait",
        seen=with_child(
            make_pod(0, started=-60),
            make_pod(1, phase="Pending", node="", conditions=[UNSCHEDULABLE]),
            spec={"workers": 2},
        ),
        phase="Running",
        reason="GangWaiting",
        message="1 of 2 workers wait: kube-scheduler: 0/3 nodes are available: 3 busy.",
    ),
    Case(
        says="with one worker done and one at work it runs",
        seen=with_child(
            make_pod(0, phase="Succeeded", exit_code=0),
            make_pod(1, started=-60),
            spec={"workers": 2},
        ),
        phase="Running",
    ),
    Case(
        says="between the pod's end and the batch Job's it still runs",
        seen=with_child(make_pod(phase="Succeeded", exit_code=0), status=STARTED),
        phase="Running",
    ),
    Case(
        says="while pods are taken down and nobody has said why it still runs",
        seen=with_child(make_pod(meta={"deletionTimestamp": at(-1)}), status=STARTED),
        phase="Running",
        reason="",
        message="Waiting for its ending workers to be gone",
    ),
    Case(
        says="while the batch Job takes its pods down it still runs",
        seen=with_child(
            make_pod(meta={"deletionTimestamp": at(-1)}),
            child_status={"conditions": [condition("FailureTarget", reason="DeadlineExceeded")]},
        ),
        phase="Running",
        conditions={"FailureTarget": "True"},
    ),
    Case(
        says="a time limit that was changed is passed on",
        seen=with_child(make_pod(started=-60), spec={"activeDeadlineSeconds": 50}, child={"activeDeadlineSeconds": 10}),
        phase="Running",
        actions=(PatchJob,),
    ),
    # --- ended
    Case(
        says="a complete batch Job is success",
        seen=with_child(
            make_pod(phase="Succeeded", exit_code=0, started=-60),
            child_status={
                "completionTime": at(-1),
                "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
            },
        ),
        phase="Succeeded",
        conditions={"Complete": "True", "SuccessCriteriaMet": "True"},
    ),
    Case(
        says="a failed batch Job is failure, with worker, node and exit code",
        seen=with_child(
            make_pod(phase="Failed", exit_code=3),
            child_status={"conditions": [condition("Failed", reason="BackoffLimitExceeded", message="reached it")]},
        ),
        phase="Failed",
        reason="BackoffLimitExceeded",
        message="Worker 0 failed on n1: exit code 3",
        conditions={"Failed": "True"},
    ),
    Case(
        says="of several containers the one that failed is named",
        seen=with_child(
            with_sidecar(make_pod(phase="Failed", exit_code=3)),
            child_status={"conditions": [condition("Failed", reason="BackoffLimitExceeded", message="reached it")]},
        ),
        phase="Failed",
        reason="BackoffLimitExceeded",
        message="Worker 0 failed on n1: container main ended with exit code 3",
    ),
    Case(
        says="of a gang the worker is told that failed, not one that was ended for it",
        seen=with_child(
            make_pod(0, phase="Failed", exit_code=137, meta={"deletionTimestamp": at(-1)}, created=-49),
            make_pod(1, phase="Failed", exit_code=7),
            spec={"workers": 2},
            child_status={"conditions": [condition("Failed", reason="BackoffLimitExceeded", message="reached it")]},
        ),
        phase="Failed",
        reason="BackoffLimitExceeded",
        message="Worker 1 failed on n1: exit code 7",
        conditions={"Failed": "True"},
    ),
    Case(
        says="a failure without a pod that tells is told by the batch Job",
        seen=with_child(
            child_status={"conditions": [condition("Failed", reason="BackoffLimitExceeded", message="why")]}
        ),
        phase="Failed",
        reason="BackoffLimitExceeded",
        message="why",
    ),
    Case(
        says="a batch Job over its deadline has timed out",
        seen=with_child(
            spec={"activeDeadlineSeconds": 4},
            child_status={"conditions": [condition("Failed", reason="DeadlineExceeded")]},
        ),
        phase="TimedOut",
        reason="DeadlineExceeded",
        message="Ran longer than its time limit of 4 s",
        conditions={"Failed": "True"},
    ),
    # --- cancelled
    Case(
        says="cancelled while it waits it ends at once",
        seen=lambda: see(make_job(cancel=True), verdict=LET_GO),
        phase="Cancelled",
        reason="Cancelled",
        conditions={"Failed": "True"},
    ),
    Case(
        says="cancelled while it runs its batch Job is deleted",
        seen=with_child(make_pod(started=-60), spec={"cancel": True}),
        phase="Cancelled",
        reason="Cancelled",
        actions=(DeleteJob,),
        conditions={"Failed": "True"},
    ),
    Case(
        says="a cancel that comes after the end changes nothing",
        seen=with_child(spec={"cancel": True}, child_status={"conditions": [condition("Complete")]}),
        phase="Succeeded",
    ),
    Case(
        says="a cancel is stronger than a hold",
        seen=lambda: see(make_job(cancel=True, suspend=True)),
        phase="Cancelled",
        reason="Cancelled",
    ),
    # --- after the end
    Case(
        says="an end is for good",
        seen=lambda: see(make_job(status={"phase": "Succeeded"}), verdict=LET_GO),
        phase="Succeeded",
    ),
    Case(
        says="a batch Job that outlived its job's cancellation is deleted",
        seen=with_child(spec={"cancel": True}, status={"phase": "Cancelled"}),
        phase="Cancelled",
        actions=(DeleteJob,),
    ),
    Case(
        says="a job is deleted when its time to be kept is over",
        seen=lambda: see(make_job(ttlSecondsAfterFinished=30, status={"phase": "Failed", "completionTime": at(-30)})),
        phase="Failed",
        actions=(DeleteGPUJob,),
    ),
    Case(
        says="a job is kept until then",
        seen=lambda: see(make_job(ttlSecondsAfterFinished=30, status={"phase": "Failed", "completionTime": at(-29)})),
        phase="Failed",
    ),
    Case(
        says="a job that is being deleted is left alone",
        seen=lambda: see(make_job(meta={"deletionTimestamp": at(-1)}, status={"phase": "Queued"}), verdict=LET_GO),
        phase="Queued",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_scenario(case: Case) -> None:
    outcome = reconcile(case.seen())
    status = outcome.status
    assert (status.phase, status.reason) == (case.phase, case.reason)
    if case.message is not None:
        assert status.message == case.message
    assert tuple(type(action) for action in outcome.actions) == case.actions
    found = {each.type: each.status for each in status.conditions}
    assert case.conditions.items() <= found.items()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_a_second_look_at_the_same_changes_nothing(case: Case) -> None:
    seen = case.seen()
    once = reconcile(seen).status
    job = msgspec.structs.replace(seen.job, status=once)
    assert reconcile(dataclasses.replace(seen, job=job)).status == once


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_whatever_waits_says_why(case: Case) -> None:
    status = reconcile(case.seen()).status
    if status.phase in {"Queued", "Held", "Suspended", "Starting"} and status.message:
        assert status.reason


# --- times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, 9, 3600])
def test_nothing_of_a_running_job_at_rest_follows_the_clock(seconds: float) -> None:
    seen = with_child(make_pod(started=-seconds))()
    first = reconcile(seen)
    assert (first.status.phase, first.status.elapsed, first.wake_at) == ("Running", "", None)
    later = replace(seen, job=structs.replace(seen.job, status=first.status), now=NOW + timedelta(days=1))
    assert reconcile(later) == first


def test_a_job_that_ran_has_an_exact_elapsed_at_its_end() -> None:
    done = {"completionTime": at(-7), "conditions": [condition("Complete")]}
    status = reconcile(with_child(make_pod(phase="Succeeded", started=-120), child_status=done)()).status
    assert (status.start_time, status.completion_time, status.elapsed) == (at(-120), at(-7), "113s")


def test_the_start_is_that_of_the_first_worker() -> None:
    seen = with_child(make_pod(0, started=-30), make_pod(1, started=-50), spec={"workers": 2})
    assert reconcile(seen()).status.start_time == at(-50)


def test_a_start_that_was_seen_is_kept_when_its_pod_is_gone() -> None:
    status = {"phase": "Running", "startTime": at(-90)}
    assert reconcile(with_child(make_pod(started=-5), status=status)()).status.start_time == at(-90)


def test_a_fresh_run_begins_anew() -> None:
    before = {"phase": "Running", "startTime": at(-90), "devices": [], "nodes": ["n1"], "nodeList": "n1"}
    status = reconcile(see(make_job(status=before), verdict=LET_GO)).status
    assert (status.start_time, status.elapsed, status.nodes) == (None, "", [])


def test_a_suspended_job_keeps_its_time() -> None:
    before = {"phase": "Running", "startTime": at(-90)}
    seen = with_child(spec={"suspend": True}, child={"suspend": True}, status=before)()
    status = reconcile(seen).status
    assert (status.start_time, status.elapsed) == (at(-90), "90s")
    later = replace(seen, job=structs.replace(seen.job, status=status), now=NOW + timedelta(minutes=1))
    assert reconcile(later).status.elapsed == "90s"


def test_a_kept_job_is_looked_at_again_when_its_time_is_over() -> None:
    job = make_job(ttlSecondsAfterFinished=30, status={"phase": "Failed", "completionTime": at(-10)})
    assert reconcile(see(job)).wake_at == NOW + timedelta(seconds=20)


def test_an_end_with_a_time_to_be_kept_is_looked_at_again() -> None:
    done = {"completionTime": at(-7), "conditions": [condition("Complete")]}
    outcome = reconcile(with_child(spec={"ttlSecondsAfterFinished": 30}, child_status=done)())
    assert outcome.wake_at == moment(at(23))


def test_a_condition_that_stays_keeps_its_time_and_takes_new_words() -> None:
    before = GPUJobStatus(phase="Queued", reason="Fragmentation", conditions=[])
    first = reconcile(see(make_job(gpu=4, status=values_of(before)), verdict=NO_ROOM)).status
    later = NO_ROOM.__class__(key="uid-x", reason="Resources", message="Need 4 GPUs, only 2 available")
    job = make_job(gpu=4, status=values_of(first), meta={"generation": 2})
    second = reconcile(see(job, verdict=later, now=NOW + timedelta(minutes=5))).status
    admitted = find_condition(second.conditions, type="Admitted")
    assert admitted is not None
    assert admitted.last_transition_time == at(0)
    assert admitted.message == "Need 4 GPUs, only 2 available"
    assert admitted.observed_generation == 2


def test_the_batch_jobs_condition_keeps_the_batch_jobs_time() -> None:
    done = {"conditions": [condition("Complete", seconds=-42)]}
    status = reconcile(with_child(child_status=done)()).status
    complete = find_condition(status.conditions, type="Complete")
    assert complete is not None
    assert complete.last_transition_time == at(-42)


def test_what_an_earlier_run_came_to_is_dropped() -> None:
    old = [condition("FailureTarget", reason="PodFailurePolicy"), condition("Admitted", reason="Admitted")]
    status = reconcile(see(make_job(status={"phase": "Running", "conditions": old}), verdict=NO_ROOM)).status
    assert [each.type for each in status.conditions] == ["Admitted"]


def test_the_time_of_admission_is_that_of_the_present_run() -> None:
    first = reconcile(see(make_job(), verdict=LET_GO)).status
    assert first.admitted_time == at(0)
    job = make_job(status=values_of(first))
    kept = reconcile(see(job, child=make_child(job), now=NOW + timedelta(minutes=1))).status
    assert kept.admitted_time == at(0)


# --- what it holds ---------------------------------------------------------------------------------------------------


def test_devices_and_nodes_are_those_of_the_allocations() -> None:
    seen = with_child(
        make_pod(1, node="b", devices=1, started=-5), make_pod(0, node="a", devices=2, started=-5), spec={"workers": 2}
    )
    status = reconcile(seen()).status
    assert [(device.worker, device.uuid) for device in status.devices] == [
        (0, "GPU-a-0"),
        (0, "GPU-a-1"),
        (1, "GPU-b-0"),
    ]
    assert (status.nodes, status.node_list) == (["a", "b"], "a,b")


def test_many_nodes_are_counted_in_one_line() -> None:
    pods = [make_pod(worker, node=f"n{worker}", started=-5) for worker in range(6)]
    assert reconcile(with_child(*pods, spec={"workers": 6})()).status.node_list == "n0,n1,n2,n3,+2"


def test_a_worker_that_was_tried_again_holds_the_new_pods_devices() -> None:
    old = make_pod(phase="Failed", node="a", devices=1, exit_code=1, created=-90)
    new = make_pod(node="b", devices=1, started=-5, created=-10)
    status = reconcile(with_child(new, old, spec={"backoffLimit": 1})()).status
    assert [device.uuid for device in status.devices] == ["GPU-b-0"]


def test_a_running_job_names_the_devices_of_live_workers_only() -> None:
    seen = with_child(
        make_pod(0, phase="Succeeded", node="a", devices=1, exit_code=0),
        make_pod(1, node="b", devices=1, started=-5),
        spec={"workers": 2},
    )
    status = reconcile(seen()).status
    assert [device.uuid for device in status.devices] == ["GPU-b-0"]
    assert status.nodes == ["a", "b"]


def test_a_job_that_is_over_names_all_that_it_held() -> None:
    done = {"conditions": [condition("Complete")]}
    seen = with_child(make_pod(phase="Succeeded", node="a", devices=1, exit_code=0), child_status=done)
    assert [device.uuid for device in reconcile(seen()).status.devices] == ["GPU-a-0"]


def test_a_job_whose_workers_all_succeeded_names_what_they_held_before_its_batch_job_says_so() -> None:
    pods = [make_pod(worker, phase="Succeeded", node="a", devices=1, exit_code=0) for worker in range(2)]
    both = reconcile(with_child(*pods, spec={"workers": 2})()).status
    assert (both.phase, [device.worker for device in both.devices]) == ("Running", [0, 1])
    # The other worker's pod is yet to be made again.
    assert reconcile(with_child(pods[0], spec={"workers": 2})()).status.devices == []


HELD = [
    {"worker": worker, "node": node, "index": 0, "uuid": f"GPU-{node}-0", "shareMilli": 1000, "memoryMiB": 100}
    for worker, node in enumerate(("a", "b"))
]


@pytest.mark.parametrize("said", [[], [condition("FailureTarget")], [condition("Failed", reason="DeadlineExceeded")]])
def test_what_pods_held_that_were_ended_is_known_when_they_are_gone(said: list[dict[str, Any]]) -> None:
    before = {"phase": "Running", "startTime": at(-90), "nodes": ["a", "b"], "devices": HELD}
    left = make_pod(1, node="b", devices=1, started=-90)
    failed = make_pod(0, node="a", devices=1, phase="Failed", exit_code=137)
    for pods in ((), (left,), (failed, left)):
        seen = with_child(*pods, spec={"workers": 2}, status=before, child_status={"conditions": said})
        status = reconcile(seen()).status
        assert status.nodes == ["a", "b"]
        assert [(device.worker, device.uuid) for device in status.devices] == [(0, "GPU-a-0"), (1, "GPU-b-0")]


def test_a_job_that_waits_holds_nothing() -> None:
    before = {"phase": "Running", "nodes": ["a"], "nodeList": "a"}
    status = reconcile(with_child(child={"suspend": True}, status=before, verdict=NO_ROOM)()).status
    assert (status.nodes, status.devices) == ([], [])


def test_a_cancelled_job_tells_what_it_held() -> None:
    seen = with_child(make_pod(node="a", devices=1, started=-5), spec={"cancel": True})
    status = reconcile(seen()).status
    assert [device.uuid for device in status.devices] == ["GPU-a-0"]
    assert status.completion_time == at(0)


def test_a_broken_allocation_names_no_device() -> None:
    pod = make_pod(started=-5, meta={"annotations": {"dovetail.dev/allocation": "{"}})
    assert reconcile(with_child(pod)()).status.devices == []


@pytest.mark.parametrize(
    ("spec", "request_", "gpus"),
    [
        ({"gpu": "2(V100)", "workers": 3}, "2(V100)", 6),
        ({"gpu": "8G,0.5"}, "8G,0.5", 1),
        ({"resources": {"device": "cpu"}}, "cpu", 0),
        ({"resources": {"count": 2, "share": 0.5, "memory": "8Gi"}}, "2x8G,0.5", 2),
    ],
)
def test_the_request_is_told_in_the_compact_text(spec: dict[str, Any], request_: str, gpus: int) -> None:
    status = reconcile(see(make_job(**spec), verdict=NO_ROOM)).status
    assert (status.request, status.gpus) == (request_, gpus)


def test_workers_are_counted() -> None:
    ready = [condition("Ready")]
    seen = with_child(
        make_pod(0, started=-5, conditions=ready),
        make_pod(1, started=-5),
        make_pod(2, phase="Pending", node=""),
        spec={"workers": 5},
        child_status={"succeeded": 2, "failed": 1},
    )
    status = reconcile(seen()).status
    counts = (status.workers_active, status.workers_ready, status.workers_succeeded, status.workers_failed)
    assert counts == (3, 1, 2, 1)


def test_a_changed_time_limit_is_the_only_thing_passed_on() -> None:
    seen = with_child(make_pod(started=-60), spec={"activeDeadlineSeconds": 50}, child={"activeDeadlineSeconds": None})
    assert reconcile(seen()).actions == (PatchJob(spec={"activeDeadlineSeconds": 50}),)


def test_a_job_that_is_edited_after_its_end_says_that_it_was_seen_and_nothing_else() -> None:
    job = make_job(meta={"generation": 3}, cancel=True, status={"phase": "Succeeded", "observedGeneration": 1})
    outcome = reconcile(see(job))
    assert outcome.status == msgspec.structs.replace(job.status, observed_generation=3)
    assert outcome.actions == ()


def test_a_held_job_whose_template_was_changed_goes_on_with_the_new_one() -> None:
    def job(image: str) -> GPUJob:
        return make_job(template={"spec": {"containers": [{"name": "main", "image": image}]}}, status={"number": 1})

    ask = see(job("one")).ask
    assert ask is not None
    made = build_job(job("one"), ask=ask, number=1)["metadata"]["annotations"]
    child = make_child(job("one"), suspend=True)
    child = msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, annotations=made))
    same = reconcile(see(job("one"), child=child, verdict=LET_GO))
    assert [type(action) for action in same.actions] == [PatchJob]
    other = reconcile(see(job("two"), child=child, verdict=LET_GO))
    assert other.actions == (DeleteJob(),)
    assert other.status.message == "Its template was changed: its Job is recreated"


def test_a_running_job_whose_template_cannot_be_read_any_more_keeps_what_was_told_of_it() -> None:
    enforced = condition("Enforced", reason="WholeDevices", message="Each worker has its devices to itself (on n1)")
    job = make_job(status={**STARTED, "device": "cuda", "conditions": [enforced]})
    seen = see(job, make_pod(started=-60), child=make_child(job))
    status = reconcile(replace(seen, ask=None, enforcement={"n1": None})).status
    assert (status.phase, status.device) == ("Running", "cuda")
    kept = find_condition(status.conditions, type="Enforced")
    assert kept is not None
    assert (kept.reason, kept.status) == ("WholeDevices", "True")


@pytest.mark.parametrize("simulated", [True, False])
def test_the_status_says_whether_a_job_is_simulated(simulated: bool) -> None:
    assert reconcile(replace(see(make_job()), simulated=simulated)).status.simulated is simulated

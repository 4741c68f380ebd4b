"""One reconcile: what is done in which order, what is left out after a failure, and when the job is looked at again."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, GPUJobStatus, Preemption
from dovetail.jobs.obstacle import Obstacle
from dovetail.kube.client import Client
from dovetail_operator.controller import reconciler
from dovetail_operator.controller.reconciler import Reconciler
from dovetail_operator.job.actions import CreateJob, DeleteJob
from dovetail_operator.job.observation import Notice, Observed
from dovetail_operator.lifecycle.preemption import NotifyPod
from dovetail_operator.lifecycle.reconcile import Outcome
from dovetail_operator.state.pending_writes import MAX_WAIT_SECONDS, PendingWrites
from dovetail_operator.writes.pods import RETRY_SECONDS, DisruptionRefusedError
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import LET_GO, NOW, at, make_child, make_job, make_pod, make_state
from tests.operator_.controller.test_controller import JOBS
from tests.operator_.controller.test_wake_ups import Woken

JOB = make_job(status={"number": 1, "phase": "Running"})
POD = make_pod()
CARRYING = CreateJob(manifest={}, carries_plan=True)
POD_STATUS = f"PATCH /api/v1/namespaces/team/pods/{POD.metadata.name}/status"


class Scene(Woken):
    """A reconciler whose actions and writes are noted, and fail where the test says so."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.done: list[str] = []
        self.fails: set[str] = set()
        self.withdrawn: list[str] = []
        self.holds = True
        self.state = make_state(a=1)
        self.pending = PendingWrites()
        parts: Any = self
        self.reconciler = Reconciler(
            client,
            state=self.state,
            queue=parts,
            scheduling=parts,
            pending=self.pending,
            actions=parts,
            statuses=parts,
            now=lambda: NOW,
        )

    @property
    def notices(self) -> "Scene":
        return self

    def still_hold(self, _seen: Observed) -> bool:
        return self.holds

    async def run(self, _seen: Observed, *, actions: Sequence[Any]) -> bool:
        self.done.append(f"{len(actions)} actions")
        if "budget" in self.fails:
            raise DisruptionRefusedError("web")
        return "actions" not in self.fails

    async def write(self, _job: GPUJob, *, status: GPUJobStatus) -> bool:
        self.done.append(f"status {status.phase}")
        return "status" not in self.fails

    async def write_or_postpone(self, _job: GPUJob, *, status: GPUJobStatus) -> None:
        self.done.append(f"status {status.phase} in time")

    def postpone(self, _job: GPUJob) -> None:
        self.done.append("status later")


@pytest.fixture
def scene(client: Client) -> Scene:
    scene = Scene(client)
    scene.state.store.job_changed(JOB)
    scene.state.store.child_changed(make_child(JOB))
    return scene


def follows(monkeypatch: pytest.MonkeyPatch, outcome: Outcome, *, status_first: bool = False) -> None:
    """That outcome follows for each job."""
    monkeypatch.setattr(reconciler, "reconcile", lambda _seen: outcome)
    monkeypatch.setattr(reconciler, "is_status_first", lambda _seen, *, outcome: status_first)


def outcome(*, preemption: Preemption | None = None, phase: Any = "Running", **more: Any) -> Outcome:
    status = msgspec.structs.replace(JOB.status, phase=phase, preemption=preemption)
    return Outcome(status=status, actions=(DeleteJob(),), **more)


@pytest.mark.parametrize(
    ("status_first", "fails", "done", "keys"),
    [
        (False, set(), ["1 actions", "status Running in time"], []),
        (False, {"actions"}, ["1 actions"], ["team/x"]),
        (True, set(), ["status Running", "1 actions"], []),
        (True, {"status"}, ["status Running"], []),
        (True, {"actions"}, ["status Running", "1 actions"], ["team/x"]),
    ],
)
async def test_what_depends_on_a_step_that_failed_is_left_out(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, status_first: bool, fails: set[str], done: list[str], keys: list[str]
) -> None:
    """A failed write has set its own time for the next look; a failed action has the job looked at at once."""
    more: dict[str, Any] = {"wake_at": NOW, "notify": (NotifyPod(pod=POD, at=None),)} if fails else {}
    follows(monkeypatch, outcome(**more), status_first=status_first)
    scene.fails = fails
    await scene.reconciler.reconcile("team/x")
    assert (scene.done, scene.keys, scene.later) == (done, keys, [])


async def test_an_end_that_a_budget_refuses_is_tried_again_a_moment_later_and_nothing_else_follows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    follows(monkeypatch, outcome(wake_at=NOW, notify=(NotifyPod(pod=POD, at=None),)))
    scene.fails = {"budget"}
    await scene.reconciler.reconcile("team/x")
    assert (scene.done, scene.keys, scene.later) == (["1 actions"], [], [("team/x", RETRY_SECONDS)])


async def test_a_job_on_which_our_code_fails_gives_its_room_back_and_is_seen_again_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_seen: Observed) -> Outcome:
        raise ValueError("ours")

    monkeypatch.setattr(reconciler, "reconcile", fail)
    await scene.reconciler.reconcile("team/x")
    assert (scene.done, scene.keys, scene.looks) == ([], ["team/x"], ["soon"])
    with pytest.raises(ValueError, match="ours"):
        await scene.reconciler.reconcile("team/x")
    assert (scene.done, scene.keys, scene.looks) == ([], ["team/x"], ["soon"])


async def test_a_job_that_is_being_deleted_waits_for_no_number_and_no_verdict(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    follows(monkeypatch, outcome())
    scene.state.store.job_changed(make_job("goes", meta={"deletionTimestamp": at(0), "finalizers": ["x/y"]}))
    await scene.reconciler.reconcile("team/goes")
    assert (scene.done, scene.looks) == (["1 actions", "status Running in time"], [])


@pytest.mark.parametrize(("fails", "done"), [(set(), ["1 actions", "status later"]), ({"actions"}, ["1 actions"])])
async def test_a_plan_in_the_batch_job_is_told_once_that_exists(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, fails: set[str], done: list[str]
) -> None:
    made = outcome()
    monkeypatch.setattr(reconciler, "reconcile", lambda _seen: replace(made, actions=(CARRYING,)))
    scene.fails = fails
    await scene.reconciler.reconcile("team/x")
    assert scene.done == done


async def test_a_job_is_looked_at_again_when_its_outcome_says(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for wake_at, later in ((NOW + timedelta(seconds=90), [("team/x", 90.0)]), (None, [])):
        scene.clear()
        follows(monkeypatch, outcome(wake_at=wake_at))
        await scene.reconciler.reconcile("team/x")
        assert scene.later == later


@pytest.mark.parametrize(
    ("after", "phase", "keys"),
    [
        (Preemption(by="uid-y", at=at(30)), "Running", ["team/x"]),
        (Preemption(by="uid-y", at=at(0)), "Preempted", []),
        (None, "Running", []),
    ],
)
async def test_a_notice_that_is_written_is_followed_by_a_look_that_tells_the_pods(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, after: Preemption | None, phase: str, keys: list[str]
) -> None:
    follows(monkeypatch, outcome(preemption=after, phase=phase))
    await scene.reconciler.reconcile("team/x")
    assert scene.keys == keys


@pytest.mark.parametrize("time", [at(30), None])
async def test_the_pods_are_told_when_they_end_and_that_they_do_not(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, api: Api, time: str | None
) -> None:
    api.answer(POD_STATUS, Answer(body=values_of(POD)))
    follows(monkeypatch, outcome(notify=(NotifyPod(pod=POD, at=time),)))
    await scene.reconciler.reconcile("team/x")
    metadata = {"uid": POD.metadata.uid, "annotations": {"dovetail.dev/preempting-at": time}}
    assert [seen.body for seen in api.of(POD_STATUS)] == [{"metadata": metadata}]


@pytest.mark.parametrize("answer", [refusal(404), refusal(409)])
async def test_a_pod_that_is_gone_is_told_nothing_and_the_others_are(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, api: Api, answer: Answer
) -> None:
    other = make_pod(1)
    path = f"PATCH /api/v1/namespaces/team/pods/{other.metadata.name}/status"
    api.answer(POD_STATUS, answer)
    api.answer(path, Answer(body=values_of(other)))
    notify = (NotifyPod(pod=POD, at=at(30)), NotifyPod(pod=other, at=at(30)))
    follows(monkeypatch, outcome(notify=notify, wake_at=NOW + timedelta(seconds=30)))
    await scene.reconciler.reconcile("team/x")
    assert (len(api.of(path)), scene.later) == (1, [("team/x", 30.0)])


async def test_while_the_watch_is_behind_nothing_is_decided(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    follows(monkeypatch, outcome())
    scene.pending.await_newer_job("team/x", job=JOB, store=scene.state.store)
    await scene.reconciler.reconcile("team/x")
    ((key, seconds),) = scene.later
    assert (scene.done, key) == ([], "team/x")
    assert 0 < seconds <= MAX_WAIT_SECONDS


async def test_a_job_that_cannot_be_read_or_is_gone_is_left_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    follows(monkeypatch, outcome())
    scene.state.store.job_unreadable(JOB.metadata, message="spec.gpu cannot be read")
    for key in ("team/x", "team/none"):
        await scene.reconciler.reconcile(key)
    assert (scene.done, scene.keys, scene.later, scene.looks) == ([], [], [], [])


async def test_a_job_without_number_or_verdict_waits_for_the_queue_s_next_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    follows(monkeypatch, outcome())
    for name, status in (("new", {}), ("numbered", {"number": 5})):
        scene.clear()
        scene.state.store.job_changed(make_job(name, status=status))
        if not status:
            # A number that could not be stored is none, whatever the queue says.
            scene.state.decisions.set_verdict("uid-new", verdict=LET_GO)
        await scene.reconciler.reconcile(f"team/{name}")
        assert (scene.done, scene.looks) == ([], ["soon"])


async def test_jobs_whose_circle_of_dependencies_begins_are_looked_at(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    follows(monkeypatch, outcome())
    for name, other in (("a", "b"), ("b", "a")):
        scene.state.store.job_changed(make_job(name, dependencies=[{"name": other}], status={"number": 5}))
    await scene.reconciler.reconcile("team/x")
    assert sorted(scene.keys) == ["team/a", "team/b"]


@pytest.mark.parametrize("holds", [True, False])
async def test_a_notice_that_is_due_is_asked_about_again_and_withdrawn_where_no_one_starts_by_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, holds: bool
) -> None:
    seen = list[Observed]()

    def noted(each: Observed) -> Outcome:
        seen.append(each)
        return outcome()

    follows(monkeypatch, outcome())
    monkeypatch.setattr(reconciler, "reconcile", noted)
    scene.holds = holds
    scene.state.decisions.set_notices({"uid-x": Notice(by="uid-y", message="Is preempted", grace_seconds=0.0)})
    await scene.reconciler.reconcile("team/x")
    assert [each.notice is not None for each in seen] == [holds]
    assert ("uid-x" in scene.state.decisions.notices) is holds


async def test_a_batch_job_that_is_not_seen_is_asked_for_once_each_time_it_goes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    follows(monkeypatch, outcome())
    store, asked = scene.state.store, f"GET {JOBS}/x"
    scene.state.decisions.refuse(JOB, obstacle=Obstacle(reason="Quota", message="exceeded"))
    api.answer(asked, *[refusal(404)] * 3)
    for gone in (1, 2):
        store.child_event("DELETED", make_child(JOB))
        for _ in range(2):
            await scene.reconciler.reconcile("team/x")
        assert (len(api.of(asked)), scene.keys) == (gone, [])
        store.child_changed(make_child(JOB))
        await scene.reconciler.reconcile("team/x")
    store.child_event("DELETED", make_child(JOB))
    await scene.reconciler.reconcile("team/x")
    assert len(api.of(asked)) == 3
    store.job_deleted("team/x", uid="uid-x")
    assert scene.reconciler._without_child == set()


async def test_a_batch_job_that_lost_its_label_is_awaited_and_the_job_is_looked_at_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    follows(monkeypatch, outcome())
    store, child = scene.state.store, make_child(JOB)
    store.child_event("DELETED", child)
    bare = msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, labels={}))
    labelled = msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, resource_version="99"))
    api.answer(f"GET {JOBS}/x", Answer(body=values_of(bare)))
    api.answer(f"PATCH {JOBS}/x", Answer(body=values_of(labelled)))
    await scene.reconciler.reconcile("team/x")
    assert (scene.done, scene.keys) == ([], ["team/x"]), "nothing is decided without what is there"
    assert scene.pending.wait_seconds("team/x"), "the watch is behind until it has brought the label"
    store.child_changed(labelled)
    scene.pending.observed("Job", meta=labelled.metadata)
    scene.clear()
    await scene.reconciler.reconcile("team/x")
    assert scene.done == ["1 actions", "status Running in time"]

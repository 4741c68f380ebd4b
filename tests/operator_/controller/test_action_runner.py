"""Actions and the versions that the next reconcile waits for: those of the object that was written, and of no other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Job
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import ObjectMeta
from dovetail.kube.client import Client
from dovetail.kube.errors import ServerFault, StatusError
from dovetail_operator.controller import action_runner
from dovetail_operator.job.actions import (
    Action,
    ChangeTask,
    CreateJob,
    CreateTask,
    DeleteGPUJob,
    DeleteJob,
    JoinQueue,
    PatchJob,
)
from dovetail_operator.state.pending_writes import Kind
from dovetail_operator.writes.pods import DisruptionRefusedError
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import LET_GO, NOW, make_budget, make_child, make_job, make_pod, make_state, see
from tests.operator_.controller.test_controller import GPUJOBS, JOBS, Rig

JOB = make_job(status={"number": 1})
CHILD = make_child(JOB)
TASK = make_job("x-0", status={"number": 2}, meta={"labels": {"dovetail.dev/array": "x"}})
OTHER = make_job("other", status={"number": 3})
# All objects that the operator has seen, and that change meanwhile.
OBJECTS: Mapping[tuple[Kind, str], GPUJob | Job] = {
    ("GPUJob", "x"): JOB, ("GPUJob", "x-0"): TASK, ("GPUJob", "other"): OTHER, ("Job", "x"): CHILD,
}  # fmt: skip
MANIFEST = {"metadata": {"name": "x"}, "spec": {"suspend": False, "template": {}}}


@dataclass(frozen=True, kw_only=True)
class Case:
    """An action, its request, and the object whose version counts: what was written, or what it conflicts with."""

    action: Action
    request: str
    written: tuple[Kind, str] | None
    conflicts: tuple[Kind, str] | None = None
    answer: Answer = field(default_factory=Answer)

    @property
    def newer(self) -> tuple[Kind, str] | None:
        return self.conflicts or self.written


def later(found: GPUJob | Job, *, by: int = 1) -> Any:
    """The object in a later version."""
    meta = found.metadata
    version = str(int(meta.resource_version) + by)
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(meta, resource_version=version))


def body(found: GPUJob | Job) -> Answer:
    return Answer(body=values_of(later(found)))


CASES = {
    "create the batch Job": Case(action=CreateJob(manifest=MANIFEST), request=f"POST {JOBS}", written=("Job", "x"),
                                 conflicts=("GPUJob", "x"), answer=body(CHILD)),
    "patch the batch Job": Case(action=PatchJob(spec={"suspend": False}), request=f"PATCH {JOBS}/x",
                                written=("Job", "x"), answer=body(CHILD)),
    "delete the batch Job": Case(action=DeleteJob(), request=f"DELETE {JOBS}/x", written=None, conflicts=("Job", "x")),
    "join a queue": Case(action=JoinQueue(queue="q"), request=f"PATCH {GPUJOBS}/x", written=("GPUJob", "x"),
                         answer=body(JOB)),
    "delete the GPUJob": Case(action=DeleteGPUJob(), request=f"DELETE {GPUJOBS}/x", written=None,
                              conflicts=("GPUJob", "x")),
    "create a task": Case(action=CreateTask(manifest={"metadata": {"name": "x-0"}}), request=f"POST {GPUJOBS}",
                          written=("GPUJob", "x-0"), conflicts=("GPUJob", "x"), answer=body(TASK)),
    "change a task": Case(action=ChangeTask(task=TASK, spec={"suspend": True}), request=f"PATCH {GPUJOBS}/x-0",
                          written=("GPUJob", "x-0"), answer=body(TASK)),
}  # fmt: skip


async def run(case: Case, *, client: Client, api: Api, answer: Answer) -> tuple[Rig, bool]:
    rig = Rig(api, client, make_state(a=1))
    for found in OBJECTS.values():
        if isinstance(found, GPUJob):
            rig.state.store.job_changed(found)
        else:
            rig.state.store.child_changed(found)
    api.answer(case.request, answer)
    done = await rig.controller.reconciler._actions.run(see(JOB, child=CHILD), actions=[case.action])
    return rig, done


def resumed_by(rig: Rig, *, of: tuple[Kind, str], meta: ObjectMeta) -> list[str]:
    return rig.controller.reconciler._pending.observed(of[0], meta=meta).resumed


@pytest.mark.parametrize("name", CASES)
async def test_after_a_write_the_job_waits_for_what_was_written(client: Client, api: Api, name: str) -> None:
    case = CASES[name]
    rig, done = await run(case, client=client, api=api, answer=case.answer)
    assert done
    waits = rig.controller.reconciler._pending.wait_seconds
    assert (waits("team/x") > 0) is (case.written is not None)
    assert [waits(f"team/{each}") for each in ("x-0", "other")] == [0, 0]
    for of, found in OBJECTS.items():
        # An event of before the write tells nothing.
        assert resumed_by(rig, of=of, meta=found.metadata) == []
        resumed = ["team/x"] if of == case.written else []
        assert resumed_by(rig, of=of, meta=later(found).metadata) == resumed, of
    assert waits("team/x") == 0


@pytest.mark.parametrize("name", CASES)
async def test_after_a_conflict_the_job_waits_for_a_later_version_of_what_has_changed(
    client: Client, api: Api, name: str
) -> None:
    case = CASES[name]
    rig, done = await run(case, client=client, api=api, answer=refusal(409, reason="Conflict"))
    assert not done
    assert rig.controller.reconciler._pending.wait_seconds("team/x") > 0
    for of, found in OBJECTS.items():
        assert resumed_by(rig, of=of, meta=found.metadata) == []
        resumed = ["team/x"] if of == case.newer else []
        assert resumed_by(rig, of=of, meta=later(found).metadata) == resumed, of


@pytest.mark.parametrize("kept", [0, 1, 2])
async def test_the_actions_after_one_that_cannot_be_done_are_not_begun(client: Client, api: Api, kept: int) -> None:
    rig = Rig(api, client, make_state(a=1))
    rig.state.store.job_changed(JOB)
    rig.state.store.child_changed(CHILD)
    answers = [Answer(body=values_of(later(CHILD, by=at + 1))) for at in range(3)]
    answers[kept] = refusal(409, reason="Conflict")
    api.answer(f"PATCH {JOBS}/x", *answers)
    actions = [PatchJob(spec={"parallelism": at}) for at in range(3)]
    assert not await rig.controller.reconciler._actions.run(see(JOB, child=CHILD), actions=actions)
    assert [each.body["spec"]["parallelism"] for each in api.of(f"PATCH {JOBS}/x")] == list(range(kept + 1))


def runner_of(rig: Rig) -> Any:
    return rig.controller.reconciler._actions


def admissions(rig: Rig) -> float | None:
    return rig.registry.get_sample_value("dovetail_admissions_total")


ARRAY = make_job("x", array={"indexes": "0-2"}, status={"number": 1})


async def test_an_array_s_actions_are_all_taken_although_one_of_them_fails(client: Client, api: Api) -> None:
    """Its error is raised afterwards, and the array is tried again."""
    rig = Rig(api, client, make_state(a=1))
    rig.state.store.job_changed(ARRAY)
    api.answer(f"POST {GPUJOBS}", refusal(500), body(TASK), body(TASK))
    actions = [CreateTask(manifest={"metadata": {"name": f"x-{index}"}}) for index in range(3)]
    with pytest.raises(ServerFault):
        await runner_of(rig).run(see(ARRAY), actions=actions)
    assert len(api.of(f"POST {GPUJOBS}")) == 3


@pytest.mark.parametrize("refused", [True, False])
async def test_a_task_that_the_api_server_refuses_keeps_its_array_from_more_for_a_while(
    client: Client, api: Api, refused: bool
) -> None:
    rig = Rig(api, client, make_state(a=1))
    rig.state.store.job_changed(ARRAY)
    api.answer(f"POST {GPUJOBS}", body(TASK), refusal(403, message="exceeded quota: team") if refused else body(TASK))
    actions = [CreateTask(manifest={"metadata": {"name": f"x-{index}"}}) for index in range(2)]
    assert await runner_of(rig).run(see(ARRAY), actions=actions) is not refused
    found = rig.state.decisions.refusal_of(ARRAY, now=NOW)
    assert (found.reason if found is not None else None) == ("Quota" if refused else None)


@pytest.mark.parametrize(
    ("action", "request_", "admitted"),
    [
        (PatchJob(spec={"suspend": False}), f"PATCH {JOBS}/x", 1),
        (PatchJob(spec={"suspend": True}), f"PATCH {JOBS}/x", 0),
        (PatchJob(spec={"parallelism": 3}), f"PATCH {JOBS}/x", 0),
        (CreateJob(manifest=MANIFEST), f"POST {JOBS}", 1),
        (CreateJob(manifest={**MANIFEST, "spec": {"suspend": True}}), f"POST {JOBS}", 0),
    ],
)
async def test_a_job_counts_as_admitted_when_it_may_run_and_each_change_of_its_batch_job_as_one_of_the_room(
    client: Client, api: Api, action: Action, request_: str, admitted: int
) -> None:
    rig, room = Rig(api, client, make_state(a=1)), list[str]()
    rig.state.store.job_changed(JOB)
    rig.state.store.child_changed(CHILD)
    rig.controller._scheduling.room_changed = lambda: room.append("changed")  # type: ignore[method-assign]
    api.answer(request_, body(CHILD))
    assert await runner_of(rig).run(see(JOB, child=CHILD), actions=[action])
    assert (admissions(rig), room) == (admitted, ["changed"])
    waited = rig.registry.get_sample_value("dovetail_job_wait_seconds_sum")
    assert waited == 100 * admitted


@pytest.mark.parametrize(
    ("code", "spec", "is_replaced"),
    [
        (422, {"suspend": False, "template": {}}, True),
        (422, {"suspend": False}, False),
        (400, {"template": {}}, False),
    ],
)
async def test_a_batch_job_that_takes_no_other_template_is_replaced_and_no_other_refusal_ends_one(
    client: Client, api: Api, code: int, spec: dict[str, Any], is_replaced: bool
) -> None:
    rig = Rig(api, client, make_state(a=1))
    rig.state.store.job_changed(JOB)
    rig.state.store.child_changed(CHILD)
    api.answer(f"PATCH {JOBS}/x", refusal(code, reason="Invalid"))
    api.answer(f"DELETE {JOBS}/x", Answer(body={}))
    running = runner_of(rig).run(see(JOB, child=CHILD), actions=[PatchJob(spec=spec)])
    if is_replaced:
        assert not await running
    else:
        with pytest.raises(StatusError):
            await running
    preconditions = [seen.body["preconditions"] for seen in api.of(f"DELETE {JOBS}/x")]
    assert preconditions == [{"uid": "uid-child", "resourceVersion": "20"}] * is_replaced
    assert admissions(rig) == 0


async def test_a_refused_batch_job_frees_its_room_and_is_not_counted(client: Client, api: Api) -> None:
    rig = Rig(api, client, make_state(a=1))
    rig.state.store.job_changed(JOB)
    rig.state.decisions.set_verdict("uid-x", verdict=LET_GO)
    api.answer(f"POST {JOBS}", refusal(403, message="exceeded quota: team"))
    assert not await runner_of(rig).run(see(JOB), actions=[CreateJob(manifest=MANIFEST)])
    assert "uid-x" not in rig.state.decisions.verdicts
    assert (admissions(rig), runner_of(rig)._pending.wait_seconds("team/x")) == (0, 0)


async def test_a_job_in_turns_with_a_liveness_probe_is_warned_as_it_is_created(client: Client, api: Api) -> None:
    probed = {"containers": [{"name": "main", "image": "i", "livenessProbe": {"exec": {"command": ["true"]}}}]}
    rig, job = Rig(api, client, make_state(a=1)), make_job(gpu="0.5", mode="TimeShared", template={"spec": probed})
    rig.state.store.job_changed(job)
    api.answer(f"POST {JOBS}", body(CHILD))
    assert await runner_of(rig).run(see(job), actions=[CreateJob(manifest=MANIFEST)])
    assert [rig.events.get_nowait().reason for _ in range(rig.events.qsize())] == ["LivenessProbe"]


BUDGET = "/apis/policy/v1/namespaces/team/poddisruptionbudgets/web"


def with_budget(client: Client, api: Api, *, allowed: int) -> Rig:
    rig = Rig(api, client, make_state(a=1))
    rig.state.store.job_changed(JOB)
    rig.state.store.child_changed(CHILD)
    rig.state.store.budget_event("ADDED", make_budget(allowed=allowed))
    api.answer(f"PATCH {BUDGET}/status", Answer(body=values_of(make_budget())))
    api.answer(f"PATCH {JOBS}/x", body(CHILD))
    api.answer(f"DELETE {JOBS}/x", Answer(body={}))
    return rig


@pytest.mark.parametrize("action", [PatchJob(spec={"suspend": True}, disrupts=True), DeleteJob(disrupts=True)])
async def test_an_end_for_others_is_first_recorded_in_the_budgets_of_its_pods(
    client: Client, api: Api, action: Action
) -> None:
    rig = with_budget(client, api, allowed=1)
    assert await runner_of(rig).run(see(JOB, make_pod(), child=CHILD), actions=[action])
    assert [seen.path for seen in api.seen] == [f"{BUDGET}/status", f"{JOBS}/x"]


async def test_an_end_that_its_budget_refuses_does_not_happen(client: Client, api: Api) -> None:
    rig = with_budget(client, api, allowed=0)
    with pytest.raises(DisruptionRefusedError):
        await runner_of(rig).run(
            see(JOB, make_pod(), child=CHILD), actions=[PatchJob(spec={"suspend": True}, disrupts=True)]
        )
    assert not api.seen


async def test_an_end_by_its_owner_asks_no_budget(client: Client, api: Api) -> None:
    rig = with_budget(client, api, allowed=0)
    assert await runner_of(rig).run(see(JOB, make_pod(), child=CHILD), actions=[PatchJob(spec={"suspend": True})])
    assert [seen.path for seen in api.seen] == [f"{JOBS}/x"]


@pytest.mark.parametrize("allowed", [0, 1])
async def test_plain_pods_are_not_recorded_because_their_eviction_counts_them(
    client: Client, api: Api, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    record = make_job("pod-p", managedBy=names.GUESTS_MANAGER, meta={"ownerReferences": [owner]})
    rig, held = with_budget(client, api, allowed=allowed), list[bool]()

    async def hold(_record: GPUJob, *, suspend: bool) -> None:
        held.append(suspend)

    monkeypatch.setattr(runner_of(rig)._guests, "hold", hold)
    action = PatchJob(spec={"suspend": True}, disrupts=True)
    running = runner_of(rig).run(see(record, make_pod(), child=CHILD), actions=[action])
    if allowed:
        assert await running
    else:
        with pytest.raises(DisruptionRefusedError):
            await running
    assert (api.seen, held) == ([], [True] * allowed)


RECORD = make_job("job-g", status={"number": 4})


@pytest.mark.parametrize(
    ("action", "suspend"),
    [
        (PatchJob(spec={"suspend": False}), False),
        (PatchJob(spec={"suspend": True}), True),
        (PatchJob(spec={"parallelism": 1}), True),
        (CreateJob(manifest=MANIFEST), True),
        (DeleteJob(), True),
    ],
)
@pytest.mark.parametrize("changes", [True, False])
async def test_a_guest_is_let_go_or_held_and_nothing_of_it_is_created_or_deleted(
    client: Client, api: Api, monkeypatch: pytest.MonkeyPatch, action: Action, suspend: bool, changes: bool
) -> None:
    """It counts as admitted when it is let go, and its record waits for the version that was written."""
    rig, held = Rig(api, client, make_state(a=1)), list[bool]()
    written = make_child(RECORD, uid="uid-job-g")
    rig.state.store.job_changed(RECORD)

    async def hold(record: GPUJob, *, suspend: bool) -> Job | None:
        assert record is RECORD
        held.append(suspend)
        return written if changes else None

    monkeypatch.setattr(action_runner, "is_guests", lambda job: job is RECORD)
    monkeypatch.setattr(runner_of(rig)._guests, "hold", hold)
    assert await runner_of(rig).run(see(RECORD, child=written), actions=[action])
    assert (held, api.seen) == ([suspend], [])
    assert admissions(rig) == (changes and not suspend)
    assert (runner_of(rig)._pending.wait_seconds("team/job-g") > 0) is changes

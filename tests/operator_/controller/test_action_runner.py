"""Actions and the versions that the next reconcile waits for: those of the object that was written, and of no other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Job
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import ObjectMeta
from dovetail.kube.client import Client
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
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import make_child, make_job, make_state, see
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

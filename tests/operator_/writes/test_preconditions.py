"""Each write names the very object that it was decided on, and its version where the decision rests on all of it."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import pytest

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.meta import ObjectMeta
from dovetail.jobs.batch_job import owner_reference
from dovetail.jobs.guests.record import record_of
from dovetail.jobs.obstacle import Obstacle
from dovetail.jobs.seat import Seat
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict
from dovetail_operator.job.actions import ChangeTask, CreateJob, CreateTask, PatchJob
from dovetail_operator.watchers.guests import writes as guests
from dovetail_operator.watchers.guests.directory import Known
from dovetail_operator.writes import jobs, pods, tasks
from tests.core.jobs.guests.examples import guest, kind_named
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import make_child, make_job, make_pod

JOB: Final = make_job()
CHILD: Final = make_child(JOB)
POD: Final = make_pod(meta={"name": "p", "uid": "uid-p", "resourceVersion": "30", "ownerReferences": []})
KNOWN: Final = Known(guest=guest(kind_named("Job"), resourceVersion="40"), kind=kind_named("Job"))
GUEST: Final = KNOWN.guest.metadata
CORE, BATCH, OURS = "/api/v1", "/apis/batch/v1", "/apis/dovetail.dev/v1beta1"
Write = tuple[str, Callable[[Client], Awaitable[Any]], ObjectMeta, bool]

# The request, the call, the object that was decided on, and whether its version counts. Without one, the fields that
# are written follow from nothing that the object's other writers change.
WRITES: Final[dict[str, Write]] = {
    "a batch Job's spec": (
        f"PATCH {BATCH}/namespaces/team/jobs/x",
        lambda client: jobs.patch_job(client, child=CHILD, action=PatchJob(spec={"suspend": True})),
        CHILD.metadata,
        True,
    ),
    "a GPUJob's queue": (
        f"PATCH {OURS}/namespaces/team/gpujobs/x",
        lambda client: jobs.join_queue(client, job=JOB, queue="q"),
        JOB.metadata,
        True,
    ),
    "a status": (
        f"PUT {OURS}/namespaces/team/gpujobs/x/status",
        lambda client: jobs.write_status(client, job=JOB, status=GPUJobStatus()),
        JOB.metadata,
        True,
    ),
    "a task": (
        f"PATCH {OURS}/namespaces/team/gpujobs/x",
        lambda client: tasks.change(client, action=ChangeTask(task=JOB, spec={"priority": 1})),
        JOB.metadata,
        False,
    ),
    "the notice of a preemption": (
        f"PATCH {CORE}/namespaces/team/pods/p/status",
        lambda client: pods.announce_preemption(client, pod=POD, at=None),
        POD.metadata,
        False,
    ),
    "a record": (
        f"PATCH {OURS}/namespaces/team/gpujobs/x",
        lambda client: guests.change_record(client, record=JOB, spec={"priority": 1}),
        JOB.metadata,
        False,
    ),
    "a record's owners": (
        f"PATCH {OURS}/namespaces/team/gpujobs/x",
        lambda client: guests.change_owners(client, record=JOB, owners=[]),
        JOB.metadata,
        False,
    ),
    "a guest that is held": (
        f"PATCH {BATCH}/namespaces/team/jobs/{GUEST.name}",
        lambda client: guests.hold(client, found=KNOWN, suspend=True),
        GUEST,
        True,
    ),
    "a gate": (
        f"PATCH {CORE}/namespaces/team/pods/p",
        lambda client: guests.open_gate(client, pod=POD, record=JOB, seat=Seat(job_uid="uid-x", worker=0)),
        POD.metadata,
        True,
    ),
}


@pytest.mark.parametrize("what", WRITES)
async def test_a_change_is_of_the_very_object_that_was_read(api: Api, client: Client, what: str) -> None:
    request, write, meta, counts_version = WRITES[what]
    api.answer(request, Answer(body=values_of(JOB if "gpujobs" in request else CHILD if "jobs" in request else POD)))
    await write(client)
    (seen,) = api.of(request)
    named = {key: seen.body["metadata"].get(key) for key in ("uid", "resourceVersion")}
    assert named == {"uid": meta.uid, "resourceVersion": meta.resource_version if counts_version else None}


@pytest.mark.parametrize("what", ["job", "gpujob"])
async def test_a_deletion_is_of_the_very_version_that_was_read(api: Api, client: Client, what: str) -> None:
    path = f"{BATCH}/namespaces/team/jobs/x" if what == "job" else f"{OURS}/namespaces/team/gpujobs/x"
    meta = CHILD.metadata if what == "job" else JOB.metadata
    api.answer(f"DELETE {path}", Answer(body={}), refusal(404), refusal(409))

    async def delete() -> None:
        await (jobs.delete_job(client, child=CHILD) if what == "job" else jobs.delete_gpujob(client, job=JOB))

    await delete()
    assert api.seen[0].body["preconditions"] == {"uid": meta.uid, "resourceVersion": meta.resource_version}
    await delete()
    with pytest.raises(Conflict):
        await delete()


async def test_a_template_with_a_field_that_does_not_exist_is_refused(api: Api, client: Client) -> None:
    api.answer(f"POST {BATCH}/namespaces/team/jobs", Answer(body=values_of(CHILD), status=201))
    await jobs.create_job(client, job=JOB, action=CreateJob(manifest={"metadata": {"name": "x"}}))
    assert api.seen[0].query == {"fieldValidation": "Strict"}


async def test_a_gpujob_with_a_tasks_name_is_the_task_only_if_its_array_owns_it(api: Api, client: Client) -> None:
    path, array = f"{OURS}/namespaces/team/gpujobs", make_job("array")
    task = make_job("array-0", meta={"ownerReferences": [values_of(owner_reference(array))]})
    stranger = msgspec.structs.replace(task, metadata=msgspec.structs.replace(task.metadata, owner_references=[]))
    action = CreateTask(manifest={"metadata": {"name": "array-0"}})
    api.answer(f"POST {path}", refusal(409, reason="AlreadyExists"), refusal(409, reason="AlreadyExists"))
    api.answer(f"GET {path}/array-0", Answer(body=values_of(task)), Answer(body=values_of(stranger)))
    made = await tasks.create(client, parent=array, action=action)
    assert isinstance(made, GPUJob)
    found = await tasks.create(client, parent=array, action=action)
    assert isinstance(found, Obstacle)
    assert found.message.startswith("A GPUJob named array-0 exists and is no task of this job")


@pytest.mark.parametrize("owner", ["uid-guest", "uid-another"])
async def test_a_gpujob_with_a_records_name_is_the_record_only_if_it_is_of_that_guest(
    api: Api, client: Client, owner: str
) -> None:
    path, manifest = f"{OURS}/namespaces/team/gpujobs", record_of(KNOWN.guest, kind=KNOWN.kind)
    metadata = manifest["metadata"]
    owners = [{**each, "uid": owner} for each in metadata["ownerReferences"]]
    there = {**manifest, "metadata": {**metadata, "uid": "uid-there", "ownerReferences": owners}}
    api.answer(f"POST {path}", refusal(409, reason="AlreadyExists"))
    api.answer(f"GET {path}/{metadata['name']}", Answer(body=there))
    found = await guests.create_record(client, found=KNOWN, manifest=manifest)
    assert isinstance(found, GPUJob if owner == GUEST.uid else Obstacle)

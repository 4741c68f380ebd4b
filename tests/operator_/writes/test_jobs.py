from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Job
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJobStatus
from dovetail.jobs.obstacle import Obstacle
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, ServerFault, TooManyRequests
from dovetail_operator.job.actions import CreateJob, PatchJob
from dovetail_operator.writes import jobs
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import make_child, make_job

JOBS = "/apis/batch/v1/namespaces/team/jobs"
GPUJOBS = "/apis/dovetail.dev/v1beta1/namespaces/team/gpujobs"
CREATE = CreateJob(manifest={"metadata": {"name": "x", "namespace": "team"}})


def wire(value: Any) -> Answer:
    return Answer(body=values_of(value))


async def test_a_job_that_we_made_before_is_taken_over(api: Api, client: Client) -> None:
    job = make_job()
    api.answer(f"POST {JOBS}", refusal(409, reason="AlreadyExists"))
    api.answer(f"GET {JOBS}/x", wire(make_child(job)))
    assert await jobs.create_job(client, job=job, action=CREATE) == make_child(job)


async def test_a_job_whose_label_somebody_took_off_is_given_it_again(api: Api, client: Client) -> None:
    job = make_job()
    child = make_child(job)
    bare = msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, labels={}))
    api.answer(f"POST {JOBS}", refusal(409, reason="AlreadyExists"))
    api.answer(f"GET {JOBS}/x", wire(bare), wire(bare))
    api.answer(f"PATCH {JOBS}/x", wire(child), wire(child))
    assert await jobs.create_job(client, job=job, action=CREATE) == child
    assert await jobs.find_child(client, job=job) == child
    assert api.of(f"PATCH {JOBS}/x")[0].body == {
        "metadata": {"uid": "uid-child", "resourceVersion": "20", "labels": {"dovetail.dev/job": "x"}}
    }


async def test_a_batch_job_that_is_not_there_or_anothers_is_not_found(api: Api, client: Client) -> None:
    api.answer(f"GET {JOBS}/x", refusal(404), wire(Job()))
    assert await jobs.find_child(client, job=make_job()) is None
    assert await jobs.find_child(client, job=make_job()) is None


async def test_a_strangers_job_is_never_adopted(api: Api, client: Client) -> None:
    api.answer(f"POST {JOBS}", refusal(409, reason="AlreadyExists"))
    api.answer(f"GET {JOBS}/x", wire(Job()))
    assert await jobs.create_job(client, job=make_job(), action=CREATE) == Obstacle(
        reason="Invalid",
        message="A Job named x exists and is not this GPUJob's: delete it, or submit under another name",
    )


async def test_the_job_of_an_earlier_gpujob_is_waited_for(api: Api, client: Client) -> None:
    api.answer(f"POST {JOBS}", refusal(409, reason="AlreadyExists"))
    api.answer(f"GET {JOBS}/x", wire(make_child(make_job(meta={"uid": "uid-earlier"}))))
    found = await jobs.create_job(client, job=make_job(), action=CREATE)
    assert isinstance(found, Obstacle)
    assert found.reason == "Evaluating"


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        (422, 'Job.batch "x" is invalid: spec.template.spec.restartPolicy', "Invalid"),
        (403, 'jobs.batch "x" is forbidden: exceeded quota: jobs', "Quota"),
        (403, 'jobs.batch "x" is forbidden: no', "Invalid"),
    ],
)
async def test_a_refusal_is_told_in_the_api_servers_words(
    api: Api, client: Client, code: int, message: str, reason: str
) -> None:
    api.answer(f"POST {JOBS}", refusal(code, message=message))
    assert await jobs.create_job(client, job=make_job(), action=CREATE) == Obstacle(
        reason=reason,  # type: ignore[arg-type]
        message=f"The API server refuses the Job: {message}",
    )


@pytest.mark.parametrize(("code", "error"), [(500, ServerFault), (429, TooManyRequests)])
async def test_a_passing_trouble_is_not_the_jobs_fault(
    api: Api, client: Client, code: int, error: type[Exception]
) -> None:
    api.answer(f"POST {JOBS}", refusal(code))
    with pytest.raises(error):
        await jobs.create_job(client, job=make_job(), action=CREATE)


async def test_only_this_very_job_is_changed_and_deleted(api: Api, client: Client) -> None:
    child = make_child(make_job())
    api.answer(f"PATCH {JOBS}/x", wire(child))
    api.answer(f"DELETE {JOBS}/x", Answer(body={}))
    await jobs.patch_job(client, child=child, action=PatchJob(spec={"suspend": True}))
    await jobs.delete_job(client, child=child)
    (patch,) = api.of(f"PATCH {JOBS}/x")
    (delete,) = api.of(f"DELETE {JOBS}/x")
    assert patch.body == {"metadata": {"uid": "uid-child", "resourceVersion": "20"}, "spec": {"suspend": True}}
    assert delete.body["preconditions"] == {"uid": "uid-child", "resourceVersion": "20"}
    assert delete.body["propagationPolicy"] == "Background"


async def test_a_batch_job_says_in_which_term_of_office_it_was_made(api: Api, client: Client) -> None:
    job = make_job()
    api.answer(f"POST {JOBS}", wire(make_child(job)))
    await jobs.create_job(client, job=job, action=CREATE, term=7)
    (sent,) = api.of(f"POST {JOBS}")
    assert sent.body["metadata"]["annotations"] == {"dovetail.dev/term": "7"}


async def test_what_is_not_as_it_was_read_is_not_deleted(api: Api, client: Client) -> None:
    api.answer(f"DELETE {GPUJOBS}/x", refusal(409))
    with pytest.raises(Conflict):
        await jobs.delete_gpujob(client, job=make_job())


async def test_what_is_gone_already_needs_no_deleting(api: Api, client: Client) -> None:
    api.answer(f"DELETE {JOBS}/x", refusal(404))
    api.answer(f"DELETE {GPUJOBS}/x", refusal(404))
    await jobs.delete_job(client, child=make_child(make_job()))
    await jobs.delete_gpujob(client, job=make_job())


async def test_a_status_is_written_only_on_what_was_read(api: Api, client: Client) -> None:
    job = make_job(status={"phase": "Running", "elapsed": "10s", "nodes": ["a"]})
    api.answer(f"PUT {GPUJOBS}/x/status", wire(job), refusal(409))
    await jobs.write_status(client, job=job, status=GPUJobStatus(phase="Queued", nodes=["a"]))
    with pytest.raises(Conflict):
        await jobs.write_status(client, job=job, status=GPUJobStatus(phase="Queued"))
    first, _ = api.of(f"PUT {GPUJOBS}/x/status")
    assert first.body == {
        "apiVersion": "dovetail.dev/v1beta1",
        "kind": "GPUJob",
        "metadata": {"name": "x", "namespace": "team", "resourceVersion": "10", "uid": "uid-x"},
        "status": {"phase": "Queued", "nodes": ["a"]},
    }


def test_equal_statuses_differ_in_nothing() -> None:
    assert jobs.difference(GPUJobStatus(phase="Queued"), after=GPUJobStatus(phase="Queued")) == {}


async def test_a_job_is_labelled_for_kueues_queue_only_as_it_was_read(api: Api, client: Client) -> None:
    api.answer(f"PATCH {GPUJOBS}/x", wire(make_job()), refusal(409, reason="Conflict"))
    await jobs.join_queue(client, job=make_job(), queue="default")
    assert api.seen[0].body == {
        "metadata": {
            "uid": "uid-x",
            "resourceVersion": "10",
            "labels": {"kueue.x-k8s.io/queue-name": "default"},
        }
    }
    with pytest.raises(Conflict):
        await jobs.join_queue(client, job=make_job(), queue="default")

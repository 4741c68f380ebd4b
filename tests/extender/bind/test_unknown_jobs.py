"""Bind of a worker whose GPUJob the informer has not brought: the API server is asked once, and its answer counts."""

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dovetail import names
from dovetail.pods.allocation import Allocation, allocation_in
from dovetail_extender.service import Options
from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.harness import Face, watching
from tests.extender.holds.test_planned_workers import make_job, make_worker


@pytest.fixture
async def face(api: ApiServer) -> AsyncIterator[Face]:
    """An extender that has listed everything, and that no watch tells anything from then on."""
    async with watching(api) as started:
        await started.ready()
        api.telling = False
        yield started


def put_urgent(api: ApiServer, **metadata: Any) -> dict[str, Any]:
    """Put a GPUJob of priority 200, and its worker. No watch shows either."""
    job = make_job(("b", 1)) | {"spec": {"priority": 200}}
    job["metadata"] |= metadata
    api.put("gpujobs", job)
    return put_worker(api)


def put_worker(api: ApiServer) -> dict[str, Any]:
    api.put("pods", worker := make_worker())
    return worker


def allocated(api: ApiServer) -> Allocation:
    found = allocation_in(api.objects["pods"]["default/train-0"]["metadata"]["annotations"])
    assert found is not None
    return found


async def test_a_worker_that_arrives_before_its_job_is_bound_as_its_job_says(api: ApiServer, face: Face) -> None:
    assert await face.bind(put_urgent(api), "b") == ""
    assert (allocated(api).job, allocated(api).priority) == ("train", 200)
    assert api.reads["gpujobs"] == 1


async def test_a_known_job_is_not_read(api: ApiServer) -> None:
    worker = put_urgent(api)
    async with watching(api) as face:
        await face.ready()
        assert await face.bind(worker, "b") == ""
    assert (allocated(api).job, api.reads["gpujobs"]) == ("train", 0)


async def test_a_pod_whose_gate_the_cache_still_shows_is_bound_as_its_seat_says(api: ApiServer) -> None:
    """The watch of kube-scheduler is ahead: it binds the pod before the extender has seen the gate open."""
    job = make_job(("b", 1)) | {"spec": {"priority": 200}}
    api.put("gpujobs", job)
    gated = make_worker()
    of_job = {names.SEAT: f"{job['metadata']['uid']}/0", names.PLAN: gated["metadata"]["annotations"].pop(names.PLAN)}
    labels = gated["metadata"].pop("labels")
    gated["metadata"].pop("ownerReferences")
    gated["spec"]["schedulingGates"] = [{"name": names.QUEUE_GATE}]
    api.put("pods", gated)
    async with watching(api) as face:
        await face.ready()
        api.telling = False
        opened = copy.deepcopy(gated)
        opened["metadata"]["labels"] = labels
        opened["metadata"]["annotations"] |= of_job
        del opened["spec"]["schedulingGates"]
        api.put("pods", opened)
        assert await face.bind(opened, "b") == ""
    assert (allocated(api).job, allocated(api).priority) == ("train", 200)


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced by a job of the same name"])
async def test_a_worker_whose_job_is_gone_is_bound_as_a_pod_of_no_job(
    api: ApiServer, face: Face, replaced: bool
) -> None:
    worker = put_urgent(api, uid="uid-of-the-next-job") if replaced else put_worker(api)
    assert await face.bind(worker, "b") == ""
    assert (allocated(api).job, allocated(api).priority) == ("", 10)


async def test_a_refused_read_fails_the_bind_and_the_next_attempt_succeeds(api: ApiServer, face: Face) -> None:
    worker = put_urgent(api)
    api.read_statuses["gpujobs"] = 503
    assert (await face.bind(worker, "b")).startswith("the pod's GPUJob cannot be read: ")
    assert (api.bindings, face.ledger.claims()) == ([], [])
    del api.read_statuses["gpujobs"]
    assert await face.bind(worker, "b") == ""
    assert allocated(api).job == "train"


async def test_a_read_without_an_answer_takes_half_of_the_bind_s_deadline(api: ApiServer) -> None:
    async with watching(api, options=Options(bind_deadline_seconds=1)) as face:
        await face.ready()
        worker = put_worker(api)
        api.read_gates["gpujobs"].clear()
        async with asyncio.timeout(60):
            error = await face.bind(worker, "b")
        assert error.startswith("the pod's GPUJob cannot be read: ")
        assert "no answer within 0.5 s" in error
        assert (api.bindings, face.ledger.claims()) == ([], [])


async def test_a_job_that_the_informer_brings_during_the_read_counts(api: ApiServer, face: Face) -> None:
    worker = put_worker(api)
    api.read_gates["gpujobs"].clear()
    api.read_statuses["gpujobs"] = 404
    asked = asyncio.create_task(face.bind(worker, "b"))
    await eventually(lambda: api.reads["gpujobs"] == 1)
    api.telling = True
    api.put("gpujobs", make_job(("b", 1)))
    await eventually(lambda: face.extender.plans.holding == 1)
    api.read_gates["gpujobs"].set()
    assert await asked == ""
    assert allocated(api).job == "train"

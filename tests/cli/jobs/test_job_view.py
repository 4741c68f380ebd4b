"""One job and its pods as watches show them."""

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.jobs.job_view import JobView, main_container, worker_of
from tests.cli.builders import make_job
from tests.cli.jobs.test_logs import make_worker_pod


def of_uid(uid: str, **status: Any) -> GPUJob:
    job = make_job("train", **status)
    return msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, uid=uid))


async def test_a_job_that_is_made_again_under_its_name_is_another_one(cluster: Cluster) -> None:
    view = JobView(cluster, job=of_uid("mine", phase="Running"))
    for event in ("MODIFIED", "DELETED"):
        view._on_job(event, of_uid("other", phase="Failed"))  # type: ignore[arg-type]
    assert (view.job.status.phase, view.is_deleted) == ("Running", False)
    view._on_job("MODIFIED", of_uid("mine", phase="Succeeded"))
    assert (view.job.status.phase, view.is_deleted) == ("Succeeded", False)
    view._on_job("DELETED", of_uid("mine", phase="Succeeded"))
    assert view.is_deleted


async def test_every_change_wakes_all_that_wait_and_a_later_wait_waits_again(cluster: Cluster) -> None:
    view = JobView(cluster, job=of_uid("mine"))
    waiting = [asyncio.create_task(view.change(most_seconds=60)) for _ in range(2)]
    await asyncio.sleep(0)
    view._on_pod("ADDED", msgspec.convert(make_worker_pod("a", worker=0), Pod))
    async with asyncio.timeout(30):
        await asyncio.gather(*waiting)
    later = asyncio.create_task(view.change(most_seconds=60))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not later.done()
    view._on_job("MODIFIED", of_uid("mine"))
    async with asyncio.timeout(30):
        await later


async def test_what_does_not_change_is_waited_for_no_longer_than_asked(cluster: Cluster) -> None:
    await JobView(cluster, job=of_uid("mine")).change(most_seconds=0.01)


@pytest.mark.parametrize(("index", "worker"), [("0", 0), ("3", 3), ("", 0), ("-1", 0), ("x", 0), ("٣", 0)])
def test_a_pod_is_the_worker_that_its_index_says(index: str, worker: int) -> None:
    made = make_worker_pod("a", worker=0)
    made["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": index}
    assert worker_of(msgspec.convert(made, Pod)) == worker


def test_the_first_container_counts_wherever_its_status_is() -> None:
    made = make_worker_pod("a", worker=0, containerStatuses=[{"name": "sidecar"}, {"name": "main"}])
    found = main_container(msgspec.convert(made, Pod))
    assert found is not None
    assert found.name == "main"
    assert main_container(msgspec.convert(make_worker_pod("a", worker=0), Pod)) is None

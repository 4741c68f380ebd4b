"""The short-lived pod through which files go: it is deleted however the copying ends."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit.workdir import files_pod
from dovetail_cli.ui.errors import CommandError
from tests.cli.builders import make_job
from tests.core.kube.api import Answer, Api, refusal

PODS = "/api/v1/namespaces/default/pods"
JOB = make_job("train")


def pod(phase: str, **status: Any) -> Answer:
    return Answer(body={"metadata": {"name": "train-files-x"}, "status": {"phase": phase, **status}})


@pytest.fixture(autouse=True)
def made(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_pod, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(files_pod, "manifest", lambda _job: {"metadata": {"generateName": "train-files-"}})
    api.answer(f"POST {PODS}", pod("Pending"))
    api.answer(f"DELETE {PODS}/train-files-x", Answer(body={}))


def deletions(api: Api) -> int:
    return len(api.of(f"DELETE {PODS}/train-files-x"))


async def test_it_is_there_while_files_are_copied_and_gone_afterwards(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {PODS}/train-files-x", pod("Pending"), pod("Running"))
    async with files_pod.files_pod(cluster, job=JOB) as name:
        assert (name, deletions(api)) == ("train-files-x", 0)
    assert deletions(api) == 1


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, asyncio.CancelledError])
async def test_an_error_while_files_are_copied_leaves_no_pod(
    api: Api, cluster: Cluster, error: type[BaseException]
) -> None:
    api.answer(f"GET {PODS}/train-files-x", pod("Running"))
    with pytest.raises(error):
        async with files_pod.files_pod(cluster, job=JOB):
            raise error
    assert deletions(api) == 1


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_one_that_ends_before_it_began_says_why_and_is_deleted(api: Api, cluster: Cluster, phase: str) -> None:
    api.answer(f"GET {PODS}/train-files-x", pod(phase, message="no room"))
    with pytest.raises(CommandError, match=r"^the pod that copies files has ended before it began: no room$"):
        async with files_pod.files_pod(cluster, job=JOB):
            raise AssertionError
    assert deletions(api) == 1


async def test_one_that_does_not_start_in_time_says_why_and_is_deleted(
    api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(_seconds: float) -> None:
        raise TimeoutError

    # Its time is over at the first pause.
    monkeypatch.setattr(files_pod, "asyncio", SimpleNamespace(timeout=asyncio.timeout, sleep=late))
    waiting = {"reason": "ImagePullBackOff", "message": "no image"}
    api.answer(f"GET {PODS}/train-files-x", pod("Pending", containerStatuses=[{"state": {"waiting": waiting}}]))
    with pytest.raises(CommandError, match=r"did not start within 180 s: ImagePullBackOff: no image$"):
        async with files_pod.files_pod(cluster, job=JOB):
            raise AssertionError
    assert deletions(api) == 1


async def test_one_that_is_gone_already_is_no_error(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {PODS}/gone", pod("Running"))
    api.answer(f"DELETE {PODS}/gone", refusal(404))
    await files_pod._drop(cluster, name="gone")

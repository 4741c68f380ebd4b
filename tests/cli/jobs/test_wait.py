"""gjob wait: which jobs are still waited for, and with what it ends."""

import io
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.kube.client import Listing
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.jobs import wait
from dovetail_cli.ui.errors import UsageError
from tests.core.query.explain.test_explain import make_job


def ended(name: str, phase: str, message: str = "") -> GPUJob:
    job = make_job(name, phase="Running")
    return msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, phase=phase, message=message))


class Pods:
    """A client that lists pods whose containers ended with these codes."""

    def __init__(self, *codes: int) -> None:
        states = [{"state": {"terminated": {"exitCode": code}}} for code in codes]
        pod = {"metadata": {"name": "p", "namespace": "default"}, "status": {"containerStatuses": states}}
        self.pods = [msgspec.convert(pod, Pod)]

    async def list(self, *_: Any, **__: Any) -> Any:
        return Listing(items=self.pods, resource_version="1")


def cluster(*codes: int) -> Cluster:
    return Cluster(client=Pods(*codes), namespace="default")  # type: ignore[arg-type] # only its list is called


async def test_all_are_waited_for_and_each_end_counts_once() -> None:
    first, second = make_job("a", phase="Running"), make_job("b", phase="Queued")
    following = wait._Following([first, second])
    following.look(event="MODIFIED", job=first)
    assert len(following.left) == 2
    for _ in range(2):
        following.look(event="MODIFIED", job=ended("a", "Succeeded"))
    following.look(event="DELETED", job=second)
    await following.all_ended(lambda _: None)
    assert ([job.metadata.name for job in following.ended], following.left) == (["a", "b"], [])


def test_a_job_that_is_gone_before_the_first_list_is_not_waited_for() -> None:
    job = make_job("a", phase="Running")
    following = wait._Following([job])
    following.leave_out({job.metadata.uid})
    assert following.left == [job]
    following.leave_out(set())
    assert (following.left, following.ended) == ([], [job])


@pytest.mark.parametrize(
    ("job", "codes", "said", "code"),
    [
        (ended("a", "Succeeded"), (0,), "Job 7 succeeded.", 0),
        (ended("a", "Failed", "worker 0 exited with code 3"), (0, 3), "Job 7 failed: worker 0 exited with code 3.", 3),
        (ended("a", "Failed"), (), "Job 7 failed.", 1),
        (ended("a", "Cancelled"), (143,), "Job 7 was cancelled.", 1),
        (ended("a", "TimedOut", "ran for 60 s"), (137,), "Job 7 ran out of time: ran for 60 s.", 1),
        (make_job("a", phase="Running"), (), "Job 7 was deleted before it ended.", 1),
    ],
)
async def test_each_end_has_a_sentence_and_a_code(job: GPUJob, codes: tuple[int, ...], said: str, code: int) -> None:
    numbered = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, number=7))
    to = io.StringIO()
    assert await wait._said(cluster(*codes), job=numbered, to=to) == code
    assert to.getvalue() == f"{said}\n"


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_time_that_is_none_is_refused_before_anything_is_asked(seconds: float) -> None:
    with pytest.raises(UsageError, match=r"^--timeout (-1|nan): write a number of seconds, 0 or more$"):
        wait.wait(["7"], timeout_seconds=seconds, kubeconfig="/nonexistent", context=None, namespace=None)

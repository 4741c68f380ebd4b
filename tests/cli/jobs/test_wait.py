"""gjob wait: which jobs are still waited for, and with what it ends."""

import asyncio
import io
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import typer

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail.kube.client import Listing
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.jobs import wait
from dovetail_cli.ui.errors import UsageError
from tests.cli.builders import make_job as cli_job
from tests.core.kube.api import Answer, Api, Stream, line, listing, refusal
from tests.core.query.explain.test_explain import make_job


def ended(name: str, phase: str, message: str = "") -> GPUJob:
    job = make_job(name, phase="Running")
    return msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, phase=phase, message=message))


class Pods:
    """A client that lists pods whose containers ended with these codes."""

    connection = SimpleNamespace(local_data=None)

    def __init__(self, *codes: int) -> None:
        states = [{"state": {"terminated": {"exitCode": code}}} for code in codes]
        pod = {"metadata": {"name": "p", "namespace": "default"}, "status": {"containerStatuses": states}}
        self.pods = [msgspec.convert(pod, Pod)]

    async def list(self, *_: Any, **__: Any) -> Any:
        return Listing(items=self.pods, resource_version="1")


def with_pods(*codes: int) -> Cluster:
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
    assert await wait._said(with_pods(*codes), job=numbered, to=to) == code
    assert to.getvalue() == f"{said}\n"


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_time_that_is_none_is_refused_before_anything_is_asked(seconds: float) -> None:
    with pytest.raises(UsageError, match=r"^--timeout (-1|nan): write a number of seconds, 0 or more$"):
        wait.wait(["7"], timeout_seconds=seconds, kubeconfig="/nonexistent", context=None, namespace=None)


JOBS = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"


def job_of(name: str, **status: Any) -> GPUJob:
    job = cli_job(name, **{"resource_version": "5", **status})
    return msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, uid=f"uid-{name}"))


def object_of(name: str, **status: Any) -> dict[str, Any]:
    found: dict[str, Any] = values_of(job_of(name, **status))
    return found


def submitted(*called: str) -> list[GPUJob]:
    return [job_of(name, number=at, phase="Queued") for at, name in enumerate(called, start=1)]


def of_pods(*codes: int, **labels: str) -> Answer:
    states = [{"name": "main", "state": {"terminated": {"exitCode": code}}} for code in codes]
    meta = {"name": "p", "namespace": "default", "labels": labels}
    pod = {"metadata": meta, "status": {"containerStatuses": states}}
    return Answer(body={"metadata": {"resourceVersion": "1"}, "items": [pod] if codes else []})


async def test_a_wait_follows_all_of_its_jobs_and_says_their_ends_in_the_order_of_the_question(
    api: Api, cluster: Cluster
) -> None:
    first, second = submitted("first", "second")
    api.answer(f"GET {JOBS}", listing(*(object_of(name, number=at, phase="Running") for at, name in ENDING), version=5))
    done = [
        object_of("second", number=2, phase="Succeeded", resource_version="6"),
        object_of("first", number=1, phase="Failed", resource_version="7"),
    ]
    api.answer(f"WATCH {JOBS}", Stream(chunks=[line("MODIFIED", each) for each in done]))
    api.answer("GET /api/v1/namespaces/default/pods", of_pods(3, 0))
    to = io.StringIO()
    async with asyncio.timeout(60):
        assert await wait.until_ended(cluster, jobs=[first, second], to=to) == 3
    assert to.getvalue() == "Job 1 failed.\nJob 2 succeeded.\n"
    (asked,) = api.of("GET /api/v1/namespaces/default/pods")
    assert asked.query["labelSelector"] == f"{names.LABEL_JOB}=first"


ENDING = ((1, "first"), (2, "second"))


async def test_a_job_that_was_made_again_under_its_name_is_another_one(api: Api, cluster: Cluster) -> None:
    (job,) = submitted("first")
    again = object_of("first", number=9, phase="Running")
    again["metadata"]["uid"] = "another"
    api.answer(f"GET {JOBS}", listing(again, version=5))
    to = io.StringIO()
    async with asyncio.timeout(60):
        assert await wait.until_ended(cluster, jobs=[job], to=to) == 1
    assert to.getvalue() == "Job 1 was deleted before it ended.\n"


async def test_after_its_time_a_wait_names_what_goes_on(
    api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def over() -> Iterator[Any]:
        """The time is over at the first look at what is left."""

        def say(_text: str) -> None:
            raise TimeoutError

        yield say

    monkeypatch.setattr(wait, "patiently", over)
    jobs = submitted("first", "second")
    phases = ((1, "first", "Running"), (2, "second", "Succeeded"))
    api.answer(f"GET {JOBS}", listing(*(object_of(n, number=at, phase=p) for at, n, p in phases), version=5))
    assert await wait.until_ended(cluster, jobs=jobs, timeout_seconds=600) == 124
    assert capsys.readouterr().out == "Job 1 has not ended: Running.\n"


async def test_a_wait_of_no_time_says_what_is_known_of_each_job(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answer(f"GET {JOBS}", Answer(released=asyncio.Event()))
    async with asyncio.timeout(60):
        assert await wait.until_ended(cluster, jobs=submitted("first", "second"), timeout_seconds=0) == 124
    assert capsys.readouterr().out == "Job 1 has not ended: Queued.\nJob 2 has not ended: Queued.\n"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (of_pods(1, 7), 7),
        (of_pods(0), 1),
        (of_pods(), 1),
        (refusal(403), 1),
        (of_pods(7, **{names.LABEL_JOB_NUMBER: "4"}), 7),
        # Of an earlier job of its name.
        (of_pods(7, **{names.LABEL_JOB_NUMBER: "3"}), 1),
    ],
)
async def test_the_code_of_a_failed_job_is_its_programs_as_far_as_pods_say(
    api: Api, cluster: Cluster, answer: Answer, code: int
) -> None:
    api.answer("GET /api/v1/namespaces/default/pods", answer)
    assert await wait._exit_code(cluster, job=cli_job("a", phase="Failed", number=4)) == code


async def test_what_is_submitted_with_wait_ends_with_the_jobs_code_and_prints_no_result(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (job,) = submitted("first")
    for phase in ("Failed", "Succeeded"):
        api.answer(f"GET {JOBS}", listing(object_of("first", number=1, phase=phase), version=5))
    api.answer("GET /api/v1/namespaces/default/pods", of_pods(4))
    with pytest.raises(typer.Exit) as ended:
        await wait.then(cluster, job=job)
    assert ended.value.exit_code == 4
    await wait.then(cluster, job=job)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "Job 1 failed.\nJob 1 succeeded.\n")

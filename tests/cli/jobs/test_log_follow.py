"""Following the log of a job: waiting, several workers, restarts, broken streams, the end."""

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail.kube.errors import Forbidden, StatusError
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.jobs.log_follow import LogFollower
from dovetail_cli.ui.errors import CommandError, MissingError
from tests.cli.builders import make_job
from tests.cli.jobs.test_logs import JOBS, PODS, answer_pods, make_worker_pod
from tests.core.kube.api import Answer, Api, Stream, line, refusal

RUNS = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
ENDED = {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 0}}}], "phase": "Succeeded"}


def job_of(phase: str, **status: Any) -> dict[str, Any]:
    job = values_of(make_job(number=7, phase=phase, **status))
    return {**job, "metadata": {**job["metadata"], "uid": "uid-job"}}


def answer_job(api: Api, *states: dict[str, Any], then: str = "silence") -> None:
    first, *later = states
    api.answer(f"GET {JOBS}", Answer(body={"metadata": {"resourceVersion": "1"}, "items": [first]}))
    chunks = [line("MODIFIED", {**state, "metadata": {**state["metadata"], "resourceVersion": f"{at}"}})
              for at, state in enumerate(later, start=2)]  # fmt: skip
    api.answer(f"WATCH {JOBS}", Stream(chunks=chunks))


def changed(pod: dict[str, Any], *, kind: str = "MODIFIED", version: int, **status: Any) -> bytes:
    metadata = {**pod["metadata"], "resourceVersion": str(version)}
    return line(kind, {**pod, "metadata": metadata, "status": {**pod["status"], **status}})


class Reader:
    """Collects what a follower writes."""

    def __init__(self, cluster: Cluster, *, first: dict[str, Any], **options: Any) -> None:
        self.written = b""
        job = msgspec.json.decode(msgspec.json.encode(first), type=GPUJob)
        prefix = (lambda index: f"{index}|") if options.pop("prefixed", False) else (lambda _index: "")
        self.follower = LogFollower(
            cluster, job=job, worker=options.pop("worker", None), tail=options.pop("tail", None),
            write=self.write, prefix=prefix, retry_seconds=0.01,
        )  # fmt: skip

    def write(self, data: bytes) -> None:
        self.written += data


async def test_the_lines_of_all_workers_are_written_until_the_job_ends(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_job(api, job_of("Running"), job_of("Succeeded"))
    answer_pods(api, *(make_worker_pod(f"p{index}", worker=index, **ENDED) for index in (0, 1)))
    api.answer(f"GET {PODS}/p0/log", Stream(chunks=[b"a\nb"], then="end"))
    api.answer(f"GET {PODS}/p1/log", Stream(chunks=[b"c\n"], then="end"))
    reader = Reader(cluster, first=job_of("Running"), prefixed=True)
    await reader.follower.run()
    assert sorted(reader.written.splitlines()) == [b"0|a", b"0|b", b"1|c"]
    assert capsys.readouterr().err == "dovetail: job 7 has ended: Succeeded\n"


async def test_of_one_worker_the_bytes_come_as_they_are(api: Api, cluster: Cluster) -> None:
    answer_job(api, job_of("Succeeded"))
    answer_pods(api, *(make_worker_pod(f"p{index}", worker=index, **ENDED) for index in (0, 1)))
    api.answer(f"GET {PODS}/p1/log", Stream(chunks=[b"2026-11-21T12:00:00Z 5%\r", b"6%\r"], then="end"))
    reader = Reader(cluster, first=job_of("Succeeded"), worker=1, tail=3)
    await reader.follower.run()
    assert reader.written == b"5%\r6%\r"
    (seen,) = api.of(f"GET {PODS}/p1/log")
    assert seen.query == {"container": "main", "tailLines": "3", "follow": "true", "timestamps": "true"}


async def test_a_waiting_job_says_so_once_for_each_reason_and_its_log_follows(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    waits = job_of("Queued", reason="Resources", message="Need 4 GPUs")
    answer_job(api, waits, job_of("Running"), job_of("Succeeded"))
    answer_pods(api)
    pod = make_worker_pod("p0", worker=0, phase="Pending")
    api.answer(
        f"WATCH {PODS}",
        Stream(chunks=[changed(pod, kind="ADDED", version=2), changed(pod, version=3, **ENDED)]),
    )
    api.answer(f"GET {PODS}/p0/log", Stream(chunks=[b"a\n"], then="end"))
    reader = Reader(cluster, first=waits)
    await reader.follower.run()
    said = capsys.readouterr().err.splitlines()
    sentence = "dovetail: job 7 waits: Queued (Resources: Need 4 GPUs); its log follows when it starts"
    assert (said.count(sentence), said[-1]) == (1, "dovetail: job 7 has ended: Succeeded")


async def test_a_broken_stream_continues_where_it_broke(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_job(api, job_of("Succeeded"))
    answer_pods(api, make_worker_pod("p0", worker=0, **ENDED))
    one, two = b"2026-11-21T12:00:00.1Z one\n", b"2026-11-21T12:00:00.2Z two\n"
    api.answer(
        f"GET {PODS}/p0/log",
        Stream(chunks=[one, two[:-2]], then="drop"),
        refusal(503, message="the apiserver is shutting down"),
        Stream(chunks=[one, two], then="end"),
    )
    reader = Reader(cluster, first=job_of("Succeeded"))
    await reader.follower.run()
    assert reader.written == b"one\ntwo\n"
    assert [seen.query.get("sinceTime") for seen in api.of(f"GET {PODS}/p0/log")] == [
        None, "2026-11-21T12:00:00.2Z", "2026-11-21T12:00:00.2Z",
    ]  # fmt: skip
    (broke, ended) = capsys.readouterr().err.splitlines()
    assert broke.startswith("dovetail: the log breaks off: cannot reach the API server at ")
    assert broke.endswith("; trying again")
    assert ended == "dovetail: job 7 has ended: Succeeded"


async def test_a_container_that_starts_again_is_followed_from_its_first_line(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_job(api, job_of("Succeeded"))
    answer_pods(api, make_worker_pod("p0", worker=0, **RUNS))
    again = make_worker_pod("p0", worker=0, containerStatuses=[{**ENDED["containerStatuses"][0], "restartCount": 1}])
    restarted = asyncio.Event()
    api.answer(f"WATCH {PODS}", Answer(body=changed(again, version=2, phase="Succeeded"), released=restarted), Stream())
    api.answer(f"GET {PODS}/p0/log", Stream(chunks=[b"first\n"], then="end"), Stream(chunks=[b"second\n"], then="end"))
    reader = Reader(cluster, first=job_of("Succeeded"), tail=1)
    following = asyncio.create_task(reader.follower.run())
    await api.until(f"GET {PODS}/p0/log", count=1)
    restarted.set()
    await following
    assert reader.written == b"first\nsecond\n"
    assert "dovetail: worker 0 starts again\n" in capsys.readouterr().err
    assert [seen.query.get("tailLines") for seen in api.of(f"GET {PODS}/p0/log")] == ["1", None]


async def test_a_job_that_is_deleted_meanwhile_is_missing(api: Api, cluster: Cluster) -> None:
    answer_job(api, job_of("Running"))
    api._script[f"WATCH {JOBS}"].clear()
    api.answer(f"WATCH {JOBS}", Stream(chunks=[line("DELETED", job_of("Running"))]))
    answer_pods(api)
    with pytest.raises(MissingError, match=r"^job 7 was deleted while its log was followed$"):
        await Reader(cluster, first=job_of("Running")).follower.run()


async def test_a_job_that_ends_and_is_deleted_at_once_has_ended(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_job(api, job_of("Running"))
    api._script[f"WATCH {JOBS}"].clear()
    api.answer(f"WATCH {JOBS}", Stream(chunks=[line("DELETED", job_of("Failed", reason="BackoffLimitExceeded"))]))
    answer_pods(api)
    await Reader(cluster, first=job_of("Running")).follower.run()
    assert capsys.readouterr().err == "dovetail: job 7 has ended: Failed (BackoffLimitExceeded)\n"


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (refusal(403, message="no pods/log for you"), Forbidden, "no pods/log for you"),
        (refusal(500, message="no preferred addresses found"), CommandError, "simulated nodes keep no logs"),
    ],
)
async def test_what_no_later_attempt_mends_ends_the_command(
    api: Api, cluster: Cluster, answer: Answer, error: type[Exception], said: str
) -> None:
    answer_job(api, job_of("Running"))
    answer_pods(api, make_worker_pod("p0", worker=0, **RUNS))
    api.answer(f"GET {PODS}/p0/log", answer)
    with pytest.raises(error, match=said):
        await Reader(cluster, first=job_of("Running")).follower.run()


async def test_a_log_that_kubelet_has_lost_ends_after_some_attempts(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_job(api, job_of("Failed"))
    answer_pods(api, make_worker_pod("p0", worker=0, **ENDED))
    api.answer(f"GET {PODS}/p0/log", *[refusal(502, message="kubelet is away") for _ in range(5)])
    await Reader(cluster, first=job_of("Failed")).follower.run()
    (lost, _) = capsys.readouterr().err.splitlines()
    assert lost == "dovetail: the log breaks off: no log of p0: kubelet is away; trying again"


async def test_a_pod_that_ends_before_its_container_begins_is_named(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_job(api, job_of("Failed"))
    answer_pods(api, make_worker_pod("p0", worker=0, phase="Failed", message="The node was low on resource: memory"))
    await Reader(cluster, first=job_of("Failed")).follower.run()
    assert capsys.readouterr().err.startswith(
        "dovetail: p0 has ended before its container began: The node was low on resource: memory\n"
    )


@pytest.mark.parametrize("what", [JOBS, PODS])
@pytest.mark.parametrize("code", [401, 403, 404])
async def test_what_may_not_be_watched_ends_the_command_and_is_not_tried_for_ever(
    api: Api, cluster: Cluster, what: str, code: int
) -> None:
    answers = {JOBS: Answer(body={"metadata": {"resourceVersion": "1"}, "items": [job_of("Running")]})}
    answers[PODS] = Answer(body={"metadata": {"resourceVersion": "1"}, "items": []})
    for path, answer in answers.items():
        api.answer(f"GET {path}", *[refusal(code) if path == what else answer] * 50)
    reader = Reader(cluster, first=job_of("Running"))
    async with asyncio.timeout(60):
        with pytest.raises(StatusError) as caught:
            await reader.follower.run()
    assert caught.value.code == code

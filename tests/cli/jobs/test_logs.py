"""What a job's workers have printed: read once, or from the history."""

from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import ArraySpec, GPUJob, GPUJobSpec
from dovetail.query.jobs.selection import parse_one
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.jobs import details, logs
from dovetail_cli.jobs.job_view import JobView
from dovetail_cli.ui.errors import CommandError
from tests.cli.builders import ago, make_job
from tests.cli.jobs.test_history import asked, script
from tests.core.kube.api import Answer, Api, refusal
from tests.core.query.jobs.test_records import record

JOBS = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"
PODS = "/api/v1/namespaces/default/pods"


def make_worker_pod(name: str, *, worker: int, created: str = "2026-11-21T12:00:00Z", **status: Any) -> dict[str, Any]:
    annotations = {"batch.kubernetes.io/job-completion-index": str(worker)}
    metadata = {
        "name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": created,
        "annotations": annotations, "resourceVersion": "1",
    }  # fmt: skip
    spec = {"containers": [{"name": "main"}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running", **status}}


def answer_pods(api: Api, *pods: dict[str, Any]) -> None:
    api.answer(f"GET {PODS}", Answer(body={"metadata": {"resourceVersion": "1"}, "items": list(pods)}))


def with_workers(job: GPUJob, *, workers: int) -> GPUJob:
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, workers=workers))


async def test_the_log_is_that_of_the_workers_newest_pod(api: Api, cluster: Cluster) -> None:
    answer_pods(
        api,
        make_worker_pod("new", worker=0, created=ago(hours=1)),
        make_worker_pod("old", worker=0, created=ago(hours=2)),
        make_worker_pod("other", worker=1, created=ago(minutes=1)),
    )
    api.answer(f"GET {PODS}/new/log", Answer(body=b"loss 0.1\n"))
    found = await logs.worker_pod(cluster, job=make_job(phase="Running"), worker=0)
    assert found is not None
    assert await logs._read(cluster, pod=found, tail=5) == b"loss 0.1\n"
    (seen,) = api.of(f"GET {PODS}/new/log")
    assert seen.query == {"container": "main", "tailLines": "5"}


async def test_a_pod_of_an_earlier_job_of_its_name_has_no_log_of_this_one(api: Api, cluster: Cluster) -> None:
    earlier = make_worker_pod("earlier", worker=0)
    earlier["metadata"]["labels"] = {"dovetail.dev/job-number": "3"}
    answer_pods(api, earlier)
    answer_pods(api, earlier)
    assert await logs.worker_pod(cluster, job=make_job(phase="Queued"), worker=0) is None
    assert await logs.worker_pod(cluster, job=make_job(phase="Queued", number=4), worker=0) is None
    view = JobView(cluster, job=make_job(phase="Queued", number=4))
    for pod in (earlier, make_worker_pod("seat", worker=0)):
        view._pods._store[pod["metadata"]["uid"]] = msgspec.convert(pod, Pod)
    assert [pod.metadata.name for pod in view.pods] == ["seat"]


async def test_a_worker_that_cannot_be_is_refused(cluster: Cluster) -> None:
    with pytest.raises(CommandError, match="--worker 3: this job has 1, counted from 0"):
        await logs.worker_pod(cluster, job=make_job(), worker=3)
    with pytest.raises(CommandError, match="--worker 3: this job has 1, counted from 0"):
        logs._check(make_job(), worker=3)


@pytest.mark.parametrize(("worker", "said"), [(None, b"worker 0 | one\nworker 1 | two\n"), (1, b"two")])
async def test_several_workers_are_shown_one_after_another_with_their_names(
    api: Api, cluster: Cluster, capfdbinary: pytest.CaptureFixture[bytes], worker: int | None, said: bytes
) -> None:
    answer_pods(api, make_worker_pod("b", worker=1), make_worker_pod("a", worker=0))
    api.answer(f"GET {PODS}/a/log", Answer(body=b"one\n"))
    api.answer(f"GET {PODS}/b/log", Answer(body=b"two"))
    job = with_workers(make_job(phase="Running"), workers=2)
    chosen = logs._chosen(await logs.newest_pods(cluster, job=job), job=job, worker=worker)
    await logs._read_all(cluster, job=job, pods=chosen, tail=None)
    assert capfdbinary.readouterr().out == said


async def test_a_worker_whose_log_cannot_be_read_hides_no_other(
    api: Api, cluster: Cluster, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    job = with_workers(make_job(phase="Running"), workers=2)
    pods = {index: msgspec.convert(make_worker_pod(f"p{index}", worker=index), Pod) for index in (0, 1)}
    api.answer(f"GET {PODS}/p0/log", refusal(400, message="container creating"))
    api.answer(f"GET {PODS}/p1/log", Answer(body=b"two\n"))
    with pytest.raises(CommandError, match=r"^no log of p0: container creating$"):
        await logs._read_all(cluster, job=job, pods=pods, tail=None)
    assert capfdbinary.readouterr().out == b"worker 1 | two\n"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("container creating", "no log of x: container creating"),
        ("no preferred addresses found; known addresses: [{Hostname v100-0}]", "simulated nodes keep no logs"),
    ],
)
async def test_a_log_that_kubelet_does_not_give_is_a_sentence(
    api: Api, cluster: Cluster, message: str, told: str
) -> None:
    api.answer(f"GET {PODS}/x/log", refusal(500, message=message))
    found = msgspec.convert(make_worker_pod("x", worker=0), Pod)
    with pytest.raises(CommandError, match=told):
        await logs._read(cluster, pod=found, tail=None)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (
            make_job(number=7, phase="Queued", reason="Resources", message="Need 4 GPUs"),
            r"job 7 has no worker now, and so no log: Queued \(Resources: Need 4 GPUs\)",
        ),
        (make_job("fresh"), "job fresh has no worker now, and so no log: Queued$"),
    ],
)
def test_a_job_that_has_printed_nothing_says_why(job: GPUJob, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        logs._chosen({}, job=job, worker=None)


def test_a_worker_without_a_pod_is_named() -> None:
    job = with_workers(make_job(number=7, phase="Running"), workers=2)
    pods = {0: msgspec.convert(make_worker_pod("a", worker=0), Pod)}
    with pytest.raises(CommandError, match=r"^job 7 has no worker 1 now, and so no log: Running$"):
        logs._chosen(pods, job=job, worker=1)


def test_an_array_has_no_log_of_its_own() -> None:
    array = msgspec.structs.replace(make_job(number=7), spec=GPUJobSpec(gpu="1", array=ArraySpec(indexes="0-3")))
    with pytest.raises(CommandError, match="job 7 is many tasks, and each has a log of its own"):
        logs._check(array, worker=None)


@pytest.mark.parametrize(
    ("tail", "said"), [(None, b"one\ntwo\nthree\n"), (2, b"two\nthree\n"), (9, b"one\ntwo\nthree\n"), (0, b"")]
)
async def test_of_pods_that_are_gone_the_last_lines_are_kept(
    api: Api, cluster: Cluster, capfdbinary: pytest.CaptureFixture[bytes], tail: int | None, said: bytes
) -> None:
    kept = values_of(record(log="one\ntwo\nthree\n"))
    script(api, asked(answered=True, records=[kept]))
    wanted = parse_one("job-1", field="JOB")
    logs._tell(await details.remembered(cluster, wanted=wanted, logs=True), wanted=wanted, tail=tail)
    assert capfdbinary.readouterr().out == said
    assert api.of("POST " + JOBS.replace("gpujobs", "historyqueries"))[0].body["spec"]["logs"] is True

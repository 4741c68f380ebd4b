"""Submitting against an API server that plays its part from a script."""

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml

from dovetail import names
from dovetail.answers.submission import answer_of
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, QueuePlace, ResourceRequest
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit import create, submit
from dovetail_cli.ui.errors import CommandError, UsageError
from tests.cli.builders import make_job
from tests.core.kube.api import Answer, Api

JOBS = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TAKEN = Answer(status=409, body={"code": 409, "reason": "AlreadyExists", "message": "there is one"})


def wire(job: GPUJob) -> dict[str, Any]:
    found: dict[str, Any] = values_of(job)
    return found


async def test_a_job_is_created_under_its_name(api: Api, cluster: Cluster) -> None:
    api.answer(f"POST {JOBS}", Answer(body=wire(make_job("train"))))
    created = await create.create(cluster, job=make_job("train"))
    (request,) = api.of(f"POST {JOBS}")
    assert created.metadata.name == request.body["metadata"]["name"] == "train"
    assert "status" not in request.body


async def test_a_name_that_is_taken_gets_a_number(api: Api, cluster: Cluster) -> None:
    api.answer(f"POST {JOBS}", TAKEN, TAKEN, Answer(body=wire(make_job("train-3"))))
    assert (await create.create(cluster, job=make_job("train"))).metadata.name == "train-3"
    assert [seen.body["metadata"]["name"] for seen in api.of(f"POST {JOBS}")] == ["train", "train-2", "train-3"]
    assert {seen.body["metadata"]["generateName"] for seen in api.of(f"POST {JOBS}")} == {"train-"}


async def test_a_dry_run_says_so_to_the_api_server(api: Api, cluster: Cluster) -> None:
    api.answer(f"POST {JOBS}", Answer(body=wire(make_job("train"))))
    await create.create(cluster, job=make_job("train"), dry_run=True)
    assert api.of(f"POST {JOBS}")[0].query["dryRun"] == "All"


async def test_the_manifest_of_a_dry_run_is_in_the_version_that_people_write(api: Api, cluster: Cluster) -> None:
    api.answer(f"POST {JOBS}", Answer(body=wire(make_job("train"))))
    shown = yaml.safe_load(
        await submit._checked(make_job("train"), attached=[], profile=None, cluster=cluster, form="yaml")
    )
    assert (shown["apiVersion"], shown["metadata"]["name"]) == ("dovetail.dev/v1beta1", "train")
    assert api.of(f"POST {JOBS}")[0].body["apiVersion"] == "dovetail.dev/v1beta1"


def seen(job: GPUJob) -> Answer:
    return Answer(body=wire(job))


def replaced(uid: str) -> GPUJob:
    job = make_job("train")
    return msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, uid=uid))


def decided(reason: str = "", message: str = "", *, phase: str = "Queued", gpu: str = "1", **status: Any) -> GPUJob:
    job = make_job("train", number=42, phase=phase, reason=reason, message=message, **status)
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, gpu=gpu))


async def test_the_number_is_the_one_that_the_operator_writes(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {JOBS}/train", seen(make_job("train")), seen(make_job("train", number=42)))
    assert (await create.until_numbered(cluster, job=make_job("train"), seconds=10)).status.number == 42


async def test_without_an_operator_the_wait_ends_with_a_hint(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {JOBS}/train", *[seen(make_job("train"))] * 50)
    with pytest.raises(CommandError, match=r'"train" is submitted, but .* is dovetail-operator running\?'):
        await create.until_numbered(cluster, job=make_job("train"), seconds=0.05)


@pytest.mark.parametrize(
    "answer", [Answer(status=404, body={"code": 404, "reason": "NotFound"}), seen(replaced("another"))]
)
async def test_a_job_that_is_deleted_meanwhile_ends_the_wait(api: Api, cluster: Cluster, answer: Answer) -> None:
    api.answer(f"GET {JOBS}/train", answer)
    with pytest.raises(CommandError, match="was deleted before the queue answered"):
        await create.until_numbered(cluster, job=make_job("train"), seconds=10)


async def test_the_answer_is_the_queues_first_decision(api: Api, cluster: Cluster) -> None:
    undecided, waits = decided("Evaluating"), decided("Resources", "Need 1 GPU, only 0 available")
    api.answer(f"GET {JOBS}/train", seen(undecided), seen(waits))
    answer = await create.until_answered(cluster, job=undecided, seconds=10)
    assert answer is not None
    assert answer.text == "It waits. Resources: Need 1 GPU, only 0 available."


@pytest.mark.parametrize(("on_terminal", "looks"), [(False, 1), (True, 3)])
async def test_on_a_terminal_a_job_that_waits_gets_its_estimate_too(
    api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, on_terminal: bool, looks: int
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: on_terminal)
    soon = QueuePlace(position=1, estimated_start="2100-01-01T00:00:00Z", basis="x")
    waits, foreseen = decided("Resources", "Need 1 GPU"), decided("Resources", "Need 1 GPU", queue=soon)
    api.answer(f"GET {JOBS}/train", seen(waits), seen(waits), seen(foreseen))
    answer = await create.until_answered(cluster, job=decided("Evaluating"), seconds=10)
    assert answer is not None
    assert (answer.outcome, answer.start is not None) == ("Waits", on_terminal)
    assert len(api.of(f"GET {JOBS}/train")) == looks


async def test_on_a_terminal_an_estimate_that_does_not_come_in_time_is_left_out(
    api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    waits = decided("Resources", "Need 1 GPU")
    api.answer(f"GET {JOBS}/train", *[seen(waits)] * 50)
    answer = await create.until_answered(cluster, job=waits, seconds=0.05)
    assert answer is not None
    assert (answer.outcome, answer.start) == ("Waits", None)


async def test_a_queue_that_has_not_decided_in_time_gives_no_answer(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {JOBS}/train", *[seen(decided("Evaluating"))] * 50)
    assert await create.until_answered(cluster, job=decided("Evaluating"), seconds=0.05) is None


NEVER = "Need 2 GPUs, only 0 available: no node has model V10, there is V100"


@pytest.mark.parametrize(
    ("end", "said"), [("", f"{NEVER}. To run"), ('; did you mean "V100"?', f'{NEVER}; did you mean "V100"? To run')]
)
async def test_a_job_that_could_never_start_is_withdrawn_and_refused(
    api: Api, cluster: Cluster, end: str, said: str
) -> None:
    job = decided("ExceedsCapacity", NEVER + end)
    api.answer(f"PATCH {JOBS}/train", seen(job))
    api.answer(f"DELETE {JOBS}/train", Answer())
    with pytest.raises(CommandError) as refused:
        await create.refuse_if_hopeless(cluster, job=job, answer=answer_of(job, now=NOW))
    assert str(refused.value).startswith(f"not queued, it could never start here: {said}")
    assert "--cpu-fallback" in str(refused.value)
    assert "--wait-for-capacity" in str(refused.value)
    assert refused.value.exit_code == 1
    marked, deleted = api.of(f"PATCH {JOBS}/train")[0].body, api.of(f"DELETE {JOBS}/train")[0].body
    assert marked["metadata"] == {"uid": job.metadata.uid, "annotations": {names.REFUSED: "true"}}
    assert deleted["preconditions"] == {"uid": job.metadata.uid}


async def test_a_job_without_gpus_that_could_never_start_is_not_sent_to_the_cpu(api: Api, cluster: Cluster) -> None:
    job = decided("ExceedsCapacity", "no node has 10 TiB of memory")
    on_cpu = msgspec.structs.replace(job.spec, gpu=None, resources=ResourceRequest(device="cpu"))
    job = msgspec.structs.replace(job, spec=on_cpu)
    api.answer(f"PATCH {JOBS}/train", seen(job))
    api.answer(f"DELETE {JOBS}/train", Answer())
    with pytest.raises(CommandError) as refused:
        await create.refuse_if_hopeless(cluster, job=job, answer=answer_of(job, now=NOW))
    assert str(refused.value) == (
        "not queued, it could never start here: no node has 10 TiB of memory. "
        "To queue it until there is such a node: --wait-for-capacity"
    )


async def test_on_one_s_own_machine_no_node_is_to_come(api: Api, cluster: Cluster, tmp_path: Path) -> None:
    connection = replace(cluster.client.connection, local_data=tmp_path)
    here = Cluster(
        client=SimpleNamespace(patch=cluster.client.patch, delete=cluster.client.delete, connection=connection),
        namespace="default",
    )  # type: ignore[arg-type] # all that is asked of it
    job = decided("ExceedsCapacity", "Need 100 CPUs: the largest request that fits this machine is 2")
    on_cpu = msgspec.structs.replace(job.spec, gpu=None, resources=ResourceRequest(device="cpu"))
    job = msgspec.structs.replace(job, spec=on_cpu)
    api.answer(f"PATCH {JOBS}/train", seen(job))
    api.answer(f"DELETE {JOBS}/train", Answer())
    with pytest.raises(CommandError) as refused:
        await create.refuse_if_hopeless(here, job=job, answer=answer_of(job, now=NOW))
    assert str(refused.value) == (
        "not queued, it could never start here: Need 100 CPUs: the largest request that fits this machine is 2. "
        "To queue it all the same: --wait-for-capacity"
    )


async def test_a_job_that_may_not_be_annotated_is_withdrawn_all_the_same(api: Api, cluster: Cluster) -> None:
    job = decided("ExceedsCapacity", NEVER)
    api.answer(f"PATCH {JOBS}/train", Answer(status=403, body={"code": 403, "reason": "Forbidden"}))
    api.answer(f"DELETE {JOBS}/train", Answer())
    with pytest.raises(CommandError, match=r"^not queued, it could never start here: "):
        await create.refuse_if_hopeless(cluster, job=job, answer=answer_of(job, now=NOW))
    assert len(api.of(f"DELETE {JOBS}/train")) == 1


async def test_a_job_that_cannot_be_withdrawn_is_named(api: Api, cluster: Cluster) -> None:
    job = decided("ExceedsCapacity", NEVER)
    api.answer(f"PATCH {JOBS}/train", seen(job))
    api.answer(f"DELETE {JOBS}/train", Answer(status=403, body={"code": 403, "message": "you may not"}))
    with pytest.raises(CommandError, match=r"^job 42 can never start here: .* \(It stays: you may not\)$"):
        await create.refuse_if_hopeless(cluster, job=job, answer=answer_of(job, now=NOW))


@pytest.mark.parametrize(
    "job", [decided("Resources", "Need 1"), decided("ExceedsCapacity", NEVER, gpu="3g.20gb"), decided("Evaluating")]
)
async def test_a_job_that_may_start_some_day_stays(cluster: Cluster, job: GPUJob) -> None:
    await create.refuse_if_hopeless(cluster, job=job, answer=answer_of(job, now=NOW))


BATCH = "/apis/batch/v1/namespaces/default/jobs/train"


@pytest.mark.parametrize("owners", [[], [{"kind": "CronJob", "apiVersion": "batch/v1", "name": "t", "uid": "u"}]])
async def test_the_name_of_another_batch_job_is_refused(api: Api, cluster: Cluster, owners: list[Any]) -> None:
    api.answer(f"GET {BATCH}", Answer(body={"metadata": {"name": "train", "ownerReferences": owners}}))
    with pytest.raises(UsageError, match=r'^--name "train": namespace default has a batch Job of this name'):
        await create.check_free(cluster, name="train")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(status=404, body={"code": 404, "reason": "NotFound"}),
        Answer(status=403, body={"code": 403, "reason": "Forbidden"}),
        Answer(
            body={"metadata": {"ownerReferences": [{"kind": "GPUJob", "apiVersion": "v1", "name": "t", "uid": "u"}]}}
        ),
    ],
)
async def test_a_free_name_and_that_of_an_own_job_are_not(api: Api, cluster: Cluster, answer: Answer) -> None:
    api.answer(f"GET {BATCH}", answer)
    await create.check_free(cluster, name="train")


def test_standard_output_has_the_number_alone() -> None:
    assert create.submitted(make_job("train", number=42), form="table") == "Submitted batch job 42"


def test_a_simulated_job_says_so_without_a_number_that_a_script_could_take(capsys: pytest.CaptureFixture[str]) -> None:
    create.announce(make_job("train", number=42, simulated=True), answer=None)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "dovetail: simulated: the nodes of this cluster run nothing.\n")


def test_on_a_terminal_the_name_is_said_and_how_to_run_jobs_for_real(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    create.announce(make_job("train", number=42, simulated=True), answer=None)
    name, undecided, simulated = capsys.readouterr().err.splitlines()
    assert name == "Its name is train."
    assert undecided == "The queue has not decided yet: dovetail explain 42"
    assert simulated.endswith("To run jobs on this machine: gflowd down, then gflowd up.")


def test_the_answer_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    job = decided("Resources", "Need 1 GPU, only 0 available")
    create.announce(job, answer=answer_of(job, now=NOW))
    assert capsys.readouterr() == ("", "It waits. Resources: Need 1 GPU, only 0 available.\n")


@pytest.mark.parametrize(("waits", "said"), [(False, "It is cancelled. "), (True, "")])
def test_a_job_that_ends_with_its_dependency_says_so(
    *, waits: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = decided("DependencyFailed", "A dependency cannot be met: job 7 (a) did not succeed")
    create.announce(job, answer=answer_of(job, now=NOW), waits_on_failure=waits)
    assert capsys.readouterr().err == (
        f"{said}DependencyFailed: A dependency cannot be met: job 7 (a) did not succeed.\n"
    )


def test_a_job_that_really_runs_says_nothing_where_no_one_reads(capsys: pytest.CaptureFixture[str]) -> None:
    create.announce(make_job("train", number=42), answer=None)
    assert capsys.readouterr() == ("", "")

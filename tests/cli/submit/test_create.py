"""Submitting against an API server that plays its part from a script."""

import sys
from typing import Any

import msgspec
import pytest
import yaml

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit import create, submit
from dovetail_cli.ui.errors import CommandError
from tests.cli.builders import make_job
from tests.core.kube.api import Answer, Api, Stream

JOBS = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"
TAKEN = Answer(status=409, body={"code": 409, "reason": "AlreadyExists", "message": "there is one"})


def wire(job: GPUJob) -> dict[str, Any]:
    found: dict[str, Any] = values_of(job)
    return found


def listing(*jobs: GPUJob) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "1"}, "items": [wire(job) for job in jobs]})


def event(kind: str, job: GPUJob) -> bytes:
    return msgspec.json.encode({"type": kind, "object": wire(job)}) + b"\n"


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


async def test_the_number_is_the_one_that_the_operator_writes(api: Api, cluster: Cluster) -> None:
    numbered = make_job("train", number=42, resource_version="2")
    api.answer(f"GET {JOBS}", listing(make_job("train")))
    api.answer(f"WATCH {JOBS}", Stream(chunks=[event("MODIFIED", numbered)]))
    assert (await create.until_numbered(cluster, job=make_job("train"), seconds=10)).status.number == 42
    assert api.of(f"GET {JOBS}")[0].query["fieldSelector"] == "metadata.name=train"


async def test_without_an_operator_the_wait_ends_with_a_hint(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {JOBS}", listing(make_job("train")))
    with pytest.raises(CommandError, match=r'"train" is submitted, but .* is dovetail-operator running\?'):
        await create.until_numbered(cluster, job=make_job("train"), seconds=0.05)


async def test_a_job_that_is_deleted_meanwhile_ends_the_wait(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {JOBS}", listing(make_job("train")))
    api.answer(f"WATCH {JOBS}", Stream(chunks=[event("DELETED", make_job("train"))]))
    with pytest.raises(CommandError, match="was deleted before it got a number"):
        await create.until_numbered(cluster, job=make_job("train"), seconds=10)


def test_standard_output_has_the_number_alone() -> None:
    assert create.submitted(make_job("train", number=42), form="table") == "Submitted batch job 42"


def test_a_simulated_job_says_so_without_a_number_that_a_script_could_take(capsys: pytest.CaptureFixture[str]) -> None:
    create.announce(make_job("train", number=42, simulated=True))
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "dovetail: simulated: the nodes of this cluster run nothing.\n")


def test_on_a_terminal_the_name_is_said_and_how_to_run_jobs_for_real(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    create.announce(make_job("train", number=42, simulated=True))
    name, simulated = capsys.readouterr().err.splitlines()
    assert name == "Its name is train."
    assert simulated.endswith("To run jobs on this machine: gflowd down, then gflowd up.")


def test_a_job_that_really_runs_says_nothing_where_no_one_reads(capsys: pytest.CaptureFixture[str]) -> None:
    create.announce(make_job("train", number=42))
    assert capsys.readouterr() == ("", "")

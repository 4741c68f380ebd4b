"""The session of gbatch --interactive: it waits, it attaches, and its end is the job's end."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.cluster.kubectl import Kubectl
from dovetail_cli.jobs import session
from dovetail_cli.ui.errors import CommandError
from tests.cli.builders import make_job, make_pod
from tests.core.kube.api import Answer, Api

JOB = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs/shell"
PODS = "GET /api/v1/namespaces/default/pods"


def answer(job: GPUJob) -> Answer:
    return Answer(body=values_of(job))


QUEUED = answer(make_job("shell", number=7, phase="Queued", reason="Resources", message="Need 2 GPUs"))
RUNNING = answer(make_job("shell", number=7, phase="Running"))
ENDED = answer(make_job("shell", number=7, phase="Succeeded"))
FAILED = answer(make_job("shell", number=7, phase="Failed"))
NO_PODS = Answer(body={"metadata": {}, "items": []})
ONE_POD = Answer(body={"metadata": {}, "items": [values_of(make_pod("shell-0", phase="Running"))]})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_POLL_SECONDS", 0.01)


def program(tmp_path: Path, text: str) -> Kubectl:
    """A program that notes how it was called, where kubectl would be the terminal."""
    path = tmp_path / "kubectl"
    path.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/called\n{text}\n')
    path.chmod(0o755)
    return Kubectl(program=str(path))


async def hold(cluster: Cluster, kubectl: Kubectl, *, with_terminal: bool = False) -> None:
    await session.hold(cluster, job=make_job("shell", number=7), program=kubectl, with_terminal=with_terminal)


async def test_it_waits_attaches_and_ends_with_the_job(
    api: Api, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answer(f"GET {JOB}", QUEUED, QUEUED, RUNNING, RUNNING, ENDED)
    api.answer(PODS, NO_PODS, NO_PODS, ONE_POD)
    await hold(cluster, program(tmp_path, "exit 0"), with_terminal=True)
    assert (tmp_path / "called").read_text() == "attach -i -t -n default -c main shell-0\n"
    assert capsys.readouterr().err == "dovetail: job 7: Queued (Resources: Need 2 GPUs); Ctrl-C cancels it\n"
    assert api.of(f"PATCH {JOB}") == []


async def test_a_job_that_outlives_its_session_is_cancelled(
    api: Api, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "_END_SECONDS", 0.05)
    api.answer(f"GET {JOB}", *[RUNNING] * 100)
    api.answer(PODS, ONE_POD)
    api.answer(f"PATCH {JOB}", RUNNING)
    await hold(cluster, program(tmp_path, "exit 1"))
    assert (tmp_path / "called").read_text() == "attach -i -q -n default -c main shell-0\n"
    assert [seen.body for seen in api.of(f"PATCH {JOB}")] == [{"spec": {"cancel": True}}]
    assert capsys.readouterr().err == "dovetail: job 7 cancelled\n"


async def test_a_job_that_ends_before_it_runs_is_told(api: Api, cluster: Cluster, tmp_path: Path) -> None:
    api.answer(f"GET {JOB}", FAILED, FAILED)
    with pytest.raises(CommandError, match=r"job 7 has ended before its terminal was ready \(Failed\): `gjob show 7`"):
        await hold(cluster, program(tmp_path, "exit 0"))
    gone = Answer(status=404, body={"code": 404, "reason": "NotFound", "message": "no"})
    api.answer(f"GET {JOB}", gone, gone)
    with pytest.raises(CommandError, match="job 7 was deleted before its terminal was ready"):
        await hold(cluster, program(tmp_path, "exit 0"))


async def test_a_closed_terminal_cancels_the_job(api: Api, cluster: Cluster, tmp_path: Path) -> None:
    api.answer(f"GET {JOB}", *[RUNNING] * 100)
    api.answer(PODS, ONE_POD)
    api.answer(f"PATCH {JOB}", RUNNING)
    kubectl = program(tmp_path, "exec sleep 60")
    holding = asyncio.create_task(hold(cluster, kubectl))
    async with asyncio.timeout(60):
        while not (tmp_path / "called").exists():  # noqa: ASYNC110 - another program writes it
            await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGHUP)
    with pytest.raises(CommandError, match=r"^SIGHUP ended the session, and with it the job$"):
        await holding
    assert len(api.of(f"PATCH {JOB}")) == 1


def test_without_kubectl_nothing_is_submitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match="gbatch --interactive runs kubectl, and there is none on PATH"):
        session.prepare(kubeconfig=None, context=None)

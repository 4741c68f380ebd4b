"""gjob fetch: which path is meant, and what is said of files that are gone."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, spec_of, template_of
from dovetail_cli.cluster import kubectl
from dovetail_cli.jobs import fetch
from dovetail_cli.submit.workdir import files_pod
from dovetail_cli.ui.errors import CommandError, UsageError
from tests.cli.builders import make_job
from tests.cli.jobs.test_logs import make_worker_pod
from tests.cli.ui.test_live_screen import KUBECONFIG
from tests.core.kube.api import Answer, Api


def job(**container: object) -> GPUJob:
    plain = make_job("train")
    template = template_of({"containers": [{"name": "main", "image": "train:1", **container}]})
    return msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, template=template))


@pytest.mark.parametrize(
    ("path", "found"),
    [(".", "/data/runs/x"), ("out/r.txt", "/data/runs/x/out/r.txt"), ("/data/y/", "/data/y"), ("../y", "/data/runs/y")],
)
def test_a_path_is_relative_to_the_jobs_directory(path: str, found: str) -> None:
    assert fetch.absolute(path, job=job(workingDir="/data/runs/x")) == found


def test_a_path_that_cannot_be_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r'PATH "\.": the job names no working directory: write an absolute path'):
        fetch.absolute(".", job=job())
    with pytest.raises(UsageError, match='PATH "/": write a file or folder of the container'):
        fetch.absolute("/", job=job())


def test_the_pod_that_reads_a_volume_has_the_jobs_claims_and_nothing_else() -> None:
    with_claim = job(
        volumeMounts=[{"name": "v", "mountPath": "/data"}, {"name": "cache", "mountPath": "/cache"}],
        resources={"requests": {"cpu": "64"}},
        securityContext={"runAsUser": 1000},
    )
    spec = spec_of(with_claim.spec.template) | {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "cache", "emptyDir": {}}],
        "tolerations": [{"operator": "Exists"}],
        "serviceAccountName": "powerful",
    }
    body = files_pod.manifest(
        msgspec.structs.replace(with_claim, spec=msgspec.structs.replace(with_claim.spec, template=template_of(spec)))
    )
    (container,) = body["spec"]["containers"]
    assert container["volumeMounts"] == [{"name": "v", "mountPath": "/data"}]
    assert (container["image"], container["securityContext"]) == ("train:1", {"runAsUser": 1000})
    assert [each["name"] for each in body["spec"]["volumes"]] == ["v"]
    assert body["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert "resources" not in container
    assert "serviceAccountName" not in body["spec"]
    assert body["spec"]["automountServiceAccountToken"] is False


def test_why_a_pod_does_not_run_is_its_containers_or_its_conditions_word() -> None:
    waiting = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}}]}
    assert files_pod.why_not({"status": waiting}) == "ImagePullBackOff: no image"
    unscheduled = {"conditions": [{"status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]}
    assert files_pod.why_not({"status": unscheduled}) == "Unschedulable: 0/1 nodes"
    assert files_pod.why_not({}) == "its status says no more"


CHANGED = "tar: out.txt: file changed as we read it"


@pytest.mark.parametrize(
    ("said", "is_whole"),
    [
        ([CHANGED], True),
        ([CHANGED, "tar: a: File removed before we read it"], True),
        ([CHANGED, "tar: secret: Cannot open: Permission denied"], False),
        (["tar: secret: Cannot open: Permission denied"], False),
        ([], False),
    ],
)
def test_files_that_are_missing_are_an_error_and_those_that_are_written_to_are_not(
    tmp_path: Path, said: list[str], is_whole: bool
) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from/out.txt").write_text("1")
    script = 'tar -czf - -C "$1" out.txt; shift; for line; do echo "$line" >&2; done; exit 1'
    command = ["sh", "-c", script, "sh", str(tmp_path / "from"), *said]
    if is_whole:
        assert fetch._receive(command, into=tmp_path / "to") == 1
    else:
        with pytest.raises(kubectl.FailedError):
            fetch._receive(command, into=tmp_path / "to")


def with_volume(**status: Any) -> GPUJob:
    """A job whose directory /data is on a volume."""
    made = make_job("train", **status)
    container = {
        "name": "main", "image": "train:1", "workingDir": "/data/runs",
        "volumeMounts": [{"name": "v", "mountPath": "/data"}],
    }  # fmt: skip
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    template = template_of({"containers": [container], "volumes": [volume]})
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, template=template))


PODS = "GET /api/v1/namespaces/default/pods"
JOBS = "GET /apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"


def answered(api: Api, job: GPUJob, *pods: dict[str, Any]) -> None:
    api.answer(JOBS, Answer(body={"metadata": {"resourceVersion": "1"}, "items": [values_of(job)]}))
    api.answer(PODS, Answer(body={"metadata": {"resourceVersion": "1"}, "items": list(pods)}))


@pytest.fixture
def in_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """kubectl that runs the command of `exec` here, below a folder that is the container's; it notes its words."""
    (tmp_path / "bin").mkdir()
    root = tmp_path / "container"
    for path in ("data/runs/out", "else"):
        (root / path).mkdir(parents=True)
    (root / "data/runs/out/r.txt").write_text("1")
    (root / "data/runs/log").write_text("2")
    program = tmp_path / "bin" / "kubectl"
    script = f'echo "$@" > {tmp_path}/words\nwhile [ "$1" != -- ]; do shift; done; shift\n'
    # The path after -C is the container's.
    script += f'[ "$4" = -C ] && set -- "$1" "$2" "$3" -C "{root}$5" "${{@:6}}"\nexec "$@"\n'
    program.write_text(f"#!/bin/bash\n{script}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def fetched(api: Api, folder: Path, *, path: str, to: str | None = None, worker: int = 0) -> str:
    file = folder / "kubeconfig"
    file.write_text(KUBECONFIG.format(url=api.url))
    return await asyncio.to_thread(
        fetch.fetch, "train", path=path, to=to, worker=worker, kubeconfig=str(file), context=None, namespace=None
    )


@pytest.mark.parametrize(
    ("path", "to", "files", "said"),
    [
        ("out", "here", ["out/r.txt"], "1 file of /data/runs/out in here"),
        ("out/r.txt", "here", ["r.txt"], "1 file of /data/runs/out/r.txt in here"),
        (".", "here", ["log", "out/r.txt"], "2 files of /data/runs in here"),
        (".", None, ["log", "out/r.txt"], "2 files of /data/runs in job-7"),
    ],
)
async def test_files_of_a_running_job_come_from_its_own_container(
    api: Api, in_container: Path, path: str, to: str | None, files: list[str], said: str
) -> None:
    answered(api, with_volume(number=7, phase="Running"), make_worker_pod("train-0", worker=0))
    assert await fetched(api, in_container, path=path, to=to) == said
    target = in_container / (to or "job-7")
    assert sorted(str(each.relative_to(target)) for each in target.rglob("*") if each.is_file()) == files
    words = (in_container / "words").read_text()
    assert "exec -n default -c main train-0 -- tar" in words


@pytest.mark.parametrize(
    ("job", "path", "why"),
    [
        (with_volume(number=7, phase="Succeeded"), "/else", "has ended (Succeeded), and /else was on no volume"),
        (with_volume(number=7, phase="Queued"), "/else", "job 7 does not run (Queued), so there is nothing to fetch"),
    ],
)
async def test_files_that_no_pod_has_any_more_are_lost(
    api: Api, in_container: Path, job: GPUJob, path: str, why: str
) -> None:
    pods = [] if job.status.phase == "Queued" else [make_worker_pod("train-0", worker=0, phase="Succeeded")]
    answered(api, job, *pods)
    with pytest.raises(CommandError) as caught:
        await fetched(api, in_container, path=path)
    assert why in str(caught.value)
    assert not (in_container / "words").exists()


async def test_what_a_finished_job_left_on_a_volume_is_read_by_a_pod_with_its_claims(
    api: Api, in_container: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = list[str]()

    @asynccontextmanager
    async def files_pod_of(_cluster: Any, *, job: GPUJob) -> AsyncIterator[str]:
        held.append(job.metadata.name)
        yield "files-pod"
        held.append("gone")

    monkeypatch.setattr(fetch, "files_pod", files_pod_of)
    answered(api, with_volume(number=7, phase="Succeeded"), make_worker_pod("train-0", worker=0, phase="Succeeded"))
    assert await fetched(api, in_container, path="out") == "1 file of /data/runs/out in job-7"
    assert held == ["train", "gone"]
    assert f"-c {files_pod.CONTAINER} files-pod -- tar" in (in_container / "words").read_text()


def test_members_that_stay_are_named_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "a").write_text("1")
    for at in range(5):
        (tmp_path / "from" / f"link-{at}").symlink_to("a")
    command = ["tar", "-czf", "-", "-C", str(tmp_path / "from"), "."]
    assert fetch._receive(command, into=tmp_path / "to") == 1
    said = capsys.readouterr().err
    assert said.startswith("dovetail: left out: ")
    assert (said.count("(it is a link)"), said.endswith("; and 2 more\n")) == (3, True)


def test_the_words_of_a_command_that_failed_come_before_its_broken_archive(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo 'container not found' >&2; exit 1"]
    with pytest.raises(kubectl.FailedError, match="container not found"):
        fetch._receive(command, into=tmp_path / "to")
    with pytest.raises(CommandError, match="the container sent no whole archive"):
        fetch._receive(["sh", "-c", "echo no archive"], into=tmp_path / "to")

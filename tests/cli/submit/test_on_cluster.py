"""What a submission gets on a cluster: profile, files for its output, and the directory; and on which clusters not."""

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.api.gpujob import spec_of
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.errors import StatusError
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit import manifest, on_cluster
from dovetail_cli.submit.local import Local
from dovetail_cli.submit.manifest import Submission
from dovetail_cli.submit.on_cluster import Asked, Prepared
from dovetail_cli.submit.workdir.directory import Directory
from dovetail_cli.ui.errors import CommandError
from tests.core.kube.api import Answer, Api

DEFAULTS = "GET /api/v1/namespaces/default/configmaps/dovetail-profile"
JOBS = "POST /apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"
PLAIN = Submission(name="train", command=["python", "train.py"], request=None, image="train:1")


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(folder)
    return folder


async def prepare(
    api: Api,
    cluster: Cluster,
    *,
    defaults: str = "",
    submission: Submission = PLAIN,
    asked: Asked | None = None,
    files: Local | None = None,
) -> Prepared:
    api.answer(DEFAULTS, Answer(body={"metadata": {"name": "dovetail-profile"}, "data": {"profile.yaml": defaults}}))
    return await on_cluster.prepare(submission, asked=asked or Asked(), files=files or Local(), cluster=cluster)


async def test_the_directory_goes_along(api: Api, cluster: Cluster, work: Path) -> None:
    assert await prepare(api, cluster) == Prepared(submission=PLAIN, directory=work)


@pytest.mark.parametrize(
    ("defaults", "upload", "goes"),
    [("upload: false", None, False), ("upload: false", True, True), ("upload: true", False, False), ("", None, True)],
)
async def test_the_option_counts_over_the_profile(
    api: Api, cluster: Cluster, defaults: str, upload: bool | None, goes: bool
) -> None:
    found = await prepare(api, cluster, defaults=defaults, asked=Asked(upload=upload))
    assert (found.directory is not None) == goes


async def test_a_job_with_a_working_directory_of_its_image_stays_there(api: Api, cluster: Cluster) -> None:
    found = await prepare(api, cluster, submission=replace(PLAIN, workdir="/app"), defaults="workdir: /data/runs")
    assert (found.submission.workdir, found.directory) == ("/app", None)


async def test_a_home_directory_stays_and_it_says_so(
    api: Api, cluster: Cluster, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(work))
    assert (await prepare(api, cluster)).directory is None
    assert capsys.readouterr().err.startswith(f"dovetail: {work} does not go along: type gbatch in the program's own")


async def test_output_goes_to_files_too(api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    found = await prepare(api, cluster, files=Local(output="a.log", export="ALL"))
    assert found.submission.command[0] == "/bin/sh"
    assert list(found.submission.command[-2:]) == ["python", "train.py"]
    assert capsys.readouterr().err == "dovetail: --export is ignored in a cluster: --env sets a variable\n"


async def test_on_simulated_nodes_nothing_goes_along(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    async with Client(Connection(server=api.url, simulated=True)) as client:
        cluster = Cluster(client=client, namespace="default")
        found = await prepare(api, cluster, submission=replace(PLAIN, image=""), files=Local(output="a", error="b"))
    assert found.directory is None
    assert (found.submission.image, found.submission.command) == ("busybox:1.37", PLAIN.command)
    said = "dovetail: --output, --error are ignored on simulated nodes, where nothing runs\n"
    assert capsys.readouterr().err == said


async def test_a_directory_on_no_volume_is_warned_of(
    api: Api, cluster: Cluster, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = manifest.build(PLAIN, namespace="default")
    prepared = Prepared(submission=PLAIN, directory=work)
    (work / "link").symlink_to("/tmp")
    sent = await on_cluster.completed(job, prepared=prepared, asked=Asked(), cluster=cluster, dry_run=False)
    (directory,) = sent.attached
    assert isinstance(directory, Directory)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "dovetail: link cannot go along: links to folders, sockets and unusual names stay here"
    assert "is on no volume: what the job writes there is lost when it ends. To keep it: `dovetail config" in said[1]
    nothing = await on_cluster.completed(
        job, prepared=Prepared(submission=PLAIN), asked=Asked(), cluster=cluster, dry_run=False
    )
    assert (nothing.job, nothing.attached) == (job, ())


async def test_a_directory_that_is_too_large_needs_a_volume(api: Api, cluster: Cluster, work: Path) -> None:
    make_large(work)
    job = manifest.build(PLAIN, namespace="default")
    prepared = Prepared(submission=PLAIN, directory=work)
    with pytest.raises(CommandError, match=r"at most 900 KiB compressed .* the largest are weights.pt \(65 MiB\)"):
        await on_cluster.completed(job, prepared=prepared, asked=Asked(), cluster=cluster, dry_run=False)


async def test_a_large_directory_is_not_copied_for_a_job_that_is_refused(
    api: Api, cluster: Cluster, work: Path
) -> None:
    make_large(work)
    found = await prepare(api, cluster, defaults="{volumes: ['data:/data'], workdir: /data/runs}")
    job = manifest.build(found.submission, namespace="default")
    dry = await on_cluster.completed(job, prepared=found, asked=Asked(), cluster=cluster, dry_run=True)
    assert spec_of(dry.job.spec.template)["containers"][0]["workingDir"].startswith("/data/runs/train-")
    api.answer(JOBS, Answer(status=422, body={"code": 422, "reason": "Invalid", "message": "no"}))
    with pytest.raises(StatusError, match="no"):
        await on_cluster.completed(job, prepared=found, asked=Asked(), cluster=cluster, dry_run=False)
    assert [(seen.method, seen.query) for seen in api.of(JOBS)] == [("POST", {"dryRun": "All"})]


def make_large(work: Path) -> None:
    with (work / "weights.pt").open("wb") as file:
        file.truncate(65 * 1024 * 1024)

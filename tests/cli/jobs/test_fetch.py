"""gjob fetch: which path is meant, what a container may send, and what is said of files that are gone."""

import io
import tarfile
from pathlib import Path

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob, spec_of, template_of
from dovetail_cli.jobs import fetch
from dovetail_cli.submit.workdir import files_pod
from dovetail_cli.ui.errors import CommandError, UsageError
from tests.cli.builders import make_job


def job(**container: object) -> GPUJob:
    plain = make_job("train")
    template = template_of({"containers": [{"name": "main", "image": "train:1", **container}]})
    return msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, template=template))


def packed(*members: tarfile.TarInfo, text: bytes = b"text") -> io.BytesIO:
    sent = io.BytesIO()
    with tarfile.open(fileobj=sent, mode="w:gz") as file:
        for member in members:
            member.size = len(text) if member.isreg() else 0
            file.addfile(member, io.BytesIO(text))
    sent.seek(0)
    return sent


def member(name: str, *, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


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


def test_files_come_as_they_are(tmp_path: Path) -> None:
    sent = packed(member("./out", kind=tarfile.DIRTYPE), member("./out/a"), member("b"))
    assert fetch.unpack(sent, into=tmp_path / "job-7") == fetch.Unpacked(count=2)
    assert (tmp_path / "job-7" / "out" / "a").read_text() == "text"


@pytest.mark.parametrize(
    "hostile",
    [
        [member("../escaped")],
        [member("/tmp/dovetail-escaped-fetch")],
        [member("link", kind=tarfile.SYMTYPE, target="/"), member("link/tmp/dovetail-escaped-fetch")],
        [member("link", kind=tarfile.LNKTYPE, target="../escaped")],
        [member("disk", kind=tarfile.BLKTYPE)],
    ],
    ids=["parent", "absolute", "link", "hard link", "device"],
)
def test_nothing_gets_out_of_the_folder_and_the_rest_comes(tmp_path: Path, hostile: list[tarfile.TarInfo]) -> None:
    found = fetch.unpack(packed(*hostile, member("good")), into=tmp_path / "job-7")
    assert (tmp_path / "job-7" / "good").read_text() == "text"
    assert hostile[0].name in found.refused or hostile[0].name == "/tmp/dovetail-escaped-fetch"
    assert [path.name for path in tmp_path.iterdir()] == ["job-7"]
    assert not Path("/tmp/dovetail-escaped-fetch").exists()


@pytest.mark.parametrize("sent", [b"", b"no archive", packed(member("a"), text=bytes(99999)).getvalue()[:60]])
def test_a_part_of_an_archive_is_told(tmp_path: Path, sent: bytes) -> None:
    with pytest.raises(CommandError, match="the container sent no whole archive"):
        fetch.unpack(io.BytesIO(sent), into=tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="file/job-7: Not a directory"):
        fetch.unpack(packed(member("a")), into=tmp_path / "file" / "job-7")


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

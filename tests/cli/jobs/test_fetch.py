"""gjob fetch: which path is meant, and what is said of files that are gone."""

from pathlib import Path

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob, spec_of, template_of
from dovetail_cli.cluster import kubectl
from dovetail_cli.jobs import fetch
from dovetail_cli.submit.workdir import files_pod
from dovetail_cli.ui.errors import UsageError
from tests.cli.builders import make_job


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

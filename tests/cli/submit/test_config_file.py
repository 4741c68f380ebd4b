"""gbatch --config: what goes along with a job, how the command gets it, and whose it is."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, spec_of
from dovetail.api.meta import ObjectMeta
from dovetail_cli.app import run
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit import config_file, manifest, submit
from dovetail_cli.submit.config_file import ConfigFile
from dovetail_cli.submit.scripts import Script
from dovetail_cli.ui.errors import CommandError, MissingError, UsageError
from tests.cli.builders import make_job
from tests.core.kube.api import Answer, Api

JOBS = "/apis/dovetail.dev/v1alpha1/namespaces/default/gpujobs"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
FILE = ConfigFile(name="train.yaml", text="lr: 0.1\n")
MADE = Answer(body={"metadata": {"name": "train-config-x", "resourceVersion": "3"}})


def written(tmp_path: Path, data: bytes, *, name: str = "train.yaml") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def test_a_text_goes_along_under_its_name(tmp_path: Path) -> None:
    assert config_file.read(written(tmp_path, b"lr: 0.1\n")) == FILE
    assert config_file.read(written(tmp_path, b"x" * 1024 * 1024)).text == "x" * 1024 * 1024
    assert config_file.read(written(tmp_path, b"", name="my config")).path == "/etc/dovetail-config/my config"


@pytest.mark.parametrize(
    ("data", "name", "told"),
    [
        (b"x" * (1024 * 1024 + 1), "a", r"--config .*/a is too large: allowed are at most 1048576 bytes \(1 MiB\)"),
        (b"\x89PNG\xff", "a", "--config .*/a is no text in UTF-8: what is binary belongs into the image"),
        (b"a\0b", "a", "--config .*/a is no text"),
        (b"a", "..a", r'a plain name that does not begin with "\.\."'),
    ],
)
def test_what_cannot_go_along_is_refused_in_one_sentence(tmp_path: Path, data: bytes, name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        config_file.read(written(tmp_path, data, name=name))


def test_a_file_that_is_not_there_is_exit_code_3_and_no_file_at_all_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MissingError, match=r"--config nowhere\.yaml: there is no such file"):
        config_file.read("nowhere.yaml")
    assert run("gbatch", arguments=["--config", str(tmp_path / "none"), "sleep", "1"], prog="gbatch") == 3
    with pytest.raises(UsageError, match="--config /dev/zero is no file"):
        config_file.read("/dev/zero")
    assert run("gbatch", arguments=["--config", str(tmp_path), "sleep", "1"], prog="gbatch") == 2
    assert capsys.readouterr().err.count("\n") == 2


HANDED = ["--config", "/etc/dovetail-config/train.yaml"]


def test_the_command_is_handed_the_file_behind_its_own_words() -> None:
    assert submit.command_of(["python", "train.py", "-v"], script=None, file=FILE) == [
        "python",
        "train.py",
        "-v",
        *HANDED,
    ]
    assert submit.command_of(["echo a && train"], script=None, file=FILE) == [
        "/bin/sh",
        "-c",
        "echo a && train",
        "sh",
        *HANDED,
    ]
    script = Script(name="t.sh", text="#!/bin/sh\ntrain $@\n")
    assert submit.command_of(["t.sh", "5"], script=script, file=FILE)[-3:] == ["5", *HANDED]


def test_who_names_the_variable_is_handed_nothing() -> None:
    words = ["python", "train.py", "--cfg=$(DOVETAIL_CONFIG)"]
    assert submit.command_of(words, script=None, file=FILE) == words
    script = Script(name="t.sh", text="#!/bin/sh\ntrain -c $DOVETAIL_CONFIG\n")
    assert submit.command_of(["t.sh"], script=script, file=FILE)[-1] == "t.sh"


def job_with_file() -> GPUJob:
    submission = manifest.Submission(name="train", command=["a"], request=None, image="busybox")
    job = manifest.build(submission, namespace="default")
    return config_file.mounted(job, file=FILE, config_map="train-config-x")


def test_the_job_mounts_the_file_and_names_its_path() -> None:
    spec = spec_of(job_with_file().spec.template)
    (container,) = spec["containers"]
    assert container["env"] == [{"name": "DOVETAIL_CONFIG", "value": "/etc/dovetail-config/train.yaml"}]
    assert container["volumeMounts"] == [
        {"name": "dovetail-config", "mountPath": "/etc/dovetail-config", "readOnly": True}
    ]
    (volume,) = spec["volumes"]
    assert volume["configMap"] == {"name": "train-config-x", "items": [{"key": "config", "path": "train.yaml"}]}
    assert config_file.config_map_of(job_with_file()) == "train-config-x"
    assert config_file.config_map_of(make_job()) is None


def wire(job: GPUJob) -> dict[str, Any]:
    meta = msgspec.structs.replace(job.metadata, uid="uid-1")
    found: dict[str, Any] = values_of(msgspec.structs.replace(job, metadata=meta))
    return found


async def test_the_copy_is_made_before_the_job_and_then_given_to_it(api: Api, cluster: Cluster) -> None:
    api.answer(f"POST {CONFIG_MAPS}", MADE)
    api.answer(f"POST {JOBS}", Answer(body=wire(make_job("train"))))
    api.answer(f"GET {CONFIG_MAPS}/train-config-x", MADE)
    api.answer(f"PATCH {CONFIG_MAPS}/train-config-x", MADE)
    await submit.create_with(cluster, job=make_job("train"), file=FILE)
    assert [(seen.method, seen.path.rsplit("/", 1)[-1]) for seen in api.seen] == [
        ("POST", "configmaps"), ("POST", "gpujobs"), ("GET", "train-config-x"), ("PATCH", "train-config-x"),
    ]  # fmt: skip
    copy, job, _, patch = (seen.body for seen in api.seen)
    assert (copy["data"], copy["immutable"]) == ({"config": "lr: 0.1\n"}, True)
    assert job["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] == "train-config-x"
    (owner,) = patch["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("GPUJob", "train", "uid-1")
    assert patch["metadata"]["resourceVersion"] == "3"


async def test_of_a_job_that_is_refused_no_copy_stays(api: Api, cluster: Cluster) -> None:
    api.answer(f"POST {CONFIG_MAPS}", MADE)
    api.answer(f"POST {JOBS}", Answer(status=422, body={"code": 422, "reason": "Invalid", "message": "no"}))
    api.answer(f"DELETE {CONFIG_MAPS}/train-config-x", Answer(body={}))
    with pytest.raises(Exception, match="no"):
        await submit.create_with(cluster, job=make_job("train"), file=FILE)
    assert len(api.of(f"DELETE {CONFIG_MAPS}/train-config-x")) == 1


async def test_a_second_owner_keeps_the_first_one(api: Api, cluster: Cluster) -> None:
    first = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "GPUJob", "name": "train", "uid": "uid-1"}
    held = {"metadata": {"name": "c", "resourceVersion": "7", "ownerReferences": [first]}}
    api.answer(f"GET {CONFIG_MAPS}/c", Answer(body=held))
    api.answer(f"PATCH {CONFIG_MAPS}/c", Answer(body=held))
    again = msgspec.structs.replace(make_job("train-2"), metadata=ObjectMeta(name="train-2", uid="uid-2"))
    await config_file.give(cluster, config_map="c", to=again)
    owners = api.of(f"PATCH {CONFIG_MAPS}/c")[0].body["metadata"]["ownerReferences"]
    assert [(owner["name"], owner["uid"]) for owner in owners] == [("train", "uid-1"), ("train-2", "uid-2")]


async def test_a_copy_that_is_gone_is_told(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {CONFIG_MAPS}/c", Answer(status=404, body={"code": 404, "reason": "NotFound", "message": "no"}))
    with pytest.raises(CommandError, match=r"the file that the job was submitted with is gone \(ConfigMap c\)"):
        await config_file.find(cluster, config_map="c")

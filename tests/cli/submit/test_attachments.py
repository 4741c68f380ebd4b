"""What a job is submitted with, as ConfigMaps: made before it, owned by it, gone with a refused one."""

from typing import Any

import msgspec
import pytest

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, template_of
from dovetail.api.meta import ObjectMeta
from dovetail.kube.errors import KubeError, StatusError
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit import attachments
from dovetail_cli.submit.config_file import ConfigFile
from dovetail_cli.submit.workdir.directory import Directory
from dovetail_cli.submit.workdir.place import Place
from dovetail_cli.ui.errors import CommandError
from tests.cli.builders import make_job
from tests.core.kube.api import Answer, Api

JOBS = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
FILE = ConfigFile(name="train.yaml", text="lr: 0.1\n")
DIRECTORY = Directory(archive=b"\x1f\x8bpacked", place=Place(above="/dovetail", name="train-1"))
REFUSED = Answer(status=422, body={"code": 422, "reason": "Invalid", "message": "no"})


def made(name: str) -> Answer:
    return Answer(body={"metadata": {"name": name, "resourceVersion": "3"}})


def job() -> GPUJob:
    container = {"name": "main", "image": "busybox", "command": ["a"]}
    template = template_of({"containers": [container]})
    plain = make_job("train")
    return msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, template=template))


def wire(job: GPUJob) -> dict[str, Any]:
    meta = msgspec.structs.replace(job.metadata, uid="uid-1")
    found: dict[str, Any] = values_of(msgspec.structs.replace(job, metadata=meta))
    return found


async def test_the_copy_is_made_before_the_job_and_then_given_to_it(api: Api, cluster: Cluster) -> None:
    api.answer(f"POST {CONFIG_MAPS}", made("train-config-x"))
    api.answer(f"POST {JOBS}", Answer(body=wire(make_job("train"))))
    api.answer(f"GET {CONFIG_MAPS}/train-config-x", made("train-config-x"))
    api.answer(f"PATCH {CONFIG_MAPS}/train-config-x", made("train-config-x"))
    await attachments.create_with(cluster, job=job(), attached=[FILE])
    assert [(seen.method, seen.path.rsplit("/", 1)[-1]) for seen in api.seen] == [
        ("POST", "configmaps"), ("POST", "gpujobs"), ("GET", "train-config-x"), ("PATCH", "train-config-x"),
    ]  # fmt: skip
    copy, created, _, patch = (seen.body for seen in api.seen)
    assert (copy["data"], copy["immutable"]) == ({"config": "lr: 0.1\n"}, True)
    assert created["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] == "train-config-x"
    (owner,) = patch["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("GPUJob", "train", "uid-1")
    assert patch["metadata"]["resourceVersion"] == "3"


async def test_of_a_job_that_is_refused_no_copy_stays(api: Api, cluster: Cluster) -> None:
    api.answer(f"POST {CONFIG_MAPS}", made("train-config-x"))
    api.answer(f"POST {JOBS}", Answer(status=422, body={"code": 422, "reason": "Invalid", "message": "no"}))
    api.answer(f"DELETE {CONFIG_MAPS}/train-config-x", Answer(body={}))
    with pytest.raises(StatusError, match="no"):
        await attachments.create_with(cluster, job=job(), attached=[FILE])
    assert len(api.of(f"DELETE {CONFIG_MAPS}/train-config-x")) == 1


def kinds_of(*roots: type[Exception]) -> list[type[Exception]]:
    """The errors of these trees."""
    return [*roots, *(each for root in roots for each in kinds_of(*root.__subclasses__()))]


def one_of(kind: type[Exception]) -> Exception:
    """An error of the kind, with what each of them carries."""
    made = kind.__new__(kind)
    Exception.__init__(made, "no")
    vars(made).update(code=422, reason="Invalid", retry_after_seconds=None)
    return made


@pytest.mark.parametrize("kind", kinds_of(KubeError, CommandError), ids=lambda kind: kind.__name__)
async def test_whatever_ends_a_submission_leaves_no_copy(
    api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise one_of(kind)

    monkeypatch.setattr(attachments.create, "create", fail)
    api.answer(f"POST {CONFIG_MAPS}", made("a"), made("b"))
    for name in ("a", "b"):
        api.answer(f"DELETE {CONFIG_MAPS}/{name}", Answer(body={}))
    with pytest.raises(kind):
        await attachments.create_with(cluster, job=job(), attached=[FILE, DIRECTORY])
    assert [seen.path.rsplit("/", 1)[-1] for seen in api.seen if seen.method == "DELETE"] == ["a", "b"]


async def test_a_directory_and_a_file_go_along_together_and_nothing_stays_of_a_refused_job(
    api: Api, cluster: Cluster
) -> None:
    api.answer(f"POST {CONFIG_MAPS}", made("a"), made("b"))
    api.answer(f"POST {JOBS}", REFUSED)
    for name in ("a", "b"):
        api.answer(f"DELETE {CONFIG_MAPS}/{name}", Answer(body={}))
    with pytest.raises(StatusError, match="no"):
        await attachments.create_with(cluster, job=job(), attached=[FILE, DIRECTORY])
    first, second = (seen.body for seen in api.of(f"POST {CONFIG_MAPS}"))
    assert (first["metadata"]["generateName"], second["metadata"]["generateName"]) == (
        "train-config-",
        "train-directory-",
    )
    assert second["binaryData"] == {"directory.tar.gz": "H4twYWNrZWQ="}
    assert [seen.method for seen in api.seen][-2:] == ["DELETE", "DELETE"]


async def test_of_a_second_copy_that_is_refused_the_first_is_deleted(api: Api, cluster: Cluster) -> None:
    api.answer(f"POST {CONFIG_MAPS}", made("a"), REFUSED)
    api.answer(f"DELETE {CONFIG_MAPS}/a", Answer(body={}))
    with pytest.raises(StatusError, match="no"):
        await attachments.create_with(cluster, job=job(), attached=[FILE, DIRECTORY])
    assert len(api.of(f"DELETE {CONFIG_MAPS}/a")) == 1


async def test_a_second_owner_keeps_the_first_one(api: Api, cluster: Cluster) -> None:
    first = {"apiVersion": "dovetail.dev/v1beta1", "kind": "GPUJob", "name": "train", "uid": "uid-1"}
    held = {"metadata": {"name": "c", "resourceVersion": "7", "ownerReferences": [first]}}
    api.answer(f"GET {CONFIG_MAPS}/c", Answer(body=held))
    api.answer(f"PATCH {CONFIG_MAPS}/c", Answer(body=held))
    second = msgspec.structs.replace(make_job("train-2"), metadata=ObjectMeta(name="train-2", uid="uid-2"))
    await attachments.give(cluster, config_map="c", to=second)
    owners = api.of(f"PATCH {CONFIG_MAPS}/c")[0].body["metadata"]["ownerReferences"]
    assert [(owner["name"], owner["uid"]) for owner in owners] == [("train", "uid-1"), ("train-2", "uid-2")]


async def test_a_copy_that_is_gone_is_told(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {CONFIG_MAPS}/c", Answer(status=404, body={"code": 404, "reason": "NotFound", "message": "no"}))
    with pytest.raises(CommandError, match=r"what the job was submitted with is gone \(ConfigMap c\)"):
        await attachments.find(cluster, config_map="c")

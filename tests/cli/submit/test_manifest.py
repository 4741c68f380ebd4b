from typing import Any

import pytest

from dovetail_cli.submit import create, manifest
from dovetail_cli.submit.manifest import Submission, request_of
from dovetail_cli.ui import job_names
from dovetail_cli.ui.errors import UsageError


def ask(gpus: str | None = None, *, gpu_memory: str | None = None, shared: bool = False) -> str | None:
    request = request_of(gpus, gpu_memory=gpu_memory, shared=shared)
    return None if request is None else str(request)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({}, None),
        ({"gpus": "0"}, None),
        ({"gpus": "2"}, "2"),
        ({"gpus": "2(V100)"}, "2(V100)"),
        ({"gpus": "0.5", "gpu_memory": "8G"}, "8G,0.5"),
        ({"gpus": "0.5", "gpu_memory": "512MiB"}, "512M,0.5"),
        ({"gpus": "2", "gpu_memory": "8Gi", "shared": True}, "2x8G,1"),
        ({"gpus": "8G,0.5", "shared": True}, "8G,0.5"),
    ],
)
def test_gpus_memory_and_shared_make_one_request(asked: dict[str, Any], text: str | None) -> None:
    assert ask(**asked) == text


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"gpus": "1.5"}, 'gpus "1.5"'),
        ({"gpus": "two"}, "expected a number"),
        ({"gpu_memory": "8G"}, "need --gpus"),
        ({"shared": True}, "need --gpus"),
        ({"gpus": "1", "gpu_memory": "8G"}, "whole GPUs come with all their memory"),
        ({"gpus": "1", "shared": True}, "--shared needs --gpu-memory"),
        ({"gpus": "8G,0.5", "gpu_memory": "4G"}, "says the memory already"),
        ({"gpus": "0.5", "gpu_memory": "8"}, "a number with M or G"),
        ({"gpus": "0.5", "gpu_memory": "xG"}, "a number with M or G"),
        ({"gpus": "0.5", "gpu_memory": "0G"}, "a number with M or G"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_sentence(asked: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        ask(**asked)
    assert problem in str(refused.value)


def build(**options: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"name": "train", "command": ["sleep", "5"], "request": None, "image": "busybox"}
    submission = Submission(**{**given, **options})
    return create.as_manifest(manifest.build(submission, namespace="vision"))


def test_the_least_that_can_be_said_is_a_job_without_gpus() -> None:
    assert build() == {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "GPUJob",
        "metadata": {"name": "train", "namespace": "vision"},
        "spec": {
            "resources": {"device": "cpu"},
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "busybox", "command": ["sleep", "5"]}],
                }
            },
        },
    }


def test_every_option_has_its_field() -> None:
    spec = build(
        request=request_of("1", gpu_memory="8G", shared=True),
        shared=True,
        priority=20,
        limit_seconds=600,
        max_retries=2,
        workers=4,
        workdir="/work",
        policy="Pack",
        annotations={"a": "b"},
        host_resources={"cpu": "2"},
    )["spec"]
    (container,) = spec["template"]["spec"].pop("containers")
    assert container["workingDir"] == "/work"
    assert container["resources"] == {"requests": {"cpu": "2"}}
    assert spec == {
        "gpu": "8G,1",
        "mode": "TimeShared",
        "policy": "Pack",
        "priority": 20,
        "workers": 4,
        "activeDeadlineSeconds": 600,
        "backoffLimit": 2,
        "template": {"metadata": {"annotations": {"a": "b"}}, "spec": {"restartPolicy": "Never"}},
    }


@pytest.mark.parametrize("priority", [-1, 256])
def test_a_priority_beyond_the_range_is_refused(priority: int) -> None:
    with pytest.raises(UsageError, match="allowed are 0 to 255"):
        manifest.check_priority(priority)


@pytest.mark.parametrize("workers", [0, 1025])
def test_a_number_of_workers_beyond_the_range_is_refused(workers: int) -> None:
    with pytest.raises(UsageError, match="allowed are 1 to 1024"):
        manifest.check_workers(workers)


@pytest.mark.parametrize("retries", [-1, 1001])
def test_a_number_of_retries_beyond_the_range_is_refused(retries: int) -> None:
    with pytest.raises(UsageError, match="allowed are 0 to 1000"):
        manifest.check_retries(retries)


def test_a_policy_is_known_in_any_case() -> None:
    assert manifest.parse_policy("pack") == "Pack"
    assert manifest.parse_policy(None) is None
    with pytest.raises(UsageError, match="allowed are Spread, Pack, Balanced"):
        manifest.parse_policy("best")


def test_a_job_without_a_name_is_called_by_two_words_and_a_number() -> None:
    name = job_names.random_name()
    adjective, noun, number = name.split("-")
    assert adjective.isalpha()
    assert noun.isalpha()
    assert 1000 <= int(number) <= 9999
    assert job_names.check_name(name) == name


@pytest.mark.parametrize("name", ["Train", "lr0.001_bs32", "My run 7", "x" * 100, "日本"])
def test_names_that_people_have_are_taken(name: str) -> None:
    assert job_names.check_name(name) == name


@pytest.mark.parametrize("name", ["", " x", "x ", "a\tb", "a,b", "@", "x" * 101])
def test_a_name_that_could_not_be_typed_again_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--name"):
        job_names.check_name(name)


@pytest.mark.parametrize("name", ["Train", "-x", "x-", "a_b", "", "x" * 53, "a.b"])
def test_a_name_of_an_object_that_kubernetes_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="lower-case letters"):
        job_names.check_object_name(name, field="name")


@pytest.mark.parametrize("image", ["", " ", "busybox latest", "-x"])
def test_an_image_that_no_registry_can_have_is_refused(image: str) -> None:
    with pytest.raises(UsageError, match=f'--image "{image}": write an image'):
        manifest.check_image(image)


@pytest.mark.parametrize("image", ["busybox", "busybox:1.37", "r.example:5000/team/x@sha256:0a"])
def test_an_image_stays_as_it_is(image: str) -> None:
    assert manifest.check_image(image) == image


@pytest.mark.parametrize("pool", ["", "A100", "a_b", "-a", "a" * 64])
def test_a_pool_that_no_label_can_have_is_refused(pool: str) -> None:
    with pytest.raises(UsageError, match=f'--pool "{pool}": write the value of a label'):
        manifest.check_pool(pool)


@pytest.mark.parametrize("pool", ["a", "a100", "big-one"])
def test_a_pool_stays_as_it_is(pool: str) -> None:
    assert manifest.check_pool(pool) == pool


def test_host_resources_and_conda_environments_are_checked() -> None:
    assert manifest.host_resources(cpus="0.5", memory="16G") == {"cpu": "0.5", "memory": "16384Mi"}
    assert manifest.host_resources(cpus=None, memory=None) == {}
    assert manifest.in_conda(["python", "x"], env="torch")[:5] == ["conda", "run", "--no-capture-output", "-n", "torch"]
    assert manifest.in_conda(["true"], env="/opt/env")[3:] == ["-p", "/opt/env", "true"]
    with pytest.raises(UsageError, match='--cpus "many"'):
        manifest.host_resources(cpus="many", memory=None)
    with pytest.raises(UsageError, match='--memory "16"'):
        manifest.host_resources(cpus=None, memory="16")
    with pytest.raises(UsageError, match="--conda-env"):
        manifest.in_conda(["true"], env="-x y")

from typing import Any

import pytest

from dovetail_cli.submit import create, manifest, pod_options
from dovetail_cli.submit.manifest import Submission, request_of
from dovetail_cli.ui import job_names
from dovetail_cli.ui.errors import UsageError


def ask(gpus: str | None = None, *, gpu_memory: str | None = None, **how: Any) -> str | None:
    request = request_of(gpus, gpu_memory=gpu_memory, **how)
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
        ({"gpus": "2", "gpu_memory": "32G"}, "2(>=32G)"),
        ({"gpus": "2(V100)", "gpu_memory": "32GB"}, "2(V100,>=32G)"),
        ({"gpus": "2", "gpu_memory": "8G", "mode": "TimeShared"}, "2x8G,1"),
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
        ({"gpus": "1", "gpu_memory": "512M"}, "whole GPUs are chosen by their size in GB"),
        ({"gpus": "1", "gpu_memory": "10000G"}, "whole GPUs are chosen by their size in GB"),
        ({"gpus": "1(>=16G)", "gpu_memory": "32G"}, "says the memory already"),
        ({"gpus": "1", "shared": True}, "--shared needs --gpu-memory"),
        ({"gpus": "8G,0.5", "gpu_memory": "4G"}, "says the memory already"),
        ({"gpus": "3g.40gb", "gpu_memory": "8G"}, "a MIG instance is taken whole"),
        ({"gpus": "3g.40gb", "shared": True}, "a MIG instance is taken whole"),
        ({"gpus": "0.5", "gpu_memory": "8"}, "a number with M, G or T"),
        ({"gpus": "0.5", "gpu_memory": "xG"}, "a number with M, G or T"),
        ({"gpus": "0.5", "gpu_memory": "0G"}, "a number with M, G or T"),
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
        "apiVersion": "dovetail.dev/v1beta1",
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
        mode="TimeShared",
        priority=20,
        limit_seconds=600,
        max_retries=2,
        workers=4,
        workdir="/work",
        fields={"policy": "Balanced"},
        annotations={"a": "b"},
        host_resources={"cpu": "2"},
    )["spec"]
    (container,) = spec["template"]["spec"].pop("containers")
    assert container["workingDir"] == "/work"
    assert container["resources"] == {"requests": {"cpu": "2"}}
    assert spec == {
        "gpu": "8G,1",
        "mode": "TimeShared",
        "policy": "Balanced",
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


def test_memory_is_in_megabytes_gigabytes_or_terabytes() -> None:
    assert [manifest.memory_mib(text) for text in ("512M", "8G", "1T")] == [512, 8192, 1048576]


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


def test_fields_that_are_not_in_slurm_have_options_too() -> None:
    spec = build(
        request=request_of("0.5", gpu_memory="8G"),
        mode="Fractional",
        memory_strategy="0.7",
        fallback=manifest.fallback_of(None, after="30m"),
        group="sweep-7",
        max_concurrent=4,
        workers=4,
        min_workers=2,
        fields={"workload": "Inference", "restart": "Worker"},
        env={"LR": "0.1", "EMPTY": ""},
        volumes=pod_options.volumes(["data:/data:ro", "data:/work", "out.x:/out"]),
        node_selector={"disk": "nvme"},
    )["spec"]
    pod = spec.pop("template")["spec"]
    assert spec == {
        "gpu": "8G,0.5",
        "mode": "Fractional",
        "memory": {"strategy": "0.7"},
        "workload": "Inference",
        "onNoGPU": "RunOnCPU",
        "onNoGPUAfterSeconds": 1800,
        "group": "sweep-7",
        "maxConcurrent": 4,
        "workers": 4,
        "minWorkers": 2,
        "restart": "Worker",
    }
    assert pod["nodeSelector"] == {"disk": "nvme"}
    assert pod["volumes"] == [
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "volume-1", "persistentVolumeClaim": {"claimName": "out.x"}},
    ]
    (container,) = pod["containers"]
    assert container["env"] == [{"name": "LR", "value": "0.1"}, {"name": "EMPTY", "value": ""}]
    assert container["volumeMounts"] == [
        {"name": "volume-0", "mountPath": "/data", "readOnly": True},
        {"name": "volume-0", "mountPath": "/work"},
        {"name": "volume-1", "mountPath": "/out"},
    ]


def test_words_of_closed_sets_are_known_in_any_case() -> None:
    assert manifest.parse_memory_strategy("DYNAMIC") == "Dynamic"
    assert manifest.parse_memory_strategy("0.7") == "0.7"
    assert manifest.mode_of("timeshared", shared=False) == "TimeShared"
    assert manifest.mode_of(None, shared=True) == "TimeShared"
    assert manifest.mode_of(None, shared=False) is None


@pytest.mark.parametrize(
    ("wanted", "after", "fallback"),
    [
        (None, None, (None, None)),
        (True, None, ("RunOnCPU", None)),
        (False, None, ("Wait", None)),
        (None, "90", ("RunOnCPU", 90)),
        (True, "0", ("RunOnCPU", 0)),
    ],
)
def test_a_job_runs_on_the_cpu_as_its_options_or_its_namespace_say(
    wanted: bool | None, after: str | None, fallback: tuple[str | None, int | None]
) -> None:
    found = manifest.fallback_of(wanted, after=after)
    assert (found.on_no_gpu, found.after_seconds) == fallback


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        (lambda: manifest.parse_memory_strategy("bold"), '--memory-strategy "bold": allowed are Conservative'),
        (lambda: manifest.parse_memory_strategy("0.01"), "or a fraction from 0.05 to 1, such as 0.7"),
        (lambda: manifest.fallback_of(False, after="5"), "--no-cpu-fallback: --cpu-fallback-after says when"),
        (lambda: manifest.fallback_of(None, after="soon"), '--cpu-fallback-after "soon": write a number with ms, s'),
        (lambda: manifest.fallback_of(None, after="99999d"), '--cpu-fallback-after "99999d": at most 2147483647 sec'),
        (lambda: manifest.mode_of("own", shared=False), '--mode "own": allowed are Exclusive'),
        (lambda: manifest.mode_of("Exclusive", shared=True), '--mode "Exclusive": --shared means TimeShared'),
        (lambda: manifest.check_min_workers(0, workers=4), "--min-workers 0: allowed are 1 to"),
        (lambda: manifest.check_min_workers(5, workers=4), "such as --nodes 4 --min-workers 2"),
        (lambda: manifest.check_group("Sweep 7"), '--group "Sweep 7": write up to 63 of'),
        (lambda: manifest.check_max_concurrent(0), "--max-concurrent 0: allowed are 1 to 100000"),
        (lambda: manifest.check_about_gpus({"--mode": "x"}, request=None), "--mode needs --gpus"),
    ],
)
def test_a_wrong_value_is_named_with_its_option_and_what_is_allowed(check: Any, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        check()
    assert problem in str(refused.value)

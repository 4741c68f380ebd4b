"""Where a job's directory is in its container, and the job that unpacks it there."""

from collections.abc import Callable
from typing import Any

import pytest

from dovetail.api.gpujob import GPUJob, spec_of
from dovetail_cli.submit import manifest, pod_options, terminal
from dovetail_cli.submit.workdir import directory, place
from dovetail_cli.submit.workdir.directory import Directory
from dovetail_cli.ui.errors import UsageError


def job(*volumes: str, workdir: str | None = None) -> GPUJob:
    submission = manifest.Submission(
        name="train", command=["python", "train.py"], request=None, image="train:1",
        volumes=pod_options.volumes(volumes), workdir=workdir,
    )  # fmt: skip
    return manifest.build(submission, namespace="default")


def spec(of: GPUJob) -> dict[str, Any]:
    return spec_of(of.spec.template)


def test_without_a_volume_it_is_in_the_pods_own_storage() -> None:
    there = place.choose(job(), workdir=None, token="1a2b3c")
    assert (there.path, there.mount) == ("/dovetail/train-1a2b3c", None)
    assert place.choose(job("data:/data"), workdir="/work", token="1").mount is None


@pytest.mark.parametrize(
    ("volumes", "workdir", "claim"),
    [
        (["data:/data"], "/data/runs", "volume-0"),
        (["data:/data"], "/data", "volume-0"),
        (["data:/data"], "/database", None),
        (["data:/data", "fast:/data/fast"], "/data/fast/x", "volume-1"),
    ],
)
def test_it_is_on_the_innermost_claim_around_it(volumes: list[str], workdir: str, claim: str | None) -> None:
    mount = place.mount_of(workdir, job=job(*volumes))
    assert (mount["name"] if mount else None) == claim


def test_a_volume_to_read_only_is_refused() -> None:
    with pytest.raises(UsageError, match='workdir "/data/runs" is on a volume that is mounted to read only at /data:'):
        place.choose(job("data:/data:ro"), workdir="/data/runs", token="1")


def test_the_job_unpacks_it_and_runs_in_it() -> None:
    there = place.choose(job(), workdir=None, token="1")
    found = spec(Directory(archive=b"packed", place=there).mounted(job(), config_map="train-directory-x"))
    (unpacking,), (main,) = found["initContainers"], found["containers"]
    assert (main["workingDir"], main["command"]) == ("/dovetail/train-1", ["python", "train.py"])
    assert unpacking["image"] == "train:1"
    assert unpacking["command"][-4:-1] == ["/dovetail-directory/directory.tar.gz", "/dovetail/train-1", "/dovetail"]
    assert main["volumeMounts"] == [{"name": "dovetail-workdir", "mountPath": "/dovetail"}]
    assert [each["name"] for each in unpacking["volumeMounts"]] == ["dovetail-workdir", "dovetail-directory"]
    assert found["volumes"] == [
        {"name": "dovetail-directory", "configMap": {"name": "train-directory-x"}},
        {"name": "dovetail-workdir", "emptyDir": {}},
    ]


def test_unpacking_requests_what_the_job_requests() -> None:
    wanted = manifest.Submission(
        name="train", command=["a"], request=None, image="train:1", host_resources={"cpu": "4"}
    )  # fmt: skip
    there = place.choose(job(), workdir=None, token="1")
    found = spec(Directory(archive=b"", place=there).mounted(manifest.build(wanted, namespace="d"), config_map="x"))
    assert found["initContainers"][0]["resources"] == {"requests": {"cpu": "4"}}


def test_on_a_volume_both_containers_mount_it() -> None:
    plain = job("data:/data", workdir="/data/runs")
    there = place.choose(plain, workdir="/data/runs", token="1")
    found = spec(Directory(archive=b"packed", place=there).mounted(plain, config_map="x"))
    mount = {"name": "volume-0", "mountPath": "/data"}
    assert found["containers"][0]["volumeMounts"] == [mount]
    assert found["initContainers"][0]["volumeMounts"][0] == mount
    assert found["containers"][0]["workingDir"] == "/data/runs/train-1"


def test_another_run_gets_a_directory_of_its_own() -> None:
    there = place.choose(job(), workdir=None, token="1a2b3c")
    first = Directory(archive=b"packed", place=there).mounted(job(), config_map="x")
    second = spec(directory.moved(first, token="4d5e6f"))
    assert second["containers"][0]["workingDir"] == "/dovetail/train-4d5e6f"
    assert second["initContainers"][0]["command"][-3:-1] == ["/dovetail/train-4d5e6f", "/dovetail"]


def test_a_job_without_such_a_directory_stays_where_it_is() -> None:
    plain = job(workdir="/app")
    assert directory.moved(plain, token="1") == plain
    assert spec(directory.running_in(job(), path="/data/x"))["containers"][0]["workingDir"] == "/data/x"


def rich() -> GPUJob:
    """A job with what people add to a template by hand, of each list more than one."""
    made = job("data:/data", workdir="/data/runs")
    template = {
        **spec(made),
        "containers": [
            {**spec(made)["containers"][0], "env": [{"name": "LR", "value": "1"}], "ports": [{"containerPort": 80}]},
            {"name": "sidecar", "image": "sidecar:1", "workingDir": "/data/runs/train-1a2b3c"},
        ],
        "initContainers": [{"name": "fetch", "image": "fetch:1", "command": ["fetch", "/data/runs/train-1a2b3c"]}],
        "volumes": [*spec(made)["volumes"], {"name": "own", "emptyDir": {}}],
        "tolerations": [{"key": "gpu"}],
    }
    return manifest.with_spec(made, spec=template)


def unpacked(of: GPUJob) -> GPUJob:
    there = place.choose(of, workdir="/data/runs", token="1a2b3c")
    return Directory(archive=b"packed", place=there).mounted(of, config_map="x")


TRANSFORMED: dict[str, tuple[Callable[[GPUJob], GPUJob], GPUJob, set[str]]] = {
    "unpacked": (unpacked, rich(), {"initContainers", "containers.0.workingDir", "volumes"}),
    "moved": (
        lambda of: directory.moved(of, token="4d5e6f"),
        unpacked(rich()),
        {"initContainers", "containers.0.workingDir"},
    ),
    "running in": (lambda of: directory.running_in(of, path="/data/x"), rich(), {"containers.0.workingDir"}),
    "with a terminal": (
        lambda of: terminal.with_terminal(of, terminal="xterm"),
        rich(),
        {"containers.0.stdin", "containers.0.stdinOnce", "containers.0.tty", "containers.0.env"},
    ),
    "without a terminal": (
        lambda of: terminal.with_terminal(of, terminal=None),
        rich(),
        {"containers.0.stdin", "containers.0.stdinOnce"},
    ),
}


def parts_of(found: dict[str, Any]) -> dict[str, Any]:
    """The fields of a pod's spec, and of each container."""
    parts = {name: value for name, value in found.items() if name != "containers"}
    for at, container in enumerate(found["containers"]):
        parts |= {f"containers.{at}.{name}": value for name, value in container.items()}
    return parts


@pytest.mark.parametrize("name", TRANSFORMED)
def test_all_else_of_a_job_stays_as_it_was(name: str) -> None:
    transform, before, changes = TRANSFORMED[name]
    found = transform(before)
    old, new = parts_of(spec(before)), parts_of(spec(found))
    assert {part for part in old.keys() | new.keys() if old.get(part) != new.get(part)} == changes
    for part in ("initContainers", "volumes", "containers.0.env"):
        known = {each["name"] for each in old.get(part, ())}
        kept = [each for each in new.get(part, ()) if each["name"] in known - {directory.INIT_CONTAINER}]
        assert kept == [each for each in old.get(part, ()) if each["name"] != directory.INIT_CONTAINER], part
    assert (found.metadata, found.status) == (before.metadata, before.status)
    assert found.spec.workers == before.spec.workers

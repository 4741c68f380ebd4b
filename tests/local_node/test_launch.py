"""What a pod becomes on this machine."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from dovetail import names
from dovetail.api.builtin import EnvVar
from dovetail_local_node import launch, variables
from dovetail_local_node.launch import Launch
from dovetail_local_node.pod_object import LocalPod
from tests.local_node import builders
from tests.local_node.builders import variable

VISIBLE = f"{names.VISIBLE_DEVICES}.0"
NO_NUMBERS: Mapping[str, int] = MappingProxyType({})
NUMBERS = MappingProxyType({"GPU-a": 0, "GPU-b": 1, "GPU-c": 2, "GPU-d": 3})


def launched(
    pod: LocalPod, folder: Path, base: dict[bytes, bytes] | None = None, *, numbers: Mapping[str, int] = NO_NUMBERS
) -> Launch:
    place = builders.place(folder)
    return launch.launch_of(pod, base=base or {}, extra={}, numbers=numbers, place=place, folder=folder)


def holding(uuids: str, *more: EnvVar) -> LocalPod:
    """A pod to which the extender has promised these devices."""
    env = [
        variable(names.ENV_VISIBLE_DEVICES, field=f"metadata.annotations['{VISIBLE}']"),
        variable(names.ENV_CUDA_DEVICES, "0,1"),
        *more,
    ]
    return builders.pod("true", env=env, annotations={VISIBLE: uuids})


def test_the_pods_variables_win_over_the_users(tmp_path: Path) -> None:
    made = launched(builders.pod("true", env=[variable("LR", "0.2")]), tmp_path, {b"LR": b"0.1", b"SEED": b"7"})
    assert made.environment[b"LR"] == b"0.2"
    assert made.environment[b"SEED"] == b"7"


def test_bytes_that_are_no_text_travel_unchanged(tmp_path: Path) -> None:
    base = variables.parse_environment(b"A=\xff\xfe\0BASH_FUNC_module%%=() { :\n}\0EMPTY=\0")
    made = launched(builders.pod("true"), tmp_path, base)
    assert made.environment[b"A"] == b"\xff\xfe"
    assert made.environment[b"BASH_FUNC_module%%"] == b"() { :\n}"
    assert made.environment[b"EMPTY"] == b""


@pytest.mark.parametrize(
    ("uuids", "shown"),
    [
        pytest.param("GPU-c,GPU-d", b"2,3", id="the indexes that gqueue prints"),
        pytest.param("GPU-d,GPU-c", b"3,2", id="in the order of the limits of MPS"),
        pytest.param("GPU-a,GPU-new", b"GPU-a,GPU-new", id="a device without a number"),
        pytest.param("MIG-1", b"MIG-1", id="a MIG instance"),
    ],
)
def test_cuda_names_the_promised_devices_by_number_or_all_by_uuid(tmp_path: Path, uuids: str, shown: bytes) -> None:
    made = launched(holding(uuids), tmp_path, {b"CUDA_DEVICE_ORDER": b"FASTEST_FIRST"}, numbers=NUMBERS)
    assert made.environment[b"CUDA_VISIBLE_DEVICES"] == shown
    assert made.environment[b"CUDA_DEVICE_ORDER"] == b"PCI_BUS_ID"


def test_a_number_is_that_of_the_start_and_not_of_the_allocation(tmp_path: Path) -> None:
    """Between the two the machine can boot with another card."""
    promised = {"uuid": "GPU-c", "index": 2, "shareMilli": 1000, "memoryMiB": 1024}
    allocation = {
        "node": "local",
        "mode": "Exclusive",
        "containers": [{"index": 0, "devices": [promised]}],
        "version": 1,
    }
    pod = holding("GPU-c")
    pod.metadata.annotations[names.ALLOCATION] = json.dumps(allocation)
    assert launched(pod, tmp_path, numbers={"GPU-c": 0}).environment[b"CUDA_VISIBLE_DEVICES"] == b"0"


def test_the_users_variables_can_refer_to_the_numbers(tmp_path: Path) -> None:
    made = launched(holding("GPU-c", variable("MINE", "$(CUDA_VISIBLE_DEVICES)")), tmp_path, numbers=NUMBERS)
    assert made.environment[b"MINE"] == b"2"


@pytest.mark.parametrize("visible", [names.NO_DEVICES, ""])
def test_cuda_shows_no_device_to_a_job_that_was_promised_none(tmp_path: Path, visible: str) -> None:
    pod = builders.pod("true", env=[variable(names.ENV_VISIBLE_DEVICES, visible)])
    made = launched(pod, tmp_path, {b"CUDA_VISIBLE_DEVICES": b"0"})
    assert made.environment[b"CUDA_VISIBLE_DEVICES"] == b""


@pytest.mark.parametrize("name", [names.ENV_MPS_MEMORY, names.ENV_MPS_PERCENTAGE])
def test_an_empty_limit_of_mps_is_left_out(tmp_path: Path, name: str) -> None:
    made = launched(builders.pod("true", env=[variable(name, field="metadata.annotations['none']")]), tmp_path)
    assert name.encode() not in made.environment
    made = launched(builders.pod("true", env=[variable(name, "50")]), tmp_path)
    assert made.environment[name.encode()] == b"50"


def test_of_two_variables_of_one_name_the_later_one_counts(tmp_path: Path) -> None:
    pod = holding("GPU-c", variable(names.ENV_VISIBLE_DEVICES, "GPU-d"))
    made = launched(pod, tmp_path, numbers=NUMBERS)
    assert made.environment[names.ENV_VISIBLE_DEVICES.encode()] == b"GPU-d"
    assert made.environment[b"CUDA_VISIBLE_DEVICES"] == b"3"


def test_what_finds_a_jobs_processes_is_the_nodes_own_and_the_pods_uid(tmp_path: Path) -> None:
    mine = {"DOVETAIL_SANDBOX_FOLDER": "/sandbox"}
    env = [variable(name, "of the pod") for name in (launch.MARK, *mine)]
    base = {name.encode(): b"of the user" for name in (launch.MARK, *mine)}
    place = builders.place(tmp_path)
    made = launch.launch_of(
        builders.pod("true", env=env), base=base, extra=mine, numbers={}, place=place, folder=tmp_path
    )
    found = {name: made.environment[name.encode()].decode() for name in (launch.MARK, *mine)}
    assert found == {launch.MARK: builders.UID, **mine}


def test_the_words_are_those_of_command_and_arguments(tmp_path: Path) -> None:
    made = builders.pod("sh", "-c")
    container = replace(made.spec.containers[0], args=["exit 3", "x"])
    found = launched(replace(made, spec=replace(made.spec, containers=[container])), tmp_path)
    assert found.words == (b"sh", b"-c", b"exit 3", b"x")


def test_references_are_resolved_as_kubelet_does(tmp_path: Path) -> None:
    env = [variable("A", "1"), variable("B", "$(A)-$(MISSING)-$$(A)")]
    made = launched(builders.pod("echo", "$(B)", "$HOME", env=env), tmp_path)
    assert made.words == (b"echo", b"1-$(MISSING)-$(A)", b"$HOME")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", b"train-0-abcde"),
        ("metadata.namespace", b"default"),
        pytest.param("metadata.uid", builders.UID.encode(), id="uid"),
        ("metadata.annotations['a.b/c']", b"noted"),
        ("metadata.labels['none']", b""),
        ("metadata.labels['dovetail.dev/job-number']", b"42"),
        ("spec.nodeName", b"local"),
        ("status.podIP", b"127.0.0.1"),
        ("status.hostIP", b"127.0.0.1"),
        ("status.unknown", b""),
    ],
)
def test_fields_of_the_pod_become_values(tmp_path: Path, path: str, value: bytes) -> None:
    pod = builders.pod("true", env=[variable("A", field=path)], annotations={"a.b/c": "noted"})
    assert launched(pod, tmp_path).environment[b"A"] == value


def test_output_goes_to_the_log_of_the_jobs_number(tmp_path: Path) -> None:
    assert launched(builders.pod("true"), tmp_path).output == tmp_path / "logs" / "42.log"


def test_each_further_worker_has_a_log_of_its_own(tmp_path: Path) -> None:
    second = builders.pod("true", annotations={names.COMPLETION_INDEX: "1"})
    assert launched(second, tmp_path).output == tmp_path / "logs" / "42-1.log"


def test_file_names_have_slurms_placeholders_and_start_at_the_jobs_directory(tmp_path: Path) -> None:
    files = {names.OUTPUT_FILE: "out/%x-%j-%a.%u%%", names.ERROR_FILE: "/var/%N.err"}
    pod = builders.pod("true", directory="/data", annotations=files, env=[variable(names.ENV_TASK_ID, "3")])
    made = launched(pod, tmp_path)
    assert (made.output, made.error) == (Path("/data/out/train-42-3.alice%"), Path("/var/local.err"))


@pytest.mark.parametrize(("array", "file"), [([], "/data/42"), ([variable(names.ENV_ARRAY_JOB_ID, "40")], "/data/40")])
def test_the_number_of_an_array_is_that_of_a_job_alone(tmp_path: Path, array: list[EnvVar], file: str) -> None:
    pod = builders.pod("true", directory="/data", annotations={names.OUTPUT_FILE: "%A"}, env=array)
    assert launched(pod, tmp_path).output == Path(file)


def test_a_job_without_a_directory_runs_at_home(tmp_path: Path) -> None:
    assert launched(builders.pod("true"), tmp_path).directory == str(tmp_path).encode()


@pytest.mark.parametrize(
    ("pattern", "annotations", "path"),
    [
        ("%x", {names.DISPLAY_NAME: "Été/1"}, "Été-1"),
        ("%x", {names.DISPLAY_NAME: ""}, "train"),
        ("%A_%a", {}, "42_"),
        ("%%j %q", {}, "%j %q"),
        ("%j-%u-%N", {}, "42-alice-local"),
    ],
)
def test_each_placeholder_is_that_of_slurm(
    tmp_path: Path, pattern: str, annotations: dict[str, str], path: str
) -> None:
    pod = builders.pod("true", directory="/data", annotations={names.OUTPUT_FILE: pattern, **annotations})
    assert launched(pod, tmp_path).output == Path("/data", path)


def test_without_a_number_the_log_has_the_pods_name(tmp_path: Path) -> None:
    made = builders.pod("true")
    labels = {name: value for name, value in made.metadata.labels.items() if name != names.LABEL_JOB_NUMBER}
    unnumbered = replace(made, metadata=replace(made.metadata, labels=labels))
    assert launched(unnumbered, tmp_path).output == tmp_path / "logs" / "train-0-abcde.log"

"""What a pod becomes on this machine."""

from pathlib import Path

import pytest

from dovetail import names
from dovetail_local_node import launch, variables
from dovetail_local_node.launch import Launch
from dovetail_local_node.pod_object import LocalPod
from tests.local_node import builders
from tests.local_node.builders import variable

VISIBLE = f"{names.VISIBLE_DEVICES}.0"


def launched(pod: LocalPod, folder: Path, base: dict[bytes, bytes] | None = None) -> Launch:
    return launch.launch_of(pod, base=base or {}, extra={}, place=builders.place(folder), folder=folder)


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


def test_cuda_shows_the_promised_devices_by_uuid(tmp_path: Path) -> None:
    env = [
        variable(names.ENV_VISIBLE_DEVICES, field=f"metadata.annotations['{VISIBLE}']"),
        variable(names.ENV_CUDA_DEVICES, "0,1"),
    ]
    made = launched(builders.pod("true", env=env, annotations={VISIBLE: "GPU-a,GPU-b"}), tmp_path)
    assert made.environment[b"CUDA_VISIBLE_DEVICES"] == b"GPU-a,GPU-b"


@pytest.mark.parametrize("visible", [names.NO_DEVICES, ""])
def test_cuda_shows_no_device_to_a_job_that_was_promised_none(tmp_path: Path, visible: str) -> None:
    pod = builders.pod("true", env=[variable(names.ENV_VISIBLE_DEVICES, visible)])
    made = launched(pod, tmp_path, {b"CUDA_VISIBLE_DEVICES": b"0"})
    assert made.environment[b"CUDA_VISIBLE_DEVICES"] == b""


def test_an_empty_limit_of_mps_is_left_out(tmp_path: Path) -> None:
    env = [variable(names.ENV_MPS_MEMORY, field="metadata.annotations['none']")]
    assert names.ENV_MPS_MEMORY.encode() not in launched(builders.pod("true", env=env), tmp_path).environment


def test_references_are_resolved_as_kubelet_does(tmp_path: Path) -> None:
    env = [variable("A", "1"), variable("B", "$(A)-$(MISSING)-$$(A)")]
    made = launched(builders.pod("echo", "$(B)", "$HOME", env=env), tmp_path)
    assert made.words == (b"echo", b"1-$(MISSING)-$(A)", b"$HOME")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", b"train-0-abcde"),
        ("metadata.namespace", b"default"),
        ("metadata.labels['dovetail.dev/job-number']", b"42"),
        ("spec.nodeName", b"local"),
        ("status.podIP", b"127.0.0.1"),
        ("status.unknown", b""),
    ],
)
def test_fields_of_the_pod_become_values(tmp_path: Path, path: str, value: bytes) -> None:
    assert launched(builders.pod("true", env=[variable("A", field=path)]), tmp_path).environment[b"A"] == value


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


def test_a_job_without_a_directory_runs_at_home(tmp_path: Path) -> None:
    assert launched(builders.pod("true"), tmp_path).directory == str(tmp_path).encode()

from pathlib import Path

import pytest

from dovetail_cli.errors import MissingError, UsageError
from dovetail_cli.replay import jobs, trace
from dovetail_cli.replay.jobs import Pace
from dovetail_cli.replay.trace import TracePod, read_pods

HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time"


def write(path: Path, *rows: str, header: str = HEADER) -> Path:
    file = path / "pods.csv"
    file.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    return file


def read(path: Path, *rows: str) -> list[TracePod]:
    return read_pods(write(path, *rows))


def test_pods_come_in_the_order_of_their_arrival_and_up_to_the_limit(tmp_path: Path) -> None:
    file = write(
        tmp_path, "c,1,1,0,0,,LS,30,40,31", "a,6000,12288,1,460,V100M16|V100M32,LS,10,110,20", "b,1,1,0,0,,LS,20,,"
    )
    first, second = read_pods(file, limit=2)
    assert first == TracePod(
        name="a", cpu_milli=6000, memory_mib=12288, gpus=1, gpu_milli=460, models=("V100M16", "V100M32"),
        created_at=10, ran_seconds=90,
    )  # fmt: skip
    assert (second.name, second.ran_seconds) == ("b", 0)


def test_a_pod_that_was_never_scheduled_ran_from_its_creation(tmp_path: Path) -> None:
    (pod,) = read(tmp_path, "a,1,1,0,0,,BE,100,160,")
    assert pod.ran_seconds == 60


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("A,1,1,0,0,,LS,0,1,0", 'line 2, column name: "A"'),
        ("a,x,1,0,0,,LS,0,1,0", 'line 2, column cpu_milli: "x": a whole number from 0 to'),
        ("a,1,-1,0,0,,LS,0,1,0", 'line 2, column memory_mib: "-1"'),
        ("a,1,1,1,1001,,LS,0,1,0", 'line 2, column gpu_milli: "1001": a whole number from 0 to 1000'),
        ("a,1,1,1,0,,LS,0,1,0", 'line 2, column gpu_milli: "0": a pod with 1 GPUs needs 1 to 1000'),
        ("a,1,1,,0,,LS,0,1,0", 'line 2, column num_gpu: ""'),
        ("a,1,1,0,0,,LS,soon,1,0", 'line 2, column creation_time: "soon": seconds'),
        ("a,1,1,0", 'line 2, column gpu_milli: ""'),
    ],
)
def test_a_bad_row_is_told_by_file_line_column_and_value(tmp_path: Path, row: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, row)
    assert f"pods.csv, {problem}" in str(refused.value)


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='"a" is there twice'):
        read(tmp_path, "a,1,1,0,0,,LS,0,1,0", "a,1,1,0,0,,LS,0,1,0")


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, header="name,cpu_milli")
    with pytest.raises(UsageError, match="line 1: the column memory_mib is missing"):
        read_pods(file)


def test_a_file_without_pods_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no pods"):
        read(tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pods.csv"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is no CSV file"):
        read_pods(file)


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="No such file"):
        read_pods(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("pace", "ran", "seconds"),
    [
        (Pace(speedup=100), 2000, 20),
        (Pace(speedup=100), 2001, 21),
        (Pace(speedup=100), 10, 5),
        (Pace(speedup=100, longest_seconds=8), 2000, 8),
        (Pace(speedup=1, shortest_seconds=0), 0, 1),
    ],
)
def test_run_times_are_compressed_between_a_floor_and_a_ceiling(pace: Pace, ran: float, seconds: int) -> None:
    assert pace.run_seconds(ran) == seconds


def pod(**changes: object) -> TracePod:
    given = {
        "name": "p", "cpu_milli": 6000, "memory_mib": 12288, "gpus": 1, "gpu_milli": 1000, "models": (),
        "created_at": 0.0, "ran_seconds": 100.0,
    }  # fmt: skip
    return TracePod(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (pod(gpus=0, gpu_milli=0), None),
        (pod(), "1"),
        (pod(gpus=8), "8"),
        (pod(gpu_milli=460), "0.46"),
        (pod(gpus=2, gpu_milli=500, models=("T4",)), "2x0.5(T4)"),
        (pod(models=("V100M16", "V100M32")), "1(V100M16|V100M32)"),
    ],
)
def test_a_pod_asks_for_what_it_asked(asked: TracePod, text: str | None) -> None:
    job = jobs.job_of(asked, pace=Pace(), namespace="replay")
    assert job.spec.gpu == text
    assert (job.spec.resources is not None and job.spec.resources.device == "cpu") == (text is None)


def test_a_pod_takes_its_host_resources_and_its_run_time_along() -> None:
    job = jobs.job_of(pod(), pace=Pace(speedup=10), namespace="replay")
    (container,) = job.spec.template.spec["containers"]
    assert container["command"] == ["sleep", "10"]
    assert container["resources"] == {"requests": {"cpu": "6000m", "memory": "12288Mi"}}
    assert job.spec.template.metadata.annotations == {"sandbox.dovetail.dev/run-seconds": "10"}


def test_every_column_that_is_read_is_documented() -> None:
    assert all(column in (trace.__doc__ or "") for column in trace.COLUMNS)

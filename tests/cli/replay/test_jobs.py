"""Pods of a trace as jobs: the file, the pace, and what each asks for."""

from pathlib import Path

import pytest

from dovetail.api.gpujob import spec_of
from dovetail.fragmentation.pod_shapes import Shape
from dovetail.simulator.trace import Pod
from dovetail_cli.replay import jobs, runner
from dovetail_cli.replay.jobs import Pace
from dovetail_cli.ui.errors import MissingError, UsageError

HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time"


def read(path: Path, *rows: str, header: str = HEADER, limit: int | None = None) -> list[str]:
    """Names of the jobs that come of these rows, in their order."""
    file = path / "pods.csv"
    file.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    made = runner.read_jobs(file, limit=limit, pace=Pace(), namespace="replay")
    return [job.metadata.name for job in made]


def test_jobs_come_in_the_order_of_arrival_and_up_to_the_limit(tmp_path: Path) -> None:
    rows = ("c,1,1,0,0,,LS,30,40,31", "a,1,1,1,460,,LS,10,12,11", "b,1,1,0,0,,LS,20,,")
    assert read(tmp_path, *rows, limit=2) == ["a", "b"]


def test_without_times_the_order_is_that_of_the_file(tmp_path: Path) -> None:
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"
    assert read(tmp_path, "b,1,1,0,0,", "a,1,1,0,0,", header=header) == ["b", "a"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("A,1,1,0,0,,LS,0,1,0", 'column "name": "A": write up to 52 lower-case letters'),
        ("a,x,1,0,0,,LS,0,1,0", 'line 2, column "cpu_milli": "x": expected a whole number'),
    ],
)
def test_a_bad_row_is_told_with_its_file(tmp_path: Path, row: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, row)
    assert f"pods.csv, {problem}" in str(refused.value)


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="there is no such file"):
        runner.read_jobs(tmp_path / "none.csv", limit=None, pace=Pace(), namespace="replay")


def test_a_long_job_is_told_beforehand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(tmp_path, "a,1,1,0,0,,LS,0,3600,0")
    assert "The longest job, a, runs 1h00m" in capsys.readouterr().err


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


def shape(**changes: object) -> Shape:
    given = {"cpu_milli": 6000, "memory_mib": 12288, "gpus": 1, "share_milli": 1000, "models": ()}
    return Shape(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (shape(gpus=0, share_milli=0), None),
        (shape(), "1"),
        (shape(gpus=8), "8"),
        (shape(share_milli=460), "0.46"),
        (shape(models=("V100M16", "V100M32")), "1(V100M16|V100M32)"),
    ],
)
def test_a_pod_asks_for_what_it_asked(asked: Shape, text: str | None) -> None:
    job = jobs.job_of(Pod(name="p", shape=asked), pace=Pace(), namespace="replay")
    assert job.spec.gpu == text
    assert (job.spec.resources is not None and job.spec.resources.device == "cpu") == (text is None)


def test_a_pod_takes_its_host_resources_and_its_run_time_along() -> None:
    pod = Pod(name="p", shape=shape(), ran_seconds=100)
    job = jobs.job_of(pod, pace=Pace(speedup=10), namespace="replay")
    (container,) = spec_of(job.spec.template)["containers"]
    assert container["command"] == ["sleep", "10"]
    assert container["resources"] == {"requests": {"cpu": "6000m", "memory": "12288Mi"}}
    assert job.spec.template.metadata.annotations == {"sandbox.dovetail.dev/run-seconds": "10"}

"""Jobs of the Philly trace: a table is read as it is written, a bad one is refused in a sentence, and drawn months keep
to what is known of the trace."""

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
HEADER = "timestamp,duration,num_gpus,gpu_time,vc"
ROWS = (
    "2017-10-03 08:00:00,1200.5,2,2401,ee9e8c",
    "2017-10-03 07:00:00,7200,16,115200,ee9e8c",
    "2017-10-03 07:30:00,30,1,30,ee9e8c",
    "2017-10-03 07:10:00,500,1,500,0e4a51",
    "2017-10-04T07:00:00+00:00,600,0,0,ee9e8c",
    "2017-10-04T07:00:00+00:00,600,8,4800,ee9e8c",
)


@pytest.fixture
def philly(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    import queue_philly

    yield queue_philly
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "philly.csv"
    path.write_text("\n".join([HEADER, *ROWS]) + "\n")
    return path


def test_a_virtual_cluster_is_read_in_order_and_large_jobs_are_gangs_of_eight(philly: Any, table: Path) -> None:
    jobs = philly.loaded(table, cluster="ee9", jobs=10)
    found = [(each.at_seconds, each.ran_seconds, each.job.workers, each.job.gpus) for each in jobs]
    assert found == [(0, 7200, 2, 16), (3600, 1200, 1, 2), (86_400, 600, 1, 8)]


@pytest.mark.parametrize("limits", ["round", "close"])
def test_every_run_ends_within_its_limit(philly: Any, table: Path, limits: str) -> None:
    for each in philly.loaded(table, cluster="", jobs=10, limits=limits):
        assert each.job.limited
        assert each.ran_seconds < each.job.run_seconds


def test_a_window_begins_after_the_jobs_that_are_skipped(philly: Any, table: Path) -> None:
    (only,) = philly.loaded(table, cluster="ee9e8c", jobs=1, skip=1)
    assert (only.at_seconds, only.ran_seconds) == (0, 1200)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("timestamp,duration,num_gpus\n", "no column for the cluster of a job: allowed are vc, virtual_cluster, "),
        ("", "no column for the time of a job: allowed are timestamp, "),
        (f"{HEADER}\nyesterday,5,1,5,ee9e8c\n", "a row cannot be read: {'timestamp': 'yesterday'"),
        (f"{HEADER}\n2017-10-03,nan,1,5,ee9e8c\n", "a row cannot be read: "),
        (f"{HEADER}\n2017-10-03,100,inf,5,ee9e8c\n", "a row cannot be read: "),
        (f"{HEADER}\n2017-10-03\n", "0 rows of virtual clusters 'ee9e8c'…, and no job after the first 0"),
    ],
)
def test_a_bad_table_is_refused_in_a_sentence(philly: Any, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"bad\.csv: ") as refused:
        philly.loaded(path, cluster="ee9e8c", jobs=10)
    assert says in str(refused.value)


def test_a_drawn_month_has_the_load_and_the_skew_of_the_trace(philly: Any) -> None:
    jobs = philly.drawn(jobs=1_500, nodes=10, days=92, load=0.9, seed=3)
    assert [each.at_seconds for each in jobs] == sorted(each.at_seconds for each in jobs)
    needed = sum(each.job.gpus * each.ran_seconds for each in jobs)
    assert needed == pytest.approx(0.9 * 80 * 92 * 86_400, rel=0.02)
    ran = [each.ran_seconds for each in jobs]
    # In the trace, the mean is 11 times the median.
    assert mean(ran) > 5 * median(ran)
    assert max(each.job.gpus for each in jobs) <= 80


def test_where_no_job_waited_nothing_is_said_of_estimates(philly: Any) -> None:
    del philly
    import queue_policies

    said = queue_policies.table("quiet", [], queue_policies.Foreseeing(every_seconds=1.0).result())
    assert said.endswith("none waited: no start had to be estimated")
    assert "%" not in said


def test_the_true_distribution_of_a_run_time_is_that_from_which_it_was_drawn(philly: Any) -> None:
    jobs = philly.drawn(jobs=1500, nodes=10, days=92, load=0.9, seed=3)
    known, below = philly.Distributions(jobs), [0, 0, 0]
    drawn = [each for each in jobs if each.job.run_seconds in philly.LIMITS]
    for each in drawn:
        told = known.quantiles(each.job, so_far_seconds=0.0, parts=(0.0, 0.25, 0.5, 0.75, 1.0))
        assert told[0] - 1 <= each.ran_seconds <= told[-1] + 1
        assert list(told) == sorted(told)
        below = [count + (each.ran_seconds < part) for count, part in zip(below, told[1:4], strict=True)]
        known.ended(each.job, ran_seconds=each.ran_seconds)
    assert [count / len(drawn) for count in below] == pytest.approx([0.25, 0.5, 0.75], abs=0.04)


def test_what_has_run_for_long_runs_on_and_a_limit_that_is_no_round_number_says_all(philly: Any) -> None:
    jobs = philly.drawn(jobs=300, nodes=10, days=30, load=0.9, seed=3)
    known = philly.Distributions(jobs)
    day = next(each.job for each in jobs if each.job.run_seconds == 24 * 3600)
    low, high = known.quantiles(day, so_far_seconds=40_000, parts=(0.0, 1.0))
    assert (low, high) == pytest.approx((40_000, 12 * 3600))
    long = next(each for each in jobs if each.job.run_seconds not in philly.LIMITS)
    assert known.quantiles(long.job, so_far_seconds=0.0, parts=(0.1, 0.9)) == pytest.approx((long.ran_seconds,) * 2)

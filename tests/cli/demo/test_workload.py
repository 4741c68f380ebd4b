import random

import pytest

from dovetail.api.gpujob import GPUJob, spec_of
from dovetail_cli.demo import workload
from dovetail_cli.ui import job_names


@pytest.mark.parametrize(
    ("weights", "seats", "given"),
    [([1, 1], 4, [2, 2]), ([3, 1], 6, [4, 2]), ([100, 1, 1], 10, [8, 1, 1]), ([5, 5], 1, [1, 1])],
)
def test_jobs_are_divided_by_frequency_with_one_at_least(weights: list[int], seats: int, given: list[int]) -> None:
    assert workload.apportion(weights, seats=seats) == given


def made(count: int = 60) -> list[GPUJob]:
    return workload.jobs(count=count, namespace="default", names_rng=random.Random(1))


def test_the_demo_has_as_many_jobs_as_asked_and_one_that_can_never_fit() -> None:
    *fitting, too_large = made()
    assert len(fitting) == 60
    assert too_large.spec.gpu == "16(V100)"


def test_every_class_of_the_table_is_there_and_the_frequent_ones_more_often() -> None:
    requests = [job.spec.gpu for job in made()]
    assert requests.count("1") > requests.count("0.81") > requests.count("0.32") >= 1
    assert {"8", "4", "2", None} <= set(requests)


def test_the_demo_asks_the_same_each_time_under_new_names() -> None:
    first, second = workload.jobs(count=40, namespace="default"), workload.jobs(count=40, namespace="default")
    assert [job.spec for job in first] == [job.spec for job in second]
    assert {job.metadata.name for job in first}.isdisjoint(job.metadata.name for job in second)


def test_names_are_allowed_and_differ() -> None:
    called = [job.metadata.name for job in made(200)]
    assert len(set(called)) == len(called)
    assert all(job_names.check_name(name) for name in called)


def test_some_jobs_stay_to_be_looked_at() -> None:
    seconds = [spec_of(job.spec.template)["containers"][0]["command"][1] for job in made()]
    assert seconds.count("1800") == 4


def test_the_table_is_the_traces_most_frequent_classes() -> None:
    table = workload.classes()
    assert len(table) == 24
    assert table[0].pods == max(one.pods for one in table) == 1047
    assert sum(one.pods for one in table[:20]) == 6170

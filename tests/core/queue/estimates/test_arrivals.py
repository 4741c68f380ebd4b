"""What is going to come, as it came before."""

from itertools import islice

from dovetail.queue.estimates.expectations import REMEMBERED, Arrivals
from tests.core.queue.backfill.test_backfill import HOUR, make_job

DAY = 24 * HOUR


def seen(*hours: float, priority: int = 50) -> Arrivals:
    arrivals = Arrivals()
    for number, hour in enumerate(hours):
        arrivals.came(make_job(f"j{number}", "1", priority=priority), at_seconds=hour * HOUR)
    return arrivals


def coming(arrivals: Arrivals, *, hours: float, count: int, play: int = 0, above: int = 0) -> list[float]:
    found = arrivals.again(now_seconds=hours * HOUR, play=play, above=above)
    return [round(at / HOUR, 3) for at, _ in islice(found, count)]


def test_what_came_at_an_hour_comes_again_at_that_hour_day_by_day() -> None:
    assert coming(seen(0, 9), hours=24, count=4) == [0, 9, 24, 33]


def test_each_play_begins_with_another_day() -> None:
    arrivals = seen(0, 9, 24 + 12, 48)
    assert coming(arrivals, hours=48, count=2, play=0) == [0, 9]
    assert coming(arrivals, hours=48, count=1, play=1) == [12]


def test_on_the_first_day_the_hours_so_far_come_again() -> None:
    assert coming(seen(0, 1, 3), hours=4, count=4) == [0, 1, 3, 4]


def test_nothing_is_told_of_less_than_an_hour() -> None:
    assert coming(seen(0, 0.5), hours=0.9, count=1) == []
    assert coming(Arrivals(), hours=5, count=1) == []


def test_only_jobs_of_higher_priority_come_and_they_are_the_youngest() -> None:
    arrivals = seen(0, 1, priority=10)
    assert coming(arrivals, hours=4, count=1, above=10) == []
    ((_, job),) = islice(arrivals.again(now_seconds=4 * HOUR, play=0, above=9), 1)
    assert job.created > "9"


def test_only_the_latest_count_and_only_for_the_time_in_which_they_came() -> None:
    arrivals = seen(0, *[100] * REMEMBERED, 101)
    assert coming(arrivals, hours=102, count=REMEMBERED + 1) == [*[0] * (REMEMBERED - 1), 1, 2]

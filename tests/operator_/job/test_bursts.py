from dovetail_operator.job.status_pacing import Burst


def test_eight_within_a_second_are_a_burst_until_a_second_after_the_first_of_them() -> None:
    burst = Burst()
    for index in range(7):
        burst.note(index / 10)
        assert not burst.is_one(index / 10)
    burst.note(0.7)
    assert burst.is_one(1.0)
    assert not burst.is_one(1.01)


def test_what_comes_at_one_time_counts_one_by_one() -> None:
    burst = Burst()
    burst.note(5, count=7)
    burst.note(5, count=0)
    assert not burst.is_one(5)
    burst.note(5, count=10**9)
    assert burst.is_one(5)


def test_a_burst_does_not_last_until_a_clock_that_was_set_back_has_caught_up() -> None:
    burst = Burst()
    burst.note(3600.0, count=8)
    assert burst.is_one(3599.9)
    assert not burst.is_one(0.0)

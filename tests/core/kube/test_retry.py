import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube.errors import Conflict, Forbidden, KubeError, NotFound, Status, Unreachable, status_error
from dovetail.kube.retry import (
    MAX_ATTEMPTS,
    Backoff,
    always,
    may_resend,
    requested_wait_seconds,
    retry_on_conflict,
    retrying,
)

CHANGED = status_error(Status(code=409, reason="Conflict"))
BUSY = status_error(Status(code=429), retry_after_seconds=7)


class Work:
    """Raises its errors one after another, then succeeds; and a clock that jumps."""

    def __init__(self, *errors: BaseException) -> None:
        self.attempts: list[int] = []
        self.waits: list[float] = []
        self._errors = list(errors)

    async def act(self, attempt: int) -> str:
        self.attempts.append(attempt)
        if self._errors:
            raise self._errors.pop(0)
        return "done"

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@given(attempt=st.integers(0, 10_000), seed=st.integers())
def test_a_wait_grows_to_its_bound_and_is_never_less_than_half_of_it(attempt: int, seed: int) -> None:
    wait = Backoff(first_seconds=0.5, longest_seconds=30).seconds(attempt, rng=random.Random(seed))
    full = min(30, 0.5 * 2 ** min(attempt, 10))
    assert full / 2 <= wait <= full


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_a_read_is_repeated_after_a_passing_trouble(code: int) -> None:
    assert may_resend(status_error(Status(code=code)), method="GET", attempt=0)


@pytest.mark.parametrize("code", [403, 404, 409, 410, 422, 500])
def test_a_read_is_not_repeated_when_the_answer_would_be_the_same(code: int) -> None:
    assert not may_resend(status_error(Status(code=code)), method="GET", attempt=0)


@pytest.mark.parametrize("error", [Unreachable("s", problem="refused"), status_error(Status(code=429))])
def test_a_write_is_never_repeated(error: KubeError) -> None:
    assert not may_resend(error, method="POST", attempt=0)


def test_attempts_are_bounded() -> None:
    assert not may_resend(Unreachable("s", problem="refused"), method="GET", attempt=MAX_ATTEMPTS - 1)


def test_an_unknown_token_is_read_again_once_for_any_request() -> None:
    error = status_error(Status(code=401))
    assert may_resend(error, method="POST", attempt=0)
    assert not may_resend(error, method="POST", attempt=1)


def test_a_requested_wait_is_kept_within_a_minute() -> None:
    assert requested_wait_seconds(status_error(Status(code=429), retry_after_seconds=3600)) == 60
    assert requested_wait_seconds(Forbidden(Status(code=403))) == 0


async def test_work_that_succeeds_is_done_once_without_a_wait() -> None:
    work = Work()
    assert await retrying(work.act, may_retry=always, sleep=work.sleep) == "done"
    assert (work.attempts, work.waits) == ([0], [])


async def test_failed_work_is_tried_again_after_waits_that_grow_to_their_bound() -> None:
    work, backoff, seed = Work(*[ValueError()] * 5), Backoff(first_seconds=1, longest_seconds=4), 3
    await retrying(work.act, may_retry=always, backoff=backoff, rng=random.Random(seed), sleep=work.sleep)
    rng = random.Random(seed)
    assert work.attempts == [0, 1, 2, 3, 4, 5]
    assert work.waits == [backoff.seconds(attempt, rng=rng) for attempt in range(5)]
    assert work.waits[-1] >= 2


async def test_each_failure_is_reported_with_the_wait_that_follows_it() -> None:
    told: list[tuple[Exception, float]] = []
    first, second = ValueError(), OSError()
    work = Work(first, second)
    await retrying(work.act, may_retry=always, failed=lambda error, wait: told.append((error, wait)), sleep=work.sleep)
    assert told == list(zip([first, second], work.waits, strict=True))


async def test_the_api_server_s_wait_counts_if_it_is_the_longer_one() -> None:
    work = Work(BUSY)
    await retrying(work.act, may_retry=always, sleep=work.sleep)
    assert work.waits == [7]


REQUESTED = st.lists(st.sampled_from([None, 0, 1, 7, 59, 61, 900]), max_size=9)


@given(requested=REQUESTED, seed=st.integers(0, 9))
def test_each_wait_is_the_backoff_or_longer_if_the_api_server_asks_for_more(
    requested: list[int | None], seed: int
) -> None:
    errors = [status_error(Status(code=429), retry_after_seconds=each) for each in requested]
    work, said = Work(*errors), list[float]()
    done = retrying(
        work.act, may_retry=always, failed=lambda _error, wait: said.append(wait), rng=random.Random(seed),
        sleep=work.sleep,
    )  # fmt: skip
    assert asyncio.run(done) == "done"
    rng, backoff = random.Random(seed), Backoff()
    own = [backoff.seconds(attempt, rng=rng) for attempt in range(len(requested))]
    assert work.waits == [max(wait, min(each or 0, 60)) for wait, each in zip(own, requested, strict=True)]
    assert said == work.waits


async def test_an_error_that_is_not_retried_is_raised_after_no_wait() -> None:
    work = Work(OSError(), ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await retrying(work.act, may_retry=lambda error, _: isinstance(error, OSError), sleep=work.sleep)
    assert (work.attempts, len(work.waits)) == ([0, 1], 1)


async def test_whether_to_retry_may_depend_on_the_number_of_the_attempt() -> None:
    work = Work(*[LookupError()] * 9)
    with pytest.raises(LookupError):
        await retrying(work.act, may_retry=lambda _, attempt: attempt < 2, sleep=work.sleep)
    assert work.attempts == [0, 1, 2]


async def test_a_cancelled_attempt_is_not_retried() -> None:
    work = Work(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await retrying(work.act, may_retry=always, sleep=work.sleep)
    assert work.attempts == [0]


async def test_a_write_after_another_client_s_write_is_tried_again_within_a_tenth_of_a_second() -> None:
    work = Work(CHANGED, CHANGED)
    assert await retry_on_conflict(work.act, sleep=work.sleep) == "done"
    assert work.attempts == [0, 1, 2]
    assert all(0 < wait <= 0.1 for wait in work.waits)


async def test_the_last_conflict_is_raised() -> None:
    work = Work(*[CHANGED] * 9)
    with pytest.raises(Conflict):
        await retry_on_conflict(work.act, attempts=3, sleep=work.sleep)
    assert (work.attempts, len(work.waits)) == ([0, 1, 2], 2)


async def test_an_error_that_is_no_conflict_is_raised_at_once() -> None:
    work = Work(status_error(Status(code=404)))
    with pytest.raises(NotFound):
        await retry_on_conflict(work.act, sleep=work.sleep)
    assert work.attempts == [0]


async def test_an_object_that_is_gone_is_a_conflict_where_the_work_creates_it() -> None:
    work = Work(status_error(Status(code=404)))
    await retry_on_conflict(work.act, conflicts=(Conflict, NotFound), sleep=work.sleep)
    assert work.attempts == [0, 1]

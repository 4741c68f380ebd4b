import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube.errors import Forbidden, KubeError, Status, Unreachable, status_error
from dovetail.kube.retry import MAX_ATTEMPTS, Backoff, may_retry, requested_wait_seconds


@given(attempt=st.integers(0, 10_000), seed=st.integers())
def test_a_wait_grows_to_its_bound_and_is_never_less_than_half_of_it(attempt: int, seed: int) -> None:
    wait = Backoff(first_seconds=0.5, longest_seconds=30).seconds(attempt, rng=random.Random(seed))
    full = min(30, 0.5 * 2 ** min(attempt, 10))
    assert full / 2 <= wait <= full


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_a_read_is_repeated_after_a_passing_trouble(code: int) -> None:
    assert may_retry(status_error(Status(code=code)), method="GET", attempt=0)


@pytest.mark.parametrize("code", [403, 404, 409, 410, 422, 500])
def test_a_read_is_not_repeated_when_the_answer_would_be_the_same(code: int) -> None:
    assert not may_retry(status_error(Status(code=code)), method="GET", attempt=0)


@pytest.mark.parametrize("error", [Unreachable("s", problem="refused"), status_error(Status(code=429))])
def test_a_write_is_never_repeated(error: KubeError) -> None:
    assert not may_retry(error, method="POST", attempt=0)


def test_attempts_are_bounded() -> None:
    assert not may_retry(Unreachable("s", problem="refused"), method="GET", attempt=MAX_ATTEMPTS - 1)


def test_an_unknown_token_is_read_again_once_for_any_request() -> None:
    error = status_error(Status(code=401))
    assert may_retry(error, method="POST", attempt=0)
    assert not may_retry(error, method="POST", attempt=1)


def test_a_requested_wait_is_kept_within_a_minute() -> None:
    assert requested_wait_seconds(status_error(Status(code=429), retry_after_seconds=3600)) == 60
    assert requested_wait_seconds(Forbidden(Status(code=403))) == 0

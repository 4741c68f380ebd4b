"""A test of many random scenes as one item: pytest takes longer for an item than most scenes do."""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

Test = Callable[..., Any]


def seeds(count: int) -> Callable[[Test], Test]:
    """Run a test once for each `seed` below `count`. A failure ends it and names its seed."""

    def decorate(test: Test) -> Test:
        return (
            _of_coroutine(test, count=count) if inspect.iscoroutinefunction(test) else _of_function(test, count=count)
        )

    return decorate


def _of_function(test: Callable[..., None], *, count: int) -> Test:
    @wraps(test)
    def each() -> None:
        for seed in range(count):
            with _named(seed):
                test(seed)

    return _without_parameter(each)


def _of_coroutine(test: Callable[..., Awaitable[None]], *, count: int) -> Test:
    @wraps(test)
    async def each() -> None:
        for seed in range(count):
            with _named(seed):
                await test(seed)

    return _without_parameter(each)


def _without_parameter(each: Any) -> Test:
    """pytest would look for a fixture of the parameter's name."""
    del each.__wrapped__
    return each  # type: ignore[no-any-return]


@contextmanager
def _named(seed: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"with seed {seed}")
        raise

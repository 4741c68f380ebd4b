"""Checkpoints of long computations, at which their caller may make them wait or end.

The computations are pure and take up to seconds on a large cluster. Each calls `checkpoint()` between two of its steps,
where nothing is half done. What that does is up to the thread that computes; by default it does nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


def _go_on() -> None:
    """Do nothing."""


_CHECK: ContextVar[Callable[[], None]] = ContextVar("check", default=_go_on)


def checkpoint() -> None:
    """Do what the caller of the computation wants done between two steps. Raises what that raises."""
    _CHECK.get()()


@contextmanager
def checking(check: Callable[[], None]) -> Iterator[None]:
    """Call `check` at each checkpoint inside the block; an error of it ends the computation."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)

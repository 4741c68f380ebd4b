"""Endless loops in parallel: an error in a round, or at an object, never ends the process."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dovetail.decoding import problem_of
from dovetail.logs import get_logger

log = get_logger("dovetail.guarding")

_MOST_REMEMBERED: Final = 1_000


class Guard:
    """Contains the errors of one kind of work.

    Repeated errors are logged with their traceback once.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._logged: dict[str, str] = {}

    @contextmanager
    def around(self, key: str = "") -> Iterator[None]:
        """Catch every error of the block, which is about the object `key`."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - that is its purpose
            self._log(key, error=error)
        else:
            self._logged.pop(key, None)

    def _log(self, key: str, *, error: Exception) -> None:
        problem = f"{type(error).__name__}: {problem_of(error)}"
        if self._logged.get(key) == problem:
            return
        if len(self._logged) >= _MOST_REMEMBERED:
            self._logged.clear()
        self._logged[key] = problem
        log.warning("failed, and goes on", what=self._what, key=key, problem=problem, exc_info=error)


async def repeat(
    act: Callable[[], Awaitable[None] | None],
    *,
    every_seconds: float,
    what: str,
    first_after_seconds: float | None = None,
) -> None:
    """Call `act` again after each pause, until cancelled, whatever a round raises.

    The first pause is `first_after_seconds`, by default as long as the others.
    """
    guard, pause_seconds = Guard(what), every_seconds if first_after_seconds is None else first_after_seconds
    while True:
        await asyncio.sleep(pause_seconds)
        pause_seconds = every_seconds
        with guard.around():
            done = act()
            if done is not None:
                await done

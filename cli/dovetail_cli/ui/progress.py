"""A word about what takes long, on a person's terminal only."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SILENT_SECONDS: Final = 1.0
Say = Callable[[str], None]


@contextmanager
def patiently(*, clock: Callable[[], float] = time.monotonic) -> Iterator[Say]:
    """Yield `say`, which shows the current step on standard error.

    Shows nothing for the first second, then one line.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.status import Status

    began = clock()
    status = Status("", console=Console(stderr=True))

    def say(text: str) -> None:
        if clock() - began > SILENT_SECONDS:
            status.start()
            status.update(text)

    try:
        yield say
    finally:
        status.stop()

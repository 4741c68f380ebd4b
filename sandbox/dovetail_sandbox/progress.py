"""Shows progress: bars on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Task as RichTask
from rich.progress_bar import ProgressBar

_WORTH_TELLING_SECONDS: Final = 10.0


class Task(Protocol):
    """A task in progress."""

    def detail(self, text: str) -> None:
        """Show the current step; on a terminal only."""


class Reporter(Protocol):
    """Receives progress."""

    def say(self, text: str) -> None:
        """Print a permanent line."""

    def task(self, text: str, *, usual_seconds: float | None = None) -> AbstractContextManager[Task]:
        """Show a task; `usual_seconds` is its last duration."""


def reporter(stream: TextIO | None = None) -> Reporter:
    """Return bars if the stream (by default stderr) is a terminal, otherwise lines."""
    stream = stream or sys.stderr
    return Bars(Console(file=stream)) if stream.isatty() else Lines(stream)


class Lines:
    """Plain lines, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    @contextmanager
    def task(self, text: str, *, usual_seconds: float | None = None) -> Iterator[Task]:
        begin = time.monotonic()
        usual = f" (took {duration(usual_seconds)} last time)" if usual_seconds else ""
        self.say(f"{text} …{usual}")
        yield _Silent()
        if (seconds := time.monotonic() - begin) > _WORTH_TELLING_SECONDS:
            self.say(f"… took {duration(seconds)}")


class Bars:
    """Bars that fill in the time that the same task took before."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._tasks = 0

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    @contextmanager
    def task(self, text: str, *, usual_seconds: float | None = None) -> Iterator[Task]:
        progress = self._shown()
        identity = progress.add_task(text, total=usual_seconds, detail="", usual=usual_seconds)
        self._tasks += 1
        begin = time.monotonic()
        try:
            yield _Shown(progress, identity=identity)
        finally:
            progress.remove_task(identity)
            self._tasks -= 1
            if self._tasks == 0:
                progress.stop()
                self._progress = None
        if (seconds := time.monotonic() - begin) > 1:
            self.say(f"✓ {text} ({duration(seconds)})")

    def _shown(self) -> Progress:
        if self._progress is None:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), _Usual(), TimeElapsedColumn())
            detail = TextColumn("[dim]{task.fields[detail]}")
            self._progress = Progress(*columns, detail, console=self._console, transient=True)
            self._progress.start()
        return self._progress


class _Usual(BarColumn):
    """A bar by the clock: full after the time that the task took before."""

    def render(self, task: RichTask) -> ProgressBar:
        usual = task.fields["usual"]
        elapsed = task.elapsed or 0.0
        return ProgressBar(
            total=usual,
            completed=min(elapsed, (usual or 0) * 0.98),
            width=30,
            pulse=usual is None,
            animation_time=elapsed,
        )


class _Silent:
    def detail(self, text: str) -> None:
        pass


class _Shown:
    def __init__(self, progress: Progress, *, identity: TaskID) -> None:
        self._progress, self._identity = progress, identity

    def detail(self, text: str) -> None:
        self._progress.update(self._identity, detail=text[-60:])


def duration(seconds: float) -> str:
    """Format a duration as `0.8 s`, `47 s` or `3 min 16 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"

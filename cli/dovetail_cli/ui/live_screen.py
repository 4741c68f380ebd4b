"""A view that is drawn in place on a terminal: on the alternate screen, without flicker."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dovetail.kube.errors import Unreachable
from dovetail_cli.ui.times import utc_now

if TYPE_CHECKING:
    from rich.text import Text

T = TypeVar("T")
Seen_contra = TypeVar("Seen_contra", contravariant=True)


class Lines(Protocol[Seen_contra]):
    """Draws what was read as at most `height` lines of `width` characters."""

    def __call__(self, seen: Seen_contra, *, height: int, width: int) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Generic[T]):
    """How to read what is shown, how to draw it, and how to color the text."""

    read: Callable[[], Awaitable[T]]
    lines: Lines[T]
    paint: Callable[["Text"], None] = lambda _text: None


async def show(look: Look[T], *, first: T, interval_seconds: float) -> None:
    """Draw `first`, then read and draw every `interval_seconds`, until it is cancelled.

    Draws at once when the terminal changes its size. While the API server is away, the last view stays, with a line
    that says since when. Any other error ends it.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    seen, seen_at, trouble = first, utc_now(), ""
    with _resizes() as resized, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            until = asyncio.get_running_loop().time() + interval_seconds
            while True:
                live.update(_frame(look, seen=seen, trouble=trouble, size=console.size), refresh=True)
                if not await _is_set(resized, until=until):
                    break
                resized.clear()
            try:
                seen, seen_at, trouble = await look.read(), utc_now(), ""
            except Unreachable as error:
                trouble = f"no answer since {seen_at:%H:%M:%S} UTC: {error}"


def cropped(lines: Sequence[str], *, height: int) -> list[str]:
    """The lines for which a terminal has room; the last line says how many are left out."""
    if len(lines) <= height:
        return list(lines)
    shown = max(0, height - 1)
    return [*lines[:shown], f"… and {len(lines) - shown} lines more"]


@contextmanager
def _resizes() -> Iterator[asyncio.Event]:
    """An event that is set whenever the terminal changes its size."""
    resized, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, resized.set)
    try:
        yield resized
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def _is_set(event: asyncio.Event, *, until: float) -> bool:
    """Whether the event is set before `until`, on the loop's clock."""
    try:
        async with asyncio.timeout_at(until):
            return await event.wait()
    except TimeoutError:
        return False


def _frame(look: Look[T], *, seen: T, trouble: str, size: tuple[int, int]) -> "Text":
    from rich.text import Text

    width, height = size
    lines = look.lines(seen, height=height - bool(trouble), width=width)
    text = Text("\n", no_wrap=True, overflow="crop").join(Text.from_ansi(line) for line in lines)
    look.paint(text)
    if trouble:
        text.append(f"\n{trouble}", style="red")
    return text

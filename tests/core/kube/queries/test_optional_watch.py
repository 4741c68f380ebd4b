"""When a kind that may be absent is looked for, in virtual time: no request to look at once is lost."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.api.builtin import ConfigMap
from dovetail.api.meta import EventType
from dovetail.api.resources import CONFIGMAPS
from dovetail.kube.errors import Forbidden, KubeError, NotFound, ServerFault, Status
from dovetail.kube.queries.optional_watch import OptionalWatch
from dovetail.kube.retry import BACKOFF
from dovetail.kube.watch_stream import Page
from tests import virtual_time
from tests.core.kube.api import line, make_object

LOOK_SECONDS: Final = 60.0
# How long the API server takes for an answer.
ANSWER_SECONDS: Final = 2.0
ABSENCES: Final[dict[str, KubeError]] = {
    "absent": NotFound(Status(code=404)),
    "forbidden": Forbidden(Status(code=403)),
    "away": ServerFault(Status(code=500)),
}


class Server:
    """Answers each question after a while: with these absences first, and then the kind is there."""

    def __init__(self, absences: Sequence[str]) -> None:
        self.absences = list(absences)
        self.start = virtual_time.clock()
        self.asked_at: list[float] = []
        self.settled_first: bool | None = None
        self.watch = OptionalWatch(
            self,  # type: ignore[arg-type]
            resource=CONFIGMAPS,
            as_type=ConfigMap,
            on_event=self._on_event,
            look_seconds=LOOK_SECONDS,
        )
        self.events: list[tuple[EventType, str]] = []

    @property
    def now(self) -> float:
        return virtual_time.clock() - self.start

    def _on_event(self, event: EventType, found: ConfigMap) -> None:
        assert not self.watch.settled.is_set() or self.settled_first
        self.events.append((event, found.metadata.name))

    async def pages(self, *_: Any, as_type: Any, **__: Any) -> AsyncIterator[Page[Any]]:
        is_look = as_type is not msgspec.Raw
        if is_look:
            self.asked_at.append(self.now)
        await asyncio.sleep(ANSWER_SECONDS)
        if is_look and self.absences:
            self.settled_first = True
            raise ABSENCES[self.absences.pop(0)]
        page = msgspec.convert({"metadata": {"resourceVersion": "1"}, "items": []}, Page[as_type])
        items = [] if is_look else [msgspec.Raw(msgspec.json.encode(make_object("listed", version=1)))]
        yield msgspec.structs.replace(page, items=items)

    @asynccontextmanager
    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        yield line("ADDED", make_object("watched", version=2))
        await asyncio.Event().wait()


async def played(absences: Sequence[str], *, looks_at: Sequence[float]) -> Server:
    server = Server(absences)
    running = asyncio.ensure_future(server.watch.run())
    for at in sorted(looks_at):
        await asyncio.sleep(at - server.now)
        server.watch.look_now()
    await asyncio.sleep(LOOK_SECONDS * (len(absences) + 2))
    assert (server.events, server.watch.settled.is_set()) == ([("ADDED", "listed"), ("ADDED", "watched")], True)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return server


@given(
    absences=st.lists(st.sampled_from(sorted(ABSENCES)), max_size=5),
    looks_at=st.lists(st.sampled_from([0.75, 1.75, 2.75, 30.125, 31.25, 63.75, 100.875]), max_size=4, unique=True),
)
@example(absences=["absent", "absent"], looks_at=[1.75])
@settings(max_examples=80, deadline=None)
def test_it_is_looked_for_by_the_clock_or_as_soon_as_it_was_seen(absences: list[str], looks_at: list[float]) -> None:
    asked_at = virtual_time.run(played(absences, looks_at=looks_at)).asked_at
    assert len(asked_at) == len(absences) + 1
    failures = 0
    for kind, (before, after) in zip(absences, itertools.pairwise(asked_at), strict=True):
        answered_at = before + ANSWER_SECONDS
        # One that comes while the API server is asked is about what this answer may not know yet.
        wanted_at = min((at for at in looks_at if before + 1e-6 < at), default=float("inf"))
        least, most = LOOK_SECONDS, LOOK_SECONDS
        if kind == "away":
            most = min(LOOK_SECONDS, BACKOFF.first_seconds * 2.0**failures)
            least = most / 2
            failures += 1
        assert after <= max(answered_at, min(answered_at + most, wanted_at)) + 1e-6
        assert after >= max(answered_at, min(answered_at + least, wanted_at)) - 1e-6


def test_it_settles_when_it_is_clear_that_there_is_nothing_to_list_now() -> None:
    async def run() -> None:
        server = Server(["absent"])
        running = asyncio.ensure_future(server.watch.run())
        await asyncio.sleep(ANSWER_SECONDS / 2)
        assert not server.watch.settled.is_set()
        await asyncio.sleep(ANSWER_SECONDS)
        assert (server.watch.settled.is_set(), server.events) == (True, [])
        running.cancel()
        await asyncio.wait([running])

    virtual_time.run(run())


def test_it_settles_only_once_what_is_there_is_listed() -> None:
    async def run() -> None:
        server = Server([])
        running = asyncio.ensure_future(server.watch.run())
        await asyncio.sleep(1.5 * ANSWER_SECONDS)
        assert not server.watch.settled.is_set()
        await asyncio.sleep(ANSWER_SECONDS)
        assert server.watch.settled.is_set()
        assert server.events[0] == ("ADDED", "listed")
        running.cancel()
        await asyncio.wait([running])

    virtual_time.run(run())

"""A reflector over lists and watches that break, objects that are replaced or unreadable, and a handler that fails."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Literal, NamedTuple

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.api.builtin import ConfigMap
from dovetail.api.meta import EventType
from dovetail.api.resources import CONFIGMAPS
from dovetail.kube.errors import Gone, KubeError, Status, TooManyRequests, Unreachable
from dovetail.kube.reflector import Reflector
from dovetail.kube.retry import BACKOFF
from dovetail.kube.watch_stream import Page
from tests import virtual_time
from tests.core.kube.api import line, make_object

KEYS: Final = ("a", "b")


class Step(NamedTuple):
    """A change of one object, or the end of a watch: after which it goes on, or all is listed again.

    `fails`: the handler fails at what this step brings, until the next watch. A "touch" is a change that does not
    matter to it.
    """

    does: Literal["write", "touch", "spoil", "replace", "delete", "break", "expire"]
    name: str
    fails: bool


STEPS: Final = st.lists(
    st.builds(
        Step,
        does=st.sampled_from(["write", "write", "touch", "spoil", "replace", "delete", "break", "expire"]),
        name=st.sampled_from(KEYS),
        fails=st.booleans(),
    ),
    max_size=14,
)


class Server:
    """An API server that plays the steps: each watch brings the changes up to the next end of a watch."""

    def __init__(self, steps: list[Step]) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.failing: set[str] = set()
        # By version: how often the object had changed in what matters.
        self.generations: dict[str, int] = {}
        self.ended = asyncio.Event()
        self._steps = steps
        # The numbers of the first versions get another digit.
        self._version = 7
        self._missed = False

    async def pages(self, *_: Any, **__: Any) -> AsyncIterator[Page[msgspec.Raw]]:
        items = [msgspec.Raw(msgspec.json.encode(each)) for each in self.objects.values()]
        metadata = {"resourceVersion": str(self._version)}
        yield msgspec.structs.replace(
            msgspec.convert({"metadata": metadata, "items": []}, Page[msgspec.Raw]), items=items
        )

    @asynccontextmanager
    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        while self._steps:
            step = self._steps.pop(0)
            if step.does == "break":
                raise Unreachable("here", problem="broken")
            if step.does == "expire":
                # What happens until the next list is seen by no watch.
                while self._steps and self._steps[0].does not in {"break", "expire"}:
                    self._change(self._steps.pop(0))
                raise Gone(Status(code=410, reason="Expired"))
            for event in self._change(step):
                yield event
        self.failing.clear()
        if not self._missed:
            # One more watch, at whose beginning what was not handled is delivered again.
            self._missed = True
            raise Unreachable("here", problem="the last one")
        self.ended.set()
        await asyncio.Event().wait()

    def _change(self, step: Step) -> list[bytes]:
        self._version += 1
        if step.fails:
            self.failing.add(str(self._version))
        before = self.objects.get(step.name)
        last = 0 if before is None else self.generations[before["metadata"]["resourceVersion"]]
        self.generations[str(self._version)] = last + (step.does != "touch")
        if step.does == "delete":
            if before is None:
                return []
            del self.objects[step.name]
            return [line("DELETED", self._with_version(before))]
        uid = before["metadata"]["uid"] if before is not None and step.does != "replace" else f"uid-{self._version}"
        content: dict[str, Any] = {"data": 3} if step.does == "spoil" else {}
        after = self.objects[step.name] = make_object(step.name, version=self._version, uid=uid, **content)
        events = [line("MODIFIED" if before is not None and step.does != "replace" else "ADDED", after)]
        return [line("DELETED", before), *events] if before is not None and step.does == "replace" else events

    def _with_version(self, found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "metadata": {**found["metadata"], "resourceVersion": str(self._version)}}


class Handler:
    """Knows what it was told of, by UID: the version, as one that keeps objects does."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.known: dict[str, str] = {}
        # As one that keeps objects by name.
        self.by_name: dict[str, str] = {}
        self.handled: list[tuple[EventType, str, str]] = []

    def __call__(self, type_: EventType, found: ConfigMap) -> None:
        meta = found.metadata
        if meta.resource_version in self._server.failing:
            raise ValueError("not now")
        self.handled.append((type_, meta.uid, meta.resource_version))
        if type_ == "DELETED":
            self.known.pop(meta.uid, None)
            self.by_name.pop(meta.name, None)
        else:
            self.known[meta.uid] = meta.resource_version
            self.by_name[meta.name] = meta.uid

    def matters(self, old: ConfigMap, new: ConfigMap) -> bool:
        generations = self._server.generations
        return generations[old.metadata.resource_version] != generations[new.metadata.resource_version]


async def play(steps: list[Step]) -> None:
    server = Server(list(steps))
    handler = Handler(server)
    reflector = Reflector(
        server,  # type: ignore[arg-type]
        resource=CONFIGMAPS,
        as_type=ConfigMap,
        on_event=handler,
        matters=handler.matters,
        clock=virtual_time.clock,
    )
    task = asyncio.create_task(reflector.run())
    await server.ended.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    stored = {each.metadata.uid: each.metadata.resource_version for each in reflector.store.values()}
    assert handler.known.keys() == stored.keys()
    for uid, version in stored.items():
        assert server.generations[handler.known[uid]] == server.generations[version], "told of all that matters"
    assert handler.by_name == {each.metadata.name: each.metadata.uid for each in reflector.store.values()}
    there = {f"ns/{name}": each["metadata"] for name, each in server.objects.items()}
    odd = {f"ns/{name}" for name, each in server.objects.items() if "data" in each}
    assert set(reflector.unreadable) == odd
    for key, meta in there.items():
        if key not in odd:
            assert stored[meta["uid"]] == meta["resourceVersion"]
    assert stored.keys() <= {meta["uid"] for meta in there.values()}, "of those that are there"


@given(steps=STEPS)
@example(steps=[Step("write", "a", True), Step("spoil", "a", False), Step("break", "a", False)])
@example(steps=[Step("spoil", "a", False), Step("expire", "a", False), Step("delete", "a", False)])
@example(
    steps=[
        Step("write", "a", True),
        Step("replace", "a", False),
        Step("expire", "a", False),
        Step("spoil", "a", False),
    ]
)
@settings(max_examples=150)
def test_what_the_handler_knows_is_what_is_there(steps: list[Step]) -> None:
    virtual_time.run(play(steps))


# How a watch goes: the seconds until it ends, whether it brings an event, and the error with which it ends.
WATCHES: Final[dict[str, tuple[float, bool, KubeError | None]]] = {
    "ends at once": (0.0, False, None),
    "ends late": (400.0, False, None),
    "brings something and breaks": (5.0, True, Unreachable("here", problem="broken")),
    "breaks": (0.0, False, Unreachable("here", problem="broken")),
    "busy": (0.0, False, TooManyRequests(Status(code=429), retry_after_seconds=30.0)),
}


class Watched:
    """An API server whose watches go as said, one after the other."""

    def __init__(self, watches: Sequence[str]) -> None:
        self.watches = list(watches)
        # When each watch began and ended.
        self.times: list[tuple[float, float]] = []
        self.over = asyncio.Event()
        self._lists = 0

    async def pages(self, *_: Any, **__: Any) -> AsyncIterator[Page[msgspec.Raw]]:
        self._lists += 1
        assert self._lists == 1, "each watch goes on from the one before"
        yield msgspec.convert({"metadata": {"resourceVersion": "1"}, "items": []}, Page[msgspec.Raw])

    @asynccontextmanager
    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        began = virtual_time.clock()
        if not self.watches:
            self.times.append((began, began))
            self.over.set()
            await asyncio.Event().wait()
        seconds, brings, error = WATCHES[self.watches.pop(0)]
        await asyncio.sleep(seconds)
        self.times.append((began, virtual_time.clock()))
        if brings:
            yield line("ADDED", make_object("a", version=len(self.times) + 1, uid=f"uid-{len(self.times)}"))
        if error is not None:
            raise error


class NoJitter(random.Random):
    """Waits are not shortened."""

    def random(self) -> float:
        return 0.0


async def waits_between(watches: Sequence[str]) -> list[float]:
    server, rng = Watched(watches), NoJitter()
    reflector = Reflector(
        server,  # type: ignore[arg-type]
        resource=CONFIGMAPS,
        as_type=ConfigMap,
        clock=virtual_time.clock,
        rng=rng,
    )
    task = asyncio.create_task(reflector.run())
    await server.over.wait()
    task.cancel()
    await asyncio.wait([task])
    return [after[0] - before[1] for before, after in itertools.pairwise(server.times)]


@given(watches=st.lists(st.sampled_from(sorted(WATCHES)), max_size=9))
@settings(max_examples=80)
def test_a_watch_begins_again_after_a_wait_that_grows_with_the_failures_in_a_row(watches: list[str]) -> None:
    failures = 0
    for how, wait in zip(watches, virtual_time.run(waits_between(watches)), strict=True):
        if how == "ends late":
            failures = 0
            assert wait == 0.0
            continue
        failures = 0 if how == "brings something and breaks" else failures
        expected = max(BACKOFF.seconds(failures, rng=NoJitter()), 30.0 if how == "busy" else 0.0)
        assert abs(wait - expected) < 1e-6
        failures += 1

"""A reflector over lists and watches that break, objects that are replaced or unreadable, and a handler that fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Literal, NamedTuple

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.api.builtin import ConfigMap
from dovetail.api.meta import EventType
from dovetail.api.resources import CONFIGMAPS
from dovetail.kube.errors import Gone, Status, Unreachable
from dovetail.kube.reflector import Reflector
from dovetail.kube.watch_stream import Page
from tests import virtual_time
from tests.core.kube.api import line, make_object

KEYS: Final = ("a", "b")


class Step(NamedTuple):
    """A change of one object, or the end of a watch: after which it goes on, or all is listed again.

    `fails`: the handler fails at what this step brings, until the next watch.
    """

    does: Literal["write", "spoil", "replace", "delete", "break", "expire"]
    name: str
    fails: bool


STEPS: Final = st.lists(
    st.builds(
        Step,
        does=st.sampled_from(["write", "write", "spoil", "replace", "delete", "break", "expire"]),
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
        self.ended = asyncio.Event()
        self._steps = steps
        self._version = 1
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
        self.handled: list[tuple[EventType, str, str]] = []

    def __call__(self, type_: EventType, found: ConfigMap) -> None:
        meta = found.metadata
        if meta.resource_version in self._server.failing:
            raise ValueError("not now")
        self.handled.append((type_, meta.uid, meta.resource_version))
        if type_ == "DELETED":
            self.known.pop(meta.uid, None)
        else:
            self.known[meta.uid] = meta.resource_version


async def play(steps: list[Step]) -> None:
    server = Server(list(steps))
    handler = Handler(server)
    reflector = Reflector(
        server,  # type: ignore[arg-type]
        resource=CONFIGMAPS,
        as_type=ConfigMap,
        on_event=handler,
        clock=virtual_time.clock,
    )
    task = asyncio.create_task(reflector.run())
    await server.ended.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    stored = {each.metadata.uid: each.metadata.resource_version for each in reflector.store.values()}
    assert handler.known == stored
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
@settings(max_examples=150)
def test_what_the_handler_knows_is_what_is_there(steps: list[Step]) -> None:
    virtual_time.run(play(steps))

"""One part of a program in virtual time: its process, the API server in memory, and what other clients do there."""

import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType
from typing import Any, Final, Protocol
from unittest import mock

from dovetail.kube import retry
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from tests.virtual_time import VirtualLoop
from tests.world.api import Values
from tests.world.http import HttpServer, MemorySession, Weather
from tests.world.operator import now

KINDS: Final = frozenset({
    "gpujobs", "gpunodes", "gpuquotas", "gpunodetenants", "nodes", "pods", "jobs", "services", "configmaps", "secrets",
    "events", "resourcequotas", "leases", "mutatingwebhookconfigurations", "endpointslices", "namespaces",
    "historyqueries", "poddisruptionbudgets",
})  # fmt: skip
_OWNERS: Final = {
    "GPUJob": "gpujobs", "Job": "jobs", "Node": "nodes", "ResourceQuota": "resourcequotas", "Service": "services",
    "GPUNode": "gpunodes",
}  # fmt: skip
_STEP_SECONDS: Final = 0.5
_DOWN_SECONDS: Final = 0.7
_HAIR_SECONDS: Final = 0.001
# What differs from run to run: the number in a UID and in a pod's name, versions, times and keys.
_PLAIN: Final = (
    (re.compile(r"(-\d+)-\d+-\d+(?=$|#)"), r"\1"),
    (re.compile(r"#\d+"), "#"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)"), "TIME"),
    (re.compile(r"LS0tLS1CRUdJ[\w+/=]+"), "PEM"),
)
_OF_A_RUN: Final = frozenset({"resourceVersion", "generation", "creationTimestamp", "managedFields", "touched"})


class Program(Protocol):
    """What runs: a part of a program, or a whole one."""

    async def run(self) -> None:
        """Run until cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A tenant and its node names. All sites have objects of the same names, but for nodes, which have no namespace."""

    word: str

    @property
    def namespace(self) -> str:
        return f"{self.word}-ns"

    def node(self, name: str) -> str:
        return f"{self.word}-{name}"


Step = Callable[["Stage"], object]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a program, and what happens around it.

    make: builds it for a client.
    scene: the steps at one site, one change each.
    writes: the kinds that it writes, which are compared at the end.
    surroundings: what looks at the objects every half second, such as a Job controller.
    not_from_objects: tables that a new process does not have, `Class._attribute` with the reason.
    not_empty: tables that stay when every object is deleted, with the reason.
    renews: the writes that it repeats for ever, as beginnings of `VERB kind key`.
    most_points: how many writes of its scene fail in turn, for each way of failing.
    compares_tables: whether its tables are compared with those of a new process; otherwise `rebuilt` does.
    owns: of the kinds that it writes, those of its own: it creates again what somebody deletes.
    varies: names of fields that may differ, such as numbers that are given in the order of arrival.
    is_silent: whether it writes nothing.
    is_of_sites: whether it serves tenants, each of which has its own objects.
    is_of_time: whether its end depends on how long it was between two changes.
    is_of_last_state: whether the end does not depend on what was there before, such as who came first.
    kinds: further kinds that the API server has.
    check: asserts what holds at the end of each scene besides.
    """

    make: Callable[[Client, "Stage"], Program]
    scene: Callable[[Site], list[Step]]
    writes: Sequence[str]
    settle_seconds: float = 40.0
    surroundings: Callable[["Stage"], Callable[[], None]] = lambda _stage: lambda: None
    not_from_objects: dict[str, str] = field(default_factory=dict)
    not_empty: dict[str, str] = field(default_factory=dict)
    renews: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()
    check: Callable[["Stage"], None] = lambda _stage: None
    most_points: int = 8
    compares_tables: bool = True
    owns: Sequence[str] = ()
    varies: frozenset[str] = frozenset()
    is_silent: bool = False
    is_of_sites: bool = True
    is_of_time: bool = False
    is_of_last_state: bool = True
    start: Callable[["Stage"], None] = lambda _stage: None


class _Loop(VirtualLoop):
    """What would go to a thread is done at once."""

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001 - its caller gets it
            done.set_exception(error)
        return done


class Stage:
    """The part runs from the beginning; `weather` says what fails."""

    def __init__(self, part: Part, *, weather: Weather | None = None) -> None:
        self.part = part
        self.loop = _Loop()
        self.weather = weather or Weather()
        self.news: list[Any] = []
        # What surrounds the part, where its steps need it.
        self.cluster: Any = None
        self.kills = 0
        self._died = False
        self._collected_at = -1
        self._stack = ExitStack()
        # What outlives the process besides the API server.
        self.folder = Path(self._stack.enter_context(TemporaryDirectory()))
        self._stack.enter_context(mock.patch("time.monotonic", self.loop.time))
        self._stack.enter_context(mock.patch("time.time", self._seconds))
        self._stack.enter_context(mock.patch("dovetail.cluster.staleness._utc_now", self.now))
        self._stack.enter_context(clocks_of(self.loop))
        self.server = HttpServer(self.time, kinds=KINDS | part.kinds)
        part.start(self)
        self._surroundings = part.surroundings(self)
        self.run(self._begin())

    # --- time --------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return now(self.loop)

    def _seconds(self) -> float:
        return self.now().timestamp()

    def time(self) -> str:
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def run(self, coroutine: Any) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(coroutine)

    def pass_time(self, seconds: float) -> None:
        self.run(self._play(seconds))

    def settle(self) -> None:
        self.pass_time(self.part.settle_seconds)

    async def _play(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        # A rest that is below the clock's precision would never pass.
        while end - self.loop.time() > _HAIR_SECONDS:
            self._collect()
            self._surroundings()
            await asyncio.sleep(min(max(_STEP_SECONDS, seconds / 200), end - self.loop.time()))
            if self._died:
                await self._end()
                await asyncio.sleep(_DOWN_SECONDS)
                await self._begin()
            if self._task.done():
                self._task.result()
                raise AssertionError("it has ended")

    # --- the process -------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        self._died = False
        self._session = MemorySession(self.server, weather=self.weather, died=self._die)
        client = Client(
            Connection(server="http://memory"),
            make_session=lambda _connection: self._session,
            rng=random.Random(7),
            backoff=retry.Backoff(first_seconds=0.1, longest_seconds=1.0),
        )
        await client.__aenter__()
        self.program = self.part.make(client, self)
        self._task = self.loop.create_task(self.program.run())
        await asyncio.sleep(0)

    def _die(self) -> None:
        self._died = True

    async def _end(self) -> None:
        self._session.is_dead = True
        self.kills += 1
        self._task.cancel()
        self.server.wake()
        await asyncio.wait([self._task], timeout=1.0)

    def restart(self) -> None:
        """The process is killed, and another one begins."""
        self.run(self._end())
        self.run(self._begin())

    def close(self) -> None:
        self.run(self._end())
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        with suppress(BaseException):
            self.loop.run_until_complete(asyncio.sleep(0.1))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self._stack.close()

    # --- objects -----------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Delete what only belongs to objects that are gone; nothing new does until an object changes."""
        if self._collected_at == (version := self.server._version):
            return
        self._collected_at = version
        for plural in list(self.server.objects):
            for key, each in list(self.server.objects[plural].items()):
                owners = each["metadata"].get("ownerReferences", ())
                if owners and all(self._is_gone(owner, of=each) for owner in owners):
                    self.server.delete(plural, key)

    def _is_gone(self, owner: Values, *, of: Values) -> bool:
        if owner["kind"] not in _OWNERS:
            return False
        namespace = of["metadata"].get("namespace")
        keys = (f"{namespace}/{owner['name']}", owner["name"])
        found = [self.server.find(_OWNERS[owner["kind"]], key) for key in keys]
        return not any(each is not None and each["metadata"]["uid"] == owner["uid"] for each in found)

    def end(self, *, site: Site | None = None) -> dict[str, Any]:
        """What the part has written, without what differs from run to run; of one site, without its word."""
        found: dict[str, Any] = {}
        for plural in self.part.writes:
            for key, each in self.server.objects.get(plural, {}).items():
                if site is None or key.startswith(site.word):
                    found[f"{plural} {key}"] = _plain(each, without=_OF_A_RUN | self.part.varies)
        if site is None:
            return found
        text = json.dumps(found, sort_keys=True)
        return dict(json.loads(text.replace(site.word, "SITE")))

    def clear(self) -> None:
        """Delete everything."""
        for plural in list(self.server.objects):
            for key in list(self.server.objects[plural]):
                if self.server.find(plural, key) is not None:
                    self.server.delete(plural, key)


def _plain(value: Any, *, without: frozenset[str]) -> Any:
    if isinstance(value, dict):
        kept = {key: _plain(each, without=without) for key, each in value.items() if key not in without}
        return {key: each for key, each in kept.items() if each not in ({}, None, False)}
    if isinstance(value, list):
        return [_plain(each, without=without) for each in value]
    if isinstance(value, str):
        for pattern, text in _PLAIN:
            value = pattern.sub(text, value)
    return value


def differences(have: Any, want: Any, *, at: str = "") -> Iterator[str]:
    """The places in which two ends differ, one a line."""
    if isinstance(have, dict) and isinstance(want, dict):
        for key in sorted(have.keys() | want.keys()):
            yield from differences(have.get(key), want.get(key), at=f"{at} {key}")
    elif have != want:
        yield f"{at}: {have!r}, and not {want!r}"


@contextmanager
def clocks_of(loop: VirtualLoop) -> Iterator[None]:
    """Every default of our code that is the machine's clock is the loop's."""
    changed: list[tuple[FunctionType, list[str]]] = []
    for function in _functions():
        if names := [name for name, value in (function.__kwdefaults__ or {}).items() if value is _MONOTONIC]:
            changed.append((function, names))
            function.__kwdefaults__.update(dict.fromkeys(names, loop.time))
    try:
        yield
    finally:
        for function, names in changed:
            function.__kwdefaults__.update(dict.fromkeys(names, _MONOTONIC))


def _functions() -> Iterator[FunctionType]:
    for name, module in list(sys.modules.items()):
        for each in list(vars(module).values()) if name.startswith("dovetail") else ():
            if isinstance(each, FunctionType):
                yield each
            elif isinstance(each, type) and each.__module__ == name:
                yield from (method for method in vars(each).values() if isinstance(method, FunctionType))


_MONOTONIC: Final = time.monotonic


# --- steps -----------------------------------------------------------------------------------------------------------


def put(plural: str, values: Values) -> Step:
    """Create the object, or replace all but its metadata."""

    def step(stage: Stage) -> None:
        meta = values["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        if stage.server.find(plural, key) is None:
            stage.server.create(plural, values)
        else:
            stage.server.change(plural, key, lambda each: each.update(_replaced(each, values)))

    return step


def _replaced(known: Values, values: Values) -> Values:
    kept = {name: known["metadata"][name] for name in ("uid", "resourceVersion", "generation", "creationTimestamp")}
    return {**values, "metadata": {**values["metadata"], **kept}}


def change(plural: str, key: str, how: Callable[[Values], object]) -> Step:
    """Somebody edits the object, where it is there."""

    def step(stage: Stage) -> None:
        if stage.server.find(plural, key) is not None:
            stage.server.change(plural, key, lambda each: (how(each), None)[1])

    return step


def drop(plural: str, key: str) -> Step:
    """Somebody deletes the object, where it is there."""

    def step(stage: Stage) -> None:
        if stage.server.find(plural, key) is not None:
            stage.server.delete(plural, key)

    return step


def wait(seconds: float) -> Step:
    return lambda stage: stage.pass_time(seconds)

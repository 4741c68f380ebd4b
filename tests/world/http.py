"""The API server in memory as real clients meet it: lists, watches that resume, every kind of write, and faults.

`MemorySession` stands in the place of the HTTP library, so that the client, its informers and its errors are the real
ones. What is late or fails is said by a `Weather`.
"""

import asyncio
import json
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

from dovetail.api.meta import EventType
from dovetail.kube.errors import Status, StatusError, Unreachable, status_error
from dovetail.kube.http_session import Answer, Request
from tests.world.api import ApiServer, Values, _copied, _key, _merge, _name, never

# How a write fails. `touched` and `deleted` are what another client does to the object right before it, `deleted after`
# right after it; the others are the network's and the API server's.
Fault = Literal["unavailable", "cut before", "cut after", "touched", "deleted", "deleted after", "killed"]
FAULTS: Final[tuple[Fault, ...]] = (
    "unavailable", "cut before", "cut after", "touched", "deleted", "deleted after", "killed",
)  # fmt: skip
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class _Change(NamedTuple):
    """One event of an object, with its last state."""

    version: int
    plural: str
    type: EventType
    values: Values
    before: Values | None


class HttpServer(ApiServer):
    """The objects with their history, from which watches resume. A kind that is not among `kinds` does not exist."""

    def __init__(self, now: Callable[[], str], *, kinds: frozenset[str]) -> None:
        super().__init__(now)
        self.kinds = set(kinds)
        self.changes: list[_Change] = []
        self._last: dict[tuple[str, str], Values] = {}
        self._news: set[asyncio.Future[None]] = set()

    @property
    def version(self) -> int:
        return self._version

    def _tell(self, plural: str, type_: EventType, values: Values) -> None:
        key = plural, _key(values["metadata"])
        before = self._last.pop(key, None)
        if type_ != "DELETED":
            self._last[key] = values
        self.changes.append(_Change(self._version, plural, type_, values, before))
        super()._tell(plural, type_, values)
        self.wake()

    def wake(self) -> None:
        """Let every open watch look again."""
        for waiter in self._news:
            if not waiter.done():
                waiter.set_result(None)

    async def news(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._news.add(waiter)
        try:
            await waiter
        finally:
            self._news.discard(waiter)

    def touch(self, plural: str, key: str) -> None:
        """Change what nobody reads."""
        if self.find(plural, key) is not None:
            self.change(plural, key, lambda each: each["metadata"].setdefault("annotations", {}).update(
                touched=str(self._version)
            ))  # fmt: skip


@dataclass(slots=True)
class Weather:
    """What fails: the `at`-th write, and everything while the API server `is_away`."""

    at: int | None = None
    fault: Fault = "unavailable"
    is_away: bool = False
    # The kinds of which others delete objects.
    owns: Sequence[str] = ()
    # The writes so far, such as `POST gpujobs team/x`, without those of a kind that is renewed all the time.
    writes: list[str] = field(default_factory=list)
    # Those that changed nothing.
    idle: list[str] = field(default_factory=list)
    # The write that failed.
    failed: str = ""

    def next_fault(self, what: str) -> Fault | None:
        self.writes.append(what)
        if len(self.writes) != self.at:
            return None
        self.failed = what
        # Nobody but its owner decides that another object goes.
        is_foreign = self.fault.startswith("deleted") and what.split()[1] not in self.owns
        return "touched" if is_foreign else self.fault


class Target(NamedTuple):
    """What a path names."""

    plural: str
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> str:
        return _name(self.namespace, self.name)


def target_of(path: str) -> Target:
    parts = [unquote(part) for part in path.strip("/").split("/")]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource = (*parts, "", "")[:3]
    return Target(plural, namespace, name, subresource)


class MemorySession:
    """HTTP of one process. A process that is `dead` gets no answer any more."""

    def __init__(self, server: HttpServer, *, weather: Weather, died: Callable[[], None]) -> None:
        self._server = server
        self._weather = weather
        self._died = died
        self.is_dead = False

    async def close(self) -> None:
        """There is nothing to close."""

    async def exchange(self, request: Request) -> Answer:
        await asyncio.sleep(0)
        if self.is_dead:
            await never()
        self._reach()
        target = target_of(request.path)
        fault = None
        if request.method in _WRITES:
            fault = self._weather.next_fault(f"{request.method} {target.plural} {target.key}")
        return await self._answered(request, target=target, fault=fault)

    def _reach(self) -> None:
        if self._weather.is_away:
            raise Unreachable("memory", problem="it is away")

    async def _answered(self, request: Request, *, target: Target, fault: Fault | None) -> Answer:
        server = self._server
        match fault:
            case "unavailable":
                return _answer({"code": 503, "reason": "ServiceUnavailable", "message": "not now"}, status=503)
            case "cut before":
                raise Unreachable("memory", problem="the connection broke")
            case "touched":
                server.touch(target.plural, target.key)
            case "deleted" if target.name and server.find(target.plural, target.key) is not None:
                server.delete(target.plural, target.key)
        version = server.version
        try:
            found = self._do(request, target=target)
        except StatusError as error:
            body = {
                "kind": "Status",
                "code": error.code,
                "reason": error.reason or type(error).__name__,
                "message": error.message,
            }
            return _answer(body, status=error.code)
        if request.method in _WRITES and server.version == version:
            self._weather.idle.append(self._weather.writes[-1])
        if fault == "killed":
            self.is_dead = True
            self._died()
            await never()
        meta = found.get("metadata", {})
        if fault == "deleted after" and server.find(target.plural, key := _name(target.namespace, meta.get("name"))):
            server.delete(target.plural, key)
        if fault == "cut after":
            raise Unreachable("memory", problem="the connection broke")
        await asyncio.sleep(0)
        return _answer(found, status=200)

    def _do(self, request: Request, *, target: Target) -> Values:
        if target.plural not in self._server.kinds:
            raise refusal(404, reason="NotFound", message=f"there are no {target.plural}")
        body = json.loads(request.data) if request.data else {}
        match request.method:
            case "GET" if target.name:
                return self._known(target)
            case "GET":
                return self._list(request, target=target)
            case "POST" if target.subresource:
                return self._post(target, body=body)
            case "POST":
                return self._create(request, target=target, body=body)
            case "PUT":
                self._server._check(target.plural, target.key, body["metadata"])
                return self._write(target, lambda values: _replace(values, body=body, at=target.subresource))
            case "PATCH":
                return self._patch(request, target=target, body=body)
        self._server._check(target.plural, target.key, body.get("preconditions", {}))
        self._server.delete(target.plural, target.key)
        return {"kind": "Status", "status": "Success"}

    # --- reads -------------------------------------------------------------------------------------------------

    def _known(self, target: Target) -> Values:
        found = self._server.find(target.plural, target.key)
        if found is None:
            raise refusal(404, reason="NotFound", message=f"{target.plural} {target.key} not found")
        return found

    def _list(self, request: Request, *, target: Target) -> Values:
        matches = selects(request.query, namespace=target.namespace)
        items = [each for each in self._server.all(target.plural) if matches(each)]
        return {"metadata": {"resourceVersion": str(self._server.version)}, "items": items}

    @asynccontextmanager
    async def stream(
        self, request: Request, *, silence_seconds: float | None
    ) -> AsyncIterator[Answer | AsyncIterator[bytes]]:
        del silence_seconds
        if self.is_dead:
            await never()
        self._reach()
        if target_of(request.path).plural not in self._server.kinds:
            yield _answer({"code": 404, "reason": "NotFound"}, status=404)
        else:
            yield self._events(request)

    async def _events(self, request: Request) -> AsyncIterator[bytes]:
        target = target_of(request.path)
        matches = selects(request.query, namespace=target.namespace)
        seen = int(request.query["resourceVersion"])
        while True:
            if self.is_dead:
                await never()
            self._reach()
            changes = self._server.changes
            missed = changes[bisect_right(changes, seen, key=attrgetter("version")) :]
            if not missed:
                await self._server.news()
                continue
            seen = missed[-1].version
            for change in missed:
                if change.plural == target.plural and (line := _line(change, matches=matches)):
                    yield line

    # --- writes ------------------------------------------------------------------------------------------------

    def _create(self, request: Request, *, target: Target, body: Values) -> Values:
        if target.namespace:
            body["metadata"].setdefault("namespace", target.namespace)
        if generated := body["metadata"].get("generateName"):
            body["metadata"].setdefault("name", f"{generated}{self._server.version}")
        if request.query.get("dryRun") == "All":
            return body
        return self._server.create(target.plural, body)

    def _post(self, target: Target, *, body: Values) -> Values:
        """An eviction, which ends the pod at once."""
        assert target.subresource == "eviction", target
        wanted = body.get("deleteOptions", {}).get("preconditions", {})
        self._server.delete(target.plural, target.key, uid=wanted.get("uid"))
        return {"kind": "Status", "status": "Success"}

    def _write(self, target: Target, change: Callable[[Values], None]) -> Values:
        self._known(target)
        return self._server.change(target.plural, target.key, change)

    def _patch(self, request: Request, *, target: Target, body: Any) -> Values:
        kind = request.headers["Content-Type"].partition("/")[2].partition("+")[0]
        if kind == "apply-patch" and self._server.find(target.plural, target.key) is None:
            return self._create(request, target=target, body=body)
        if kind == "json-patch":
            return self._write(target, lambda values: _json_patch(values, steps=body))
        self._server._check(target.plural, target.key, body.get("metadata", {}))
        if target.subresource == "status":
            # The API server keeps the rest of the object, but for a node's own labels.
            kept = {"status", "metadata"} if target.plural == "nodes" else {"status"}
            body = {part: value for part, value in body.items() if part in kept}
        elif "status" in body:
            body = {part: value for part, value in body.items() if part != "status"}
        merge = _merge if kind == "merge-patch" else _merge_by_name
        return self._write(target, lambda values: merge(values, _copied(body)))


def refusal(code: int, *, reason: str, message: str) -> StatusError:
    """The API server's answer as the error that it is."""
    return status_error(Status(code=code, reason=reason, message=message))


def _answer(body: Values, *, status: int) -> Answer:
    return Answer(status=status, retry_after="", body=json.dumps(body).encode())


def _line(change: _Change, *, matches: Callable[[Values], bool]) -> bytes | None:
    """The event as a watch with a selector tells of it: an object that matches no longer is deleted for it."""
    was = change.before is not None and matches(change.before)
    now = change.type != "DELETED" and matches(change.values)
    if not was and not now:
        return None
    type_ = "MODIFIED" if was and now else "ADDED" if now else "DELETED"
    return json.dumps({"type": type_, "object": change.values}).encode() + b"\n"


def selects(query: Any, *, namespace: str) -> Callable[[Values], bool]:
    """Whether an object is one of the namespace that the selectors choose."""
    labels = [each for each in query.get("labelSelector", "").split(",") if each]
    fields = [each for each in query.get("fieldSelector", "").split(",") if each]

    def matches(values: Values) -> bool:
        meta = values["metadata"]
        found = meta.get("labels") or {}
        return (
            (not namespace or meta.get("namespace") == namespace)
            and all(_has(found.get(text.partition("=")[0]), text) for text in labels)
            and all(_has(_at(values, text.partition("=")[0].removesuffix("!")), text) for text in fields)
        )

    return matches


def _has(value: Any, text: str) -> bool:
    name, equals, wanted = text.partition("=")
    if name.endswith("!"):
        return bool((value or "") != wanted)
    return bool(value == wanted) if equals else value is not None


def _at(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values.get(part, "") if isinstance(values, dict) else ""
    return values


def _replace(values: Values, *, body: Values, at: str) -> None:
    if at:
        values[at] = body.get(at, {})
        return
    kept = {part: values["metadata"][part] for part in ("uid", "resourceVersion", "creationTimestamp", "generation")}
    kept |= {"namespace": values["metadata"]["namespace"]} if values["metadata"].get("namespace") else {}
    status = {"status": values["status"]} if "status" in values else {}
    values.clear()
    values.update(body | status, metadata=body["metadata"] | kept)


def _merge_by_name(values: Values, patch: Values) -> None:
    """A strategic patch, and an apply of one's own fields: items of a list are known by their name or type."""
    for name, value in patch.items():
        known = values.get(name)
        if value is None:
            values.pop(name, None)
        elif isinstance(value, dict) and isinstance(known, dict):
            _merge_by_name(known, value)
        elif isinstance(value, list) and isinstance(known, list) and all(map(_naming, [*value, *known])):
            by_name = {each[_naming(each)]: each for each in known}
            for each in value:
                item = by_name.setdefault(each[_naming(each)], {})
                _merge_by_name(item, each)
            values[name] = list(by_name.values())
        else:
            values[name] = value


def _naming(item: Any) -> str:
    found: Iterator[str] = (key for key in ("name", "type") if isinstance(item, dict) and key in item)
    return next(found, "")


def _json_patch(values: Values, *, steps: list[Values]) -> None:
    for step in steps:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        holder: Any = values
        for part in way:
            holder = holder[int(part)] if isinstance(holder, list) else holder.setdefault(part, {})
        if step["op"] == "test":
            if holder.get(last) != step["value"]:
                raise refusal(422, reason="Invalid", message=f"{step['path']} is another")
        elif step["op"] == "remove":
            del holder[int(last) if isinstance(holder, list) else last]
        else:
            holder[last] = step["value"]

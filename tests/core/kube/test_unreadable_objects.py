"""Objects that cannot be read or handled: each costs only itself. API servers take 10,000 levels."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.builtin import ConfigMap
from dovetail.api.meta import EventType, ObjectMeta
from dovetail.api.resources import CONFIGMAPS
from dovetail.kube import watch_stream
from dovetail.kube.client import Client
from dovetail.kube.errors import Undecodable
from dovetail.kube.reflector import Reflector
from dovetail.kube.unreadable_objects import UnreadableCollector
from tests.core.kube.api import Answer, Api, Stream, line, listing, make_object, refusal
from tests.core.kube.conftest import QUICK

LIST = "GET /api/v1/configmaps"
WATCH = "WATCH /api/v1/configmaps"
# Before 3.12, Python reads 1,000 levels, and 10,000 since, which is also as deep as the API server accepts.
DEPTHS = (1_100, 9_999) if sys.version_info < (3, 12) else (9_999,)
MARK = "DEEP"


def deep(levels: int) -> bytes:
    return b'{"x":' * levels + b"1" + b"}" * levels


def text_of(value: Any, *, levels: int) -> bytes:
    """JSON with MARK replaced by a value so deep that json.dumps could not write it."""
    return json.dumps(value).encode().replace(b'"DEEP"', deep(levels))


def poison(name: str, *, version: int, uid: str = "") -> dict[str, Any]:
    return {**make_object(name, version=version, **({"uid": uid} if uid else {})), "spec": MARK}


def with_managed_fields(item: dict[str, Any]) -> dict[str, Any]:
    fields = [{"manager": "m", "fieldsV1": MARK}]
    return {**item, "metadata": {**item["metadata"], "managedFields": fields}}


def page_of(*items: dict[str, Any], levels: int, version: int = 5) -> Answer:
    return Answer(body=text_of({"metadata": {"resourceVersion": str(version)}, "items": items}, levels=levels))


def change(event: str, item: dict[str, Any], *, levels: int) -> bytes:
    return text_of({"type": event, "object": item}, levels=levels) + b"\n"


A1, B2 = make_object("a", version=1), make_object("b", version=2)


class Follower:
    def __init__(
        self, client: Client, *, fails: Callable[[EventType, str], bool] = lambda _event, _name: False
    ) -> None:
        self.changes: list[tuple[EventType, str, str]] = []
        self.reports: list[tuple[str, str, str]] = []
        self._fails = fails
        self._woken = asyncio.Event()
        self.reflector = Reflector(
            client,
            resource=CONFIGMAPS,
            as_type=ConfigMap,
            on_event=self._event,
            on_unreadable=self._report,
            backoff=QUICK,
        )

    def _event(self, event: EventType, found: ConfigMap) -> None:
        self._woken.set()
        self.changes.append((event, found.metadata.name, found.metadata.resource_version))
        if self._fails(event, found.metadata.name):
            raise ArithmeticError("no such number")

    def _report(self, meta: ObjectMeta, problem: str) -> None:
        self._woken.set()
        self.reports.append((meta.name, meta.resource_version, problem))

    async def synced(self) -> None:
        async with asyncio.timeout(60):
            await self.reflector.synced.wait()

    async def until(self, fulfilled: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not fulfilled():
                self._woken.clear()
                await self._woken.wait()


@asynccontextmanager
async def following(follower: Follower) -> AsyncIterator[Follower]:
    task = asyncio.create_task(follower.reflector.run())
    try:
        yield follower
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


def count(kind: str = "ConfigMap") -> float:
    registry = CollectorRegistry()
    registry.register(UnreadableCollector())
    return registry.get_sample_value("dovetail_unreadable_objects_total", {"kind": kind}) or 0


@pytest.mark.parametrize("levels", DEPTHS)
async def test_of_a_page_with_an_object_nested_too_deeply_the_others_are_known(
    api: Api, client: Client, levels: int
) -> None:
    before = count()
    api.answer(LIST, page_of(A1, poison("mallory", version=3), B2, levels=levels))
    async with following(Follower(client)) as follower:
        await follower.synced()
        assert [name for _, name, _ in follower.changes] == ["a", "b"]
        assert follower.reports == [("mallory", "3", "cannot be read: it is nested too deeply")]
        assert follower.reflector.unreadable.keys() == {"ns/mallory"}
    assert count() == before + 1


@pytest.mark.parametrize("levels", DEPTHS)
async def test_a_watch_goes_on_after_an_object_nested_too_deeply(api: Api, client: Client, levels: int) -> None:
    api.answer(LIST, listing(A1, version=5))
    chunks = [change("MODIFIED", poison("a", version=6), levels=levels), line("ADDED", B2)]
    api.answer(WATCH, Stream(chunks=chunks))
    async with following(Follower(client)) as follower:
        await follower.until(lambda: len(follower.changes) == 2)
        assert follower.changes == [("ADDED", "a", "1"), ("ADDED", "b", "2")]
        assert follower.reflector.store["ns/a"].metadata.resource_version == "1"
        assert follower.reports == [("a", "6", "cannot be read: it is nested too deeply")]
    assert len(api.of(LIST)) == 1


@pytest.mark.parametrize("levels", DEPTHS)
async def test_managed_fields_nested_too_deeply_hide_nothing(api: Api, client: Client, levels: int) -> None:
    api.answer(LIST, page_of(with_managed_fields(A1), levels=levels))
    api.answer(WATCH, Stream(chunks=[change("DELETED", with_managed_fields(A1), levels=levels)]))
    async with following(Follower(client)) as follower:
        await follower.until(lambda: len(follower.changes) == 2)
        assert follower.changes == [("ADDED", "a", "1"), ("DELETED", "a", "1")]
        assert follower.reports == []


async def test_an_unreadable_object_that_goes_takes_what_was_known_of_it_along(api: Api, client: Client) -> None:
    api.answer(LIST, listing(A1, version=5))
    gone = poison("a", version=7)
    chunks = [change("MODIFIED", poison("a", version=6), levels=9_999), change("DELETED", gone, levels=9_999)]
    api.answer(WATCH, Stream(chunks=chunks))
    async with following(Follower(client)) as follower:
        await follower.until(lambda: len(follower.changes) == 2)
        assert follower.changes[-1] == ("DELETED", "a", "1")
        assert not follower.reflector.unreadable
        assert not follower.reflector.store


async def test_an_unreadable_successor_is_not_taken_for_the_object_before_it(api: Api, client: Client) -> None:
    api.answer(LIST, listing(A1, version=5), page_of(poison("a", version=8, uid="another"), levels=9_999, version=9))
    api.answer(WATCH, refusal(410))
    async with following(Follower(client)) as follower:
        await follower.until(lambda: bool(follower.reports))
        assert follower.changes == [("ADDED", "a", "1"), ("DELETED", "a", "1")]


async def test_an_object_that_can_be_read_again_is_no_longer_unreadable(api: Api, client: Client) -> None:
    api.answer(LIST, page_of(poison("a", version=3), levels=9_999))
    api.answer(WATCH, Stream(chunks=[line("MODIFIED", make_object("a", version=6))]))
    async with following(Follower(client)) as follower:
        await follower.until(lambda: bool(follower.changes))
        assert follower.changes == [("ADDED", "a", "6")]
        assert not follower.reflector.unreadable


async def test_each_version_counts_and_is_reported_but_one_problem_is_logged_once(
    api: Api, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    before = count()
    api.answer(LIST, listing(version=5))
    versions = [change("MODIFIED", poison("a", version=version), levels=9_999) for version in (6, 6, 7, 8)]
    api.answer(WATCH, Stream(chunks=versions))
    async with following(Follower(client)) as follower:
        await follower.until(lambda: len(follower.reports) == 3)
    assert count() == before + 3
    assert caplog.text.count("ns/a cannot be read") == 1


async def test_an_error_of_the_handler_costs_one_object(
    api: Api, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    before = count()
    api.answer(LIST, listing(A1, version=5))
    api.answer(WATCH, Stream(chunks=[line("ADDED", B2)]))
    async with following(Follower(client, fails=lambda _event, name: name == "a")) as follower:
        await follower.until(lambda: ("ADDED", "b", "2") in follower.changes)
        assert follower.reports == [("a", "1", "cannot be handled: ArithmeticError: no such number")]
        assert set(follower.reflector.store) == {"ns/a", "ns/b"}
    assert count() == before + 1
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.WARNING)


async def test_what_a_handler_failed_at_is_delivered_again_with_the_next_watch(api: Api, client: Client) -> None:
    api.answer(LIST, listing(A1, version=5))
    gone = line("DELETED", make_object("a", version=6))
    api.answer(WATCH, Stream(chunks=[gone], then="drop"), Stream(chunks=[line("ADDED", B2)]))
    failures = iter([True])
    fails = Follower(client, fails=lambda event, _name: event == "DELETED" and next(failures, False))
    async with following(fails) as follower:
        await follower.until(lambda: ("ADDED", "b", "2") in follower.changes)
        assert follower.changes[1:] == [("DELETED", "a", "6"), ("DELETED", "a", "6"), ("ADDED", "b", "2")]
        assert not follower.reflector.unreadable


async def test_an_error_of_the_report_costs_nothing(api: Api, client: Client) -> None:
    def fail(_meta: ObjectMeta, _problem: str) -> None:
        raise ArithmeticError

    api.answer(LIST, page_of(A1, poison("mallory", version=3), B2, levels=9_999))
    reflector = Reflector(client, resource=CONFIGMAPS, as_type=ConfigMap, on_unreadable=fail)
    task = asyncio.create_task(reflector.run())
    async with asyncio.timeout(60):
        await reflector.synced.wait()
    assert set(reflector.store) == {"ns/a", "ns/b"}
    task.cancel()


@pytest.mark.parametrize("as_type", [ConfigMap, msgspec.Raw, dict[str, Any]])
async def test_a_list_reports_what_it_cannot_read_and_has_the_others(
    api: Api, client: Client, as_type: type[Any]
) -> None:
    api.answer(LIST, page_of(A1, poison("mallory", version=3), B2, levels=9_999))
    names: list[str] = []
    found = await client.list(CONFIGMAPS, as_type=as_type, on_unreadable=lambda meta, _problem: names.append(meta.name))
    assert len(found.items) + len(names) == 3
    assert names == ([] if as_type is msgspec.Raw else ["mallory"])


async def test_a_list_without_a_place_for_reports_says_which_object_it_is(api: Api, client: Client) -> None:
    api.answer(LIST, page_of(A1, poison("mallory", version=3), levels=9_999))
    with pytest.raises(Undecodable, match="object ns/mallory: it is nested too deeply"):
        await client.list(CONFIGMAPS, as_type=ConfigMap)


async def test_one_object_that_cannot_be_read_is_an_error_of_the_tree(api: Api, client: Client) -> None:
    api.answer("GET /api/v1/namespaces/ns/configmaps/a", Answer(body=text_of(poison("a", version=1), levels=9_999)))
    with pytest.raises(Undecodable, match="nested too deeply"):
        await client.get(CONFIGMAPS, name="a", as_type=ConfigMap, namespace="ns")


async def test_one_object_is_read_although_its_managed_fields_cannot_be(api: Api, client: Client) -> None:
    path = "/api/v1/namespaces/ns/configmaps/a"
    api.answer(f"GET {path}", Answer(body=text_of(with_managed_fields(A1), levels=9_999)))
    api.answer(f"PATCH {path}", Answer(body=text_of(with_managed_fields(A1), levels=9_999)))
    assert (await client.get(CONFIGMAPS, name="a", as_type=ConfigMap, namespace="ns")).metadata.name == "a"
    assert (
        await client.patch(CONFIGMAPS, name="a", patch={}, as_type=ConfigMap, namespace="ns")
    ).metadata.uid == "uid-a"


@pytest.mark.parametrize("payload", [b"", b"<html>", b"[]", b'{"items": []}', b'{"metadata": {}, "items": [{]}'])
def test_a_page_that_is_none_is_undecodable(payload: bytes) -> None:
    with pytest.raises(Undecodable):
        watch_stream.page(payload, as_type=ConfigMap, path="/x")


def test_what_names_no_metadata_is_undecodable() -> None:
    raw = msgspec.Raw(b'{"spec": ' + deep(9_999) + b"}")
    with pytest.raises(Undecodable):
        watch_stream.read(raw, decoder=watch_stream.decoder(ConfigMap), path="/x")

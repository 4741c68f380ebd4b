import asyncio
import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from dovetail.api.builtin import ConfigMap
from dovetail.api.meta import EventType
from dovetail.api.resources import CONFIGMAPS
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden
from dovetail.kube.reflector import Reflector
from tests.background import running
from tests.core.kube.api import Answer, Api, Stream, bookmark, line, listing, make_object, refusal
from tests.core.kube.conftest import QUICK

LIST = "GET /api/v1/configmaps"
WATCH = "WATCH /api/v1/configmaps"
Change = tuple[EventType, str, str]


class Recorder:
    """Follows the fake API and keeps what was reported as (type, name, resourceVersion)."""

    def __init__(self, client: Client, **options: float) -> None:
        self.changes: list[Change] = []
        self._changed = asyncio.Event()
        self.reflector = Reflector(
            client, resource=CONFIGMAPS, as_type=ConfigMap, on_event=self._record, backoff=QUICK, **options
        )

    def _record(self, kind: EventType, found: ConfigMap) -> None:
        self.changes.append((kind, found.metadata.name, found.metadata.resource_version))
        self._changed.set()

    async def until(self, count: int) -> list[Change]:
        async with asyncio.timeout(60):
            while len(self.changes) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.changes

    @property
    def names(self) -> set[str]:
        return {item.metadata.name for item in self.reflector.store.values()}


@asynccontextmanager
async def following(client: Client, **options: float) -> AsyncIterator[Recorder]:
    recorder = Recorder(client, **options)
    task = asyncio.create_task(recorder.reflector.run())
    try:
        yield recorder
    finally:
        task.cancel()
        await asyncio.wait([task])


A1, B2, A3 = make_object("a", version=1), make_object("b", version=2), make_object("a", version=3)


async def test_a_transform_decides_what_is_kept_and_reported(api: Api, client: Client) -> None:
    api.answer(LIST, listing(A1, version=5))
    api.answer(WATCH, Stream(chunks=[line("MODIFIED", A3)]))
    recorder = Recorder(client)
    recorder.reflector._transform = lambda found: msgspec.structs.replace(found, data={"kept": "no"})
    async with running(recorder.reflector.run()):
        await recorder.until(2)
    assert [found.data for found in recorder.reflector.store.values()] == [{"kept": "no"}]


async def test_a_change_that_does_not_matter_is_stored_and_not_reported(api: Api, client: Client) -> None:
    asked = []

    def matters(old: ConfigMap, new: ConfigMap) -> bool:
        asked.append((old.metadata.resource_version, new.metadata.resource_version))
        return False

    api.answer(LIST, listing(A1, version=5))
    api.answer(WATCH, Stream(chunks=[line("MODIFIED", A3), line("DELETED", A3)]))
    recorder = Recorder(client)
    recorder.reflector._matters = matters
    async with running(recorder.reflector.run()):
        assert await recorder.until(2) == [("ADDED", "a", "1"), ("DELETED", "a", "3")]
    assert asked == [("1", "3")]


async def test_a_change_after_one_that_could_not_be_handled_matters(api: Api, client: Client) -> None:
    api.answer(LIST, listing(A1, version=5))
    api.answer(WATCH, Stream(chunks=[line("MODIFIED", A3)]))
    recorder, failures = Recorder(client), [ValueError("not now"), ValueError("not yet")]

    def record(kind: EventType, found: ConfigMap) -> None:
        if failures:
            raise failures.pop()
        recorder._record(kind, found)

    recorder.reflector._on_event = record
    recorder.reflector._matters = lambda _old, _new: False
    async with running(recorder.reflector.run()):
        assert await recorder.until(1) == [("MODIFIED", "a", "3")]


async def test_a_paged_list_is_reported_as_additions_and_then_synced(api: Api, client: Client) -> None:
    api.answer(LIST, listing(A1, version=5, token="more"), listing(B2, version=5))
    async with following(client) as recorder:
        await recorder.reflector.synced.wait()
        assert recorder.changes == [("ADDED", "a", "1"), ("ADDED", "b", "2")]
        assert set(recorder.reflector.store) == {"ns/a", "ns/b"}
        assert recorder.reflector.resource_version == "5"


async def test_a_page_is_passed_on_before_its_objects_and_only_with_its_news(api: Api, client: Client) -> None:
    api.answer(LIST, listing(A1, B2, version=5), listing(A3, B2, version=6))
    api.answer(WATCH, refusal(410))
    pages: list[tuple[list[str], int]] = []
    recorder = Recorder(client)
    recorder.reflector._on_page = lambda page: pages.append(
        ([found.metadata.resource_version for found in page], len(recorder.changes))
    )
    async with running(recorder.reflector.run()):
        await recorder.until(3)
    assert pages == [(["1", "2"], 0), (["3"], 2)]


async def test_a_page_that_cannot_be_handled_at_once_is_handled_one_by_one(
    api: Api, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    api.answer(LIST, listing(A1, B2, version=5))
    recorder = Recorder(client)

    def fail(_page: object) -> None:
        raise ValueError("not all at once")

    recorder.reflector._on_page = fail
    async with running(recorder.reflector.run()):
        assert await recorder.until(2) == [("ADDED", "a", "1"), ("ADDED", "b", "2")]
    assert "configmaps: a page is handled one by one: not all at once" in caplog.text


async def test_the_watch_begins_where_the_list_ended(api: Api, client: Client) -> None:
    api.answer(LIST, listing(version=5))
    api.answer(WATCH, Stream(chunks=[line("ADDED", A1), line("MODIFIED", A3), line("DELETED", A3)]))
    async with following(client) as recorder:
        assert await recorder.until(3) == [("ADDED", "a", "1"), ("MODIFIED", "a", "3"), ("DELETED", "a", "3")]
        assert not recorder.reflector.store
    query = api.of(WATCH)[0].query
    assert (query["resourceVersion"], query["allowWatchBookmarks"]) == ("5", "true")


async def test_a_dropped_connection_resumes_from_the_last_event(api: Api, client: Client) -> None:
    api.answer(LIST, listing(version=5))
    first = line("ADDED", make_object("a", version=7))
    api.answer(WATCH, Stream(chunks=[first, b'{"type":"ADD'], then="drop"))
    api.answer(WATCH, Stream(chunks=[line("ADDED", make_object("b", version=8))]))
    async with following(client) as recorder:
        await recorder.until(2)
    assert [seen.query["resourceVersion"] for seen in api.of(WATCH)[:2]] == ["5", "7"]
    assert len(api.of(LIST)) == 1


@pytest.mark.parametrize("busy", [refusal(503), refusal(429, headers={"Retry-After": "0"})])
async def test_a_busy_api_server_is_not_asked_for_the_list_again(api: Api, client: Client, busy: Answer) -> None:
    api.answer(LIST, listing(version=5))
    api.answer(WATCH, busy, Stream(chunks=[line("ADDED", A1)]))
    async with following(client) as recorder:
        await recorder.until(1)
    assert len(api.of(LIST)) == 1


async def test_a_bookmark_moves_the_place_to_resume_from(api: Api, client: Client) -> None:
    api.answer(LIST, listing(version=5))
    api.answer(WATCH, Stream(chunks=[bookmark(90)], then="end"), Stream(chunks=[line("ADDED", A1)]))
    async with following(client) as recorder:
        await recorder.until(1)
    assert api.of(WATCH)[1].query["resourceVersion"] == "90"


@pytest.mark.parametrize(
    "expired",
    [
        Stream(chunks=[line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})]),
        Stream(chunks=[line("ERROR", {"kind": "Status", "code": 500, "message": "etcd is gone"})]),
        refusal(410, reason="Expired"),
        Stream(chunks=[b"<html>not a watch</html>\n"]),
    ],
)
async def test_a_watch_that_cannot_go_on_lists_again(api: Api, client: Client, expired: Stream | Answer) -> None:
    api.answer(LIST, listing(A1, version=5), listing(A1, B2, version=9))
    api.answer(WATCH, expired, Stream(chunks=[line("DELETED", B2)]))
    async with following(client) as recorder:
        await recorder.until(3)
    assert [seen.query["resourceVersion"] for seen in api.of(WATCH)[:2]] == ["5", "9"]


async def test_a_relist_reports_only_what_differs(api: Api, client: Client) -> None:
    gone, same = make_object("gone", version=2), make_object("same", version=3)
    api.answer(LIST, listing(A1, gone, same, version=5), listing(A3, same, B2, version=9))
    api.answer(WATCH, refusal(410))
    async with following(client) as recorder:
        changes = await recorder.until(6)
        assert changes[3:] == [("MODIFIED", "a", "3"), ("ADDED", "b", "2"), ("DELETED", "gone", "2")]
        assert recorder.names == {"a", "same", "b"}


async def test_an_object_replaced_while_nobody_watched_is_gone_and_then_new(api: Api, client: Client) -> None:
    other = make_object("a", version=8, uid="another")
    api.answer(LIST, listing(A1, version=5), listing(other, version=9))
    api.answer(WATCH, refusal(410))
    async with following(client) as recorder:
        assert (await recorder.until(3))[1:] == [("DELETED", "a", "1"), ("ADDED", "a", "8")]


async def test_the_end_of_an_earlier_object_leaves_its_successor(api: Api, client: Client) -> None:
    other = make_object("a", version=8, uid="another")
    api.answer(LIST, listing(other, version=9))
    api.answer(WATCH, Stream(chunks=[line("DELETED", A1), line("ADDED", B2)]))
    async with following(client) as recorder:
        assert await recorder.until(2) == [("ADDED", "a", "8"), ("ADDED", "b", "2")]
        assert recorder.names == {"a", "b"}


async def test_a_list_whose_continuation_expired_begins_anew(api: Api, client: Client) -> None:
    api.answer(LIST, listing(A1, version=5, token="old"), refusal(410), listing(A1, B2, version=6))
    async with following(client) as recorder:
        await recorder.until(2)
        await recorder.reflector.synced.wait()
        assert recorder.changes == [("ADDED", "a", "1"), ("ADDED", "b", "2")]


async def test_a_silent_stream_is_given_up_and_resumed(api: Api, client: Client) -> None:
    api.answer(LIST, listing(version=5))
    api.answer(WATCH, Stream(then="silence"), Stream(chunks=[line("ADDED", A1)]))
    async with following(client, silence_seconds=0.05) as recorder:
        await recorder.until(1)
    assert api.of(WATCH)[1].query["resourceVersion"] == "5"


async def test_an_object_of_more_than_a_megabyte_comes_through(api: Api, client: Client) -> None:
    large = make_object("large", version=6, data={"k": "x" * 1_500_000})
    api.answer(LIST, listing(version=5))
    api.answer(WATCH, Stream(chunks=[line("ADDED", large) + line("ADDED", A1)]))
    async with following(client) as recorder:
        await recorder.until(2)
        assert len(recorder.reflector.store["ns/large"].data["k"]) == 1_500_000


async def test_one_odd_object_does_not_hide_the_others(
    api: Api, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    odd = make_object("odd", version=3, data="not a map")
    api.answer(LIST, listing(A1, odd, version=5))
    api.answer(WATCH, Stream(chunks=[line("MODIFIED", make_object("a", version=6, data=1)), line("ADDED", B2)]))
    async with following(client) as recorder:
        assert await recorder.until(2) == [("ADDED", "a", "1"), ("ADDED", "b", "2")]
    assert "ConfigMap ns/odd cannot be read: Expected `object`, got `str` - at `$.data`" in caplog.text


async def test_an_odd_object_that_was_known_stays_as_it_was_until_it_is_gone(api: Api, client: Client) -> None:
    odd = make_object("a", version=6, data=1)
    api.answer(LIST, listing(A1, version=5), listing(odd, version=7))
    api.answer(WATCH, refusal(410), Stream(chunks=[line("DELETED", odd)]))
    async with following(client) as recorder:
        assert await recorder.until(2) == [("ADDED", "a", "1"), ("DELETED", "a", "1")]


async def test_an_api_server_that_says_no_is_asked_again_and_the_error_shows(api: Api, client: Client) -> None:
    api.answer(LIST, refusal(403, message="not you"), refusal(403, message="not you"))
    released = asyncio.Event()
    api.answer(LIST, Answer(body={"metadata": {"resourceVersion": "5"}, "items": [A1]}, released=released))
    api.answer(WATCH, Stream(chunks=[line("ADDED", B2)]))
    async with following(client) as recorder:
        await api.until(LIST, count=3)
        assert isinstance(recorder.reflector.last_error, Forbidden)
        assert not recorder.reflector.synced.is_set()
        released.set()
        await recorder.until(2)
        assert recorder.reflector.last_error is None


async def test_a_watch_that_is_open_again_ends_the_trouble(api: Api, client: Client) -> None:
    api.answer(LIST, listing(version=5))
    api.answer(WATCH, refusal(503), Stream(then="silence"))
    async with following(client) as recorder:
        await api.until(WATCH, count=2)
        assert recorder.reflector.last_error is not None
        async with asyncio.timeout(60):
            while recorder.reflector.last_error is not None:  # noqa: ASYNC110 - the answer's head wakes nobody
                await asyncio.sleep(0)


async def test_troubles_are_told_once_quietly_and_then_as_warnings(
    api: Api, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    api.answer(LIST, refusal(403), refusal(403), listing(A1, version=1))
    async with following(client) as recorder:
        await recorder.until(1)
    told = [record.levelname for record in caplog.records if "listing again" in record.message]
    assert told == ["INFO", "WARNING"]


async def test_age_counts_from_the_last_word_of_the_api_server(api: Api, client: Client) -> None:
    api.answer(LIST, listing(version=5))
    now = 100.0
    reflector = Reflector(client, resource=CONFIGMAPS, as_type=ConfigMap, clock=lambda: now)
    assert reflector.age_seconds == math.inf
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    now = 112.5
    assert reflector.age_seconds == 12.5
    task.cancel()


async def test_selectors_go_with_list_and_watch(api: Api, client: Client) -> None:
    path = "/api/v1/namespaces/ns/configmaps"
    api.answer(f"GET {path}", listing(version=5))
    reflector = Reflector(
        client, resource=CONFIGMAPS, as_type=ConfigMap, namespace="ns", label_selector="a=b", field_selector="c=d"
    )
    task = asyncio.create_task(reflector.run())
    await api.until(f"WATCH {path}", count=1)
    task.cancel()
    for seen in api.seen:
        assert (seen.query["labelSelector"], seen.query["fieldSelector"]) == ("a=b", "c=d")

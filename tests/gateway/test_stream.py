"""Snapshot and stream: what each caller gets of a change, and how a stream goes on, begins again and ends."""

import asyncio
import base64
import gzip
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request

from dovetail.answers.jobs import job_row
from dovetail.api.gpujob import GPUJob
from dovetail.config.settings import Settings
from dovetail.decoding import decode
from dovetail_gateway.access.visibility import EVERYTHING, Visibility
from dovetail_gateway.app import Options
from dovetail_gateway.routing.open_streams import MOST_STREAMS, Times
from dovetail_gateway.stream import feed as feed_module
from dovetail_gateway.stream.events import EventStreams
from dovetail_gateway.stream.feed import _MOST_KEPT, Change, EncodedDeltas, Feed
from dovetail_gateway.v3.types.stream import Delta
from tests.background import eventually
from tests.extender.builders import make_gpunode, make_node
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.builders import make_bound_pod, make_job
from tests.gateway.served import Face, serving
from tests.gateway.test_cluster_machine import make_cache, tell

STREAM = "/api/v3/stream"


class Event(NamedTuple):
    """One server-sent event; a comment has no name."""

    name: str
    id: str
    data: Any


class Reader:
    """Reads events from an open stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self, *, comments: bool = False) -> Event:
        async with asyncio.timeout(20):
            while True:
                lines = (await self.response.content.readuntil(b"\n\n")).decode().strip().split("\n")
                fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
                if "event" in fields:
                    return Event(fields["event"], fields["id"], json.loads(fields["data"]))
                if comments and lines[0].startswith(":"):
                    return Event("", "", None)

    async def until(self, name: str) -> Event:
        while (event := await self.next()).name != name:
            pass
        return event


@asynccontextmanager
async def stream(face: Face, *, token: str, since: str = "", **headers: str) -> AsyncIterator[Reader]:
    sent = {"Authorization": f"Bearer {token}", **headers}
    path = f"{STREAM}?since={since}" if since else STREAM
    async with face.session.get(face.url + path, headers=sent) as response:
        assert response.status == 200, await response.text()
        yield Reader(response)


async def start(face: Face, token: str) -> str:
    """The position of a snapshot of now, when all that has happened is in it."""
    face.made.feed.collect()
    found = (await face.get("/api/v3/snapshot", token=token)).json
    return f"{found['epoch']}:{found['seq']}"


async def test_a_snapshot_has_what_the_caller_sees(face: Face) -> None:
    found = (await face.get("/api/v3/snapshot", token="red-token")).json
    assert [row["name"] for row in found["jobs"]] == ["train"]
    assert [node["name"] for node in found["nodes"]] == ["a", "b"]
    assert "canary" not in json.dumps(found)


async def test_a_change_reaches_the_stream_as_a_delta_from_the_snapshot_on(api: GatewayApiServer, face: Face) -> None:
    since = await start(face, "red-token")
    async with stream(face, token="red-token", since=since) as reader:
        api.put("gpujobs", make_job("new", namespace="red"))
        event = await reader.next()
    assert (event.name, [row["name"] for row in event.data["jobs"]]) == ("delta", ["new"])
    assert event.id == f"{face.made.feed.epoch}:{event.data['seq']}"


async def test_what_is_gone_is_told(api: GatewayApiServer, face: Face) -> None:
    async with stream(face, token="red-token", since=await start(face, "red-token")) as reader:
        api.delete("gpujobs", "red/train")
        api.delete("gpunodes", "b")
        gone = [(await reader.next()).data]
        if not (gone[0]["goneNodes"] and gone[0]["goneJobs"]):
            gone.append((await reader.next()).data)
    assert [each for data in gone for each in data["goneJobs"]] == [{"namespace": "red", "name": "train"}]
    assert [each for data in gone for each in data["goneNodes"]] == ["b"]


async def test_a_hidden_change_sends_nothing_but_its_sum_on_a_device(api: GatewayApiServer, face: Face) -> None:
    async with stream(face, token="red-token", since=await start(face, "red-token")) as reader:
        api.put("gpujobs", make_job("canarynew", namespace="canaryns"))
        api.delete("gpujobs", "canaryns/canaryjob")
        api.put("pods", make_bound_pod("canarysecond", namespace="canaryns", job="canaryjob", number=7, device="a-2"))
        event = await reader.next()
    assert "canary" not in json.dumps(event.data)
    assert (event.data["jobs"], event.data["goneJobs"]) == ([], [])
    assert event.data["nodes"][0]["devices"][2]["others"]["tenants"] == 1


async def test_a_stream_goes_on_where_the_client_was(api: GatewayApiServer, face: Face) -> None:
    since = await start(face, "red-token")
    async with stream(face, token="red-token", since=since) as reader:
        api.put("gpujobs", make_job("one", namespace="red"))
        seen = await reader.next()
    api.put("gpujobs", make_job("two", namespace="red"))
    async with stream(face, token="red-token", **{"Last-Event-ID": seen.id}) as reader:
        event = await reader.next()
    assert [row["name"] for row in event.data["jobs"]] == ["two"]


@pytest.mark.parametrize("since", ["00000000:1", "{epoch}:999999"])
async def test_a_position_that_means_nothing_here_is_answered_with_resync(face: Face, since: str) -> None:
    async with stream(face, token="red-token", since=since.format(epoch=face.made.feed.epoch)) as reader:
        assert (await reader.next()).name == "resync"


async def test_a_client_that_falls_behind_the_ring_gets_resync(api: GatewayApiServer, face: Face) -> None:
    since = await start(face, "red-token")
    for at in range(_MOST_KEPT + 1):
        face.made.cache.take_changes()
        face.made.cache._changes.jobs.add(f"red/j{at}")
        face.made.feed.collect()
    async with stream(face, token="red-token", since=since) as reader:
        assert (await reader.next()).name == "resync"


async def test_a_wrong_position_is_refused(face: Face) -> None:
    found = await face.get(f"{STREAM}?since=x", token="red-token")
    assert (found.status, "EPOCH:SEQ" in found.json["detail"]) == (422, True)


async def test_silence_is_broken_by_signs_of_life(api: GatewayApiServer) -> None:
    options = Options(rates=None, stream_times=Times(heartbeat_seconds=0.05))
    async with serving(api, options=options) as face, stream(face, token="red-token") as reader:
        # The first delta has what the gateway has just listed.
        while (await reader.next(comments=True)).name:
            continue


async def test_a_stream_ends_when_the_token_does(api: GatewayApiServer, face: Face) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 1}).encode()).decode().rstrip("=")
    token = f"h.{claims}.s"
    api.users[token] = User("rita", {"red": EDIT})
    async with stream(face, token=token) as reader:
        assert (await reader.until("bye")).data == {"why": "the token has expired"}


async def test_a_right_that_is_taken_away_ends_the_stream_and_one_that_comes_begins_it_again(
    api: GatewayApiServer,
) -> None:
    times = Times(review_seconds=0.2, heartbeat_seconds=0.05)
    options = Options(rates=None, stream_times=times)
    async with serving(api, options=options) as face, stream(face, token="red-token") as reader:
        api.users["red-token"].verbs["canaryns"] = EDIT
        api.bind("canaryns", user="rita")
        assert (await reader.until("resync")).name == "resync"
        api.users["red-token"].verbs.clear()
        assert "may not watch" in (await reader.until("bye")).data["why"]


async def test_after_rights_are_narrowed_no_delta_has_the_namespace_that_was_lost(api: GatewayApiServer) -> None:
    api.users["both-token"] = User("bea", {"red": EDIT, "canaryns": EDIT})
    times = Times(review_seconds=0.2, heartbeat_seconds=0.05)
    async with serving(api, options=Options(rates=None, stream_times=times)) as face:
        since = await start(face, "both-token")
        async with stream(face, token="both-token", since=since) as reader:
            api.put("gpujobs", make_job("before", namespace="canaryns"))
            assert [row["name"] for row in (await reader.until("delta")).data["jobs"]] == ["before"]
            api.users["both-token"].verbs = {"red": EDIT}
            await reader.until("resync")
            api.put("gpujobs", make_job("canaryafter", namespace="canaryns"))
            api.delete("gpujobs", "canaryns/before")
            api.put("gpujobs", make_job("last", namespace="red"))
            seen = list[Any]()
            while "last" not in json.dumps(seen):
                seen.append((await reader.until("delta")).data)
            assert ("canary" in json.dumps(seen), "before" in json.dumps(seen)) == (False, False)


async def test_a_reader_who_may_not_watch_gets_no_stream(api: GatewayApiServer, face: Face) -> None:
    api.users["list-token"] = User("lisa", {"red": {"list"}})
    assert (await face.get(STREAM, token="list-token")).status == 403


async def test_a_user_has_a_number_of_streams_whatever_number_of_tokens_it_has(
    api: GatewayApiServer, face: Face
) -> None:
    api.users["red-2"] = User("rita", {"red": EDIT})
    opened = [stream(face, token=("red-token", "red-2")[at % 2]) for at in range(MOST_STREAMS)]
    for each in opened:
        await each.__aenter__()
    found = await face.get(STREAM, token="red-token")
    for each in opened:
        await each.__aexit__(None, None, None)
    assert (found.status, found.json["reason"]) == (429, "TooManyStreams")


async def test_a_stop_says_goodbye(api: GatewayApiServer) -> None:
    """At once: no sign of life and no review is due before the reader's patience ends."""
    options = Options(rates=None, stream_times=Times(heartbeat_seconds=3600, review_seconds=3600))
    async with serving(api, options=options) as face:
        since = await start(face, "red-token")
        async with stream(face, token="red-token", since=since) as reader:
            await eventually(lambda: bool(face.made.feed._next._waiters))  # type: ignore[attr-defined]
            await face.made.application.shutdown()
            assert (await reader.until("bye")).data == {"why": "the gateway stops"}


async def test_a_change_is_encoded_once_for_all_who_see_the_same(api: GatewayApiServer, face: Face) -> None:
    since = await start(face, "red-token")
    async with (
        stream(face, token="red-token", since=since) as one,
        stream(face, token="reader-token", since=since) as two,
        stream(face, token="admin-token", since=since) as three,
    ):
        api.put("gpujobs", make_job("new", namespace="red"))
        for reader in (one, two, three):
            await reader.next()
    assert len(face.made.feed._encoded) == 2


def a_change(seq: int) -> Change:
    job = job_row(decode(json.dumps(make_job("j", namespace="red")), as_type=GPUJob))
    return Change(delta=Delta(seq=seq, jobs=[job], gone_jobs=[], nodes=[], gone_nodes=[]), nodes=[])


def test_encoded_deltas_have_a_bound_whatever_number_of_views_there_are() -> None:
    encoded, sees = EncodedDeltas(most_bytes=5_000), [Visibility(frozenset({"red", f"n{at}"})) for at in range(50)]
    for seq in range(10):
        for each in sees:
            assert encoded.of(a_change(seq), sees=each) == a_change(seq).encoded(each)
    assert encoded.bytes == sum(len(text) + 256 for text in encoded._texts.values()) <= 5_000
    nothing = Visibility(frozenset())
    for seq in range(100):
        assert encoded.of(a_change(seq), sees=nothing) == b""
    assert encoded.bytes <= 5_000, "empty deltas count too"


def test_an_encoded_delta_that_is_read_again_stays() -> None:
    encoded = EncodedDeltas(most_bytes=5_000)
    first = encoded.of(a_change(0), sees=EVERYTHING)
    for seq in range(1, 50):
        encoded.of(a_change(seq), sees=EVERYTHING)
        assert encoded.of(a_change(0), sees=EVERYTHING) is first


@pytest.mark.parametrize(
    ("verbs", "status"),
    [
        ({"red": {"list", "watch"}, "canaryns": {"list", "watch"}}, 200),
        ({"red": {"list", "watch"}, "canaryns": {"list"}}, 403),
        ({"red": {"list"}, "canaryns": {"list", "watch"}}, 403),
        ({"red": {"list", "watch"}, "canaryns": {"watch"}}, 200),
        ({"*": {"list", "watch"}}, 200),
        ({"*": {"list"}, "red": {"watch"}, "canaryns": {"watch"}}, 403),
    ],
)
async def test_a_stream_is_of_all_that_a_snapshot_has_and_each_namespace_has_to_be_watched(
    api: GatewayApiServer, face: Face, verbs: dict[str, set[str]], status: int
) -> None:
    api.users["some-token"] = User("sam", verbs)
    async with face.session.get(face.url + STREAM, headers={"Authorization": "Bearer some-token"}) as response:
        assert response.status == status


async def test_a_right_to_watch_one_namespace_that_is_taken_away_ends_the_stream_of_both(api: GatewayApiServer) -> None:
    api.users["both-token"] = User("bea", {"red": set(EDIT), "canaryns": set(EDIT)})
    times = Times(review_seconds=0.05, heartbeat_seconds=0.05)
    options = Options(rates=None, stream_times=times)
    async with serving(api, options=options) as face, stream(face, token="both-token") as reader:
        api.users["both-token"].verbs["canaryns"] = {"list"}
        assert "may not watch" in (await reader.until("bye")).data["why"]


async def test_those_who_see_different_namespaces_never_share_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where their tags are equal: a tag has few letters of what they see."""
    monkeypatch.setattr(feed_module, "_digest", lambda _sees: "equal")
    feed = Feed(make_cache(Settings()))
    for namespace in ("red", "canaryns"):
        tell(feed._cache, "gpujobs", "ADDED", make_job("train", namespace=namespace))
    feed.collect()
    audiences = [Visibility(frozenset({"red"})), EVERYTHING, Visibility(frozenset())]
    found = await asyncio.gather(*(feed.gzipped_snapshot(sees=sees) for sees in audiences))
    assert [gzip.decompress(text) for text, _ in found] == [feed.snapshot(sees=sees)[0] for sees in audiences]


def test_a_position_that_this_feed_has_not_reached_is_no_position() -> None:
    feed = Feed(make_cache(Settings()))
    assert [feed.since(seq) for seq in (-1, 0, 1, 5)] == [None, (), None, None]


def test_a_node_whose_report_is_old_changes_once_and_not_each_time_that_it_is_read() -> None:
    cache = make_cache(Settings())
    tell(cache, "nodes", "ADDED", make_node("a"))
    silent = make_gpunode("a")
    silent["status"]["observedAt"] = "2020-01-01T00:00:00Z"
    tell(cache, "gpunodes", "ADDED", silent)
    feed = Feed(cache)
    texts = set[str]()
    for _ in range(4):
        feed.collect()
        texts.add(feed.snapshot(sees=EVERYTHING)[1])
    assert "more than 11 min old" in feed.snapshot(sees=EVERYTHING)[0].decode()
    assert (feed.seq, len(texts)) == (1, 1)


def test_a_position_in_the_feed_of_another_process_is_none_here() -> None:
    feed = Feed(make_cache(Settings()))
    feed.seq = 7
    streams = EventStreams(feed, cache=None, reviews=None, streams=None)  # type: ignore[arg-type]
    asked = {"": 7, f"{feed.epoch}:3": 3, "00000000:3": -1}
    for since, expected in asked.items():
        request = make_mocked_request("GET", f"/api/v3/stream?since={since}")
        assert streams._position(request) == expected


async def test_a_token_that_is_deleted_ends_its_stream_at_the_next_review(api: GatewayApiServer) -> None:
    """Not once its kept identity is a minute old."""
    options = Options(rates=None, stream_times=Times(review_seconds=0.05, heartbeat_seconds=0.05))
    async with serving(api, options=options) as face, stream(face, token="red-token") as reader:
        del api.users["red-token"]
        assert (await reader.until("bye")).data["why"].startswith("your rights cannot be reviewed: ")


async def test_streams_that_end_are_counted_no_more(api: GatewayApiServer) -> None:
    options = Options(rates=None, stream_times=Times(heartbeat_seconds=0.02))
    async with serving(api, options=options) as face:
        gauge = face.made.metrics.streams._value
        async with stream(face, token="red-token") as one, stream(face, token="admin-token"):
            assert gauge.get() == 2
            one.response.close()
            await eventually(lambda: gauge.get() == 1)
        await eventually(lambda: gauge.get() == 0)


def test_a_snapshot_s_tag_is_of_its_process_its_moment_and_what_is_seen() -> None:
    """After a restart the same number is of another content."""
    red = Visibility(frozenset({"red"}))
    feeds = [Feed(make_cache(Settings())) for _ in range(2)]
    tags = {feed.snapshot(sees=sees)[1] for feed in feeds for sees in (EVERYTHING, red)}
    assert len(tags) == 4
    feeds[0].seq += 1
    assert feeds[0].snapshot(sees=red)[1] not in tags
    assert list(feeds[0]._snapshots) == [red], "those of the moment before are kept no more"


async def test_the_place_of_a_resync_is_that_of_the_next_snapshot(face: Face) -> None:
    await start(face, "red-token")
    async with stream(face, token="red-token", since="00000000:1") as reader:
        event = await reader.next()
    assert (event.name, event.id) == ("resync", f"{face.made.feed.epoch}:{face.made.feed.seq}")

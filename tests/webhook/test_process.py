"""`dovetail-webhook` as a process: asked as the API server asks, attacked as a pod could, and a graceful end."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dovetail_webhook.app import MAX_BODY_BYTES
from tests.odd_requests import CLOSE, Odd, odd_requests, post, statuses
from tests.webhook.served import Served, webhook
from tests.webhook.test_app import make_review

# The chart's limit on the webhook's memory.
LIMIT_MIB = 384
HEAD = b"POST /mutate HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with webhook(tmp_path) as process:
        yield process


def bomb(unit: str, *, size: int, kind: str, around: tuple[str, str]) -> bytes:
    """A review of that size whose object repeats `unit`."""
    frame = json.dumps(make_review(kind, object="@"))
    before, after = around
    count = (size - len(frame) - len(before) - len(after)) // len(unit)
    return frame.replace('"@"', f"{before}{(unit * count)[:-1]}{after}").encode()


JOB = ('{"spec":{"template":{"spec":{"x":[', "]}}}}")
POD = ('{"metadata":{"annotations":{"dovetail.dev/gpu":"1"}},"spec":{"containers":[', "]}}")
ENV = (f'{POD[0]}{{"name":"a","env":[', f"]}}{POD[1]}")
BOMBS = {
    "empty objects": bomb("{},", size=MAX_BODY_BYTES, kind="GPUJob", around=JOB),
    "small objects": bomb('{"a":1},', size=MAX_BODY_BYTES, kind="GPUJob", around=JOB),
    "containers": bomb("{},", size=MAX_BODY_BYTES, kind="Pod", around=POD),
    "containers in a pod that etcd would take": bomb('{"name":"a"},', size=1_200_000, kind="Pod", around=POD),
    "variables": bomb(f'{{"name":"{"a" * 16}","value":"{"b" * 40}"}},', size=MAX_BODY_BYTES, kind="Pod", around=ENV),
    "brackets": bomb("[", size=MAX_BODY_BYTES, kind="GPUJob", around=JOB),
}


async def test_it_answers_over_tls_counts_what_it_did_and_ends_when_asked(served: Served) -> None:
    status, text = await served.post(make_review())
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)
    async with served.http.get(f"http://127.0.0.1:{served.metrics_port}/metrics") as response:
        assert 'dovetail_webhook_reviews_total{kind="Pod",outcome="patched"} 1.0' in await response.text()
    served.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(served.process.wait(), timeout=60) == 0


async def posted(served: Served, body: bytes) -> int:
    """The status of the answer; 408 also where the connection was closed, as it is for clients that are too slow."""
    try:
        status, _ = await served.post(body)
    except aiohttp.ServerDisconnectedError:
        return 408
    return status


async def test_bodies_made_to_take_its_memory_are_answered_within_the_chart_s_limit(served: Served) -> None:
    assert (await served.post(b"{}," * (8 << 20)))[0] == 413
    for name, body in BOMBS.items():
        answers = await asyncio.gather(*(posted(served, body) for _ in range(4)))
        assert set(answers) <= {200, 400, 408}, name
    assert served.peak_mib() < LIMIT_MIB
    assert (await served.post(make_review()))[0] == 200


async def test_two_hundred_slow_clients_keep_no_review_out(served: Served) -> None:
    beginnings = (
        b"",
        b"POST /mut",
        HEAD + b"Content-Length: 3000000\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5",
    )
    slow = await asyncio.gather(*(served.connect() for _ in range(200)))
    # These do not even begin the handshake.
    slow += await asyncio.gather(*(asyncio.open_connection("127.0.0.1", served.port) for _ in range(100)))
    for index, (_, writer) in enumerate(slow[:200]):
        writer.write(beginnings[index % len(beginnings)])
    async with asyncio.timeout(10):  # a millisecond or two; benchmarks have the figures
        assert (await served.post(make_review()))[0] == 200
    # Those that have sent nothing wait in the clients' pools.
    begun = [reader for index, (reader, _) in enumerate(slow) if index >= 200 or beginnings[index % len(beginnings)]]
    async with asyncio.timeout(30):  # 5 s for headers, 3 s for a body
        await asyncio.gather(*(reader.read() for reader in begun))
    for _, writer in slow:
        writer.transport.abort()


async def test_clients_that_hold_all_bodies_back_by_a_byte_keep_no_review_out(served: Served) -> None:
    held = await asyncio.gather(*(served.connect() for _ in range(40)))
    for _, writer in held:
        writer.write(HEAD + b"Content-Length: 3000000\r\n\r\n" + b"x" * 2_999_999)
    async with asyncio.timeout(10):
        assert (await served.post(make_review()))[0] == 200
    assert served.peak_mib() < LIMIT_MIB
    for _, writer in held:
        writer.transport.abort()


REVIEW = json.dumps(make_review()).encode()
ODD = odd_requests("/mutate", REVIEW) | {
    "an odd content type": Odd(
        sent=post("/mutate", REVIEW).replace(b"application/json", b"a/b; charset=utf-42"), answers=[200]
    ),
    "expecting 100": Odd(sent=post("/mutate", REVIEW, headers=f"Expect: 100-continue\r\n{CLOSE}"), answers=[100, 200]),
}


async def test_whatever_is_said_is_answered(served: Served) -> None:
    for name, odd in ODD.items():
        async with asyncio.timeout(30):
            heard = await served.say(odd.sent)
        assert statuses(heard) == odd.answers, name


async def test_what_is_no_tls_costs_no_more_than_its_connection(served: Served) -> None:
    async def speak(text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(text)
        try:
            return await reader.read()
        finally:
            writer.transport.abort()

    async with asyncio.timeout(30):
        for text in (b"\x16\x03\x01" + b"\xff" * 600, post("/mutate", REVIEW), b"\x00" * 5_000):
            assert b"HTTP" not in await speak(text)
    assert (await served.post(make_review()))[0] == 200


async def test_a_review_in_unending_chunks_is_given_up_at_the_limit(served: Served) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield b"{}," * 20_000

    answer: Any = None
    with suppress(aiohttp.ClientError):  # the server closes while the client still sends
        answer = await served.post(chunks())
    assert answer is None or answer[0] == 413
    assert served.peak_mib() < LIMIT_MIB

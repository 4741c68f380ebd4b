"""Answers that take long: whose turn it is, and what becomes of one whose caller leaves."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from dovetail.answers.questions import DryRun
from dovetail.api.gpujob import GPUJob
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.decoding import decode
from dovetail.query.checkpoints import checkpoint
from dovetail.query.dry_run import PreparedQueue, prepare
from dovetail_gateway.access.identities import Identity
from dovetail_gateway.access.visibility import EVERYTHING, Visibility
from dovetail_gateway.cluster.answers import _MOST_WAITING, Answers
from dovetail_gateway.cluster.prepared import Audience
from tests.background import eventually
from tests.extender.builders import make_gpunode
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.builders import make_job
from tests.gateway.served import NOW, Face
from tests.gateway.test_cluster_machine import make_cache, tell

SPEC = {"template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}, "gpu": 1}
ASKED = {"namespace": "red", "spec": SPEC}

STARTS = DryRun(
    outcome="Starts",
    reason="",
    message="",
    details=[],
    nodes=None,
    position=None,
    start=None,
    preemption=None,
    cpu_in_seconds=None,
    array=False,
    limits_counted=True,
    text="It would start now.",
)


class Held:
    """Dry runs that compute until they may end; `running` counts those in a thread."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.running = 0
        self.users: list[str] = []
        self._may_look = threading.Event()
        self._may_look.set()
        self._looks_no_more = threading.Event()
        self._lock = threading.Lock()

    def dry_run_on(self, _queue: Any, *, job: Any, **_: Any) -> DryRun:
        with self._lock:
            self.running += 1
            self.users.append(job.metadata.annotations["dovetail.dev/user"])
        try:
            while not self.may_end.is_set():
                if not self._may_look.is_set():
                    self._looks_no_more.set()
                    self._may_look.wait()
                checkpoint()
                time.sleep(0)
            return STARTS
        finally:
            with self._lock:
                self.running -= 1

    @asynccontextmanager
    async def stubborn(self) -> AsyncIterator[None]:
        """The one that runs does not look whether it must end."""
        self._may_look.clear()
        await eventually(self._looks_no_more.is_set)
        try:
            yield
        finally:
            self._may_look.set()

    async def until(self, running: int) -> None:
        async with asyncio.timeout(20):
            while self.running != running:  # noqa: ASYNC110 - threads have no event of the loop
                await asyncio.sleep(0.005)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held()
    monkeypatch.setattr("dovetail_gateway.cluster.answers.dry_run_on", held.dry_run_on)
    yield held
    held.may_end.set()


def ask(face: Face, token: str) -> "asyncio.Task[Any]":
    return asyncio.ensure_future(face.ask("POST", "/api/v3/dry-run", token=token, json=ASKED))


async def test_an_answer_whose_caller_leaves_ends_in_its_thread(face: Face, held: Held) -> None:
    asking = ask(face, "red-token")
    await held.until(1)
    asking.cancel()
    await held.until(0)
    assert not held.may_end.is_set()
    answers = face.made.answers
    async with asyncio.timeout(20):
        while len(answers._queue):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)
    assert (answers._pacing._running, [kept.prepared.one.locked() for kept in answers._prepared._kept.values()]) == (
        {},
        [False],
    )


async def test_an_answer_that_takes_too_long_ends_in_its_thread(
    face: Face, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail_gateway.routing.server._ANSWER_SECONDS", 0.5)
    found = await ask(face, "red-token")
    assert (found.status, found.json["reason"], held.running) == (504, "Timeout", 0)


async def test_a_user_with_many_tokens_has_one_answer_at_a_time_and_the_next_user_does_not_wait(
    api: GatewayApiServer, face: Face, held: Held
) -> None:
    api.users |= {f"eve-{at}": User("eve", {"red": EDIT}) for at in range(6)}
    asking = [ask(face, f"eve-{at}") for at in range(6)]
    await held.until(1)
    asking.append(ask(face, "red-token"))
    await held.until(2)
    assert held.users == ["eve", "rita"]
    held.may_end.set()
    assert {found.status for found in await asyncio.gather(*asking)} == {200}


async def test_a_user_who_asks_for_too_many_answers_at_once_gets_429(face: Face, held: Held) -> None:
    asking = [ask(face, "red-token") for _ in range(_MOST_WAITING + 3)]
    done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    found = done.pop().result()
    assert (found.status, found.json["reason"], "Retry-After" in found.headers) == (429, "TooManyRequests", True)
    held.may_end.set()
    statuses = [each.status for each in await asyncio.gather(*asking)]
    assert (statuses.count(200), statuses.count(429)) == (_MOST_WAITING + 1, 2)


async def test_an_answer_knows_each_change_that_was_there_when_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one that came while the queue was prepared of which the answer before was computed."""
    cache, seen = make_cache(Settings()), list[int]()
    answers = Answers(cache, now=lambda: NOW, release="dovetail-system")
    job = decode(json.dumps(make_job("asked", namespace="red") | {"spec": SPEC}), as_type=GPUJob)

    async def changed() -> None:
        tell(cache, "gpunodes", "ADDED", versioned(make_gpunode(f"n-{len(cache.gpunodes)}"), len(cache.gpunodes)))

    def prepare_slowly(_objects: ClusterObjects, **_: Any) -> PreparedQueue:
        if len(seen) < 3:
            # In the loop, where a change comes from.
            asyncio.run_coroutine_threadsafe(changed(), loop).result()
        return queue

    def computed(_queue: PreparedQueue, **_: Any) -> DryRun:
        return STARTS

    def renamed(objects: ClusterObjects, **_: Any) -> ClusterObjects:
        seen.append(len(objects.gpunodes))
        return objects

    loop, queue = asyncio.get_running_loop(), prepare(cache.objects(), now=NOW)
    monkeypatch.setattr("dovetail_gateway.cluster.answers.prepare", prepare_slowly)
    monkeypatch.setattr("dovetail_gateway.cluster.answers.dry_run_on", computed)
    monkeypatch.setattr(answers, "_renamed", renamed)
    for _ in range(5):
        there = len(cache.gpunodes)
        await answers.dry_run(job, who=Identity(username="rita"), sees=EVERYTHING)
        assert seen[-1] == there
    assert seen == [0, 1, 2], "what has not changed is not prepared again"


JOB = decode(json.dumps(make_job("asked", namespace="red") | {"spec": SPEC}), as_type=GPUJob)


class Threads:
    """Computations that begin when they are handed to a thread and end when the test says so."""

    def __init__(self, answers: Answers, *, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.may_end = asyncio.Event()
        monkeypatch.setattr(answers, "_in_thread", self._in_thread)

    async def _in_thread(self, compute: Any, *, user: str) -> Any:
        self.begun.append(user)
        if user:
            await self.may_end.wait()
        return compute()


async def turns(number: int = 50) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_two_users_never_compute_on_one_queue_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run tries changes on the queue and takes them back."""
    cache = make_cache(Settings())
    answers, queue = Answers(cache, now=lambda: NOW, release="dovetail-system"), prepare(cache.objects(), now=NOW)
    threads = Threads(answers, monkeypatch=monkeypatch)
    monkeypatch.setattr("dovetail_gateway.cluster.answers.prepare", lambda *_, **__: queue)
    monkeypatch.setattr("dovetail_gateway.cluster.answers.dry_run_on", lambda *_, **__: STARTS)

    async def ask_as(user: str) -> DryRun:
        return await answers.dry_run(JOB, who=Identity(username=user), sees=EVERYTHING)

    threads.may_end.set()
    await ask_as("rita")
    threads.begun.clear()
    threads.may_end.clear()
    asking = [asyncio.ensure_future(ask_as(user)) for user in ("rita", "rob")]
    await turns()
    assert threads.begun == ["rita"]
    threads.may_end.set()
    await asyncio.gather(*asking)
    assert threads.begun == ["rita", "rob"]


@pytest.mark.parametrize(("nodes", "cycles"), [(0, 2000), (1, 2000), (2, 1000), (3, 666)])
async def test_the_more_nodes_the_fewer_cycles_an_estimate_simulates(
    monkeypatch: pytest.MonkeyPatch, nodes: int, cycles: int
) -> None:
    cache, asked = make_cache(Settings()), list[int]()
    for at in range(nodes):
        tell(cache, "gpunodes", "ADDED", versioned(make_gpunode(f"n-{at}"), at))
    answers = Answers(cache, now=lambda: NOW, release="dovetail-system")

    def computed(_queue: PreparedQueue, *, most_cycles: int, **_: Any) -> DryRun:
        asked.append(most_cycles)
        return STARTS

    monkeypatch.setattr("dovetail_gateway.cluster.answers.dry_run_on", computed)
    await answers.dry_run(JOB, who=Identity(username="rita"), sees=EVERYTHING)
    assert asked == [cycles]


async def test_what_an_answer_is_computed_from_is_taken_before_any_other_event(face: Face) -> None:
    """In the event loop: an informer would change the objects while a thread copies them."""
    taken, cache = list[threading.Thread](), face.made.cache
    objects = cache.objects

    def watched() -> ClusterObjects:
        taken.append(threading.current_thread())
        return objects()

    cache.objects = watched  # type: ignore[method-assign]
    for path in ("jobs/red/train/explain", "audit", "findings", "overview"):
        assert (await face.get(f"/api/v3/{path}", token="red-token")).status == 200
    assert (await ask(face, "red-token")).status == 200
    assert taken == [threading.main_thread()] * 5


async def test_who_leaves_twice_is_gone_only_once_its_thread_is(face: Face, held: Held) -> None:
    answers, cache = face.made.answers, face.made.cache
    job = cache.jobs["red/train"]
    asking = asyncio.ensure_future(answers.dry_run(job, who=Identity(username="rita"), sees=EVERYTHING))
    await held.until(1)
    # One that does not look whether it must end.
    async with held.stubborn():
        for _ in range(3):
            asking.cancel()
            await turns()
        assert (asking.done(), len(answers._queue)) == (False, 1)
    await asyncio.wait({asking})
    assert (asking.cancelled(), held.running, len(answers._queue)) == (True, 0, 0)


async def test_findings_serve_for_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, judged = [NOW], list[str]()

    def judge(picture: Any, **_: Any) -> list[Any]:
        judged.append(picture.release)
        return []

    monkeypatch.setattr("dovetail.query.doctor.nodes.judge", judge)
    answers = Answers(make_cache(Settings()), now=lambda: now[0], release="gpu-system")
    found = list[int]()
    for seconds in (0, 9, 10, 19, 20):
        now[0] = NOW + timedelta(seconds=seconds)
        await answers.node_findings(who=Identity(username="rita"), sees=EVERYTHING)
        found.append(len(judged))
    assert (found, set(judged)) == ([1, 1, 2, 2, 3], {"gpu-system"})


async def test_findings_of_those_asked_for_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = list[Any]()
    monkeypatch.setattr("dovetail_gateway.cluster.answers._MOST_FINDINGS", 2)
    monkeypatch.setattr("dovetail.query.doctor.nodes.judge", lambda *_, **__: judged.append(1) or [])
    answers = Answers(make_cache(Settings()), now=lambda: NOW, release="dovetail-system")
    seen = [Visibility(frozenset({name})) for name in "abc"]
    for at in (0, 1, 2, 1, 2, 0):
        await answers.node_findings(who=Identity(username="rita"), sees=seen[at])
    assert (len(judged), list(answers._findings)) == (4, [seen[2], seen[0]])


def versioned(subject: dict[str, Any], version: int) -> dict[str, Any]:
    subject["metadata"]["resourceVersion"] = str(version + 1)
    return subject


async def test_no_queue_is_prepared_of_a_cluster_that_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, listed, made = make_cache(Settings()), asyncio.Event(), list[Audience]()
    answers = Answers(cache, now=lambda: NOW, release="dovetail-system")

    async def keep_ready(audience: Audience) -> None:
        made.append(audience)

    monkeypatch.setattr(cache, "complete", listed.wait)
    monkeypatch.setattr(answers._prepared, "keep_ready", keep_ready)
    keeping = asyncio.ensure_future(answers.keep_ready())
    await turns()
    assert made == []
    listed.set()
    await keeping
    assert made == [Audience(sees=EVERYTHING, user="")]

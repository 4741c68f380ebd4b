"""ResourceSlices are followed where the cluster has them, and never waited for where it has not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail.api.builtin import ResourceSlice
from dovetail.api.meta import EventType
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden
from dovetail.kube.resource_slices import SliceWatch, list_slices
from tests.background import eventually
from tests.core.kube.api import Answer, Api, Stream, line, listing, refusal

V1, V1BETA2, V1BETA1 = (
    f"GET /apis/resource.k8s.io/{version}/resourceslices" for version in ("v1", "v1beta2", "v1beta1")
)
WATCH = V1.replace("GET", "WATCH")
ABSENT, REFUSED = refusal(404, reason="NotFound"), refusal(403, reason="Forbidden", message="you may not")
DRIVER = "gpu.nvidia.com"


def make_slice(name: str = "s", *, version: int = 1) -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"driver": DRIVER, "nodeName": "a", "devices": [{"name": "0"}]}}


class Followed:
    def __init__(self, client: Client, **options: float) -> None:
        self.changes: list[tuple[EventType, str]] = []
        self._changed = asyncio.Event()
        self.watch = SliceWatch(client, drivers=[DRIVER], on_event=self._record, **options)

    def _record(self, kind: EventType, found: ResourceSlice) -> None:
        self.changes.append((kind, found.metadata.name))
        self._changed.set()

    async def until(self, *changes: tuple[EventType, str]) -> None:
        async with asyncio.timeout(30):
            while self.changes != list(changes):
                self._changed.clear()
                await self._changed.wait()

    async def settled(self) -> None:
        async with asyncio.timeout(30):
            await self.watch.settled.wait()


@asynccontextmanager
async def following(client: Client, **options: float) -> AsyncIterator[Followed]:
    followed = Followed(client, **options)
    task = asyncio.create_task(followed.watch.run())
    try:
        yield followed
        assert not task.done(), "it runs until it is cancelled"
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_slices_are_asked_for_by_driver_and_reported(api: Api, client: Client) -> None:
    api.answer(V1, listing(version=4), listing(make_slice(), version=5))
    api.answer(WATCH, Stream(chunks=[line("DELETED", make_slice(version=6))]))
    async with following(client) as followed:
        await followed.until(("ADDED", "s"), ("DELETED", "s"))
        await followed.settled()
    assert [seen.query.get("fieldSelector") for seen in api.of(V1)] == [None, f"spec.driver={DRIVER}"]
    assert api.of(V1)[0].query["limit"] == "1"


@pytest.mark.parametrize("served", [V1BETA2, V1BETA1])
async def test_an_older_cluster_is_read_by_its_own_version(api: Api, client: Client, served: str) -> None:
    for version in (V1, V1BETA2, V1BETA1):
        pages = [listing(version=4), listing(make_slice(), version=5)] if version == served else [ABSENT] * 2
        api.answer(version, *pages)
    async with following(client) as followed:
        await followed.until(("ADDED", "s"))


@pytest.mark.parametrize("answers", [{V1: ABSENT, V1BETA2: ABSENT, V1BETA1: ABSENT}, {V1: REFUSED}])
async def test_an_api_that_is_absent_or_refused_is_not_waited_for_and_found_later(
    api: Api, client: Client, answers: dict[str, Answer]
) -> None:
    for request, answer in answers.items():
        api.answer(request, answer)
    api.answer(V1, listing(version=4), listing(make_slice(), version=5))
    async with following(client, look_seconds=0.05, patience_seconds=3600.0) as followed:
        await followed.settled()
        await followed.until(("ADDED", "s"))


async def test_a_version_that_an_upgrade_drops_leaves_for_the_next_one(api: Api, client: Client) -> None:
    api.answer(V1, ABSENT)
    api.answer(V1BETA2, listing(version=4), listing(make_slice("old"), version=5), *[ABSENT] * 50)
    api.answer(V1BETA2.replace("GET", "WATCH"), ABSENT)
    api.answer(V1, listing(version=8), listing(make_slice("new", version=7), version=8))
    async with following(client) as followed:
        await followed.until(("ADDED", "old"), ("DELETED", "old"), ("ADDED", "new"))


async def test_a_right_that_is_taken_away_leaves_what_is_known(api: Api, client: Client) -> None:
    api.answer(V1, listing(version=4), listing(make_slice(), version=5), *[REFUSED] * 20)
    api.answer(WATCH, *[REFUSED] * 20)
    async with following(client) as followed:
        await followed.until(("ADDED", "s"))
        await api.until(V1, count=5)
        assert followed.changes == [("ADDED", "s")]


async def test_an_api_server_that_cannot_list_them_is_waited_for_only_so_long(api: Api, client: Client) -> None:
    api.answer(V1, *[Answer(status=500, body={})] * 100)
    async with following(client, patience_seconds=0.05) as followed:
        await followed.settled()


async def test_a_list_at_one_moment_takes_the_version_that_is_served(api: Api, client: Client) -> None:
    api.answer(V1, ABSENT)
    api.answer(V1BETA2, listing(make_slice(), version=5))
    assert [each.metadata.name for each in await list_slices(client, drivers=[DRIVER])] == ["s"]
    api.answer(V1, ABSENT)
    api.answer(V1BETA2, ABSENT)
    api.answer(V1BETA1, ABSENT)
    assert await list_slices(client, drivers=[DRIVER]) == []
    api.answer(V1, REFUSED)
    with pytest.raises(Forbidden):
        await list_slices(client, drivers=[DRIVER])


OTHER = "gpu.amd.com"


async def test_the_slices_of_each_driver_are_followed_and_all_are_listed_before_it_settles(
    api: Api, client: Client
) -> None:
    released = asyncio.Event()
    first, second = listing(make_slice("a"), version=5), listing(make_slice("b"), version=5)
    held = Answer(body=second.body, released=released)
    api.answer(V1, listing(version=4), first, held)
    changes = list[tuple[str, str]]()
    watch = SliceWatch(
        client, drivers=[DRIVER, OTHER], on_event=lambda type_, found: changes.append((type_, found.metadata.name))
    )
    task = asyncio.create_task(watch.run())
    await api.until(V1, count=3)
    await eventually(lambda: len(changes) == 1)
    assert not watch.settled.is_set()
    released.set()
    await asyncio.wait_for(watch.settled.wait(), 30)
    assert sorted(changes) == [("ADDED", "a"), ("ADDED", "b")]
    selectors = [seen.query.get("fieldSelector") for seen in api.of(V1)]
    assert sorted(selectors[1:], key=str) == [f"spec.driver={OTHER}", f"spec.driver={DRIVER}"]
    task.cancel()
    await asyncio.wait([task])


async def test_a_list_at_one_moment_has_the_slices_of_all_drivers(api: Api, client: Client) -> None:
    api.answer(V1, listing(make_slice("a"), version=5), listing(make_slice("b"), version=5))
    found = await list_slices(client, drivers=[DRIVER, OTHER])
    assert [each.metadata.name for each in found] == ["a", "b"]

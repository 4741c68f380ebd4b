"""The companions of ResourceQuotas that limit a vendor's GPUs, on a scripted API server."""

import asyncio
import json
import random
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.kube.client import Client
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.manifests.counted_quota import ResourceQuota
from dovetail_operator.watchers.vendor_quotas import VendorQuotas
from tests.background import running
from tests.core.kube.api import Answer, Api, Stream, refusal

LIST = "GET /api/v1/resourcequotas"
WATCH = "WATCH /api/v1/resourcequotas"
QUOTAS = "/api/v1/namespaces/team/resourcequotas"
Manifest = dict[str, Any]


def theirs(hard: str = "4", *, version: str = "1", **spec: Any) -> Manifest:
    metadata = {"name": "gpus", "namespace": "team", "uid": "u1", "resourceVersion": version}
    return {"metadata": metadata, "spec": {"hard": {"requests.nvidia.com/gpu": hard}, **spec}}


def ours(milli: str = "4k", turns: str = "4", **spec: Any) -> Manifest:
    owner = {"apiVersion": "v1", "kind": "ResourceQuota", "name": "gpus", "uid": "u1"}
    metadata = {
        "name": "dovetail-gpus",
        "namespace": "team",
        "uid": "u2",
        "resourceVersion": "2",
        "labels": {names.LABEL_COUNTED_QUOTA: "true"},
        "ownerReferences": [owner],
    }
    hard = {f"requests.{names.GPU_MILLI}": milli, f"requests.{names.GPU_TURN}": turns}
    return {"metadata": metadata, "spec": {"hard": hard, **spec}}


def page(*items: Manifest) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "5"}, "items": list(items)})


def event(type_: str, found: Manifest) -> Stream:
    return Stream(chunks=[json.dumps({"type": type_, "object": found}).encode() + b"\n"])


class Rig:
    def __init__(self, client: Client) -> None:
        self.events: asyncio.Queue[Announcement] = asyncio.Queue()
        self.keeper = VendorQuotas(client, vendors=DEFAULT_VENDORS, post=self.events.put_nowait, rng=random.Random(7))

    def running(self) -> AbstractAsyncContextManager[None]:
        return running(self.keeper.run())


@pytest.fixture
def rig(client: Client) -> Rig:
    return Rig(client)


async def test_each_gets_a_companion(rig: Rig, api: Api) -> None:
    api.answer(LIST, page(theirs()))
    api.answer(f"POST {QUOTAS}", Answer(body=ours()))
    async with rig.running():
        await api.until(f"POST {QUOTAS}", count=1)
    assert api.of(f"POST {QUOTAS}")[0].body["spec"]["hard"] == {
        f"requests.{names.GPU_MILLI}": "4000",
        f"requests.{names.GPU_TURN}": "4",
    }


async def test_what_another_namespace_calls_a_companion_is_none(rig: Rig, api: Api) -> None:
    forged = {**ours(), "metadata": {**ours()["metadata"], "namespace": "other"}}
    api.answer(LIST, page(theirs(), forged))
    api.answer(f"POST {QUOTAS}", Answer(body=ours()))
    async with rig.running():
        await api.until(f"POST {QUOTAS}", count=1)


async def test_its_limit_follows(rig: Rig, api: Api) -> None:
    api.answer(LIST, page(theirs("2"), ours()))
    api.answer(f"PATCH {QUOTAS}/dovetail-gpus", Answer(body=ours("2k", "2")))
    async with rig.running():
        await api.until(f"PATCH {QUOTAS}/dovetail-gpus", count=1)
    patch = api.of(f"PATCH {QUOTAS}/dovetail-gpus")[0].body
    assert patch["spec"]["hard"][f"requests.{names.GPU_MILLI}"] == "2000"
    assert patch["metadata"] == {"uid": "u2"}


async def test_what_a_companion_limits_beyond_that_is_taken_out(rig: Rig, api: Api) -> None:
    """By whoever wrote it: a merge patch that leaves a key out keeps it."""
    edited = ours()
    edited["spec"]["hard"] |= {"pods": "0"}
    api.answer(LIST, page(theirs(), edited))
    api.answer(f"PATCH {QUOTAS}/dovetail-gpus", Answer(body=ours()))
    async with rig.running():
        await api.until(f"PATCH {QUOTAS}/dovetail-gpus", count=1)
    assert api.of(f"PATCH {QUOTAS}/dovetail-gpus")[0].body["spec"]["hard"] == {
        f"requests.{names.GPU_MILLI}": "4000", f"requests.{names.GPU_TURN}": "4", "pods": None,
    }  # fmt: skip


async def test_one_that_limits_none_any_more_has_no_companion(rig: Rig, api: Api) -> None:
    api.answer(LIST, page({**theirs(), "spec": {"hard": {"pods": "3"}}}, ours()))
    api.answer(f"DELETE {QUOTAS}/dovetail-gpus", Answer(body={}))
    async with rig.running():
        await api.until(f"DELETE {QUOTAS}/dovetail-gpus", count=1)
    assert api.of(f"DELETE {QUOTAS}/dovetail-gpus")[0].body["preconditions"] == {"uid": "u2"}


async def test_one_that_counts_other_pods_is_made_again(rig: Rig, api: Api) -> None:
    api.answer(LIST, page(theirs(scopes=["NotTerminating"]), ours()))
    api.answer(f"DELETE {QUOTAS}/dovetail-gpus", Answer(body={}))
    api.answer(f"POST {QUOTAS}", Answer(body=ours(scopes=["NotTerminating"])))
    async with rig.running():
        await api.until(f"DELETE {QUOTAS}/dovetail-gpus", count=1)
        rig.keeper._on_event("DELETED", msgspec.convert(ours(), ResourceQuota))
        await api.until(f"POST {QUOTAS}", count=1)
    assert not api.of(f"PATCH {QUOTAS}/dovetail-gpus"), "the API server refuses other scopes"
    assert api.of(f"POST {QUOTAS}")[0].body["spec"]["scopes"] == ["NotTerminating"]


async def test_a_stranger_of_that_name_is_left_alone_and_the_tenant_is_told(rig: Rig, api: Api) -> None:
    stranger = {**ours(), "metadata": {**ours()["metadata"], "labels": {}, "ownerReferences": []}}
    api.answer(LIST, page(theirs(), stranger))
    api.answer(f"POST {QUOTAS}", refusal(409, reason="AlreadyExists"))
    async with rig.running():
        told = await rig.events.get()
    assert (told.severity, told.reason, told.about.name) == ("Warning", "NotCounted", "gpus")
    assert told.of.kind == "ResourceQuota"
    assert "the ResourceQuota dovetail-gpus, which Dovetail did not make" in told.message


@pytest.mark.parametrize("status", [404, 409])
async def test_one_that_went_or_changed_meanwhile_is_no_error(rig: Rig, api: Api, status: int) -> None:
    reason = {404: "NotFound", 409: "Conflict"}[status]
    api.answer(LIST, page(theirs("2"), ours()))
    api.answer(WATCH, event("MODIFIED", theirs("3", version="9")))
    api.answer(f"PATCH {QUOTAS}/dovetail-gpus", refusal(status, reason=reason), Answer(body=ours("3k", "3")))
    async with rig.running():
        await api.until(f"PATCH {QUOTAS}/dovetail-gpus", count=1)


async def test_what_the_api_server_cannot_take_now_is_tried_again(rig: Rig, api: Api) -> None:
    api.answer(LIST, page(theirs()))
    api.answer(f"POST {QUOTAS}", refusal(503), Answer(body=ours()))
    async with rig.running():
        await api.until(f"POST {QUOTAS}", count=2)

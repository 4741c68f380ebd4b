"""Bind over HTTP: one write, never a share promised twice, and every way in which the write can go wrong."""

import asyncio
import json
import time
from collections import Counter

import pytest

from dovetail import names
from dovetail.pods.allocation import allocation_in
from dovetail_extender.metrics import HOLD_STATES
from dovetail_extender.service import Options
from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.builders import binding, make_gpunode, make_node, make_pod, make_share
from tests.extender.harness import Face, watching

IMPATIENT = Options(bind_deadline_seconds=1)


def annotations(api: ApiServer, name: str) -> dict[str, str]:
    return dict(api.objects["pods"][f"default/{name}"]["metadata"]["annotations"])


async def test_a_bound_pod_carries_its_devices(api: ApiServer, face: Face) -> None:
    pod = make_pod("p", "2", milli=2000)
    api.put("pods", pod)
    assert await face.bind(pod, "b") == ""
    allocation = allocation_in(annotations(api, "p"))
    assert allocation is not None
    assert (allocation.node, allocation.mode) == ("b", "Exclusive")
    uuids = [device.uuid for device in allocation.devices]
    assert uuids == ["b-0", "b-1"]
    assert annotations(api, "p")["dovetail.dev/visible-devices.0"] == "b-0,b-1"
    assert api.bindings[0]["metadata"]["uid"] == "uid-p"


async def test_the_devices_go_to_the_container_that_asks(api: ApiServer, face: Face) -> None:
    asking = {"name": "main", "resources": {"requests": {names.GPU_MILLI: "500"}}}
    pod = make_share("p", 500, containers=[{"name": "sidecar"}, asking])
    api.put("pods", pod)
    assert await face.bind(pod, "a") == ""
    found = annotations(api, "p")
    assert found["dovetail.dev/visible-devices.1"] == "a-0"
    assert found["dovetail.dev/mps-percentage.1"] == "50"
    assert "dovetail.dev/visible-devices.0" not in found


async def test_the_allocation_keeps_the_guard_and_the_workload_of_the_pod(api: ApiServer, face: Face) -> None:
    pod = make_share("p", 500)
    pod["metadata"]["annotations"] |= {names.MEMORY_STRATEGY: "Aggressive", names.WORKLOAD: "Training"}
    api.put("pods", pod)
    assert await face.bind(pod, "a") == ""
    allocation = allocation_in(annotations(api, "p"))
    assert allocation is not None
    assert (allocation.guard_fraction, allocation.workload) == (0.95, "Training")
    assert allocation.devices[0].memory_mib == 15564


async def test_a_pod_that_asks_nothing_of_ours_is_bound_plainly(api: ApiServer, face: Face) -> None:
    pod = make_pod("p", limits={"cpu": "1"})
    api.put("pods", pod)
    assert await face.bind(pod, "a") == ""
    assert names.ALLOCATION not in annotations(api, "p")
    assert api.objects["pods"]["default/p"]["spec"]["nodeName"] == "a"


async def test_a_pod_that_the_cache_has_not_seen_is_read(api: ApiServer) -> None:
    async with watching(api) as face:
        await face.ready()
        api.telling = False
        api.put("pods", pod := make_pod())
        assert await face.bind(pod, "a") == ""


async def test_a_hold_becomes_the_pods_claim_and_frees_nothing_in_between(api: ApiServer, face: Face) -> None:
    pod = make_share("p", 500)
    api.put("pods", pod)
    scores = await face.prioritize(pod, "a", "b")
    best = max(scores, key=lambda name: scores[name])
    assert await face.bind(pod, best) == ""
    assert not face.ledger.is_hold("uid-p")
    assert face.ledger.totals().promised_milli == 500


async def test_a_device_that_is_cordoned_after_the_hold_is_not_bound(api: ApiServer, face: Face) -> None:
    pod = make_pod("p", "8", milli=8000)
    api.put("pods", pod)
    await face.prioritize(pod, "a")
    before = face.ledger.changes
    api.put("gpunodes", make_gpunode("a") | {"spec": {"cordoned": ["a-3"]}})
    await eventually(lambda: face.ledger.changes > before)
    assert "only 7 available" in await face.bind(pod, "a")
    assert not api.bindings


async def test_a_hold_on_another_node_goes_when_the_pod_is_bound_elsewhere(api: ApiServer, face: Face) -> None:
    pod = make_pod("p", "8", milli=8000)
    api.put("pods", pod)
    await face.prioritize(pod, "a")
    assert await face.bind(pod, "b") == ""
    assert [claim.node for claim in face.ledger.claims()] == ["b"]


async def test_what_no_longer_fits_is_refused_without_a_write(api: ApiServer, face: Face) -> None:
    for name in ("first", "second"):
        api.put("pods", make_pod(name, "8", milli=8000))
    assert await face.bind(make_pod("first", "8", milli=8000), "a") == ""
    assert "Need 8 GPUs, only 0 available" in await face.bind(make_pod("second", "8", milli=8000), "a")
    assert len(api.bindings) == 1


async def test_fifty_binds_at_once_never_promise_a_share_twice(api: ApiServer, face: Face) -> None:
    api.put("nodes", make_node("small"))
    api.put("gpunodes", make_gpunode("small", gpus=1))
    await eventually(lambda: "small" in face.ledger.nodes() and len(face.ledger.devices("small")) == 1)
    pods = [make_share(f"p{at}", 300) for at in range(50)]
    for pod in pods:
        api.put("pods", pod)
    errors = await asyncio.gather(*(face.bind(pod, "small") for pod in pods))
    assert errors.count("") == 3
    promised = [allocation_in(annotations(api, pod["metadata"]["name"])) for pod in pods]
    shares = Counter[str]()
    for allocation in filter(None, promised):
        shares.update({device.uuid: device.share_milli for device in allocation.devices})
    assert shares == {"small-0": 900}
    assert face.ledger.totals().promised_milli == 900


async def test_the_same_bind_asked_many_times_is_one_bind(api: ApiServer, face: Face) -> None:
    pod = make_pod()
    api.put("pods", pod)
    assert await asyncio.gather(*(face.bind(pod, "a") for _ in range(10))) == [""] * 10
    assert len(api.bindings) == 1


async def test_a_bind_is_not_repeated_on_another_node_while_it_runs(api: ApiServer) -> None:
    pod = make_pod()
    api.put("pods", pod)
    async with watching(api, options=IMPATIENT) as face:
        await face.ready()
        api.answers_bindings = False
        first = asyncio.create_task(face.bind(pod, "a"))
        await eventually(lambda: len(api.bindings) == 1)
        assert await face.bind(pod, "b") in {"the pod is being bound to a", "the pod is bound to a already"}
        await first


async def test_a_pod_that_is_bound_as_asked_is_a_success(api: ApiServer, face: Face) -> None:
    pod = make_pod()
    api.put("pods", pod)
    assert await face.bind(pod, "a") == ""
    assert await face.bind(pod, "a") == ""
    assert await face.bind(pod, "b") == "the pod is bound to a already"


async def test_a_pod_bound_elsewhere_by_another_hand_is_an_error(api: ApiServer, face: Face) -> None:
    pod = make_pod()
    api.put("pods", pod)
    await face.sees("default/p")
    api.objects["pods"]["default/p"]["spec"]["nodeName"] = "b"  # before the watch tells
    assert await face.bind(pod, "a") == "the pod is bound to b already"


async def test_a_pod_of_the_same_name_is_another_pod(api: ApiServer, face: Face) -> None:
    api.put("pods", make_pod(uid="new"))
    assert await face.bind(make_pod(uid="old"), "a") == "the pod was deleted"
    assert api.bindings == []


async def test_a_pod_that_vanishes_before_the_write_holds_nothing(api: ApiServer, face: Face) -> None:
    pod = make_pod()
    api.put("pods", pod)
    await face.sees("default/p")
    del api.objects["pods"]["default/p"]  # before the watch tells
    assert await face.bind(pod, "a") == "the pod was deleted"
    assert face.ledger.claims() == []


@pytest.mark.parametrize("status", [400, 403, 409, 422, 429])
async def test_a_refused_write_releases_the_devices(api: ApiServer, face: Face, status: int) -> None:
    pod = make_pod()
    api.put("pods", pod)
    api.binding_status = status
    assert f"refused with {status}" in await face.bind(pod, "a")
    assert face.ledger.claims() == []


async def test_a_silent_api_server_fails_the_bind_at_its_deadline_and_keeps_the_devices(api: ApiServer) -> None:
    pod = make_pod()
    api.put("pods", pod)
    async with watching(api, options=IMPATIENT) as face:
        await face.ready()
        await face.sees("default/p")
        api.answering.clear()
        async with asyncio.timeout(60):
            assert "no answer within 1 s" in await face.bind(pod, "a")
        assert (await face.filter(make_pod("other", "8", milli=8000), "a", "b"))["NodeNames"] == ["b"]
        mine = face.ledger.claim("uid-p")
        assert mine is not None
        assert not face.ledger.is_hold("uid-p")


async def test_a_bind_that_happened_but_was_not_answered_is_found_in_the_cache(api: ApiServer) -> None:
    pod = make_pod()
    api.put("pods", pod)
    async with watching(api, options=IMPATIENT) as face:
        await face.ready()
        api.answers_bindings = False
        assert "it is not known" in await face.bind(pod, "a")
        await eventually(lambda: bool(_cached(face).spec.node_name))
        assert await face.bind(pod, "a") == "", "kube-scheduler tries again and finds it bound"
        await face.chores()
        assert _gauge(face, "unsettled_binds") == 0
        assert face.ledger.totals().promised_milli == 1000


async def test_an_unsettled_pod_is_led_back_to_its_node_and_gets_the_same_devices(api: ApiServer) -> None:
    pod = make_share("p", 500)
    api.put("pods", pod)
    api.binding_status = 504
    async with watching(api, options=IMPATIENT) as face:
        await face.ready()
        assert "it is not known" in await face.bind(pod, "a")
        answer = await face.filter(pod, "a", "b")
        assert answer["NodeNames"] == ["a"]
        assert answer["FailedNodes"] == {"b": "the pod's bind to another node is not settled yet"}
        assert await face.prioritize(pod, "a") == {"a": 0}
        assert await face.bind(pod, "b") == "the pod's bind to a is not settled yet"
        api.binding_status = None
        assert await face.bind(pod, "a") == ""
    sent = [entry["metadata"]["annotations"] for entry in api.bindings]
    assert len(sent) == 2
    assert sent[0] == sent[1]


async def test_a_bind_that_did_not_happen_is_settled_by_a_late_read(api: ApiServer) -> None:
    pod = make_pod()
    api.put("pods", pod)
    api.binding_status = 500
    async with watching(api, options=IMPATIENT) as face:
        await face.ready()
        await face.bind(pod, "a")
        face.clock.now += 20
        await face.chores()
        assert face.ledger.claim("uid-p") is not None, "the write might still be on its way"
        face.clock.now += 20
        await face.chores()
        assert face.ledger.claims() == []


async def test_a_refusal_after_an_unknown_outcome_keeps_the_promise(api: ApiServer) -> None:
    pod = make_pod()
    api.put("pods", pod)
    async with watching(api, options=IMPATIENT) as face:
        await face.ready()
        api.binding_status = 500
        await face.bind(pod, "a")
        api.binding_status = 429
        await face.bind(pod, "a")
        assert face.ledger.claim("uid-p") is not None


async def test_a_bound_pod_that_the_cache_never_shows_and_that_is_gone_frees_its_devices(api: ApiServer) -> None:
    async with watching(api) as face:
        await face.ready()
        api.telling = False
        api.put("pods", pod := make_pod())
        assert await face.bind(pod, "a") == ""
        await face.chores()
        assert face.ledger.claim("uid-p") is not None
        del api.objects["pods"]["default/p"]
        face.clock.now += 6
        await face.chores()
        assert face.ledger.claims() == []


async def test_a_deleted_pod_frees_its_devices_and_a_terminating_one_does_not(api: ApiServer, face: Face) -> None:
    pod = make_pod()
    api.put("pods", pod)
    assert await face.bind(pod, "a") == ""
    stored = api.objects["pods"]["default/p"]
    stored["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    api.put("pods", stored)
    await eventually(lambda: _cached(face).metadata.deletion_timestamp is not None)
    assert face.ledger.totals().promised_milli == 1000
    api.delete("pods", "default/p")
    await eventually(lambda: face.ledger.totals().promised_milli == 0)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_frees_its_devices(api: ApiServer, face: Face, phase: str) -> None:
    pod = make_pod()
    api.put("pods", pod)
    assert await face.bind(pod, "a") == ""
    stored = api.objects["pods"]["default/p"]
    stored["status"]["phase"] = phase
    api.put("pods", stored)
    await eventually(lambda: face.ledger.claims() == [])


async def test_a_restart_finds_what_is_bound_and_forgets_what_was_held(api: ApiServer) -> None:
    bound, held = make_share("bound", 600), make_share("held", 600)
    for pod in (bound, held):
        api.put("pods", pod)
    async with watching(api) as before:
        await before.ready()
        assert await before.bind(bound, "a") == ""
        await before.prioritize(held, "a")
        assert before.ledger.totals().promised_milli == 1200
    async with watching(api) as after:
        await after.ready()
        assert after.ledger.totals().promised_milli == 600
        assert await after.bind(held, "a") == ""
        assert after.ledger.totals().promised_milli == 1200
    devices = [json.loads(annotations(api, name)[names.ALLOCATION])["containers"][0]["devices"][0]["uuid"]
               for name in ("bound", "held")]  # fmt: skip
    assert devices[0] != devices[1]


async def test_a_bind_goes_on_when_the_one_who_asked_has_left(api: ApiServer, face: Face) -> None:
    pod = make_pod()
    api.put("pods", pod)
    await face.sees("default/p")
    api.answering.clear()
    asked = asyncio.create_task(face.ask("bind", binding(pod, "a")))
    await eventually(lambda: face.ledger.claim("uid-p") is not None)
    asked.cancel()
    api.answering.set()
    await eventually(lambda: bool(_cached(face).spec.node_name))
    await face.extender.drain()
    assert face.ledger.totals().promised_milli == 1000


async def test_binds_and_promises_are_counted(api: ApiServer, face: Face) -> None:
    pod = make_share("p", 500)
    api.put("pods", pod)
    await face.filter(make_pod(gpu="1(T4)"), "a", "b")
    await face.bind(pod, "a")
    value = face.extender.metrics.registry.get_sample_value
    assert value("dovetail_extender_binds_total", {"result": "bound"}) == 1
    assert value("dovetail_extender_refusals_total", {"kind": "WrongModel"}) == 2
    assert value("dovetail_extender_request_duration_seconds_count", {"verb": "bind"}) == 1
    assert _gauge(face, "promised_share_milli") == 500
    assert _gauge(face, "devices") == 16
    assert value("dovetail_extender_cache_age_seconds", {"kind": "pods"}) is not None


async def test_a_wall_clock_that_jumps_moves_nothing(
    api: ApiServer, face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("held", "next"):
        api.put("pods", make_pod(name, "8", milli=8000))
    await face.prioritize(make_pod("held", "8", milli=8000), "a")
    for now in (0.0, 4e9):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        await face.chores()
        assert "only 0 available" in await face.bind(make_pod("next", "8", milli=8000), "a")
        assert face.extender.ready()["lease"]() is None
    assert await face.bind(make_pod("held", "8", milli=8000), "a") == ""


async def test_the_state_is_read_off_when_somebody_scrapes(api: ApiServer, face: Face) -> None:
    nominated = make_pod("nominated") | {"status": {"phase": "Pending", "nominatedNodeName": "b"}}
    api.put("pods", nominated)
    await eventually(lambda: face.ledger.is_hold("uid-nominated"))
    await face.prioritize(make_pod("decided"), "a", "b")
    await face.filter(make_pod("large", "9", milli=9000), "a", "b")
    api.telling = False
    api.put("pods", make_pod("sent"))
    assert await face.bind(make_pod("sent"), "a") == ""
    value = face.extender.metrics.registry.get_sample_value
    holds = {state: value("dovetail_extender_holds", {"state": state}) for state in HOLD_STATES}
    assert holds == {"decided": 1, "nominated": 1, "planned": 0, "reserved": 0, "binding": 1}
    assert value("dovetail_extender_decisions_total", {"policy": "Balanced", "outcome": "refused"}) == 1
    assert (_gauge(face, "waiting_pods"), _gauge(face, "lease_held"), _gauge(face, "idle_gpus")) == (1, 1, 13)


async def test_a_node_that_returns_with_other_devices_owes_nothing_on_them(api: ApiServer, face: Face) -> None:
    pod = make_pod("p", "8", milli=8000)
    api.put("pods", pod)
    assert await face.bind(pod, "a") == ""
    api.delete("nodes", "a")
    api.delete("gpunodes", "a")
    await eventually(lambda: "a" not in face.ledger.nodes() and not face.ledger.devices("a"))
    api.put("nodes", make_node("a"))
    api.put("gpunodes", other := make_gpunode("replaced") | {"metadata": {"name": "a", "uid": "new"}})
    await eventually(lambda: "a" in face.ledger.nodes() and len(face.ledger.devices("a")) == 8)
    assert (await face.filter(make_pod("q", "8", milli=8000), "a"))["NodeNames"] == ["a"]
    api.put("gpunodes", make_gpunode("a") | {"metadata": other["metadata"]})
    await eventually(lambda: face.ledger.devices("a")[0].uuid == "a-0")
    assert (await face.filter(make_pod("q", "8", milli=8000), "a"))["NodeNames"] is None, "its pod is still there"


def _cached(face: Face):  # type: ignore[no-untyped-def]
    pod = face.extender.watching.cached(namespace="default", name="p")
    assert pod is not None
    return pod


def _gauge(face: Face, name: str) -> float | None:
    return face.extender.metrics.registry.get_sample_value(f"dovetail_extender_{name}")


async def test_what_filter_found_on_the_one_node_of_a_plan_is_what_bind_gives(api: ApiServer, face: Face) -> None:
    api.put("pods", make_pod())
    assert (await face.filter(make_pod(), "a"))["NodeNames"] == ["a"]
    assert face.ledger.claim("uid-p") is None
    assert await face.bind(make_pod(), "a") == ""
    assert face.ledger.claim("uid-p") is not None


async def test_what_filter_found_does_not_count_once_the_node_has_changed(api: ApiServer, face: Face) -> None:
    first, second = (make_pod(name, "8", milli=8000) for name in ("first", "second"))
    for pod in (first, second):
        api.put("pods", pod)
        assert (await face.filter(pod, "a"))["NodeNames"] == ["a"]
    assert await face.bind(first, "a") == ""
    assert await face.bind(second, "a") != ""

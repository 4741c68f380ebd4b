"""Prioritize over HTTP, and the hold that it leaves."""

from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.builders import asking, make_pod, make_share
from tests.extender.decide.test_filter import SOFT_NODE
from tests.extender.harness import Face


async def bound(api: ApiServer, face: Face, node: str, milli: int = 500, name: str = "there") -> None:
    pod = make_share(name, milli)
    api.put("pods", pod)
    assert await face.bind(pod, node) == ""


async def test_every_node_has_a_whole_number(face: Face) -> None:
    status, answer = await face.ask("prioritize", asking(make_pod(), "a", "b"))
    assert status == 200
    assert [entry["Host"] for entry in answer] == ["a", "b"]
    assert all(type(entry["Score"]) is int for entry in answer)


async def test_a_share_goes_where_a_device_is_started(api: ApiServer, face: Face) -> None:
    await bound(api, face, "b")
    scores = await face.prioritize(make_share("next", 300), "a", "b")
    assert scores["b"] > scores["a"]


async def test_the_best_node_has_no_equal_and_is_held(face: Face) -> None:
    scores = await face.prioritize(make_pod(), "a", "b")
    best = max(scores, key=lambda name: scores[name])
    assert len(set(scores.values())) == 2
    claim = face.ledger.claim("uid-p")
    assert claim is not None
    assert claim.node == best
    assert face.ledger.is_hold("uid-p")


async def test_wishes_of_the_pod_keep_their_weight(api: ApiServer, face: Face) -> None:
    await bound(api, face, "b")
    scores = await face.prioritize(make_share("next", 300, affinity=SOFT_NODE), "a", "b")
    assert 0 < max(scores.values()) <= 101
    plain = await face.prioritize(make_share("plain", 300), "a", "b")
    assert 101 < max(plain.values()) <= 10_000_001


async def test_a_hold_counts_in_the_next_decision(face: Face) -> None:
    await face.prioritize(make_pod("first", "8", milli=8000), "a")
    second = make_pod("second", "8", milli=8000)
    assert (await face.filter(second, "a"))["FailedNodes"] == {"a": "GPUs are held for other pods"}
    assert (await face.filter(second, "a", "b"))["NodeNames"] == ["b"]


async def test_a_pod_does_not_stand_in_its_own_way(face: Face) -> None:
    pod = make_pod("first", "8", milli=8000)
    await face.prioritize(pod, "a")
    assert (await face.filter(pod, "a"))["NodeNames"] == ["a"]


async def test_a_hold_ends_by_itself(face: Face) -> None:
    await face.prioritize(make_pod("first", "8", milli=8000), "a")
    face.clock.now += 29.9
    await face.chores()
    assert face.ledger.is_hold("uid-first")
    face.clock.now += 0.2
    await face.chores()
    assert face.ledger.claim("uid-first") is None


async def test_a_pod_deleted_between_filter_and_bind_frees_its_hold(api: ApiServer, face: Face) -> None:
    pod = make_pod("first", "8", milli=8000)
    api.put("pods", pod)
    await face.sees("default/first")
    await face.prioritize(pod, "a")
    api.delete("pods", "default/first")
    await eventually(lambda: face.ledger.claim("uid-first") is None)
    assert await face.bind(pod, "a") == "the pod was deleted"
    assert api.bindings == []


async def test_a_wrong_request_has_no_score_and_no_hold(face: Face) -> None:
    assert await face.prioritize(make_pod(gpu="nonsense"), "a", "b") == {"a": 0, "b": 0}
    assert face.ledger.totals().holds == 0


async def test_no_nodes_are_no_scores(face: Face) -> None:
    assert await face.prioritize(make_pod()) == {}


async def test_a_pod_without_devices_is_placed_when_it_asks_so(api: ApiServer, face: Face) -> None:
    pod = make_pod("plain", milli=0)
    del pod["metadata"]["annotations"]
    api.put("pods", pod)
    await face.sees("default/plain")
    scores = await face.prioritize(pod, "a", "b")
    node = max(scores, key=lambda name: scores[name])
    held = face.ledger.claim("uid-plain")
    assert held is not None
    assert (held.node, held.devices) == (node, ())
    assert await face.bind(pod, node) == ""
    assert "annotations" not in api.bindings[0]["metadata"] or not api.bindings[0]["metadata"]["annotations"]

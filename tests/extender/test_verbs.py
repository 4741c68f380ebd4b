"""The verbs: what is remembered of an answer, and what a client reads of an extender that cannot answer."""

import msgspec

from dovetail_extender.decide.unschedulable import Waiting
from dovetail_extender.metrics import HOLD_STATES, Metrics, Reading
from dovetail_extender.server import Verbs
from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.builders import asking, make_bound, make_pod
from tests.extender.desk import Desk
from tests.extender.harness import Face, watching
from tests.extender.holds.test_planned_workers import holds, make_job, make_worker, waiting_for


async def test_the_connection_to_an_extender_that_cannot_answer_is_closed(api: ApiServer, face: Face) -> None:
    async with watching(api, identity="two") as other:
        await eventually(lambda: "held by one" in other.extender.obstacle())
        for verb in ("filter", "prioritize", "preempt", "bind"):
            async with other.http.post(f"/{verb}", json=asking(make_pod(), "a")) as response:
                assert (response.status, response.headers.get("Connection")) == (503, "close"), verb
    async with face.http.post("/filter", json=asking(make_pod(), "a")) as response:
        assert (response.status, response.headers.get("Connection")) == (200, None)


async def test_a_refused_worker_of_a_plan_waits_for_room_on_its_own_node_alone() -> None:
    desk = Desk(a=1, b=1)
    there = {node: desk.put(make_bound(make_pod(f"on-{node}"), node=node)) for node in ("a", "b")}
    desk.put_job(make_job(("a", 1), gpu="1"))
    waiting = Waiting(ledger=desk.ledger, clock=desk.clock)
    verbs = Verbs(
        decisions=desk.decisions,
        waiting=waiting,
        binder=None,  # type: ignore[arg-type] # nothing is bound
        preempting=desk.preempting,
        obstacle=str,
        on_request=lambda: None,
        metrics=Metrics(ledger=desk.ledger, read=Reading),
    )

    async def nodes() -> list[str] | None:
        answer = await verbs.filter(msgspec.json.encode(asking(make_worker(gpu="1"), "a", "b")))
        assert isinstance(answer.body, bytes)
        found: list[str] | None = msgspec.json.decode(answer.body)["NodeNames"]
        return found

    assert (await nodes(), len(waiting)) == (None, 1)
    desk.delete(there["b"])
    assert not waiting.wake_due(), "there is room on a node that is not the worker's"
    desk.delete(there["a"])
    assert desk.held("job-train/0") == ["a"]
    assert waiting.wake_due(), "the room is held for the worker itself"
    assert (await nodes(), len(waiting)) == (["a"], 0)


async def test_a_scrape_counts_each_hold_in_one_state(api: ApiServer, face: Face) -> None:
    for at in range(2):
        pod = make_pod(f"nominated-{at}")
        api.put("pods", pod | {"status": {"phase": "Pending", "nominatedNodeName": "b"}})
    api.put("gpujobs", make_job(("a", 3), gpu="1"))
    api.put("gpujobs", waiting_for(("b", ["1", "1024M,0.250", "1024M,0.125", "1024M,0.500"])))
    keys = [*(f"uid-nominated-{at}" for at in range(2)), *(f"job-train/{at}" for at in range(3))]
    await holds(face, *keys, *(f"job-large/kept/b/{at}" for at in range(4)))
    await face.prioritize(make_pod("decided"), "a")
    read = face.extender.metrics.registry.get_sample_value
    found = {state: read("dovetail_extender_holds", {"state": state}) for state in HOLD_STATES}
    assert found == {"decided": 1, "nominated": 2, "planned": 3, "reserved": 4, "binding": 0}

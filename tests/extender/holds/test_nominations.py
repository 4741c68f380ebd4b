"""Room for nominated pods: which events of pods start, move and end it. No process, no HTTP."""

from typing import Any

from dovetail.engine.model.claims import Claim
from dovetail_extender.holds.nominations import REMEMBERED, Intended
from tests.extender.builders import make_pod
from tests.extender.desk import Desk

URGENT = "uid-urgent"
LEAVES = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def urgent(gpu: str = "8", *, node: str = "", priority: int = 100) -> dict[str, Any]:
    """A pod that kube-scheduler has nominated to the node."""
    pod = make_pod("urgent", gpu, milli=1000 * int(gpu), priority=priority)
    return pod | {"status": {"phase": "Pending", "nominatedNodeName": node}}


def full(*nodes: str, others: int = 0) -> Desk:
    """Nodes of 8 GPUs, each held by a pod of lower priority; so many of them are left to other pods."""
    desk = Desk(**dict.fromkeys(nodes, 8))
    for name in nodes:
        desk.bind(make_pod(name, str(8 - others), milli=1000 * (8 - others)), name)
    return desk


def leave(desk: Desk, name: str, gpu: int = 8, node: str = "") -> None:
    """The pod is being deleted, and holds its devices until it is gone."""
    claim = desk.ledger.claim(f"uid-{name}")
    desk.put(make_pod(name, str(gpu), milli=1000 * gpu), node=node or name, **LEAVES)
    assert claim is not None
    desk.ledger.commit(claim)


def test_a_nominated_pod_has_the_room_of_those_that_leave_its_node() -> None:
    desk = full("a", "b")
    leave(desk, "a")
    desk.put(urgent(node="a"))
    assert desk.held(URGENT) == ["a"]
    assert (len(desk.nominations), desk.nominations.holding) == (1, 1)
    assert desk.nominations.leaving("a") == {"uid-a"}


def test_where_nothing_leaves_there_is_no_room_until_something_does() -> None:
    desk = full("a")
    desk.put(urgent(node="a"))
    assert (desk.held(URGENT), len(desk.nominations), desk.nominations.holding) == ([""], 1, 0)
    leave(desk, "a")
    desk.nominations.review()
    assert desk.held(URGENT) == ["a"]


def test_one_of_two_leaving_pods_that_is_gone_lets_the_other_still_count() -> None:
    desk = Desk(a=8)
    for name in ("one", "two"):
        desk.bind(make_pod(name, "4", milli=4000), "a")
        leave(desk, name, 4, node="a")
    desk.delete(desk.pods["uid-one"])
    assert desk.nominations.leaving("a") == {"uid-two"}
    desk.put(urgent(node="a"))
    assert desk.held(URGENT) == ["a"]
    desk.delete(desk.pods["uid-two"])
    assert desk.nominations.leaving("a") == frozenset()


def test_a_pod_that_is_nominated_elsewhere_leaves_its_first_room_even_if_it_finds_none() -> None:
    desk = full("a", "b")
    leave(desk, "a")
    desk.put(urgent(node="a"))
    desk.put(urgent(node="b"))
    assert desk.held(URGENT) == [""]
    leave(desk, "b")
    desk.nominations.review()
    assert desk.held(URGENT) == ["b"]


def test_a_nomination_that_is_seen_again_keeps_its_devices() -> None:
    desk = Desk(a=8)
    desk.put(urgent("1", node="a"))
    first = desk.devices(URGENT)
    desk.bind(make_pod("other"), "a")
    desk.put(urgent("1", node="a"))
    assert desk.devices(URGENT) == first


def test_a_pod_that_is_no_longer_nominated_or_has_ended_has_no_room() -> None:
    for change in ({"nominatedNodeName": ""}, {"nominatedNodeName": "a", "phase": "Failed"}):
        desk = Desk(a=8)
        desk.put(urgent(node="a"))
        desk.put(urgent(node="a") | {"status": {"phase": "Pending"} | change})
        assert (desk.held(URGENT), len(desk.nominations)) == ([""], 0)


def test_a_bound_pod_is_nominated_no_more_and_its_claim_stays() -> None:
    desk = Desk(a=8, b=8)
    desk.put(urgent("1", node="a"))
    assert isinstance(desk.bind(urgent("1", node="a"), "b"), Claim)
    desk.put(urgent("1", node="a"), node="b")
    assert len(desk.nominations) == 0
    desk.ledger.release(URGENT)
    desk.nominations.review()
    assert desk.held(URGENT) == [""]


def test_a_bind_that_is_under_way_is_not_replaced_by_a_hold() -> None:
    desk = Desk(a=8, b=8)
    desk.bind(urgent("1"), "b")
    desk.put(urgent("1", node="a"))
    assert desk.held(URGENT) == ["b"]
    assert not desk.ledger.is_hold(URGENT)


def test_a_nominated_pod_that_is_deleted_is_forgotten() -> None:
    desk = Desk(a=8)
    pod = desk.put(urgent(node="a"))
    desk.delete(pod)
    desk.nominations.review()
    assert (desk.held(URGENT), len(desk.nominations)) == ([""], 0)


def test_a_pod_whose_request_cannot_be_read_gets_no_room() -> None:
    desk = Desk(a=8)
    desk.put(urgent(node="a") | {"metadata": urgent()["metadata"] | {"annotations": {"dovetail.dev/gpu": "1X"}}})
    assert (desk.held(URGENT), len(desk.nominations)) == ([""], 0)


def test_a_nominated_pod_keeps_room_from_the_same_and_lower_priorities_alone() -> None:
    desk = Desk(a=8)
    desk.put(urgent(node="a", priority=100))
    for priority, fits in ((99, []), (100, []), (101, ["a"])):
        assert desk.filter(make_pod("other", "8", milli=8000, priority=priority), "a") == fits
    assert desk.held(URGENT) == ["a"], "the question alone ends nothing"
    assert isinstance(desk.bind(make_pod("other", "8", milli=8000, priority=101), "a"), Claim)
    assert desk.held(URGENT, "uid-other") == ["", "a"]


def test_a_pod_of_higher_priority_ends_holds_on_its_own_node_alone() -> None:
    desk = Desk(a=8, b=8)
    desk.put(urgent(node="a"))
    second = urgent(node="b") | {"metadata": urgent()["metadata"] | {"name": "second", "uid": "uid-second"}}
    desk.put(second)
    desk.bind(make_pod("other", "8", milli=8000, priority=101), "a")
    assert desk.held(URGENT, "uid-second") == ["", "b"]


def test_a_pod_of_higher_priority_ends_no_promise_of_a_bind_that_the_watch_does_not_show_yet() -> None:
    desk = Desk(a=2)
    desk.put(urgent("1", node="a", priority=5))
    bound = desk.bind(urgent("1", node="a", priority=5), "a")
    second = urgent("1", node="a", priority=5)
    desk.put(second | {"metadata": second["metadata"] | {"name": "second", "uid": "uid-second"}})
    assert desk.held(URGENT, "uid-second") == ["a", "a"]
    assert isinstance(desk.bind(make_pod("other", priority=101), "a"), Claim)
    assert desk.ledger.claim(URGENT) == bound
    assert desk.held("uid-second", "uid-other") == ["", "a"]


def test_the_devices_that_were_chosen_at_preemption_are_the_ones_that_are_kept() -> None:
    desk = full("a", others=2)
    chosen = Claim(key=URGENT, node="a", devices=(desk.ledger.claim("uid-a") or Claim(key="", node="")).devices[:1])
    desk.nominations.intend(
        URGENT, by_node={"a": Intended(claim=chosen, victims=frozenset({"uid-a"}), at=desk.clock())}
    )
    desk.put(urgent("1", node="a"))
    assert desk.devices(URGENT) == [device.uuid for device in chosen.devices]


def test_chosen_devices_that_something_else_has_taken_since_are_not_held_again() -> None:
    desk = Desk(a=2)
    chosen = Claim(key=URGENT, node="a", devices=(desk.bind(make_pod("x"), "a").devices))  # type: ignore[union-attr]
    desk.ledger.release("uid-x")
    desk.nominations.intend(
        URGENT, by_node={"a": Intended(claim=chosen, victims=frozenset({"uid-x"}), at=desk.clock())}
    )
    desk.put(urgent("1", node="a"))
    assert desk.devices(URGENT) == [device.uuid for device in chosen.devices]
    assert isinstance(desk.bind(make_pod("first", "2", milli=2000, priority=101), "a"), Claim)
    desk.nominations.review()
    assert desk.held(URGENT) == [""], "its room is taken: a hold would promise it twice"
    desk.ledger.release("uid-first")
    desk.bind(make_pod("other"), "a")
    desk.nominations.review()
    assert desk.held(URGENT) == ["a"]
    assert set(desk.devices(URGENT)).isdisjoint(desk.devices("uid-other"))


def test_choices_are_remembered_for_the_last_thousand_pods() -> None:
    desk = full("a")
    way = {"a": Intended(claim=Claim(key="x", node="a"), victims=frozenset({"uid-a"}), at=desk.clock())}
    for at in range(REMEMBERED + 1):
        desk.nominations.intend(f"uid-{at}" if at else URGENT, by_node=way)
    awaited = desk.put(urgent(node="a"))
    assert not desk.nominations.is_awaited(awaited, now=desk.clock())
    desk.nominations.intend(URGENT, by_node=way)
    assert desk.nominations.is_awaited(awaited, now=desk.clock())


def test_victims_are_awaited_for_ten_seconds_and_only_while_one_is_there() -> None:
    desk = full("a")
    way = {"a": Intended(claim=Claim(key=URGENT, node="a"), victims=frozenset({"uid-a"}), at=desk.clock())}
    desk.nominations.intend(URGENT, by_node=way)
    pod = desk.put(urgent(node="a"))
    for seconds, awaited in ((0, True), (10, True), (10.5, False)):
        assert desk.nominations.is_awaited(pod, now=desk.clock() + seconds) == awaited
    desk.ledger.release("uid-a")
    assert not desk.nominations.is_awaited(pod, now=desk.clock())


def test_on_a_node_that_was_not_chosen_nobody_is_awaited() -> None:
    desk = full("a", "b")
    way = {"a": Intended(claim=Claim(key=URGENT, node="a"), victims=frozenset({"uid-a"}), at=desk.clock())}
    desk.nominations.intend(URGENT, by_node=way)
    pod = desk.put(urgent())
    assert not desk.nominations.is_awaited(pod, now=desk.clock())
    leave(desk, "a")
    assert desk.nominations.is_awaited(pod, now=desk.clock()), "a victim leaves: the node was chosen"

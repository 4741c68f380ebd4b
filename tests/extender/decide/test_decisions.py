"""Filter, prioritize and claim without a process: what a pod's own earlier decision changes."""

from typing import Any

import msgspec

from dovetail.engine.model.claims import Claim
from dovetail.engine.model.refusals import Refusal
from dovetail_extender.protocol import ScheduledPod
from tests.extender.builders import make_pod, make_share
from tests.extender.desk import Desk


def prioritize(desk: Desk, pod: dict[str, Any], *nodes: str) -> list[int]:
    return desk.decisions.prioritize(msgspec.convert(pod, ScheduledPod), nodes=nodes)


def held(desk: Desk, name: str = "p") -> Claim:
    found = desk.ledger.claim(f"uid-{name}")
    assert found is not None
    return found


def claim(desk: Desk, pod: dict[str, Any]) -> Claim | Refusal:
    """What bind would promise the pod on the node that it holds."""
    node = held(desk, pod["metadata"]["name"]).node
    return desk.decisions.claim(desk.ask(pod), pod=msgspec.convert(pod, ScheduledPod), node=node)


def test_a_pod_that_asks_for_devices_counts_as_one_arrival_however_often_it_is_filtered() -> None:
    desk = Desk(a=8, b=8)
    for _ in range(2):
        desk.filter(make_share())
    assert desk.decisions.fragments.measure().arrivals == 1
    desk.filter(make_pod("plain", limits={"cpu": "1"}))
    assert desk.decisions.fragments.measure().arrivals == 1
    desk.filter(make_share("other"))
    assert desk.decisions.fragments.measure().arrivals == 2


def test_the_held_claim_is_what_bind_promises() -> None:
    desk, pod = Desk(a=8, b=8), make_share()
    prioritize(desk, pod, "a", "b")
    assert claim(desk, pod) is held(desk)


def test_a_node_that_has_changed_is_checked_again_and_may_refuse() -> None:
    desk, pod = Desk(a=1), make_pod()
    desk.filter(pod, "a")
    other = make_pod("other")
    assert isinstance(desk.bind(other, "a"), Claim)
    assert not isinstance(desk.bind(pod, "a"), Claim)


def test_a_claim_for_one_node_is_none_for_another() -> None:
    desk, pod = Desk(a=8, b=8), make_share()
    prioritize(desk, pod, "a", "b")
    node = held(desk).node
    other = {"a": "b", "b": "a"}[node]
    found = desk.bind(pod, other)
    assert isinstance(found, Claim)
    assert found.node == other


def test_an_edited_request_is_not_bound_with_the_claim_of_the_earlier_one() -> None:
    desk = Desk(a=8)
    prioritize(desk, make_share(milli=500), "a")
    found = desk.bind(make_share(milli=300), "a")
    assert isinstance(found, Claim)
    assert [device.share_milli for device in found.devices] == [300]


def test_a_pod_with_a_firm_promise_is_offered_its_own_node_and_has_nothing_to_choose() -> None:
    desk, pod = Desk(a=8, b=8), make_share()
    desk.bind(pod, "b")
    assert desk.filter(pod, "a", "b") == ["b"]
    assert desk.why(pod, "a") == "the pod's bind to another node is not settled yet"
    assert prioritize(desk, pod, "a", "b") == [0, 0]


def test_only_bound_pods_that_run_are_counted_as_arrivals_of_before() -> None:
    desk = Desk(a=8)
    pods = [
        desk.put(make_share("runs"), node="a", phase="Running"),
        desk.put(make_share("failed"), node="a", phase="Failed"),
        desk.put(make_share("succeeded"), node="a", phase="Succeeded"),
        desk.put(make_share("waits")),
        desk.put(make_pod("odd", "8X"), node="a", phase="Running"),
    ]
    for _ in desk.decisions.count_pods(pods):
        pass
    assert desk.decisions.fragments.measure().arrivals == 1

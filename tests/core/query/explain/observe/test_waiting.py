"""Why a pod of any scheduler waits, by the nodes' books."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from dovetail.api.builtin import Node
from dovetail.cluster.observed import PlacedPod, Seen
from dovetail.formats.timestamps import moment
from dovetail.query.explain.observe.books import books_of
from dovetail.query.explain.observe.demands import Demand, demand_of
from dovetail.query.explain.observe.observation import observation
from dovetail.query.explain.observe.waiting import Judge
from tests.core.query.explain.observe.builders import CREATED, GPU, look, make_node, make_pod, why

MIG = "nvidia.com/mig-1g.10gb"
DEDICATED = {"key": "dedicated", "value": "serving", "effect": "NoSchedule"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pod, the cluster that it waits in, and what the answer is."""

    says: str
    pod: PlacedPod
    nodes: Sequence[Node]
    pods: Sequence[PlacedPod] = ()
    reason: str
    message: str
    causes: Sequence[tuple[int, str]] = ()
    changes: Sequence[str] = ()


CASES = [
    Case(
        says="all devices are promised",
        pod=make_pod(gpus=2),
        nodes=[make_node("n1", gpus=4)],
        pods=[make_pod("a", gpus=3, on="n1", job="train")],
        reason="Devices",
        message="Needs nvidia.com/gpu: 2 on one node: 1 free at most, on n1",
        causes=[(1, "fewer than 2 nvidia.com/gpu free")],
        changes=["1 nvidia.com/gpu more on n1, held by vision/a"],
    ),
    Case(
        says="enough are free, on several nodes",
        pod=make_pod(gpus=4),
        nodes=[make_node("n1", gpus=4), make_node("n2", gpus=4)],
        pods=[make_pod("a", gpus=1, on="n1"), make_pod("b", gpus=2, on="n2")],
        reason="Scattered",
        message="Needs nvidia.com/gpu: 4 on one node: 5 are free on 2 nodes, and 3 at most on one (n1)",
        causes=[(2, "fewer than 4 nvidia.com/gpu free")],
        changes=["1 nvidia.com/gpu more on n1, held by vision/a"],
    ),
    Case(
        says="the devices are free, and the CPU is not",
        pod=make_pod(gpus=1, cpu="16"),
        nodes=[make_node("n1", gpus=8, cpu="32")],
        pods=[make_pod("a", gpus=4, on="n1", cpu="20")],
        reason="Host",
        message="Needs nvidia.com/gpu: 1: n1 has the devices free, but too little CPU, memory or pods",
        causes=[(1, "less than 16 CPUs free")],
        changes=["16 CPUs free on n1, which has the devices"],
    ),
    Case(
        says="a taint keeps it off the only node with room",
        pod=make_pod(gpus=1),
        nodes=[make_node("n1", taints=[DEDICATED])],
        reason="NotAllowed",
        message="Needs nvidia.com/gpu: 1; no node with such devices that is large enough admits it",
        causes=[(1, "taint dedicated=serving:NoSchedule")],
        changes=["a toleration of dedicated=serving:NoSchedule: n1 has room"],
    ),
    Case(
        says="its node selector names a label that no node has",
        pod=make_pod(gpus=1, nodeSelector={"pool": "a"}),
        nodes=[make_node("n1", labels={"pool": "b"})],
        reason="NotAllowed",
        message="Needs nvidia.com/gpu: 1; no node with such devices that is large enough admits it",
        causes=[(1, "no label pool=a")],
        changes=["a nodeSelector without pool=a: n1 has room"],
    ),
    Case(
        says="the node with room is cordoned",
        pod=make_pod(gpus=1),
        nodes=[make_node("n1", cordoned=True)],
        reason="NodesClosed",
        message="Needs nvidia.com/gpu: 1; n1, where it may run, takes no pods now",
        causes=[(1, "cordoned")],
        changes=["kubectl uncordon n1"],
    ),
    Case(
        says="the node with room is not ready",
        pod=make_pod(gpus=1),
        nodes=[make_node("n1", ready="Unknown")],
        reason="NodesClosed",
        message="Needs nvidia.com/gpu: 1; n1, where it may run, takes no pods now",
        causes=[(1, "not ready")],
        changes=["n1 ready again"],
    ),
    Case(
        says="no node is large enough",
        pod=make_pod(gpus=16),
        nodes=[make_node("n1", gpus=8), make_node("n2", gpus=4)],
        reason="TooLarge",
        message="Needs nvidia.com/gpu: 16, more than any node with such devices has",
        causes=[(2, "fewer than 16 nvidia.com/gpu in all")],
    ),
    Case(
        says="every node is too small, and one is cordoned too",
        pod=make_pod(gpus=16),
        nodes=[make_node("n1", gpus=8, cordoned=True), make_node("n2", gpus=4)],
        reason="TooLarge",
        message="Needs nvidia.com/gpu: 16, more than any node with such devices has",
    ),
    Case(
        says="no node has such devices",
        pod=make_pod(gpus=1, resource=MIG),
        nodes=[make_node("n1"), make_node("n2", gpus=None)],
        reason="NoNodes",
        message="Needs nvidia.com/mig-1g.10gb: 1, and no node of the cluster has such devices",
    ),
    Case(
        says="a gate keeps schedulers off",
        pod=make_pod(gpus=1, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
        nodes=[make_node("n1")],
        reason="Gated",
        message="No scheduler looks at it while it has the gates kueue.x-k8s.io/admission",
    ),
    Case(
        says="a node has room and no scheduler of that name runs",
        pod=make_pod(gpus=1, schedulerName="volcano"),
        nodes=[make_node("n1")],
        reason="NotSeen",
        message="n1 has room for it by devices, CPU, memory, labels and taints, and no scheduler has reported on it: "
        "does one run that is called volcano?",
    ),
    Case(
        says="a node has room and its scheduler waits for something else",
        pod=make_pod(gpus=1, says="queue team-a is over its quota", schedulerName="kai-scheduler"),
        nodes=[make_node("n1")],
        reason="Room",
        message="n1 has room for it by devices, CPU, memory, labels and taints; what keeps it waiting is beyond these, "
        "such as quotas and gangs of its scheduler or volumes",
    ),
    Case(
        says="a pod that has ended holds nothing",
        pod=make_pod(gpus=1),
        nodes=[make_node("n1", gpus=1)],
        pods=[make_pod("a", on="n1", phase="Succeeded")],
        reason="NotSeen",
        message="n1 has room for it by devices, CPU, memory, labels and taints, and no scheduler has reported on it: "
        "does one run that is called default-scheduler?",
    ),
    Case(
        says="a plugin that is down leaves its devices in the capacity alone",
        pod=make_pod(gpus=1),
        nodes=[make_node("n1", gpus=0)],
        reason="NoNodes",
        message="Needs nvidia.com/gpu: 1, and no node of the cluster has such devices",
    ),
    Case(
        says="an amount is no quantity",
        pod=make_pod(limits={GPU: "one"}),
        nodes=[make_node("n1")],
        reason="Unreadable",
        message='Its request cannot be read: "one" is not a quantity; write a number with an optional unit, such as '
        "100m, 2, 1.5Gi or 16G",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.says for case in CASES])
def test_the_answer_names_the_cause_with_numbers(case: Case) -> None:
    found = why(case.pod, nodes=case.nodes, pods=case.pods)
    assert (found.reason, found.message) == (case.reason, case.message)
    if case.causes:
        assert [(cause.nodes, cause.text) for cause in found.causes] == list(case.causes)
        assert found.changes == list(case.changes)


@pytest.mark.parametrize(
    ("node", "pod"),
    [
        (make_node("n1", gpus=2), make_pod(gpus=2)),
        (make_node("n1", cpu="16"), make_pod(cpu="16")),
        (make_node("n1", memory="1Gi"), make_pod(memory="1Gi")),
        (make_node("n1", taints=[DEDICATED]), make_pod(tolerations=[{"key": "dedicated", "operator": "Exists"}])),
        (make_node("n1", labels={"pool": "a"}), make_pod(nodeSelector={"pool": "a"})),
    ],
)
def test_what_exactly_fits_has_room(node: Node, pod: PlacedPod) -> None:
    assert why(pod, nodes=[node]).fits_on == ["n1"]


@pytest.mark.parametrize("more", [{"cpu": "63500m"}, {"memory": "255.5Gi"}])
def test_a_little_more_than_what_is_free_has_none(more: dict[str, Any]) -> None:
    assert why(make_pod(**more), nodes=[make_node("n1")], pods=[make_pod("a", on="n1")]).reason == "Host"


def test_a_pod_with_two_obstacles_on_a_node_gets_no_change_that_would_not_help() -> None:
    node = make_node("n1", gpus=1, taints=[DEDICATED])
    assert why(make_pod(gpus=1), nodes=[node], pods=[make_pod("a", on="n1")]).changes == []


def test_the_change_names_the_node_that_lacks_the_least() -> None:
    nodes = [make_node("n1", gpus=4), make_node("n2", gpus=4)]
    held = [make_pod("a", gpus=4, on="n1"), make_pod("b", gpus=1, on="n2")]
    assert why(make_pod(gpus=4), nodes=nodes, pods=held).changes == ["1 nvidia.com/gpu more on n2, held by vision/b"]


def test_of_those_who_hold_a_node_s_devices_the_largest_by_any_kind_are_named_first() -> None:
    node = make_node("n1", gpus=8, **{MIG: "8"})
    kinds = {"a": {GPU: "2"}, "b": {GPU: "1", MIG: "4"}, "c": {GPU: "3"}, "d": {GPU: "1"}}
    held = [make_pod(name, gpus=None, on="n1", limits=limits) for name, limits in kinds.items()]
    (change,) = why(make_pod(gpus=2), nodes=[node], pods=held).changes
    assert change == "1 nvidia.com/gpu more on n1, held by vision/b, vision/c, vision/a and 1 more"


@pytest.mark.parametrize(("count", "rest"), [(3, ""), (5, " and 2 more")])
def test_of_many_nodes_with_room_the_first_are_named_and_the_others_counted(count: int, rest: str) -> None:
    found = why(make_pod(), nodes=[make_node(f"n{at}") for at in range(count)])
    assert found.message.startswith(f"n0, n1, n2{rest} have room")


def test_a_pod_that_was_just_created_has_waited_for_no_time() -> None:
    (found,) = observation(Seen(nodes=[make_node("n1")], pods=[make_pod()]), now=moment(CREATED)).pods
    assert found.waits_seconds == 0.0


def test_the_words_of_the_scheduler_are_passed_on_with_the_answer() -> None:
    says = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    found = why(make_pod(gpus=2, says=says, job="train"), nodes=[make_node("n1", gpus=1)])
    assert (found.scheduler_says, found.owner, found.waits_seconds) == (says, "Job/train", 3600.0)


def test_pods_that_run_have_ended_or_ask_for_no_gpu_do_not_wait() -> None:
    others = [make_pod("a", on="n1"), make_pod("b", phase="Failed"), make_pod("c", gpus=None), make_pod("e", gpus=0)]
    assert look(nodes=[make_node("n1")], pods=others).pods == []


def test_without_the_right_to_list_nodes_the_answer_says_so() -> None:
    found = why(make_pod(says="0/9 nodes are available"), nodes=None)
    assert found.message == "Needs nvidia.com/gpu: 1; without the right to list nodes, nothing more is known"
    assert found.scheduler_says == "0/9 nodes are available"


def test_without_the_pods_of_all_namespaces_no_room_is_claimed() -> None:
    found = why(make_pod(), nodes=[make_node("n1")], everywhere=False)
    assert (found.reason, found.fits_on) == ("Unknown", [])
    assert found.message == "Needs nvidia.com/gpu: 1; what is free on n1 is not known"
    assert why(make_pod(gpus=9), nodes=[make_node("n1")], everywhere=False).reason == "TooLarge"


def test_equal_pods_are_asked_about_once() -> None:
    judge = Judge(books_of([make_node("n1")], pods=[]))
    one, same, other = make_pod("a", gpus=9), make_pod("b", gpus=9), make_pod("c", gpus=9, nodeSelector={"pool": "a"})
    first, second, third = (judge.verdict(pod, demand=demand_of(pod) or Demand(words="")) for pod in (one, same, other))
    assert first is second
    assert first is not third

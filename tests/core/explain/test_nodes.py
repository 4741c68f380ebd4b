"""Every node answers, with its reason and numbers; the summary says it in one sentence."""

from dataclasses import replace

from dovetail.answers.explain.nodes import answer
from tests.core.engine.builders import hold_devices, make_ask
from tests.core.explain.builders import Cluster, make_node


def mixed() -> Cluster:
    return (
        Cluster()
        .add(make_node("b"), gpus=4)
        .add(make_node("a"), gpus=2)
        .add(make_node("t"), gpus=2, model="T4")
        .add(make_node("tainted", taint=True))
        .add(make_node("none"), gpus=0)
    )


def test_each_node_answers_once_the_fitting_ones_first() -> None:
    found = answer(mixed().question(make_ask("2(V100)")))
    assert [(node.node, node.reason) for node in found.nodes] == [
        ("a", ""), ("b", ""), ("none", "NoGPU"), ("t", "WrongModel"), ("tainted", "Taint"),
    ]  # fmt: skip
    assert found.fits
    assert found.summary == "Fits now on 2 of 5 nodes, best on a with GPU 0,1"
    assert found.changes == ()


def test_nodes_that_a_departure_could_mend_come_before_those_that_it_could_not() -> None:
    cluster = Cluster().add(make_node("a"), model="T4").add(make_node("b"))
    hold_devices(cluster.ledger, "b", 0, 1)
    found = answer(cluster.question(make_ask("1(V100)")))
    assert [(node.node, node.reason) for node in found.nodes] == [("b", "DevicesBusy"), ("a", "WrongModel")]


def test_a_node_that_fits_tells_its_score_its_terms_and_its_devices() -> None:
    best = answer(mixed().question(make_ask("2(V100)"))).fitting[0]
    assert [device.uuid for device in best.devices] == ["a-0", "a-1"]
    assert best.score is not None
    assert 0 <= best.score <= 1
    assert set(best.terms) >= {"utilization", "memory", "cpu", "fragmentation"}


def test_warm_nodes_are_a_term_of_the_score() -> None:
    cold = answer(mixed().question(make_ask("1(V100)")))
    warm = answer(mixed().question(replace(make_ask("1(V100)"), warm=("b",))))
    assert [node.node for node in cold.fitting] == ["a", "b"]
    assert [(node.node, node.terms["warm"]) for node in warm.fitting] == [("b", 1.0), ("a", 0.0)]
    assert all("warm" not in node.terms for node in cold.fitting)


def test_a_shortage_begins_with_what_is_needed_and_what_there_is() -> None:
    cluster = mixed()
    hold_devices(cluster.ledger, "a", 0)
    hold_devices(cluster.ledger, "b", 0, 1, 2)
    found = answer(cluster.question(make_ask("2(V100)")))
    assert (found.fits, found.reason) == (False, "Fragmentation")
    assert found.summary == "Need 2 GPUs, only 1 available on one node: 2 GPUs are free, but not together"


def test_refusals_are_counted_by_their_cause() -> None:
    found = answer(mixed().question(make_ask("3(V100)")))
    assert [(cause.nodes, cause.reason) for cause in found.causes] == [
        (1, "NoGPU"), (1, "Taint"), (1, "TooFewDevices"), (1, "WrongModel"),
    ]  # fmt: skip
    assert found.causes[1].text == "the taint team=vision:NoSchedule is not tolerated"


def test_where_the_pod_may_go_nowhere_the_summary_says_what_keeps_it_off() -> None:
    found = answer(mixed().question(make_ask("1"), nodeSelector={"pool": "train"}))
    assert found.summary.startswith("Need 1 GPU, only 0 available: node selector, affinity and taints keep")
    assert {node.message for node in found.nodes} == {"the node selector asks for pool=train"}


def test_a_gang_fits_when_all_its_workers_do() -> None:
    assert answer(mixed().question(make_ask("2(V100)"), workers=3)).summary == (
        "All 3 workers fit now: 2 of 5 nodes have room for one"
    )
    assert not answer(mixed().question(make_ask("2(V100)"), workers=4)).fits


def test_the_picture_is_as_before() -> None:
    cluster = mixed()
    hold_devices(cluster.ledger, "a", 0, 1)
    hold_devices(cluster.ledger, "b", 0, 1, 2, 3)
    question = cluster.question(make_ask("2(V100)"))
    assert answer(question) == answer(question)
    assert len(cluster.ledger.claims()) == 2


def test_an_empty_cluster_has_an_answer() -> None:
    found = answer(Cluster().question(make_ask("1")))
    assert (found.nodes, found.summary) == ((), "Need 1 GPU, only 0 available: no node reports a GPU")
    assert [change.text for change in found.changes] == ["add a node with room for 1"]

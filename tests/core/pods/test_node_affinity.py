from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Node
from dovetail.pods.node_affinity import Exclusion, admits, exclusion


def make_node(*, taint: dict[str, str] | None = None, **labels: str) -> Node:
    return msgspec.convert(
        {"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": [taint] if taint else []}}, Node
    )


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "admitted"),
    [
        (label("zone", "In", "z1", "z2"), True),
        (label("zone", "In", "z2"), False),
        (label("rack", "In", "r1"), False),
        (label("zone", "NotIn", "z2"), True),
        (label("rack", "NotIn", "r1"), True),
        (label("zone", "Exists"), True),
        (label("rack", "DoesNotExist"), True),
        (label("size", "Gt", "3"), True),
        (label("size", "Lt", "3"), False),
        (label("zone", "Gt", "3"), False),
        (label("zone", "Resembles", "z1"), False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}, False),
        ({}, False),
    ],
)
def test_required_node_affinity_is_read_as_kube_scheduler_reads_it(term: dict[str, Any], admitted: bool) -> None:
    assert admits(make_node(zone="z1", size="4"), pod_spec=affinity(term)) is admitted


def test_one_term_of_several_is_enough() -> None:
    assert admits(make_node(zone="z1"), pod_spec=affinity(label("zone", "In", "z2"), label("zone", "In", "z1")))


TAINT = {"key": "team", "value": "vision", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "admitted"),
    [
        ({"key": "team", "value": "vision"}, True),
        ({"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "value": "speech"}, False),
        ({"key": "team", "value": "vision", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_taint_keeps_off_whoever_does_not_tolerate_it(toleration: dict[str, str], admitted: bool) -> None:
    assert not admits(make_node(taint=TAINT), pod_spec={})
    assert admits(make_node(taint=TAINT), pod_spec={"tolerations": [toleration]}) is admitted


def test_a_soft_taint_keeps_nobody_off() -> None:
    assert admits(make_node(taint=TAINT | {"effect": "PreferNoSchedule"}), pod_spec={})


def test_what_keeps_a_pod_off_is_named() -> None:
    node = make_node(taint=TAINT, zone="z1")
    assert exclusion(node, pod_spec={"nodeSelector": {"zone": "z1", "rack": "r2", "pool": "p"}}) == Exclusion(
        kind="NodeSelector", what="pool=p, rack=r2"
    )
    assert exclusion(node, pod_spec={}) == Exclusion(kind="Taint", what="team=vision:NoSchedule")
    assert exclusion(make_node(), pod_spec=affinity({})) == Exclusion(kind="NodeAffinity", what="")
    assert exclusion(make_node(), pod_spec={}) is None


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable",
        "karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler",
    ],
)  # fmt: skip
def test_a_taint_that_tells_the_nodes_state_is_left_to_who_knows_the_node(key: str) -> None:
    assert admits(make_node(taint={"key": key, "effect": "NoSchedule"}), pod_spec={})


@pytest.mark.parametrize(
    ("operator", "number", "admitted"),
    [("Gt", "3", True), ("Gt", "4", False), ("Gt", "5", False), ("Lt", "3", False), ("Lt", "4", False),
     ("Lt", "5", True)],
)  # fmt: skip
def test_an_equal_number_is_neither_greater_nor_less(operator: str, number: str, admitted: bool) -> None:
    assert admits(make_node(size="4"), pod_spec=affinity(label("size", operator, number))) is admitted


@pytest.mark.parametrize("operator", ["In", "Gt", "Lt"])
def test_an_expression_without_values_selects_no_node(operator: str) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": None}]}
    assert not admits(make_node(zone="1"), pod_spec=affinity(term))


@pytest.mark.parametrize(
    ("toleration", "admitted"),
    [
        ({"key": "gpu"}, True),
        ({"key": "gpu", "value": None}, True),
        ({"key": "gpu", "value": "x"}, False),
        ({"key": "other"}, False),
        ({"key": ""}, False),
    ],
)
def test_a_taint_without_a_value_needs_its_own_key(toleration: dict[str, Any], admitted: bool) -> None:
    node = make_node(taint={"key": "gpu", "effect": "NoExecute"})
    assert admits(node, pod_spec={"tolerations": [toleration]}) is admitted
    assert exclusion(node, pod_spec={}) == Exclusion(kind="Taint", what="gpu:NoExecute")


def test_every_taint_has_to_be_tolerated() -> None:
    taints = [TAINT | {"effect": "PreferNoSchedule"}, TAINT, TAINT | {"key": "other"}]
    node = msgspec.convert({"metadata": {"name": "n1"}, "spec": {"taints": taints}}, Node)
    assert exclusion(node, pod_spec={"tolerations": [TAINT]}) == Exclusion(kind="Taint", what="other=vision:NoSchedule")
    both = [TAINT, {"key": "other", "operator": "Exists"}]
    assert admits(node, pod_spec={"tolerations": both})


def test_a_term_holds_where_all_its_expressions_hold() -> None:
    terms = label("zone", "Exists"), label("size", "Gt", "3")
    both = {"matchExpressions": [each for term in terms for each in term["matchExpressions"]]}
    assert admits(make_node(zone="z1", size="4"), pod_spec=affinity(both))
    assert not admits(make_node(zone="z1", size="3"), pod_spec=affinity(both))
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    assert not admits(make_node(zone="z1"), pod_spec=affinity(label("zone", "Exists") | field))

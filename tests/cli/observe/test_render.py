"""What `dovetail observe` prints."""

import json

import pytest

from dovetail.answers.observe import Observation
from dovetail.api.kueue import WORKLOADS
from dovetail.api.resources import NODES
from dovetail_cli.observe import render
from tests.core.query.explain.observe.builders import look, make_node, make_pod

TAINTS = [{"key": "dedicated", "value": "serving", "effect": "NoSchedule"}]


def scene(*, waiting: int = 2) -> Observation:
    nodes = [make_node("n1", gpus=4), make_node("n2", gpus=4, taints=TAINTS)]
    jobs = [make_pod(f"train-{at}", gpus=2, job="train", says="0/2 nodes are available.") for at in range(waiting)]
    return look(nodes=nodes, pods=[make_pod("busy", gpus=3, on="n1", namespace="nlp", job="web"), *jobs])


def test_the_text_says_sums_the_waiting_pods_the_map_and_the_rooms() -> None:
    assert render.text(scene(), most=20).splitlines() == [
        "nvidia.com/gpu: 3 of 8 on 2 nodes are promised, 5 are free; waiting pods ask for 4.",
        "2 pods wait for GPUs.",
        "",
        "vision/train-0 and 1 more (Job/train) wait for nvidia.com/gpu: 2, 60m so far, scheduler default-scheduler",
        "  Devices: Needs nvidia.com/gpu: 2 on one node: 1 free at most, on n1.",
        "  - 1 node: fewer than 2 nvidia.com/gpu free (n1)",
        "  - 1 node: taint dedicated=serving:NoSchedule (n2)",
        "  It would start with 1 nvidia.com/gpu more on n1, held by nlp/busy.",
        "  It would start with a toleration of dedicated=serving:NoSchedule: n2 has room.",
        "  Its scheduler says: 0/2 nodes are available.",
        "",
        "NODE  BY            RESOURCE        MODEL  DEVICES  PROMISED  FREE  HOLDERS       STATE",
        "n1    DevicePlugin  nvidia.com/gpu  -      4        3         1     nlp/busy (3)  open",
        "n2    DevicePlugin  nvidia.com/gpu  -      4        0         4     -             open",
        "",
        "Room on single nodes:",
        "  5 whole nvidia.com/gpu are free: room now for pods of one size, 5 of 1, 2 of 2, 1 of 4, 0 of 8",
    ]


def test_json_has_everything_and_says_which_fields_are_not_known() -> None:
    found = json.loads(render.render(scene(), form="json", everything=False))
    assert found["pods"][0]["waitsSeconds"] == 3600.0
    assert found["fragments"][0]["pods"] == {"1": 5, "2": 2, "4": 1, "8": 0}
    assert found["unread"] == []


def test_csv_has_a_line_for_each_waiting_pod() -> None:
    assert len(render.render(scene(waiting=3), form="csv", everything=False).splitlines()) == 4


def test_the_text_is_cut_and_says_how_to_see_the_rest() -> None:
    many = look(nodes=[make_node(f"n{at}") for at in range(30)], pods=[make_pod(f"p{at}", gpus=9) for at in range(30)])
    cut, whole = render.render(many, form="table", everything=False), render.render(many, form="table", everything=True)
    assert "… and 10 more: --all shows them, -o json has everything" in cut
    assert ("more:" in whole, "n29" in whole, "vision/p29" in whole) == (False, True, True)


def test_a_cluster_without_gpus_says_so() -> None:
    assert render.text(look(nodes=[make_node("n1", gpus=None)]), most=20).splitlines() == [
        "No node of this cluster has GPUs that a device plugin advertises, and no pod asks for any.",
        "No pod waits for GPUs.",
    ]


def test_what_may_not_be_read_is_said_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_unread(look(nodes=None, unlisted=[NODES, WORKLOADS[0]]))
    nodes = "the map of devices, and on which nodes a waiting pod would fit"
    assert capsys.readouterr().err.splitlines() == [
        f"dovetail: you may not list nodes of the cluster; missing: {nodes}",
        "dovetail: you may not list workloads.kueue.x-k8s.io of the cluster; missing: what waits in Kueue's queues",
    ]

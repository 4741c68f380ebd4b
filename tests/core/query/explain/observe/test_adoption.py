"""The steps by which a node moves to Dovetail, from the objects of a cluster of another scheduler."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.answers.observe import Adoption
from dovetail.api.builtin import Node
from dovetail.api.gpunode import GPUNode
from dovetail.cluster.observed import PlacedPod, Seen
from dovetail.query.explain.observe.adoption import AdoptionError, adoption
from tests.core.query.explain.observe.builders import GPU, make_hami_node, make_node, make_pod

OPERATOR = {"nvidia.com/gpu.deploy.device-plugin": "true"}
MANAGED = {names.LABEL_MANAGED: "true"}


def of(*nodes: Node, pods: list[PlacedPod] | None = None, **more: Any) -> Adoption:
    """The steps for the first node."""
    return adoption(Seen(nodes=nodes, pods=pods or [], **more), node=nodes[0].metadata.name)


def states(found: Adoption) -> list[str]:
    return [step.state for step in found.steps]


def plugin(name: str = "nvidia-device-plugin-daemonset") -> PlacedPod:
    raw = msgspec.to_builtins(make_pod("plugin-x", gpus=None, on="n1", namespace="gpu-operator"))
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": "u", "controller": True}
    raw["metadata"]["ownerReferences"] = [owner]
    return msgspec.convert(raw, PlacedPod)


def reported(name: str = "n1") -> GPUNode:
    device = {"index": 0, "uuid": "GPU-1", "vendor": "nvidia", "model": "A100", "memoryMiB": 81920}
    return msgspec.convert({"metadata": {"name": name}, "status": {"devices": [device]}}, GPUNode)


def test_a_node_in_use_says_who_leaves_and_what_the_other_system_keeps() -> None:
    pods = [make_pod("a", gpus=3, on="n1", job="train"), make_pod("b", gpus=1, on="n1"), make_pod("waits", gpus=6)]
    found = of(make_node("n1", labels=OPERATOR), make_node("n2", gpus=4), pods=pods)
    assert (found.devices, found.resource, found.system, found.adopted) == (8, GPU, "DevicePlugin", False)
    assert (found.left_elsewhere, found.asked_elsewhere) == (4, 6)
    assert {each.name: each.devices for each in found.holders} == {"a": 3, "b": 1}
    assert found.steps[1].effect == (
        "Ends vision/a, vision/b, which hold 4 devices, within their disruption budgets. "
        "No controller creates vision/b again."
    )
    assert states(found) == ["todo", "todo", "todo", "todo", "waits", "todo"]


def test_each_step_is_done_once_the_cluster_shows_it() -> None:
    assert states(of(make_node("n1", cordoned=True))) == ["done", "done", "todo", "todo", "waits", "todo"]
    without_plugin = make_node("n1", gpus=None, labels=MANAGED, cordoned=True)
    assert states(of(without_plugin)) == ["done", "done", "done", "done", "waits", "todo"]
    assert states(of(without_plugin, gpunodes=[reported()])) == ["done"] * 5 + ["todo"]
    opened = make_node("n1", gpus=None, labels=MANAGED)
    found = of(opened, gpunodes=[reported()])
    assert (states(found), found.adopted) == (["done"] * 6, True)


def test_a_label_beside_a_plugin_that_still_advertises_is_not_done() -> None:
    found = of(make_node("n1", labels=MANAGED), gpunodes=[reported()])
    assert states(found) == ["todo", "done", "todo", "done", "waits", "todo"]


def test_the_gpu_operator_s_plugin_goes_by_its_label_and_comes_back_by_it() -> None:
    found = of(make_node("n1", labels=OPERATOR))
    assert found.steps[2].command == "kubectl label node n1 nvidia.com/gpu.deploy.device-plugin=false --overwrite"
    assert "kubectl label node n1 nvidia.com/gpu.deploy.device-plugin=true --overwrite" in found.back


def test_any_other_plugin_goes_by_its_daemonset_s_affinity() -> None:
    found = of(make_node("n1"), pods=[plugin()])
    assert found.steps[2].command == "kubectl -n gpu-operator edit daemonset nvidia-device-plugin-daemonset"
    assert "dovetail.dev/managed DoesNotExist" in found.steps[2].effect
    assert of(make_node("n1")).steps[2].command == ""


def test_hami_s_node_moves_as_well() -> None:
    found = of(make_hami_node("h1", devices=({}, {})))
    assert (found.system, found.devices) == ("HAMi", 2)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (make_node("n1", resource="amd.com/gpu"), "node n1 has amd.com/gpu: Dovetail manages NVIDIA's devices alone"),
        (make_node("n1", gpus=None), "node n1 has no GPUs that a device plugin advertises"),
    ],
)
def test_a_node_that_cannot_move_is_refused_in_a_sentence(node: Node, says: str) -> None:
    with pytest.raises(AdoptionError, match=says):
        of(node)


def test_an_unknown_node_is_refused() -> None:
    with pytest.raises(AdoptionError, match="there is no node n9"):
        adoption(Seen(nodes=[make_node("n1")], pods=[]), node="n9")

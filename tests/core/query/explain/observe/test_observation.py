"""The map of a cluster's devices, what quotas refuse, what waits in Kueue, and what is lost."""

import msgspec
import pytest

from dovetail.api.builtin import Event
from dovetail.api.gpunode import GPUNode
from dovetail.api.kueue import Workload
from dovetail.cluster.observed import ResourceQuota
from tests.core.query.explain.observe.builders import CREATED, GPU, look, make_node, make_pod

EXCEEDED = (
    'Error creating: pods "train-x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, '
    "used: requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=4"
)


def test_the_map_says_who_is_promised_what() -> None:
    pods = [make_pod("a", gpus=3, on="n1", job="train"), make_pod("b", gpus=2, on="n2", schedulerName="volcano")]
    first, second = look(
        nodes=[make_node("n1"), make_node("n2", labels={"nvidia.com/gpu.product": "H100"})], pods=pods
    ).nodes
    assert (first.devices, first.promised, first.free) == (8, 3, 5)
    assert [(each.owner, each.devices) for each in first.holders] == [("Job/train", 3)]
    assert (second.model, second.holders[0].scheduler) == ("H100", "volcano")


def test_sums_and_rooms_follow_from_the_map() -> None:
    pods = [make_pod("a", gpus=3, on="n1"), make_pod("b", gpus=6, on="n2"), make_pod("w", gpus=8)]
    found = look(nodes=[make_node("n1"), make_node("n2"), make_node("n3", cordoned=True)], pods=pods)
    (total,) = found.resources
    assert (total.devices, total.promised, total.free, total.stranded, total.asked) == (24, 9, 15, 8, 8)
    (room,) = found.fragments
    assert (room.whole, room.pods) == (7, {1: 7, 2: 3, 4: 1, 8: 0})


def test_free_devices_without_cpu_for_any_pod_of_the_cluster_are_stranded() -> None:
    pods = [make_pod("a", gpus=1, cpu="8", on="n1"), make_pod("b", gpus=1, cpu="60", on="n2")]
    first, second = look(nodes=[make_node("n1"), make_node("n2")], pods=pods).nodes
    assert first.stranded == ""
    assert second.stranded == "4 CPUs are free, and every pod with such devices asks for 8 or more"


@pytest.mark.parametrize(("most", "stranded"), [("2", ""), ("1", "the node has as many pods as it may have")])
def test_free_devices_of_a_node_that_takes_no_further_pod_are_stranded(most: str, stranded: str) -> None:
    (row,) = look(nodes=[make_node("n1", pods=most)], pods=[make_pod("a", on="n1")]).nodes
    assert row.stranded == stranded


def test_a_node_is_ready_by_that_condition_alone() -> None:
    node = make_node("n1")
    pressure = msgspec.structs.replace(node.status.conditions[0], type="DiskPressure", status="False")
    status = msgspec.structs.replace(node.status, conditions=[*node.status.conditions, pressure])
    (row,) = look(nodes=[msgspec.structs.replace(node, status=status)]).nodes
    assert row.closed == ""


def test_managed_nodes_of_dovetail_are_counted_in_gpus() -> None:
    node = make_node("m1", gpus=2000, resource="dovetail.dev/gpu-milli")
    pods = [make_pod("a", gpus=500, resource="dovetail.dev/gpu-milli", on="m1")]
    (row,) = look(nodes=[node], pods=pods).nodes
    assert (row.system, row.devices, row.promised, row.free) == ("Dovetail", 2, 0.5, 1.5)


def test_without_the_pods_of_all_namespaces_the_map_shows_no_sums() -> None:
    found = look(nodes=[make_node("n1")], pods=[make_pod("a", on="n1")], everywhere=False)
    (row,) = found.nodes
    assert (row.devices, row.promised, row.free) == (8, None, None)
    assert (found.resources[0].free, found.fragments) == (None, [])
    assert "Only the pods of one namespace may be listed" in found.notes[0]


def test_a_quota_of_gpus_is_shown_and_one_of_cpu_is_not() -> None:
    raw = {
        "metadata": {"namespace": "vision", "name": "gpus"},
        "status": {"hard": {"requests.nvidia.com/gpu": "4", "cpu": "10"}, "used": {"requests.nvidia.com/gpu": "4"}},
    }
    (quota,) = look(quotas=[msgspec.convert(raw, ResourceQuota)]).quotas
    assert (quota.resource, quota.used, quota.hard, quota.full) == (GPU, 4, 4, True)


def refusal(message: str, *, at: str, name: str = "train") -> Event:
    about = {"kind": "Job", "namespace": "vision", "name": name}
    return msgspec.convert(
        {"involvedObject": about, "reason": "FailedCreate", "message": message, "lastTimestamp": at, "count": 3}, Event
    )


def test_pods_that_a_quota_of_gpus_keeps_from_being_created_are_shown_once() -> None:
    cpu = EXCEEDED.replace("requests.nvidia.com/gpu", "requests.cpu")
    events = [
        refusal(EXCEEDED, at="2026-11-28T11:00:00Z"),
        refusal(EXCEEDED, at="2026-11-28T11:30:00Z"),
        refusal(cpu, at="2026-11-28T11:40:00Z", name="web"),
    ]
    (found,) = look(events=events).refused
    assert (found.owner, found.last, found.message) == ("Job/train", "2026-11-28T11:30:00Z", EXCEEDED)


def workload(*, gpus: int = 2, admitted: str = "False") -> Workload:
    container = {"name": "main", "resources": {"requests": {GPU: str(gpus)} if gpus else {}}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": True}
    raw = {
        "metadata": {
            "namespace": "vision", "name": "job-train", "creationTimestamp": CREATED, "ownerReferences": [owner]
        },
        "spec": {"queueName": "team", "podSets": [{"count": 4, "template": {"spec": {"containers": [container]}}}]},
        "status": {
            "conditions": [
                {"type": "QuotaReserved", "status": "False", "message": "insufficient unused quota"},
                {"type": "Admitted", "status": admitted},
            ]
        },
    }  # fmt: skip
    return msgspec.convert(raw, Workload)


def test_a_workload_that_waits_in_kueue_has_kueues_own_words() -> None:
    (found,) = look(workloads=[workload()]).workloads
    assert (found.owner, found.queue, found.request) == ("Job/train", "team", "4 pods of nvidia.com/gpu: 2")
    assert (found.message, found.waits_seconds) == ("insufficient unused quota", 3600.0)


@pytest.mark.parametrize("other", [workload(gpus=0), workload(admitted="True")])
def test_a_workload_without_gpus_or_with_admission_does_not_wait(other: Workload) -> None:
    assert look(workloads=[other]).workloads == []


def test_a_device_that_a_pod_holds_and_does_not_use_is_shown_where_an_agent_measures() -> None:
    devices = [
        {"index": at, "uuid": f"GPU-{at}", "vendor": "nvidia", "model": "T4", "memoryMiB": 16384, "utilization": load}
        for at, load in enumerate((0.0, 0.8, 0.0, 0.01))
    ]
    given = [
        {"uid": uid, "namespace": "vision", "name": uid, "devices": [device]}
        for uid, device in (("a", "GPU-0::2"), ("b", "GPU-1"), ("at the bound", "GPU-3"))
    ]
    gpunode = msgspec.convert(
        {"metadata": {"name": "n1"}, "status": {"devices": devices, "assignments": given}}, GPUNode
    )
    found = look(nodes=[make_node("n1", gpus=4)], pods=[make_pod("a", on="n1")], gpunodes=[gpunode])
    assert [(each.device, each.pods) for each in found.idle] == [("n1/0", ["vision/a"])]
    assert (found.measured, found.nodes[0].utilization) == (True, 0.203)
    assert not look(nodes=[make_node("n1")]).measured


def test_pods_with_resource_claims_are_not_counted_and_the_answer_says_so() -> None:
    (note,) = look(
        nodes=[make_node("n1")], pods=[make_pod("a", gpus=None, on="n1", resourceClaims=[{"name": "g"}])]
    ).notes
    assert note == "Pods with resource claims hold devices that these books do not count: 1 of them are bound"

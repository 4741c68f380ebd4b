"""Explanations where a vendor's plugin serves a node: the way that the queue would take, and what kubelet gave."""

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.gpunode import Assignment, GPUNode
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.query.explain import subjects
from dovetail.query.explain.requests import of_request
from dovetail.query.explain.subjects import Subject
from tests.cli import builders
from tests.cli.builders import make_gpunode, make_pod
from tests.core.explain.builders import make_node
from tests.core.query.explain.test_explain import explain

GPU = "nvidia.com/gpu"
RESERVED_MIB = 768
SETTINGS = Settings()


def vendor_node(name: str) -> Node:
    node = make_node(name)
    amounts = {**node.status.allocatable, GPU: "2"}
    labels = {label: text for label, text in node.metadata.labels.items() if label != names.LABEL_MANAGED}
    status = msgspec.structs.replace(node.status, capacity=amounts, allocatable=amounts)
    metadata = msgspec.structs.replace(node.metadata, labels=labels)
    return msgspec.structs.replace(node, metadata=metadata, status=status)


def picture(*pods: Pod, given: list[int] | None = None, jobs: tuple[GPUJob, ...] = ()) -> ClusterObjects:
    """Node m with one managed V100, node v with two of a vendor's plugin; `given` are those of the first pod."""
    return ClusterObjects(
        nodes=[make_node("m"), vendor_node("v")],
        gpunodes=[make_gpunode("m", gpus=1), reporting(pods, given=given)],
        pods=list(pods),
        jobs=list(jobs),
        settings=SETTINGS,
    )


def reporting(pods: tuple[Pod, ...], *, given: list[int] | None) -> GPUNode:
    gpunode = make_gpunode("v", reserved_mib=RESERVED_MIB)
    if given is None:
        return gpunode
    meta = pods[0].metadata
    devices = [f"GPU-v-{index}" for index in given]
    assignment = Assignment(uid=meta.uid, namespace=meta.namespace, name=meta.name, devices=devices)
    return msgspec.structs.replace(gpunode, status=msgspec.structs.replace(gpunode.status, assignments=[assignment]))


def asked(text: str) -> Subject:
    return of_request(text, settings=SETTINGS)


@pytest.mark.parametrize(
    ("text", "summary"),
    [("1", "Fits now on 1 of 2 nodes, best on m with GPU 0"), ("2", "Fits now on 1 of 2 nodes, best on v")],
    ids=["on a managed node", "by a vendor's plugin"],
)
def test_a_request_is_answered_in_the_way_in_which_it_would_be_met(text: str, summary: str) -> None:
    assert explain(asked(text), picture()).summary == summary


def worker(**more: str) -> Pod:
    return make_pod("x-0", node="v", asks={GPU: "2"}, labels={names.LABEL_JOB: "x", **more})


def running_job() -> GPUJob:
    job = builders.make_job("x", phase="Running", number=5)
    return msgspec.structs.replace(job, status=GPUJobStatus(phase="Running", number=5))


@pytest.mark.parametrize(
    ("given", "where"),
    [([0, 1], "v with GPU 0,1"), (None, "v; the node's agent has not reported yet which GPUs kubelet gave it")],
)
def test_a_job_is_on_the_devices_that_its_node_reports(given: list[int] | None, where: str) -> None:
    subject = subjects.of_job(running_job(), pods=[worker()], settings=SETTINGS)
    found = explain(subject, picture(worker(), given=given))
    assert found.summary == f"Job 5 (x) is on {where}"
    assert [each.memory_mib for each in found.held] == [32768 - RESERVED_MIB] * len(given or [])


def test_what_a_vendor_s_pods_hold_stands_in_the_way_of_others() -> None:
    found = explain(asked("2"), picture(worker()))
    assert found.summary.startswith("Need 2 GPUs, only 0 available")


def test_where_nothing_is_advertised_a_node_that_does_would_help() -> None:
    raw = {
        "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [{"name": "main", "resources": {"limits": {"amd.com/gpu": "1"}}}],
        },
    }
    found = explain(subjects.of_pod(raw, settings=SETTINGS), picture())
    assert found.answer is not None
    assert [change.text for change in found.answer.changes] == ["add a node that advertises amd.com/gpu"]

"""What a changed tree of quotas would do to the jobs of a small cluster."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Node
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.names import LABEL_MANAGED
from dovetail.query.quotas.listing import borrowers_from
from dovetail.query.quotas.plan import plan_quotas
from tests.operator_.builders import NOW, at, condition, make_child, make_job, make_pod


def quota(name: str, *, status: dict[str, Any] | None = None, **spec: Any) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec, "status": status or {}}, GPUQuota)


@pytest.fixture
def objects() -> ClusterObjects:
    """One node with a GPU that a job of namespace `idle` holds, and a waiting job of namespace `team`."""
    status = {"allocatable": {"cpu": "64", "memory": "256Gi"}, "conditions": [condition("Ready")]}
    node = msgspec.convert({"metadata": {"name": "a", "labels": {LABEL_MANAGED: "true"}}, "status": status}, Node)
    device = {"index": 0, "uuid": "GPU-a-0", "vendor": "nvidia", "model": "V100", "memoryMiB": 32768}
    report = {"metadata": {"name": "a"}, "status": {"devices": [device], "observedAt": at(-5)}}
    runs = make_job(
        "runs", gpu=1, meta={"namespace": "idle"}, status={"phase": "Running", "number": 1, "startTime": at(-600)}
    )
    child = make_child(runs, uid="child")
    meta = {"namespace": "idle", "labels": {"dovetail.dev/job": "runs"}, "uid": "pod"}
    pod = make_pod(devices=1, node="a", owner="child", started=-600, meta=meta)
    waits = make_job("waits", gpu=1, status={"phase": "Queued", "number": 1})
    return ClusterObjects(
        nodes=[node],
        gpunodes=[msgspec.convert(report, GPUNode)],
        pods=[pod],
        jobs=[runs, waits],
        settings=Settings(),
        batch_jobs=[child],
    )


def test_a_new_guarantee_ends_the_borrowers_job(objects: ClusterObjects) -> None:
    found = plan_quotas(objects, changed=[quota("team", namespaces=["team"], guaranteed={"gpus": 1})], now=NOW)
    assert [(ended.job, ended.by) for ended in found.ends] == [("idle/runs", "team/waits")]
    assert found.ends[0].reason == "Is ended for GPUQuota team: it is guaranteed 1 GPU, uses 0, and a job of it needs 1"
    assert [(each.name, each.before, each.after, each.used) for each in found.quotas] == [("team", None, 1.0, 0.0)]
    assert (found.contradictions, found.starts, found.waits) == ([], [], [])


def test_contradictions_are_named_with_their_numbers(objects: ClusterObjects) -> None:
    changed = [quota("team", namespaces=["team"], parent="gone", guaranteed={"gpus": 2})]
    assert plan_quotas(objects, changed=changed, now=NOW).contradictions == [
        "GPUQuota team: its parent gone does not exist: it acts without one",
        (
            "GPUQuota team: its guarantee of 2 GPUs is scaled: 2 GPUs are guaranteed in the cluster, the cluster has "
            "1 GPU"
        ),
    ]


def test_a_quota_that_guarantees_nothing_changes_nothing(objects: ClusterObjects) -> None:
    found = plan_quotas(objects, changed=[quota("team", namespaces=["team"], limit={"gpus": 1})], now=NOW)
    assert (found.quotas, found.ends, found.starts, found.waits) == ([], [], [], [])


def test_what_happens_without_the_change_too_is_none_of_its_effects(objects: ClusterObjects) -> None:
    there = [quota("team", namespaces=["team"], guaranteed={"gpus": 1})]
    change = quota("else", namespaces=["else"], guaranteed={"gpus": 0})
    found = plan_quotas(replace(objects, quotas=there), changed=[change], now=NOW)
    assert (found.ends, found.starts, found.waits) == ([], [], []), "the borrower ends anyway"
    alone = replace(objects, pods=[], jobs=objects.jobs[1:], batch_jobs=[])
    found = plan_quotas(alone, changed=[change], now=NOW)
    assert (found.ends, found.starts, found.waits) == ([], [], []), "the job starts anyway"
    forbids = quota("none", namespaces=["team"], limit={"gpus": 0})
    assert plan_quotas(alone, changed=[forbids], now=NOW).waits == ["team/waits"]
    allows = quota("none", namespaces=["team"], limit={"gpus": 1})
    assert plan_quotas(replace(alone, quotas=[forbids]), changed=[allows], now=NOW).starts == ["team/waits"]


def test_those_who_borrow_most_are_asked_first_and_never_relatives_within_their_guarantee() -> None:
    borrowed = {"used": 9, "gpus": 4}
    quotas = {
        each.metadata.name: each
        for each in (
            quota("left", status={"guarantee": {"borrowed": 0}}),
            quota("right", status={"guarantee": {"borrowed": 2} | borrowed}),
            quota("l1", parent="left", status={"guarantee": {"borrowed": 0}}),
            quota("l2", parent="left", status={"guarantee": {"borrowed": 3} | borrowed}),
            quota("r1", parent="right", status={"guarantee": {"borrowed": 5} | borrowed}),
            quota("outside of the tree"),
        )
    }
    assert [(each.name, each.gpus) for each in borrowers_from("l1", quotas=quotas)] == [("l2", 3), ("r1", 2)]


def test_a_parent_is_asked_for_what_its_own_jobs_borrow() -> None:
    quotas = {
        each.metadata.name: each
        for each in (
            quota("a", parent="dep", namespaces=["a"], status={"guarantee": {"gpus": 4}}),
            quota("dep", namespaces=["dep"], status={"guarantee": {"used": 2, "gpus": 4}}),
            quota("b", namespaces=["b"], status={"guarantee": {"used": 8, "borrowed": 6}}),
            quota("b1", parent="b", namespaces=["b1"], status={"guarantee": {"used": 3, "borrowed": 3}}),
        )
    }
    assert [(each.name, each.gpus) for each in borrowers_from("a", quotas=quotas)] == [("b", 5), ("b1", 3), ("dep", 2)]


@pytest.mark.parametrize(
    ("changed", "is_refused"),
    [
        ([quota("a", parent="b"), quota("b", parent="a")], True),
        ([quota("a", parent="gone")], True),
        ([quota("a", guaranteed={"gpus": 1})], False),
        # More than the cluster has: no contradiction between the quotas.
        ([quota("a", guaranteed={"gpus": 9})], False),
    ],
)
def test_quotas_that_contradict_each_other_are_refused(
    objects: ClusterObjects, changed: list[GPUQuota], is_refused: bool
) -> None:
    assert plan_quotas(objects, changed=changed, now=NOW).is_refused is is_refused


def test_a_changed_quota_keeps_the_forecast_of_its_demand(objects: ClusterObjects) -> None:
    hours = {"name": "forecast-0", "start": "00:00", "end": "00:00", "gpus": 1}
    status = {"forecast": {"since": at(-9000), "hour": at(-60), "windows": [hours]}}
    before = quota("team", namespaces=["team"], forecast={"gpus": 1}, status=status)
    changed = quota("team", namespaces=["team"], forecast={"gpus": 1}, shares=2)
    found = plan_quotas(replace(objects, quotas=[before]), changed=[changed], now=NOW)
    assert [(each.name, each.before, each.after) for each in found.quotas] == [("team", 1.0, 1.0)]

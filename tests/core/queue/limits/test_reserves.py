"""Reserves of quotas for one cycle: what is to be ready, on which GPUs, what is lent, and what pods may not use."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.gpuquota import GPUQuota, GPUQuotaStatus, QuotaReserve
from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.limits.subjects import Subject
from tests.core.queue.limits.test_quota_reservations import COURSE, NOW, Scene

TRAINING = Subject(namespace="train", user="ada")


def quota(name: str = "q", *, namespace: str = "course", **spec: Any) -> GPUQuota:
    said = {"namespaces": [namespace], "guaranteed": {"gpus": 4}, "reserve": {"gpus": 2}} | spec
    return msgspec.convert({"metadata": {"name": name}, "spec": said}, GPUQuota)


class Reserving(Scene):
    """The same nodes, and quotas with a reserve."""

    def __init__(self, *quotas: GPUQuota) -> None:
        super().__init__()
        for each in quotas or (quota(),):
            self.quotas.update(each)

    def trains(self, uid: str, *, node: str, gpus: int, leaves: float, **more: Any) -> None:
        """A job of others, whose pods take so long to end."""
        self.runs(uid, node=node, gpus=gpus, subject=TRAINING, **({"assumed": True} | more))
        self.counted[-1] = replace(self.counted[-1], leave_seconds=leaves)

    def ready(self, of: str = "q") -> QuotaReserve:
        self.windows()
        return self.quotas.reserves[of]

    def kept(self, of: str = "q") -> dict[str, list[str]]:
        return {each.name: each.keeps for each in self.quotas.kept.get(of, ())}


def test_on_free_gpus_a_reserve_is_ready_and_kept_from_pods() -> None:
    scene = Reserving()
    assert scene.ready() == QuotaReserve(gpus=2, ready=2)
    assert scene.kept() == {"a": ["2"]}


@pytest.mark.parametrize(("used", "left"), [(1, 2), (3, 1), (4, 0)])
def test_with_what_is_in_use_a_reserve_stays_within_the_guarantee(used: int, left: int) -> None:
    scene = Reserving()
    scene.runs("x", node="a", gpus=used, subject=COURSE)
    assert scene.ready() == QuotaReserve(gpus=left, ready=left)


def test_gpus_of_a_job_that_leaves_in_time_are_ready_and_come_first() -> None:
    scene = Reserving()
    scene.trains("x", node="b", gpus=4, leaves=60.0)
    assert scene.ready() == QuotaReserve(gpus=2, ready=2, lent=2)
    assert scene.kept() == {}


def test_gpus_of_a_job_that_would_leave_too_late_are_not() -> None:
    scene = Reserving(quota(guaranteed={"gpus": 8}, reserve={"gpus": 8}))
    scene.trains("x", node="b", gpus=4, leaves=61.0)
    assert scene.ready() == QuotaReserve(gpus=8, ready=4)
    assert scene.kept() == {"a": ["4"]}


def test_pods_that_are_ending_leave_their_gpus_to_the_reserve() -> None:
    scene = Reserving(quota(guaranteed={"gpus": 8}, reserve={"gpus": 8, "leaveWithinSeconds": 0}))
    scene.trains("x", node="b", gpus=4, leaves=600.0, end_seconds=60.0, assumed=False)
    assert scene.ready() == QuotaReserve(gpus=8, ready=8, lent=4), "or further jobs would end for it"


def test_a_reserve_is_in_the_pools_of_its_quota() -> None:
    scene = Reserving(quota(pools=["big"]))
    assert scene.ready() == QuotaReserve(gpus=2, ready=2)
    assert scene.kept() == {"b": ["2"]}


def test_a_replica_of_several_gpus_has_them_on_one_node() -> None:
    scene = Reserving(quota(guaranteed={"gpus": 8}, reserve={"gpus": 8, "gpusPerReplica": 4}))
    scene.trains("x", node="b", gpus=1, leaves=600.0)
    assert scene.ready() == QuotaReserve(gpus=8, ready=4)


def test_two_reserves_have_different_gpus_also_those_that_are_lent() -> None:
    scene = Reserving(
        quota(reserve={"gpus": 4}), quota("r", namespace="other", guaranteed={"gpus": 4}, reserve={"gpus": 4})
    )
    scene.trains("x", node="b", gpus=4, leaves=30.0)
    assert [scene.ready(of) for of in "qr"] == [
        QuotaReserve(gpus=4, ready=4, lent=4),
        QuotaReserve(gpus=4, ready=4),
    ]
    found = [claim for each in scene.windows().reservations.values() for kept in each for claim in kept.claims]
    devices = [device.uuid for claim in found for device in claim.devices]
    assert len(devices) == len(set(devices)) == 8


def test_without_a_reserve_nothing_is_ready() -> None:
    scene = Reserving(quota(reserve=None))
    scene.windows()
    assert (scene.quotas.reserves, scene.quotas.kept) == ({}, {})


@pytest.mark.parametrize(
    ("reserve", "before_seconds", "floor"),
    [
        pytest.param({"gpus": 2}, 30 + 120 + 15, 4, id="notice, the longest end of pods, and some time for the rest"),
        pytest.param({"gpus": 2}, 30 + 120 + 16, 0, id="not earlier"),
        pytest.param(None, 1, 0, id="without a reserve, when it begins"),
        pytest.param(None, 0, 4, id="begun"),
    ],
)
def test_a_window_counts_as_much_earlier_as_jobs_need_to_leave(
    reserve: dict[str, Any] | None, before_seconds: int, floor: int
) -> None:
    quotas, ledger = Quotas(), Ledger()
    window = {"name": "noon", "start": "12:00", "end": "13:00", "gpus": 4}
    quotas.update(quota(guaranteed=None, guaranteeWindows=[window], reserve=reserve))
    scene = Reserving()
    scene.trains("x", node="a", gpus=1, leaves=120.0)
    scene.trains("y", node="b", gpus=1, leaves=60.0)
    at = NOW - timedelta(seconds=before_seconds)
    # The look before knows what runs.
    quotas.observe(ledger, now=at, grace_seconds=30)
    quotas.gate(scene.counted)
    quotas.observe(ledger, now=at, grace_seconds=30)
    assert quotas.tree().nodes[0].guaranteed == (floor * 1000,)


@pytest.mark.parametrize(
    "spec",
    [{"reserve": {"gpus": 1}}, {"guaranteeWindows": [{"name": "d", "start": "08:00", "end": "09:00", "gpus": 4}]}],
)
def test_windows_and_reserves_change_by_time_alone(spec: dict[str, Any]) -> None:
    quotas = Quotas()
    quotas.update(quota(**({"reserve": None} | spec)))
    assert quotas.keep_for_a_time
    assert quotas.reserve is ("reserve" in spec)


def test_a_status_changes_nothing_that_jobs_are_judged_by() -> None:
    quotas, ledger = Quotas(), Ledger()
    window = {"name": "noon", "start": "12:00", "end": "13:00", "gpus": 6}
    said = quota(guaranteeWindows=[window])
    quotas.update(said)
    quotas.observe(ledger, now=NOW)
    before = quotas.version
    quotas.update(msgspec.structs.replace(said, status=GPUQuotaStatus(gpus=3)))
    quotas.observe(ledger, now=NOW)
    assert quotas.version == before
    quotas.observe(ledger, now=NOW + timedelta(hours=1))
    assert quotas.version == before + 1, "the window is over"

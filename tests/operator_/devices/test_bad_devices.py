"""Jobs on devices that are bad: who is told what, and who is started anew elsewhere."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import Condition, find_condition
from dovetail_operator.devices.bad_devices import (
    CONDITION,
    BadDevices,
    announcement_of,
    condition_of,
    sentence,
)
from dovetail_operator.job.actions import PatchJob
from dovetail_operator.lifecycle.reconcile import reconcile
from tests.core.builders import make_gpunode
from tests.operator_.builders import NOW, at, condition, make_child, make_job, make_pod, make_state, see

CARD = "GPU 1 of a (a-1) is unhealthy: Xid79FellOffTheBus"


def report(*unhealthy: int, reason: str = "Xid79FellOffTheBus") -> GPUNode:
    gpunode = make_gpunode("a")
    devices = [
        msgspec.structs.replace(device, health="Unhealthy", health_reason=reason)
        if device.index in unhealthy
        else device
        for device in gpunode.status.devices
    ]
    return msgspec.structs.replace(gpunode, status=msgspec.structs.replace(gpunode.status, devices=devices))


def test_a_card_that_falls_ill_or_gets_well_is_news_once() -> None:
    cards = BadDevices()
    assert [cards.changed(each) for each in (report(), report(1), report(1), report())] == [
        set(), {"a-1"}, set(), {"a-1"},
    ]  # fmt: skip


def test_another_reason_is_news() -> None:
    cards = BadDevices()
    cards.changed(report(1))
    assert cards.changed(report(1, reason="GpuIsLost")) == {"a-1"}


@pytest.mark.parametrize(
    ("reason", "held", "sentences"),
    [
        ("GpuIsLost", 1, ["GPU 0 of n1 (GPU-n1-0) is unhealthy: GpuIsLost"]),
        ("", 11, [f"GPU {index} of n1 (GPU-n1-{index}) is unhealthy" for index in range(11)]),
    ],
)
def test_the_jobs_on_a_card_that_falls_ill_get_dirty_and_see_it(reason: str, held: int, sentences: list[str]) -> None:
    state = make_state(n1=12)
    job = make_job()
    state.store.job_changed(job)
    state.store.child_changed(make_child(job))
    state.store.pod_event("ADDED", make_pod(devices=held))
    gpunode = make_gpunode("n1", gpus=12)
    devices = [
        msgspec.structs.replace(device, uuid=f"GPU-n1-{device.index}", health="Unhealthy", health_reason=reason)
        for device in gpunode.status.devices
    ]
    ill = msgspec.structs.replace(gpunode, status=msgspec.structs.replace(gpunode.status, devices=devices))
    assert "team/x" in state.store.gpunode_changed(ill)
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert list(seen.bad_cards) == sentences


def test_a_pod_that_has_ended_holds_no_bad_card() -> None:
    state = make_state(n1=2)
    cards = BadDevices()
    cards.changed(report(0, 1))
    assert cards.held_by([make_pod(devices=1, phase="Failed")], ledger=state.store.view.ledger) == ()


@pytest.mark.parametrize(
    ("cards", "before", "finished", "status"),
    [
        pytest.param((CARD,), None, False, "False", id="a bad card"),
        pytest.param((), "False", False, "True", id="well again, or left"),
        pytest.param((), "True", False, "True", id="still well"),
        pytest.param((), "False", True, "False", id="a job that is over keeps what it ended on"),
        pytest.param((), None, False, None, id="nothing was ever wrong"),
    ],
)
def test_the_condition(cards: tuple[str, ...], before: Any, finished: bool, status: str | None) -> None:
    known = msgspec.convert(condition(CONDITION, status=before), Condition) if before else None
    found = condition_of(cards, before=known, finished=finished, now=at(0))
    assert (found.status if found else None) == status


def running(*, leaves: bool, **spec: Any) -> Any:
    job = make_job(status={"phase": "Running"}, **spec)
    seen = see(job, make_pod(devices=1, started=-10), child=make_child(job))
    return reconcile(replace(seen, bad_cards=(CARD,), leaves_bad_cards=leaves))


def test_where_it_is_reported_alone_the_job_goes_on_and_says_so_in_a_condition() -> None:
    outcome = running(leaves=False)
    found = find_condition(outcome.status.conditions, type=CONDITION)
    assert found is not None
    assert (outcome.status.phase, outcome.actions) == ("Running", ())
    assert (found.status, found.reason, found.message) == ("False", "Unhealthy", CARD)


def test_where_jobs_leave_bad_cards_the_batch_job_is_suspended_which_costs_no_retry() -> None:
    outcome = running(leaves=True)
    assert outcome.actions == (PatchJob(spec={"suspend": True}),)
    assert outcome.status.phase == "Queued"
    assert outcome.status.message == f"Restarts on other devices: {CARD}"


def test_what_a_reservation_holds_for_others_is_not_taken_from_them() -> None:
    outcome = running(leaves=True, reservation={"durationSeconds": 3600})
    assert PatchJob(spec={"suspend": True}) not in outcome.actions


def test_the_event_comes_with_each_news_of_a_bad_card_and_not_again() -> None:
    job = make_job(status={"phase": "Running"})
    status = running(leaves=False).status
    news = announcement_of(job, status=status)
    assert news is not None
    assert (news.severity, news.reason, news.message) == ("Warning", "BadCard", CARD)
    written = msgspec.structs.replace(job, status=status)
    assert announcement_of(written, status=status) is None
    assert announcement_of(job, status=job.status) is None


def test_four_devices_are_all_named_and_the_fifth_is_counted() -> None:
    four = [f"GPU {index} is unhealthy" for index in range(4)]
    assert sentence(four) == "; ".join(four)
    assert sentence([*four, CARD]) == sentence(four) + " and 1 more"


def test_each_pod_s_devices_are_looked_up_on_its_own_node_in_order() -> None:
    state = make_state(n1=2, n2=2)
    cards = BadDevices()
    for name in ("n2", "n1"):
        gpunode = make_gpunode(name)
        devices = [
            msgspec.structs.replace(each, uuid=f"GPU-{name}-{each.index}", health="Unhealthy", health_reason="x")
            for each in reversed(gpunode.status.devices)
        ]
        cards.changed(msgspec.structs.replace(gpunode, status=msgspec.structs.replace(gpunode.status, devices=devices)))
    pods = [make_pod(1, node="n2", devices=1), make_pod(0, node="n1", devices=2), make_pod(2, node="")]
    for pod in pods:
        state.store.pod_event("ADDED", pod)
    ledger = state.store.view.ledger
    assert [each.split(" (")[0] for each in cards.held_by(pods, ledger=ledger)] == [
        "GPU 0 of n1", "GPU 1 of n1", "GPU 0 of n2",
    ]  # fmt: skip
    cards.gone("n1")
    cards.gone("n1")
    assert cards.held_by(pods, ledger=ledger) == ("GPU 0 of n2 (GPU-n2-0) is unhealthy: x",)


def test_a_device_that_leaves_the_report_is_news_and_bad_no_more() -> None:
    cards = BadDevices()
    cards.changed(report(0, 1))
    without = msgspec.structs.replace(report(), status=msgspec.structs.replace(report().status, devices=[]))
    assert cards.changed(without) == {"a-0", "a-1"}


@pytest.mark.parametrize(
    ("status", "message", "posted"),
    [
        pytest.param("False", CARD, False, id="the same is known"),
        pytest.param("False", "another device", True, id="another device was known"),
        pytest.param("True", CARD, True, id="it was healthy again in between"),
        pytest.param(None, "", True, id="nothing was known"),
    ],
)
def test_an_unhealthy_device_is_an_event_where(status: str | None, message: str, posted: bool) -> None:
    known = [] if status is None else [condition(CONDITION, status=status, message=message)]
    job = make_job(status={"phase": "Running", "conditions": known})
    found = announcement_of(job, status=running(leaves=False).status)
    assert (found is not None) is posted


def test_a_worker_that_has_ended_holds_no_device_any_more() -> None:
    state, cards = make_state(n1=1), BadDevices()
    pod = make_pod(node="n1", devices=1)
    state.store.pod_event("ADDED", pod)
    gpunode = make_gpunode("n1", gpus=1, uuid="GPU-n1-0", health="Unhealthy")
    cards.changed(gpunode)
    ledger = state.store.view.ledger
    assert cards.held_by([pod], ledger=ledger) == ("GPU 0 of n1 (GPU-n1-0) is unhealthy",)
    ended = make_pod(node="n1", devices=1, phase="Succeeded")
    assert cards.held_by([ended], ledger=ledger) == ()

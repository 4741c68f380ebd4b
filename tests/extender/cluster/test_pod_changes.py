"""A change of a pod that is left out would have changed nothing."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail_extender.cluster.informers import is_noise
from tests.extender.builders import make_share
from tests.extender.desk import Desk

ALLOCATION = (
    '{"node":"a","mode":"Fractional","containers":[{"index":0,"devices":'
    '[{"uuid":"a-0","index":0,"shareMilli":500,"memoryMiB":8192}]}]}'
)
STATUSES = (
    {"phase": "Pending"},
    {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
    {"phase": "Running", "containerStatuses": [{"name": "main", "ready": True}]},
    {"phase": "Running", "nominatedNodeName": "a"},
    {"phase": "Failed"},
    {"phase": "Succeeded"},
)


def bound(name: str = "p", *, status: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    pod = make_share(name, nodeName="a")
    pod["metadata"]["annotations"] |= {names.ALLOCATION: ALLOCATION}
    return pod | {"metadata": pod["metadata"] | meta, "status": status or {"phase": "Running"}}


def seen(pod: dict[str, Any]) -> Pod:
    return msgspec.convert(pod, Pod)


def states() -> st.SearchStrategy[dict[str, Any]]:
    """One pod in any state, also one that the API server never shows."""
    meta = st.fixed_dictionaries({}, optional={
        "deletionTimestamp": st.just("2026-01-01T00:00:00Z"),
        "labels": st.just({"app": "x"}),
        "annotations": st.sampled_from([{}, {names.REQUEST: "0.5", names.ALLOCATION: ALLOCATION}]),
    })  # fmt: skip
    free = st.builds(lambda status: make_share("p") | {"status": status}, st.sampled_from(STATUSES))
    there = st.builds(lambda status, meta: bound(status=status, **meta), st.sampled_from(STATUSES), meta)
    return free | there


def knows(desk: Desk) -> Any:
    """Everything that the handlers of a desk have made of the pods' changes."""
    ledger, uid = desk.ledger, "uid-p"
    return ledger.content(), ledger.is_hold(uid), desk.nominations.leaving("a"), len(desk.nominations)


@given(history=st.lists(states() | st.sampled_from(["release", "delete"]), max_size=8))
@settings(max_examples=200, deadline=None)
def test_leaving_changes_out_changes_nothing(history: list[Any]) -> None:
    whole, brief, old = Desk(a=1), Desk(a=1), None
    for step in history:
        if step == "release":
            # A bind that came to nothing.
            whole.ledger.release("uid-p")
            brief.ledger.release("uid-p")
            continue
        if step == "delete":
            if old is not None:
                whole.delete(old)
                brief.delete(old)
            old = None
            continue
        new = whole.put(step)
        if old is None or not is_noise(old, new=new, view=brief.view):
            brief.put(step)
        old = new
        assert knows(brief) == knows(whole)


def test_what_kubelet_reports_of_a_bound_pod_is_noise() -> None:
    desk = Desk(a=1)
    old = desk.put(bound(status={"phase": "Pending"}))
    assert is_noise(old, new=seen(bound(resourceVersion="2")), view=desk.view)


@pytest.mark.parametrize(
    "new",
    [
        bound(status={"phase": "Succeeded"}),
        bound(deletionTimestamp="2026-01-01T00:00:00Z"),
        bound(annotations={}),
        bound(labels={"app": "x"}),
        bound(uid="other"),
        make_share("p"),
    ],
    ids=["ended", "deleted", "annotations", "labels", "another pod", "not bound"],
)
def test_it_is_not_noise_when_something_else_changes(new: dict[str, Any]) -> None:
    desk = Desk(a=1)
    assert not is_noise(desk.put(bound()), new=seen(new), view=desk.view)


def test_nothing_is_noise_while_the_ledger_has_no_claim_of_the_pod() -> None:
    desk = Desk(a=1)
    old = desk.put(bound())
    claim = desk.ledger.release("uid-p")
    assert not is_noise(old, new=old, view=desk.view)
    assert claim is not None
    desk.ledger.commit(claim, hold_until=desk.clock() + 30)
    assert not is_noise(old, new=old, view=desk.view), "a hold ends by itself"
    desk.ledger.commit(replace(claim, node="b"))
    assert not is_noise(old, new=old, view=desk.view), "its claim is elsewhere"

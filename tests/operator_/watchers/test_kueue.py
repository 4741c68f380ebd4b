"""Kueue's own words on the Jobs that it has not let go, as its Workloads have them."""

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.api import kueue
from dovetail.api.builtin import Condition
from dovetail.api.kueue import words
from dovetail.kube.client import Client
from dovetail_operator.state.state import State
from dovetail_operator.watchers.kueue import KueueWatch
from tests.background import running
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import make_child, make_job, make_state

WORKLOADS = "/apis/kueue.x-k8s.io/{}/workloads"
NO_QUOTA = (
    "couldn't assign flavors to pod set main: insufficient unused quota for dovetail.dev/gpu-milli in flavor gpus"
)
LABELS = {"kueue.x-k8s.io/queue-name": "team"}


def told(type_: str, status: str, message: str = "") -> Condition:
    return Condition(type=type_, status=status, message=message)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], ""),
        ([told("QuotaReserved", "False", f"{NO_QUOTA}. ")], NO_QUOTA),
        ([told("QuotaReserved", "True", "Quota reserved")], "it has quota, and its admission checks are open"),
        ([told("QuotaReserved", "True"), told("Admitted", "True", "The workload is admitted")], ""),
        (
            [told("Evicted", "True", "Preempted to make room"), told("QuotaReserved", "False", NO_QUOTA)],
            f"Preempted to make room; {NO_QUOTA}",
        ),
        ([told("Evicted", "True", "Same"), told("QuotaReserved", "False", "Same")], "Same"),
        ([told("Evicted", "False", "Previously: x"), told("QuotaReserved", "False", NO_QUOTA)], NO_QUOTA),
    ],
)
def test_the_words_are_why_it_waits_now(conditions: list[Condition], expected: str) -> None:
    assert words(conditions) == expected


def workload(message: str, *, owner: str = "x", kind: str = "Job") -> dict[str, Any]:
    owners = [{"apiVersion": "batch/v1", "kind": kind, "name": owner, "uid": f"uid-child-{owner}", "controller": True}]
    conditions = [{"type": "QuotaReserved", "status": "False", "message": message}]
    metadata = {"name": f"job-{owner}", "namespace": "team", "uid": "uid-w", "ownerReferences": owners}
    return {"metadata": {**metadata, "resourceVersion": "5"}, "status": {"conditions": conditions}}


def page(*items: dict[str, Any]) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "5"}, "items": list(items)})


class Rig:
    def __init__(self, client: Client, *, look_seconds: float = 60.0) -> None:
        self.state: State = make_state(a=1)
        self.changed: asyncio.Queue[str] = asyncio.Queue()
        self.watch = KueueWatch(client, state=self.state, changed=self.changed.put_nowait, look_seconds=look_seconds)


async def test_of_a_job_of_ours_it_is_passed_on_and_taken_back(client: Client) -> None:
    rig = Rig(client)
    rig.state.store.job_changed(make_job(meta={"labels": LABELS}))
    found = msgspec.convert(workload(NO_QUOTA), kueue.Workload)
    rig.watch._on_event("ADDED", found)
    rig.watch._on_event("MODIFIED", found)
    assert rig.state.decisions.kueue == {"uid-child-x": NO_QUOTA}
    rig.watch._on_event("DELETED", found)
    assert rig.state.decisions.kueue == {}
    assert [rig.changed.get_nowait() for _ in range(rig.changed.qsize())] == ["team/x", "team/x"]


async def test_of_others_nothing_is_kept(client: Client) -> None:
    rig = Rig(client)
    rig.state.store.job_changed(make_job("unlabelled"))
    for other in (
        workload(NO_QUOTA, owner="stranger"),
        workload(NO_QUOTA, owner="unlabelled"),
        workload(NO_QUOTA, kind="JobSet"),
    ):
        rig.watch._on_event("ADDED", msgspec.convert(other, kueue.Workload))
    assert rig.state.decisions.kueue == {}
    assert rig.changed.empty()


async def test_a_workload_speaks_of_the_job_in_its_own_namespace(client: Client) -> None:
    rig = Rig(client)
    for namespace in ("team", "lab"):
        meta = {"labels": LABELS, "namespace": namespace, "uid": f"uid-{namespace}"}
        rig.state.store.job_changed(make_job(meta=meta))
    found = workload(NO_QUOTA)
    found["metadata"] |= {"namespace": "lab"}
    rig.watch._on_event("ADDED", msgspec.convert(found, kueue.Workload))
    assert [rig.changed.get_nowait() for _ in range(rig.changed.qsize())] == ["lab/x"]


@pytest.mark.parametrize("leaves", [True, False])
async def test_words_about_a_job_that_left_kueue_or_is_gone_are_dropped(client: Client, leaves: bool) -> None:
    rig = Rig(client)
    job = make_job(meta={"labels": LABELS})
    rig.state.store.job_changed(job)
    found = msgspec.convert(workload(NO_QUOTA), kueue.Workload)
    rig.watch._on_event("ADDED", found)
    if leaves:
        rig.state.store.job_changed(make_job(meta={"resourceVersion": "11"}))
    else:
        rig.state.store.job_deleted("team/x", uid="uid-x")
    rig.watch._on_event("DELETED", found)
    assert rig.state.decisions.kueue == {}


async def test_once_kueue_is_there_no_job_says_any_more_that_it_is_not(api: Api, client: Client) -> None:
    rig = Rig(client, look_seconds=0.0)
    job = make_job(meta={"labels": LABELS})
    rig.state.store.job_changed(job)
    rig.state.store.child_changed(make_child(job, uid="uid-child-x", queue="team"))
    for version in ("v1beta2", "v1beta1"):
        api.answer(f"GET {WORKLOADS.format(version)}", refusal(404), page(), page())
    async with running(rig.watch.run()), asyncio.timeout(60):
        for wanted in ({"uid-child-x": "this cluster has no Kueue"}, {}):
            assert await rig.changed.get() == "team/x"
            if not wanted:
                assert rig.state.decisions.kueue == wanted


async def test_an_older_kueue_is_read_as_well(api: Api, client: Client) -> None:
    rig = Rig(client)
    rig.state.store.job_changed(make_job(meta={"labels": LABELS}))
    api.answer(f"GET {WORKLOADS.format('v1beta2')}", refusal(404))
    api.answer(f"GET {WORKLOADS.format('v1beta1')}", page(), page(workload(NO_QUOTA)))
    watching = asyncio.create_task(rig.watch.run())
    try:
        async with asyncio.timeout(60):
            assert await rig.changed.get() == "team/x"
    finally:
        watching.cancel()
    assert rig.state.decisions.kueue == {"uid-child-x": NO_QUOTA}


async def test_where_there_is_no_kueue_a_job_that_waits_for_it_says_so(api: Api, client: Client) -> None:
    rig = Rig(client)
    job = make_job(meta={"labels": LABELS})
    rig.state.store.job_changed(job)
    rig.state.store.child_changed(make_child(job, uid="uid-child-x", queue="team"))
    for version in ("v1beta2", "v1beta1"):
        api.answer(f"GET {WORKLOADS.format(version)}", refusal(404), refusal(404), refusal(403))
    for told in ({"uid-child-x": "this cluster has no Kueue"},) * 2 + ({},):
        assert await rig.watch._served() is None
        assert rig.state.decisions.kueue == told
    # Once that there is none, and once that it is not known any more.
    assert [rig.changed.get_nowait() for _ in range(rig.changed.qsize())] == ["team/x", "team/x"]


async def test_without_kueue_it_is_looked_for_again(api: Api, client: Client) -> None:
    rig = Rig(client, look_seconds=0.0)
    rig.state.store.job_changed(make_job(meta={"labels": LABELS}))
    api.answer(f"GET {WORKLOADS.format('v1beta1')}", refusal(404), refusal(403))
    api.answer(
        f"GET {WORKLOADS.format('v1beta2')}",
        refusal(404),
        refusal(403),
        page(workload(NO_QUOTA)),
        page(workload(NO_QUOTA)),
    )
    watching = asyncio.create_task(rig.watch.run())
    try:
        async with asyncio.timeout(60):
            assert await rig.changed.get() == "team/x"
    finally:
        watching.cancel()

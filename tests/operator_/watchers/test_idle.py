"""The idle policy: a warning, then what is configured, on measurements that are fresh."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.conversion import values_of
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import find_condition
from dovetail.jobs.idle import IdleAction, IdleRules
from dovetail.kube.client import Client
from dovetail_operator.devices.idleness import CONDITION, condition_of
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.state.state import State
from dovetail_operator.watchers.idle import IdleWatch
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import NOW, at, make_budget, make_child, make_job, make_pod, make_state

BUDGET = "/apis/policy/v1/namespaces/team/poddisruptionbudgets/web"
GPUJOB = "/apis/dovetail.dev/v1beta1/namespaces/team/gpujobs/x"
DEVICE = {"worker": 0, "node": "a", "index": 0, "uuid": "GPU-a-0", "shareMilli": 1000, "memoryMiB": 1}


class Rig:
    def __init__(self, client: Client, *, action: IdleAction = "Suspend", **status: Any) -> None:
        self.state: State = make_state(a=1)
        self.job = make_job(status={"phase": "Running", "devices": [DEVICE], **status})
        self.state.store.job_changed(self.job)
        self.seconds = 0.0
        self.device: dict[str, Any] = {"temperatureCelsius": 40}
        self.changed: list[str] = []
        self.events: list[Announcement] = []
        self.watch = IdleWatch(
            client,
            state=self.state,
            rules=IdleRules(after_seconds=600, grace_seconds=300, action=action),
            changed=self.changed.append,
            post=self.events.append,
            now=lambda: NOW + timedelta(seconds=self.seconds),
        )

    async def look(self, seconds: float, *, utilization: float | None = 0.0) -> None:
        """What is measured then, and a look."""
        self.seconds = seconds
        if utilization is not None:
            device = {
                "index": 0, "uuid": "GPU-a-0", "vendor": "nvidia", "model": "V100", "memoryMiB": 32768,
                "utilization": utilization, **self.device,
            }  # fmt: skip
            status = {"devices": [device], "observedAt": at(seconds)}
            self.state.store.gpunode_changed(msgspec.convert({"metadata": {"name": "a"}, "status": status}, GPUNode))
        await self.watch.check()


@pytest.fixture
def rig(client: Client) -> Rig:
    return Rig(client)


async def test_an_idle_job_is_warned_once_and_then_held(rig: Rig, api: Api) -> None:
    api.answer(f"PATCH {GPUJOB}", Answer(body=values_of(rig.job)))
    for seconds in (0, 599, 600, 700, 899):
        await rig.look(seconds)
    assert [event.message for event in rig.events] == [
        "No GPU work since 2026-01-01T12:00:00Z: the job is held if that goes on for 300 s"
    ]
    assert rig.changed == ["team/x"]
    assert not api.of(f"PATCH {GPUJOB}")
    await rig.look(900)
    (patch,) = api.of(f"PATCH {GPUJOB}")
    assert patch.body == {"metadata": {"uid": "uid-x", "resourceVersion": "10"}, "spec": {"suspend": True}}
    assert rig.events[-1].message.endswith("the job is held (gjob release lets it go on)")


async def test_a_job_whose_budget_lets_no_pod_end_goes_on_and_is_told_so_once(rig: Rig, api: Api) -> None:
    api.answer(f"PATCH {BUDGET}/status", Answer(body=values_of(make_budget())))
    api.answer(f"PATCH {GPUJOB}", Answer(body=values_of(rig.job)))
    rig.state.store.child_changed(make_child(rig.job))
    rig.state.store.pod_event("ADDED", make_pod())
    rig.state.store.budget_event("ADDED", make_budget(allowed=0))
    for seconds in (0, 900, 905, 910):
        await rig.look(seconds)
    assert not api.seen
    (kept,) = rig.events[1:]
    assert kept.message.endswith(
        ": the job goes on for now, because PodDisruptionBudget web lets no more of its pods end"
    )
    rig.state.store.budget_event("MODIFIED", make_budget(allowed=1))
    await rig.look(915)
    assert [(seen.method, seen.path) for seen in api.seen] == [("PATCH", f"{BUDGET}/status"), ("PATCH", GPUJOB)]
    assert api.seen[0].body["status"] == {"disruptionsAllowed": 0, "disruptedPods": {"x-0-running": at(915)}}


async def test_a_job_that_works_in_between_reads_again_what_keeps_it(rig: Rig, api: Api) -> None:
    rig.state.store.child_changed(make_child(rig.job))
    rig.state.store.pod_event("ADDED", make_pod())
    rig.state.store.budget_event("ADDED", make_budget(allowed=0))
    for seconds, utilization in ((0, 0.0), (900, 0.0), (960, 0.9), (1000, 0.0), (1960, 0.0), (1965, 0.0)):
        await rig.look(seconds, utilization=utilization)
    kept = [event for event in rig.events if "PodDisruptionBudget web" in event.message]
    assert len(kept) == 2
    assert not api.seen


async def test_plain_pods_are_counted_by_the_eviction_that_ends_them(rig: Rig, api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    status = {"phase": "Running", "devices": [DEVICE]}
    job = make_job(
        status=status, meta={"ownerReferences": [owner], "resourceVersion": "11"}, managedBy=names.GUESTS_MANAGER
    )
    rig.state.store.job_changed(job)
    rig.state.store.child_changed(make_child(job))
    rig.state.store.pod_event("ADDED", make_pod())
    rig.state.store.budget_event("ADDED", make_budget(allowed=1))
    api.answer(f"PATCH {GPUJOB}", Answer(body=values_of(job)))
    for seconds in (0, 900):
        await rig.look(seconds)
    assert [(seen.method, seen.path) for seen in api.seen] == [("PATCH", GPUJOB)]


async def test_a_job_that_works_again_is_told_so(rig: Rig) -> None:
    for seconds, utilization in ((0, 0.0), (600, 0.0), (660, 0.9)):
        await rig.look(seconds, utilization=utilization)
    assert rig.changed == ["team/x", "team/x"]
    assert rig.state.decisions.idle == {}


async def test_by_default_a_warning_is_all(client: Client, api: Api) -> None:
    rig = Rig(client, action="Warn")
    for seconds in (0, 600, 90_000):
        await rig.look(seconds)
    assert [event.message for event in rig.events] == ["No GPU work since 2026-01-01T12:00:00Z"]
    assert not api.seen


async def test_on_a_report_that_is_too_old_nothing_is_ended(client: Client, api: Api) -> None:
    rig = Rig(client, action="End")
    await rig.look(0)
    await rig.look(10_000, utilization=None)
    assert not api.seen


@pytest.mark.parametrize("device", [{}, {"migProfile": "1g.10gb", "temperatureCelsius": 40}])
async def test_a_device_that_tells_no_utilization_makes_no_job_idle(rig: Rig, device: dict[str, Any]) -> None:
    rig.device = device
    for seconds in (0, 600, 5000):
        await rig.look(seconds)
    assert rig.events == []


async def test_a_conflict_is_met_by_the_next_look(client: Client, api: Api) -> None:
    rig = Rig(client, action="End")
    api.answer(f"PATCH {GPUJOB}", refusal(409), Answer(body=values_of(rig.job)))
    for seconds in (0, 900, 905):
        await rig.look(seconds)
    assert [seen.body["spec"] for seen in api.of(f"PATCH {GPUJOB}")] == [{"cancel": True}] * 2


async def test_after_a_restart_it_is_not_warned_again(client: Client) -> None:
    told = {"type": CONDITION, "status": "True", "reason": "NoGPUWork", "message": "", "lastTransitionTime": at(-60)}
    rig = Rig(client, conditions=[told])
    await rig.look(0)
    assert (rig.events, list(rig.state.decisions.idle)) == ([], ["uid-x"])


async def test_a_job_that_gave_its_gpus_back_begins_anew(rig: Rig) -> None:
    """What was idle before it waited again says nothing about its next run."""
    version = 10

    def now_in(phase: str, **status: Any) -> None:
        nonlocal version
        version += 1
        meta = {"resourceVersion": str(version)}
        rig.state.store.job_changed(make_job(status={"phase": phase, **status}, meta=meta))

    await rig.look(0)
    await rig.look(600)
    assert list(rig.state.decisions.idle) == ["uid-x"]
    now_in("Queued")
    await rig.look(700)
    assert rig.state.decisions.idle == {}
    now_in("Running", devices=[DEVICE])
    for seconds in (710, 1309):
        await rig.look(seconds)
        assert rig.state.decisions.idle == {}
    await rig.look(1310)
    assert list(rig.state.decisions.idle) == ["uid-x"]


async def test_what_is_known_of_a_job_that_is_gone_is_dropped(rig: Rig) -> None:
    await rig.look(0)
    await rig.look(600)
    rig.state.store.job_deleted("team/x", uid="uid-x")
    await rig.look(605)
    assert (rig.state.decisions.idle, rig.watch._times._since) == ({}, {})


async def test_a_job_that_worked_since_its_first_warning_is_warned_again(client: Client) -> None:
    worked = {"type": CONDITION, "status": "False", "reason": "GPUWork", "message": "", "lastTransitionTime": at(-60)}
    rig = Rig(client, conditions=[worked])
    for seconds in (0, 599):
        await rig.look(seconds)
        assert rig.events == []
    await rig.look(600)
    assert len(rig.events) == 1


async def test_a_write_that_the_api_server_does_not_take_is_no_end(client: Client, api: Api) -> None:
    """No event says that the job is held before it is."""
    rig = Rig(client)
    api.answer(f"PATCH {GPUJOB}", refusal(500), refusal(404), Answer(body=values_of(rig.job)))
    for seconds, events in ((0, 0), (900, 1), (905, 1), (910, 2)):
        await rig.look(seconds)
        assert len(rig.events) == events


def test_the_condition_says_since_when_and_that_it_is_over() -> None:
    idle = condition_of(NOW, before=None, finished=False, now=at(600))
    assert idle is not None
    assert (idle.status, idle.message) == ("True", "No GPU work since 2026-01-01T12:00:00Z")
    busy = condition_of(None, before=idle, finished=False, now=at(660))
    assert busy is not None
    assert (busy.status, busy.reason) == ("False", "GPUWork")
    assert condition_of(None, before=None, finished=False, now=at(0)) is None
    assert condition_of(None, before=idle, finished=True, now=at(700)) == idle
    assert find_condition([busy], type=CONDITION) == busy

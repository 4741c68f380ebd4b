"""The controller on a scripted API server: what it writes, and what it does about what it is answered."""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.builtin import Job, Pod
from dovetail.api.conversion import values_of
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode, Overuse
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.staleness import Freshness
from dovetail.cluster.view import ClusterView
from dovetail.jobs.obstacle import Obstacle
from dovetail.kube.client import Client
from dovetail.kube.workqueue import WorkQueue
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail_operator.controller import reconciler
from dovetail_operator.controller.controller import build_controller
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.metrics import JobsCollector, make_counters
from dovetail_operator.queue import cycle
from dovetail_operator.state.state import State
from dovetail_operator.writes.job_numbers import Numbers
from tests.background import eventually, running
from tests.core.builders import make_gpunode, make_node
from tests.core.kube.api import Answer, Api, make_object, refusal
from tests.operator_.builders import NOW, at, condition, make_child, make_job, make_keeper, make_pod, make_state

JOBS = "/apis/batch/v1/namespaces/team/jobs"
GPUJOBS = "/apis/dovetail.dev/v1beta1/namespaces/team/gpujobs"
CONFIGMAP = "/api/v1/namespaces/home/configmaps/dovetail-job-numbers"


class Watched:
    """A client whose writes come back as watch events, as those of every client do."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.seen: Callable[[GPUJob | Job], None] = lambda _: None

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        return partial(self._write, call) if name in {"create", "update", "patch"} else call

    async def _write(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        written = await call(*args, **options)
        if isinstance(written, GPUJob | Job):
            asyncio.get_running_loop().call_soon(self.seen, written)
        return written


class Rig:
    """A controller with what surrounds it."""

    def __init__(
        self,
        api: Api,
        client: Client,
        state: State,
        *,
        pods: Mapping[str, Pod] = MappingProxyType({}),
        endings: EndingRules | None = None,
    ) -> None:
        watched = Watched(client)
        self.api, self.state = api, state
        self.events: asyncio.Queue[Announcement] = asyncio.Queue()
        self.registry = CollectorRegistry()
        self.registry.register(JobsCollector(state))
        self.controller = build_controller(
            cast("Client", watched),
            state=state,
            queue=WorkQueue(),
            numbers=Numbers(client, namespace="home"),
            counters=make_counters(self.registry),
            post=self.events.put_nowait,
            now=lambda: NOW,
            rng=random.Random(7),
            pods=pods,
            endings=endings,
            guests=make_keeper(client, state=state),
        )

        watched.seen = self.see

    def see(self, written: GPUJob | Job) -> None:
        """The watch brings an object."""
        if isinstance(written, GPUJob):
            self.controller.changes.job_event("MODIFIED", written)
        else:
            self.controller.changes.child_event("MODIFIED", written)

    def running(self) -> AbstractAsyncContextManager[None]:
        return running(self.controller.run())

    def status_of(self, name: str = "x", *, nth: int = -1) -> dict[str, Any]:
        """The status in a patch that was sent."""
        status: dict[str, Any] = self.api.of(f"PUT {GPUJOBS}/{name}/status")[nth].body["status"]
        return status

    def accept_status(self, job: GPUJob, *, version: int = 11, **status: Any) -> None:
        """Answer a patch of the status as the API server would."""
        metadata = msgspec.structs.replace(job.metadata, resource_version=str(version))
        body = values_of(msgspec.structs.replace(job, metadata=metadata)) | {"status": status}
        self.api.answer(f"PUT {GPUJOBS}/{job.metadata.name}/status", Answer(body=body))


@pytest.fixture
def rig(api: Api, client: Client) -> Rig:
    return Rig(api, client, make_state(a=1))


def tenant_of(node: str) -> Pod:
    """A plain pod that shares a device of the node."""
    device = AllocatedDevice(uuid="GPU-a", index=0, share_milli=100, memory_mib=1)
    allocation = Allocation(node=node, mode="Fractional", containers=[ContainerAllocation(index=0, devices=[device])])
    metadata = {"name": "web", "namespace": "team", "uid": "uid-web", "annotations": annotations_of(allocation)}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}}, Pod)


def numbered(name: str = "x", **spec: Any) -> GPUJob:
    return make_job(name, status={"number": 1}, **spec)


def created(job: GPUJob) -> Answer:
    return Answer(body=values_of(make_child(job)))


async def until_phase(rig: Rig, phase: str, name: str = "x") -> None:
    """Wait for a patch that tells that phase."""
    count = 1
    while True:
        await until_status(rig.api, name, count=count)
        if any(seen.body["status"].get("phase") == phase for seen in rig.api.of(f"PUT {GPUJOBS}/{name}/status")):
            return
        count += 1


async def until_status(api: Api, name: str = "x", *, count: int = 1) -> None:
    await api.until(f"PUT {GPUJOBS}/{name}/status", count=count)


async def test_a_new_job_is_numbered_then_told_of_its_plan_then_created(rig: Rig, api: Api) -> None:
    job = make_job()
    api.answer(
        f"GET {CONFIGMAP}", Answer(body=make_object("dovetail-job-numbers", namespace="home", version=1, data={}))
    )
    api.answer(
        f"PATCH {CONFIGMAP}",
        Answer(body=make_object("dovetail-job-numbers", namespace="home", version=2, data={"team": "1"})),
    )
    api.answer(f"POST {JOBS}", created(job))
    rig.accept_status(job, number=1, phase="Starting")
    rig.controller.changes.job_changed(job)
    async with rig.running():
        await api.until(f"POST {JOBS}", count=1)
    writes = [f"{seen.method} {seen.path}" for seen in api.seen if seen.method != "GET"]
    assert writes == [f"PATCH {CONFIGMAP}", f"PUT {GPUJOBS}/x/status", f"POST {JOBS}"]
    assert (rig.status_of()["number"], rig.status_of()["phase"]) == (1, "Starting")
    assert rig.registry.get_sample_value("dovetail_admissions_total") == 1
    assert rig.registry.get_sample_value("dovetail_job_wait_seconds_sum") == 100


async def test_of_a_job_that_goes_while_it_is_numbered_nothing_is_kept(rig: Rig, api: Api) -> None:
    released, written = (
        asyncio.Event(),
        make_object("dovetail-job-numbers", namespace="home", version=2, data={"team": "2"}),
    )
    api.answer(
        f"GET {CONFIGMAP}", Answer(body=make_object("dovetail-job-numbers", namespace="home", version=1, data={}))
    )
    api.answer(f"PATCH {CONFIGMAP}", Answer(body=written, released=released))
    gone, stays = make_job("gone", gpu=2), make_job("stays", gpu=2)
    for job in (gone, stays):
        rig.controller.changes.job_changed(job)
    async with rig.running():
        await api.until(f"PATCH {CONFIGMAP}", count=1)
        rig.controller.changes.job_gone(gone)
        released.set()
        await until_status(api, "stays")
    assert list(rig.state.decisions.numbers) == ["uid-stays"]


async def test_a_job_without_room_is_told_why_with_one_write(rig: Rig, api: Api) -> None:
    job = numbered(gpu=2)
    rig.accept_status(job, number=1, phase="Queued", reason="ExceedsCapacity")
    rig.controller.changes.job_changed(job)
    async with rig.running(), asyncio.timeout(60):
        event = await rig.events.get()
    status = rig.status_of()
    assert (status["phase"], status["reason"]) == ("Queued", "ExceedsCapacity")
    assert status["message"].startswith("Need 2 GPUs, only 1 available")
    assert event.reason == "ExceedsCapacity"
    assert len(api.of(f"PUT {GPUJOBS}/x/status")) == 1


async def test_what_a_job_passes_through_is_written_together_with_its_start(rig: Rig, api: Api) -> None:
    before = {"number": 1, "phase": "Starting", "reason": "Evaluating", "message": "Admitted"}
    job = make_job(status=before)
    child = make_child(job)
    rig.controller.changes.job_changed(job)
    rig.controller.changes.child_event("ADDED", child)
    rig.accept_status(job, **before)
    async with rig.running():
        rig.controller.changes.pod_event("ADDED", make_pod(phase="Pending", node="a"))
        await asyncio.sleep(0)
        rig.controller.changes.pod_event("MODIFIED", make_pod(phase="Running", node="a"))
        await until_phase(rig, "Running")
    assert len(api.of(f"PUT {GPUJOBS}/x/status")) == 1


async def test_a_job_that_waits_is_told_its_place_and_when_it_may_start(rig: Rig, api: Api) -> None:
    runs, waits = numbered("runs", activeDeadlineSeconds=3600), numbered()
    rig.state.store.job_changed(runs)
    rig.state.store.child_changed(make_child(runs, uid="uid-child-runs", status={"startTime": at(0)}))
    rig.state.store.pod_event("ADDED", make_pod(node="a", devices=1, owner="uid-child-runs"))
    for version in (11, 12, 13):
        rig.accept_status(waits, version=version, number=1, phase="Queued", reason="Resources")
        rig.accept_status(runs, version=version, number=1)
    rig.controller.changes.job_changed(waits)
    async with rig.running(), asyncio.timeout(60):
        count = 1
        while True:
            await until_status(api, count=count)
            queue = rig.status_of(nth=count - 1)["queue"]
            if queue["estimatedStart"] is not None:
                break
            count += 1
    assert (queue["position"], queue["estimatedStart"]) == (1, at(3630))


async def test_a_status_that_is_true_is_not_written(rig: Rig, api: Api) -> None:
    done = numbered()
    rig.state.store.job_changed(done)
    child = make_child(done, status={"conditions": [condition("Complete")], "completionTime": "2026-01-01T11:00:00Z"})
    rig.state.store.child_changed(child)
    ended = {"phase": "Succeeded", "completionTime": "2026-01-01T11:00:00Z", "observedGeneration": 1}
    rig.accept_status(done, number=1, **ended)
    async with rig.running():
        await until_status(api)
        rig.controller.changes.pod_event("ADDED", make_pod(phase="Succeeded"))
        other = numbered("other", suspend=True)
        rig.accept_status(other)
        rig.controller.changes.job_changed(other)
        await until_status(api, "other")
    assert len(api.of(f"PUT {GPUJOBS}/x/status")) == 1


async def test_after_a_conflict_the_job_waits_for_the_watch_and_is_redone(rig: Rig, api: Api) -> None:
    held = numbered(suspend=True)
    released = numbered(cancel=True, meta={"resourceVersion": "12", "generation": 2})
    api.answer(f"PUT {GPUJOBS}/x/status", refusal(409))
    rig.accept_status(released, version=13, phase="Cancelled")
    rig.controller.changes.job_changed(held)
    async with rig.running():
        await until_status(api)
        rig.see(released)
        await until_status(api, count=2)
    assert rig.status_of()["phase"] == "Cancelled"
    assert api.of(f"PUT {GPUJOBS}/x/status")[1].body["metadata"]["resourceVersion"] == "12"


async def test_without_its_plan_in_the_status_a_job_is_not_created(rig: Rig, api: Api) -> None:
    cancelled = numbered(cancel=True, meta={"resourceVersion": "12", "generation": 2})
    api.answer(f"PUT {GPUJOBS}/x/status", refusal(409))
    rig.accept_status(cancelled, version=13, phase="Cancelled")
    rig.controller.changes.job_changed(numbered())
    async with rig.running():
        await until_status(api)
        rig.see(cancelled)
        await until_status(api, count=2)
    assert [rig.status_of(nth=nth)["phase"] for nth in (0, 1)] == ["Starting", "Cancelled"]
    assert api.of(f"POST {JOBS}") == []


async def test_a_batch_job_that_changed_meanwhile_is_deleted_once_the_watch_brings_its_newest_version(
    rig: Rig, api: Api
) -> None:
    job = numbered(cancel=True)
    rig.state.store.job_changed(job)
    rig.state.store.child_changed(make_child(job))
    api.answer(f"DELETE {JOBS}/x", refusal(409), Answer(body={}))
    rig.accept_status(job, phase="Cancelled")
    async with rig.running():
        await api.until(f"DELETE {JOBS}/x", count=1)
        rig.see(newer(make_child(job)))
        await until_status(api)
    versions = [seen.body["preconditions"]["resourceVersion"] for seen in api.of(f"DELETE {JOBS}/x")]
    assert versions[:2] == ["20", "21"]


async def test_a_job_that_is_deleted_meanwhile_is_left_to_the_watch(rig: Rig, api: Api) -> None:
    job = numbered(suspend=True)
    api.answer(f"PUT {GPUJOBS}/x/status", refusal(404))
    rig.controller.changes.job_changed(job)
    await rig.controller.reconciler.reconcile("team/x")
    assert rig.events.empty()
    rig.controller.changes.job_event("DELETED", job)
    assert not rig.state.store.jobs


async def test_one_jobs_trouble_does_not_stop_another(rig: Rig, api: Api) -> None:
    bad, good = numbered("bad", suspend=True), numbered("good", suspend=True)
    api.answer(f"PUT {GPUJOBS}/bad/status", refusal(500), refusal(500))
    rig.accept_status(bad)
    rig.accept_status(good)
    for job in (bad, good):
        rig.controller.changes.job_changed(job)
    async with rig.running():
        await until_status(api, "good")
        await until_status(api, "bad", count=3)
    assert rig.status_of("bad")["phase"] == "Held"


@pytest.mark.parametrize("fails", ["the queue's look", "what follows for a job"])
async def test_a_job_on_which_the_operator_fails_is_told_so_and_stops_nobody_else(
    rig: Rig, api: Api, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    bad, good = numbered("bad"), numbered("good", suspend=True)
    whole = cycle._survey_one if fails == "the queue's look" else reconciler.reconcile

    def failing(about: Any, *args: Any, **options: Any) -> Any:
        job = getattr(about, "job", about)
        if job.metadata.name == "bad" and not getattr(about, "obstacle", None):
            raise AttributeError("'str' object has no attribute 'get'")
        return whole(about, *args, **options)

    if fails == "the queue's look":
        monkeypatch.setattr(cycle, "_survey_one", failing)
    else:
        monkeypatch.setattr(reconciler, "reconcile", failing)
    rig.accept_status(bad, number=1, phase="Queued", reason="Invalid")
    rig.accept_status(good, number=1)
    for job in (bad, good):
        rig.controller.changes.job_changed(job)
    async with rig.running():
        await until_status(api, "good")
        await until_status(api, "bad")
    status = rig.status_of("bad")
    assert (status["phase"], status["reason"]) == ("Queued", "Invalid")
    assert status["message"] == (
        "Dovetail fails on this job, which is a fault of its own: AttributeError: 'str' object has no attribute 'get'"
    )


async def test_a_job_that_the_api_server_refuses_is_invalid_and_holds_no_room(rig: Rig, api: Api) -> None:
    first, second = numbered("first", priority=20), numbered("second")
    api.answer(
        f"POST {JOBS}", refusal(422, message="spec.template.spec.restartPolicy: Unsupported value"), created(second)
    )
    rig.accept_status(first, number=1, phase="Starting")
    rig.accept_status(first, version=12, number=1, phase="Queued", reason="Invalid")
    for version in (11, 12, 13):
        rig.accept_status(second, version=version, number=1)
    for job in (first, second):
        rig.controller.changes.job_changed(job)
    async with rig.running():
        await until_phase(rig, "Queued", "first")
        await until_phase(rig, "Starting", "second")
    status = rig.status_of("first", nth=1)
    assert status["reason"] == "Invalid"
    assert status["message"].endswith("spec.template.spec.restartPolicy: Unsupported value")


async def test_a_strangers_job_that_goes_lets_the_job_be_tried_again(rig: Rig) -> None:
    job = numbered()
    rig.state.store.job_changed(job)
    rig.state.decisions.refuse(job, obstacle=Obstacle(message="in the way"))
    stranger = make_child(make_job(meta={"uid": "uid-other"}))
    rig.controller.changes.child_event("DELETED", stranger)
    assert rig.state.obstacle_of(job, now=NOW) is None


async def test_what_is_to_be_deleted_is_deleted(rig: Rig, api: Api) -> None:
    over = make_job(
        ttlSecondsAfterFinished=1,
        status={"number": 1, "phase": "Failed", "completionTime": "2026-01-01T11:00:00Z"},
    )
    cancelled = make_job("y", cancel=True, status={"number": 2, "phase": "Cancelled"})
    rig.state.store.child_changed(make_child(cancelled))
    api.answer(f"DELETE {GPUJOBS}/x", Answer(body={}))
    api.answer(f"DELETE {JOBS}/y", Answer(body={}))
    for job in (over, cancelled):
        rig.controller.changes.job_changed(job)
    async with rig.running():
        await api.until(f"DELETE {GPUJOBS}/x", count=1)
        await api.until(f"DELETE {JOBS}/y", count=1)


async def test_freed_room_lets_the_next_job_go(rig: Rig, api: Api) -> None:
    tenant = make_pod(node="a", devices=1, owner="uid-somebody")
    rig.controller.changes.pod_event("ADDED", tenant)
    job = numbered()
    for version in (11, 12, 13):
        rig.accept_status(job, version=version, number=1, phase="Queued", reason="Resources")
    api.answer(f"POST {JOBS}", created(job))
    rig.controller.changes.job_changed(job)
    async with rig.running():
        await until_status(api)
        assert rig.status_of()["reason"] == "Resources"
        rig.controller.changes.pod_event("DELETED", tenant)
        await until_phase(rig, "Starting")


def report(*, foreign_mib: int = 0, tenants: Any = ()) -> GPUNode:
    device = {
        "index": 0, "uuid": "GPU-a-0", "vendor": "nvidia", "model": "V100", "memoryMiB": 32768,
        "foreignMiB": foreign_mib, "tenants": list(tenants),
    }  # fmt: skip
    status = {"devices": [device], "observedAt": "2100-01-01T00:00:00Z"}
    return msgspec.convert({"metadata": {"name": "a"}, "status": status}, GPUNode)


async def test_a_job_goes_when_what_strangers_took_was_measured_too_long_ago(rig: Rig, api: Api) -> None:
    now = 1000.0
    freshness = Freshness(max_age_seconds=660, clock=lambda: now)
    rig.state.store.view = ClusterView(ledger=rig.state.store.view.ledger, freshness=freshness)
    rig.state.store.view.node_changed(make_node("a"))
    rig.controller.changes.gpunode_event("MODIFIED", report(foreign_mib=30000))
    job = numbered()
    for version in (11, 12, 13):
        rig.accept_status(job, version=version, number=1, phase="Queued", reason="MemoryGuard")
    api.answer(f"POST {JOBS}", created(job))
    rig.controller.changes.job_changed(job)
    async with rig.running():
        await until_status(api)
        assert rig.status_of()["reason"] == "MemoryGuard"
        now += 660
        rig.controller.changes.time_passes()
        await until_phase(rig, "Starting")


async def test_a_running_job_that_reaches_its_promise_of_memory_is_written(rig: Rig, api: Api) -> None:
    job = numbered()
    rig.state.store.job_changed(job)
    rig.state.store.child_changed(make_child(job))
    for version in (11, 12, 13):
        rig.accept_status(job, version=version, number=1, phase="Running")
    rig.controller.changes.pod_event("ADDED", pod := make_pod(node="a", devices=1, started=-10))
    async with rig.running():
        await until_status(api)
        used = [{"uid": pod.metadata.uid, "usedMiB": 32768}]
        rig.controller.changes.gpunode_event("MODIFIED", report(tenants=used))
        count = 2
        while "memory" not in rig.status_of():
            await api.until(f"PUT {GPUJOBS}/x/status", count=count)
            count += 1
    assert (rig.status_of()["memory"]["peakMiB"], rig.status_of()["memory"]["limited"]) == (32768, True)


def test_jobs_are_counted_by_phase_and_reason(rig: Rig) -> None:
    for name, status in {
        "a": {"phase": "Running"},
        "b": {"phase": "Queued", "reason": "Resources"},
        "c": {"phase": "Queued", "reason": "Resources"},
        "d": {},
        "e": {"phase": "Preempted", "reason": "Resources"},
        "f": {"phase": "Held", "reason": "Held"},
        "g": {"phase": "Suspended", "reason": "Held"},
    }.items():
        rig.state.store.job_changed(make_job(name, status=status))
    value = rig.registry.get_sample_value
    assert value("dovetail_jobs", {"phase": "Running"}) == 1
    assert value("dovetail_jobs", {"phase": "Queued"}) == 3
    assert value("dovetail_jobs", {"phase": "Failed"}) == 0
    assert value("dovetail_jobs_waiting", {"reason": "Resources"}) == 3
    assert value("dovetail_jobs_waiting", {"reason": "Held"}) == 2
    assert value("dovetail_jobs_waiting", {"reason": "Evaluating"}) == 1


async def test_a_job_goes_when_the_one_that_it_waits_for_has_ended(rig: Rig, api: Api) -> None:
    first = numbered("first")
    waits = numbered(dependencies=[{"name": "first", "condition": "Finished"}])
    for version in (11, 12, 13):
        rig.accept_status(waits, version=version, number=1, phase="Queued", reason="Dependency")
    rig.accept_status(first, number=1, phase="Succeeded", completionTime="2026-01-01T11:00:00Z")
    api.answer(f"POST {JOBS}", created(waits))
    rig.state.store.child_changed(make_child(first, uid="uid-first-child"))
    for job in (first, waits):
        rig.controller.changes.job_changed(job)
    async with rig.running():
        await until_status(api)
        assert rig.status_of()["reason"] == "Dependency"
        done = {"conditions": [condition("Complete")], "completionTime": "2026-01-01T11:00:00Z"}
        rig.controller.changes.child_event("MODIFIED", newer(make_child(first, uid="uid-first-child", status=done)))
        await until_phase(rig, "Starting")


async def test_a_start_that_a_limit_makes_impossible_is_not_told_any_more(api: Api, client: Client) -> None:
    rig, runs, waits = Rig(api, client, make_state(a=4)), numbered("runs", activeDeadlineSeconds=3600), numbered(gpu=4)
    rig.state.store.job_changed(runs)
    rig.state.store.child_changed(make_child(runs, uid="uid-child-runs", status={"startTime": at(0)}))
    rig.state.store.pod_event("ADDED", make_pod(node="a", devices=1, owner="uid-child-runs"))
    for version in range(11, 16):
        rig.accept_status(waits, version=version, number=1, phase="Queued", reason="Resources")
        rig.accept_status(runs, version=version, number=1)
    rig.controller.changes.job_changed(waits)
    async with rig.running():
        await _until_estimated(rig, wanted=True)
        quota = msgspec.convert({"metadata": {"name": "q"}, "spec": {"limit": {"gpus": 1}}}, GPUQuota)
        rig.controller.changes.quota_event("ADDED", quota)
        await _until_estimated(rig, wanted=False)
    assert rig.status_of()["reason"] == "Quota"


async def _until_estimated(rig: Rig, *, wanted: bool) -> None:
    """Wait until the job's status that was written last has an estimated start, or has none."""
    async with asyncio.timeout(120):
        while True:
            written = rig.api.of(f"PUT {GPUJOBS}/x/status")
            queue = written[-1].body["status"].get("queue") if written else None
            if queue is not None and (queue["estimatedStart"] is not None) is wanted:
                return
            await rig.api.until(f"PUT {GPUJOBS}/x/status", count=len(written) + 1)


def newer(child: Any) -> Any:
    """The same batch Job as the API server has it a moment later."""
    metadata = msgspec.structs.replace(child.metadata, resource_version=str(int(child.metadata.resource_version) + 1))
    return msgspec.structs.replace(child, metadata=metadata)


async def test_a_limit_that_was_changed_is_told_at_once_to_those_that_it_keeps_back(api: Api, client: Client) -> None:
    def quota(gpus: int) -> GPUQuota:
        return msgspec.convert({"metadata": {"name": "q"}, "spec": {"limit": {"gpus": gpus}}}, GPUQuota)

    def told(gpus: str) -> str:
        return f"GPUQuota q: all whom it binds may run {gpus}, 0 run, this job would never fit, it needs 4"

    rig, job = Rig(api, client, make_state(a=4)), numbered(gpu=4)
    rig.controller.changes.job_changed(job)
    rig.controller.changes.quota_event("ADDED", quota(1))
    rig.accept_status(job, number=1, phase="Queued", reason="Quota", message=told("1 GPU"))
    rig.accept_status(job, version=12, number=1, phase="Queued", reason="Quota", message=told("2 GPUs"))
    async with rig.running():
        await until_status(api)
        rig.controller.changes.quota_event("MODIFIED", quota(2))
        await until_status(api, count=2)
    assert [rig.status_of(nth=nth)["message"] for nth in (0, 1)] == [told("1 GPU"), told("2 GPUs")]


async def test_an_array_says_that_it_was_seen_and_then_its_tasks_are_made_side_by_side(rig: Rig, api: Api) -> None:
    array = numbered("arr", array={"indexes": "0-2"})
    rig.controller.changes.job_changed(array)
    rig.accept_status(array, number=1, phase="Queued", reason="Evaluating")
    never = asyncio.Event()
    api.answer(f"POST {GPUJOBS}", *[Answer(body={}, released=never)] * 3)
    async with rig.running():
        # None of them is answered before all have come.
        await api.until(f"POST {GPUJOBS}", count=3)
    first = next(seen for seen in api.seen if seen.method != "GET")
    assert (first.method, first.path) == ("PUT", f"{GPUJOBS}/arr/status")
    assert first.body["status"]["reason"] == "Evaluating"


async def test_a_job_whose_batch_job_lost_its_label_is_followed_on_and_not_planned_anew(rig: Rig, api: Api) -> None:
    job = make_job(status={"number": 1, "phase": "Running"})
    child = make_child(job)
    rig.controller.changes.job_changed(job)
    rig.controller.changes.child_event("ADDED", child)
    bare = msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, labels={}))
    ended = make_child(job, status={"conditions": [condition("Complete")]})
    api.answer(f"GET {JOBS}/x", Answer(body=values_of(bare)))
    api.answer(f"PATCH {JOBS}/x", Answer(body=values_of(ended)))
    rig.accept_status(job, number=1, phase="Succeeded")
    rig.controller.changes.child_event("DELETED", child)
    async with rig.running():
        await until_phase(rig, "Succeeded")
    assert api.of(f"POST {JOBS}") == []
    assert "placement" not in rig.status_of()


async def test_a_job_whose_batch_job_is_gone_is_looked_for_once_and_made_anew(rig: Rig, api: Api) -> None:
    job = make_job(status={"number": 1, "phase": "Running"})
    child = make_child(job)
    rig.controller.changes.job_changed(job)
    rig.controller.changes.child_event("ADDED", child)
    api.answer(f"GET {JOBS}/x", refusal(404))
    api.answer(f"POST {JOBS}", created(job))
    rig.accept_status(job, number=1, phase="Starting")
    rig.controller.changes.child_event("DELETED", child)
    async with rig.running():
        await api.until(f"POST {JOBS}", count=1)
    assert len(api.of(f"GET {JOBS}/x")) == 1


async def test_every_part_of_the_controller_runs(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = set[str]()

    def part(name: str) -> Any:
        async def run(*_: Any, **__: Any) -> None:
            begun.add(name)
            await asyncio.Event().wait()

        return run

    controller = rig.controller
    for index, each in enumerate(controller._refusals):
        monkeypatch.setattr(each, "run", part(f"refusals {index}"))
    monkeypatch.setattr(controller._scheduling, "run", part("scheduling"))
    monkeypatch.setattr(controller._evictions, "run", part("evictions"))
    monkeypatch.setattr(controller.queue, "serve", part("reconciles"))
    monkeypatch.setattr(controller.changes, "time_passes", lambda: begun.add("time"))
    refusals = {f"refusals {index}" for index in range(len(controller._refusals))}
    async with rig.running():
        await eventually(lambda: begun >= {"scheduling", "evictions", "reconciles", "time", *refusals})
    assert refusals


async def test_the_configured_rules_decide_whether_a_pod_above_its_promise_is_evicted(api: Api, client: Client) -> None:
    pod, eviction = tenant_of("n1"), "POST /api/v1/namespaces/team/pods/web/eviction"
    api.answer(eviction, Answer(body={"kind": "Status", "status": "Success"}))
    rig = Rig(api, client, make_state(a=1), endings=EndingRules(ends=True), pods={"team/web": pod})
    gpunode = make_gpunode("n1")
    above = Overuse(
        uid="uid-web", namespace="team", name="web", device="GPU-a", index=0, promised_mib=1, used_mib=2,
        since="then", ends=True, evict=True,
    )  # fmt: skip
    async with rig.running():
        status = msgspec.structs.replace(gpunode.status, overuses=[above])
        rig.controller.changes.gpunode_event("MODIFIED", msgspec.structs.replace(gpunode, status=status))
        await api.until(eviction, count=1)

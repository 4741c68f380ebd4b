"""Jobs that run on the CPU: where no GPU could ever serve them, and after a wait for busy ones."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.meta import key_of
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from dovetail_operator.events.announcement import announcement
from dovetail_operator.job.actions import CreateJob, DeleteJob
from dovetail_operator.lifecycle.reconcile import Outcome, reconcile
from dovetail_operator.queue.cycle import decide, next_fallback_seconds, survey
from dovetail_operator.state.state import State
from tests.operator_.builders import NO_ROOM, NOW, at, make_child, make_job, make_pod, make_state, see

FULL = {"gpu": 2, "onNoGPU": "RunOnCPU", "onNoGPUAfterSeconds": 600}


class Rig:
    """An operator without an API server: each step is a cycle and a reconcile, and what they write is stored."""

    def __init__(self, *, busy: bool = True, state: State | None = None) -> None:
        self.state = state or make_state(a=2)
        self.now = 0.0
        if busy:
            other = make_job("other", gpu=2, status={"number": 1})
            self.state.store.job_changed(other)
            self.state.store.child_changed(make_child(other, uid="child-other"))
            meta = {"labels": {"dovetail.dev/job": "other"}, "uid": "pod-other"}
            self.state.store.pod_event("ADDED", make_pod(node="a", devices=2, owner="child-other", meta=meta))

    def submit(self, **spec: Any) -> GPUJob:
        job = make_job(status={"number": 7}, **({"gpu": 2} | spec))
        self.state.store.job_changed(job)
        return job

    def step(self, *, seconds: float = 0) -> Outcome:
        """Some time passes, then the queue decides and the job's status follows."""
        self.now += seconds
        now = NOW + timedelta(seconds=self.now)
        for verdict in decide(self.state, cycle=survey(self.state, now=now)):
            self.state.decisions.set_verdict(verdict.key, verdict=verdict)
        seen = self.state.observe("team/x", now=now)
        assert seen is not None
        outcome = reconcile(seen)
        self._write(seen.job, status=outcome.status)
        for action in outcome.actions:
            if isinstance(action, CreateJob):
                manifest = json.loads(json.dumps(action.manifest))
                manifest["metadata"] |= {"uid": "uid-child", "resourceVersion": "20"}
                self.state.store.child_changed(msgspec.convert(manifest, Job, strict=False))
        return outcome

    def edit(self, **spec: Any) -> None:
        job = self.state.store.jobs["team/x"]
        self._replace(msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **spec)))

    def verdict(self) -> Verdict | None:
        return self.state.decisions.verdicts.get("uid-x")

    def restart(self) -> "Rig":
        """A new process, which knows what the API server has and nothing else."""
        again = Rig()
        again.now = self.now
        again.state.store.job_changed(self.state.store.jobs["team/x"])
        return again

    def _write(self, job: GPUJob, *, status: GPUJobStatus) -> None:
        if status != job.status:
            self._replace(msgspec.structs.replace(self.state.store.jobs[key_of(job.metadata)], status=status))

    def _replace(self, job: GPUJob) -> None:
        version = str(int(job.metadata.resource_version) + 1)
        self.state.store.job_changed(
            msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, resource_version=version))
        )


def created(outcome: Outcome) -> dict[str, Any]:
    (create,) = outcome.actions
    assert isinstance(create, CreateJob)
    return dict(create.manifest)


# --- no GPU could ever serve it --------------------------------------------------------------------------------


def test_where_no_gpu_could_ever_serve_it_the_job_runs_on_the_cpu() -> None:
    rig = Rig()
    rig.submit(gpu=4, onNoGPU="RunOnCPU")
    outcome = rig.step()
    manifest = created(outcome)
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    assert "resources" not in container or not container["resources"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]
    assert manifest["metadata"]["annotations"]["dovetail.dev/device"] == "cpu"
    assert outcome.status.message.startswith("Runs on the CPU: Need 4 GPUs")


@pytest.mark.parametrize(
    ("says", "spec"),
    [
        ("GPUs that are busy are waited for", {"gpu": 2, "onNoGPU": "RunOnCPU"}),
        ("without the wish the job waits for GPUs that do not exist", {"gpu": 4}),
        ("who wants to wait waits for busy GPUs", {"gpu": 2, "onNoGPU": "Wait"}),
    ],
)
def test_it_waits(says: str, spec: dict[str, Any]) -> None:
    rig = Rig()
    rig.submit(**spec)
    rig.step()
    outcome = rig.step(seconds=1e6)
    assert (outcome.actions, outcome.status.phase, outcome.status.gpu_wait_start_time) == ((), "Queued", None), says


# --- busy GPUs -------------------------------------------------------------------------------------------------


def test_after_its_time_a_job_stops_waiting_for_busy_gpus() -> None:
    rig = Rig()
    rig.submit(**FULL)
    first = rig.step()
    assert (first.status.phase, first.status.reason, first.actions) == ("Queued", "Resources", ())
    assert first.status.gpu_wait_start_time == at(0)
    assert first.status.message.endswith(f"; if it still waits at {at(600)}, it runs on the CPU")
    assert rig.step(seconds=599).status.phase == "Queued"
    last = rig.step(seconds=1)
    assert created(last)["metadata"]["annotations"]["dovetail.dev/device"] == "cpu"
    assert (last.status.phase, last.status.device, last.status.gpu_wait_start_time) == ("Starting", "cpu", None)
    assert last.status.message.startswith("Runs on the CPU: Need 2 GPUs")


def test_the_wait_survives_a_restart_of_the_operator() -> None:
    rig = Rig()
    rig.submit(**FULL)
    rig.step()
    rig.now = 500
    again = rig.restart()
    assert again.step().status.phase == "Queued"
    assert again.step(seconds=100).status.device == "cpu"


def test_a_job_that_was_due_while_no_operator_ran_falls_back_at_once() -> None:
    rig = Rig()
    rig.submit(**FULL)
    rig.step()
    rig.now = 5000
    assert rig.restart().step().status.device == "cpu"


def test_the_queue_is_woken_by_time() -> None:
    rig = Rig()
    rig.submit(**FULL)
    rig.step()
    cycle = survey(rig.state, now=NOW + timedelta(seconds=100))
    assert next_fallback_seconds(cycle) == 500
    assert next_fallback_seconds(survey(Rig(busy=False).state, now=NOW)) is None


def test_free_gpus_are_taken_even_by_a_job_that_is_due() -> None:
    rig = Rig(busy=False)
    rig.submit(**(FULL | {"onNoGPUAfterSeconds": 0}))
    assert rig.step().status.device == "cuda"


def test_with_0_seconds_a_job_never_waits_for_busy_gpus() -> None:
    rig = Rig()
    rig.submit(**(FULL | {"onNoGPUAfterSeconds": 0}))
    outcome = rig.step()
    assert (outcome.status.device, outcome.status.request, outcome.status.gpus) == ("cpu", "2", 0)


def test_the_time_may_be_changed_while_the_job_waits() -> None:
    rig = Rig()
    rig.submit(**FULL)
    rig.step()
    rig.edit(on_no_gpu_after_seconds=60)
    assert rig.step(seconds=60).status.device == "cpu"


def test_a_hold_starts_the_wait_again() -> None:
    rig = Rig()
    rig.submit(**FULL)
    rig.step()
    rig.edit(suspend=True)
    assert rig.step(seconds=599).status.gpu_wait_start_time is None
    rig.edit(suspend=False)
    assert rig.step(seconds=100).status.gpu_wait_start_time == at(699)
    assert rig.step(seconds=599).status.phase == "Queued"
    assert rig.step(seconds=1).status.device == "cpu"


def test_a_wait_for_a_begin_time_is_no_wait_for_busy_gpus() -> None:
    rig = Rig()
    rig.submit(**FULL, beginTime=at(5000))
    assert rig.step(seconds=4999).status.gpu_wait_start_time is None
    assert rig.step(seconds=1).status.gpu_wait_start_time == at(5000)


def test_all_workers_of_a_gang_run_on_the_cpu_or_none() -> None:
    rig = Rig()
    rig.submit(**(FULL | {"gpu": 1}), workers=2, minWorkers=1)
    rig.step()
    batch = created(rig.step(seconds=600))["spec"]
    assert (batch["completions"], batch["parallelism"]) == (2, 2)


def test_a_namespace_has_a_default_that_a_job_may_refuse() -> None:
    state = make_state(a=2, cpu_fallback={"team": 60})
    rig = Rig(state=state)
    rig.submit()
    assert rig.step().status.gpu_wait_start_time == at(0)
    assert rig.step(seconds=60).status.device == "cpu"
    refused = Rig(state=make_state(a=2, cpu_fallback={"team": 60}))
    refused.submit(onNoGPU="Wait")
    assert refused.step(seconds=60).status.phase == "Queued"
    elsewhere = Rig(state=make_state(a=2, cpu_fallback={"others": 60}))
    elsewhere.submit()
    assert elsewhere.step(seconds=60).status.gpu_wait_start_time is None


def test_a_reservation_holds_devices_and_waits_for_them() -> None:
    rig = Rig(state=make_state(a=2, cpu_fallback={"team": 0}))
    rig.submit(reservation={"durationSeconds": 60})
    assert rig.step().status.phase == "Queued"


def test_two_jobs_of_a_group_do_not_fall_back_beyond_its_limit() -> None:
    rig = Rig()
    rig.submit(**(FULL | {"onNoGPUAfterSeconds": 0}), group="g", maxConcurrent=1)
    rig.state.store.job_changed(
        make_job("y", status={"number": 8}, group="g", maxConcurrent=1, **(FULL | {"onNoGPUAfterSeconds": 0}))
    )
    rig.step()
    mine, other = rig.verdict(), rig.state.decisions.verdicts["uid-y"]
    assert isinstance(mine, Admitted)
    assert isinstance(other, Waits)
    assert other.reason == "Quota"


def test_a_suspended_batch_job_for_gpus_is_made_again_for_the_cpu() -> None:
    rig = Rig()
    job = rig.submit(**(FULL | {"onNoGPUAfterSeconds": 0}))
    rig.state.store.child_changed(make_child(job, suspend=True))
    assert rig.step().actions == (DeleteJob(),)


# --- what it says ----------------------------------------------------------------------------------------------


def test_the_status_says_what_it_runs_on_and_why() -> None:
    rig = Rig()
    rig.submit(**(FULL | {"onNoGPUAfterSeconds": 0}))
    rig.step()
    rig.state.store.pod_event("ADDED", make_pod(started=1))
    status = rig.step(seconds=5).status
    assert (status.phase, status.device, status.gpus, status.request) == ("Running", "cpu", 0, "2")
    assert status.message == "Runs on the CPU: Need 2 GPUs, only 0 available"


def test_an_event_says_that_a_job_runs_on_the_cpu() -> None:
    rig = Rig()
    rig.submit(**(FULL | {"onNoGPUAfterSeconds": 0}))
    starting = rig.step().status
    assert announcement(rig.state.store.jobs["team/x"], status=starting) is None
    started = msgspec.structs.replace(rig.state.store.jobs["team/x"], status=starting)
    found = announcement(started, status=msgspec.structs.replace(starting, phase="Running"))
    assert found is not None
    assert found.message.startswith("Runs on the CPU: Need 2 GPUs")


def test_a_batch_job_of_an_earlier_version_runs_on_the_cpu_without_a_reason() -> None:
    job = make_job(gpu=4, onNoGPU="RunOnCPU")
    child = make_child(job)
    annotated = msgspec.structs.replace(child.metadata, annotations={"dovetail.dev/device": "cpu"})
    child = msgspec.structs.replace(child, metadata=annotated)
    outcome = reconcile(see(job, make_pod(started=-5), child=child, verdict=NO_ROOM))
    assert outcome.status.message == "Runs on the CPU"


@pytest.mark.parametrize(("spec", "device"), [({"gpu": 1}, "cuda"), ({"resources": {"device": "cpu"}}, "cpu")])
def test_what_a_job_runs_on_is_said_of_every_job(spec: dict[str, Any], device: str) -> None:
    rig = Rig(busy=False)
    rig.state.store.job_changed(make_job(status={"number": 7}, **spec))
    assert rig.step().status.device == device

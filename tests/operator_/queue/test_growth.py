"""Requests for new nodes over the operator's state: the cycle, the status, and a new operator."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from dovetail.api.autoscaler import ProvisioningRequest
from dovetail.api.gpujob import GPUJob, GPUJobStatus, Provisioning
from dovetail.formats.durations import timestamp
from dovetail.queue.growing.pools import GrowingPool, GrowingRules
from dovetail.queue.growing.requests import provisioning_request_name
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.queue.cycle import Cycle, decide, survey
from dovetail_operator.queue.verdict_updates import VerdictPacing
from dovetail_operator.state.state import State
from tests.operator_.builders import NOW, make_job, make_state

POOL = GrowingPool(
    name="v100",
    labels={"pool": "v100"},
    max_nodes=4,
    gpus=8,
    model="V100",
    gpu_memory_mib=32768,
    cpu_milli=64_000,
    memory_mib=262_144,
)
RULES = GrowingRules(pools=(POOL,))


def submit(state: State, name: str, *, status: dict[str, Any] | None = None, **spec: Any) -> GPUJob:
    job = make_job(name, status={"number": 1, **(status or {})}, **spec)
    state.store.job_changed(job)
    return job


def run_cycle(state: State) -> tuple[Cycle, dict[str, Verdict]]:
    cycle = survey(state, now=NOW)
    found = {each.key: each for each in decide(state, cycle=cycle, previous=state.decisions.verdicts)}
    for key, verdict in found.items():
        state.decisions.set_verdict(key, verdict=verdict)
    return cycle, found


def status_of(state: State, name: str) -> GPUJobStatus:
    seen = state.observe(f"team/{name}", now=NOW)
    assert seen is not None
    return reconcile(seen).status


def test_the_status_says_what_was_requested() -> None:
    state = make_state(a=4, growing=RULES)
    submit(state, "x", gpu=8, workers=2)
    cycle, _ = run_cycle(state)
    status = status_of(state, "x")
    assert (status.phase, status.reason) == ("Queued", "Provisioning")
    assert status.message == f"2 nodes of pool v100 requested at {timestamp(NOW)}"
    assert status.provisioning == Provisioning(pool="v100", nodes=2, workers=2, requested_time=timestamp(NOW))
    assert cycle.timers == [900.0]


def test_without_growing_pools_the_job_never_fits() -> None:
    state = make_state(a=4)
    submit(state, "x", gpu=8)
    cycle, _ = run_cycle(state)
    assert status_of(state, "x").reason == "ExceedsCapacity"
    assert cycle.timers == []


def test_a_new_operator_continues_the_request_of_the_status() -> None:
    state = make_state(a=4, growing=RULES)
    at = timestamp(NOW - timedelta(seconds=300))
    request = {"pool": "v100", "nodes": 1, "workers": 1, "requestedTime": at}
    submit(state, "x", gpu=8, status={"provisioning": request})
    before = status_of(state, "x")
    assert before.provisioning is not None, "also before its first cycle"
    cycle, _ = run_cycle(state)
    after = status_of(state, "x")
    assert after.provisioning is not None
    assert after.provisioning.requested_time == at
    assert cycle.timers == [600.0]


def test_the_request_ends_with_the_wait() -> None:
    state = make_state(a=4, b=8, growing=RULES)
    request = {"pool": "v100", "nodes": 1, "workers": 1, "requestedTime": timestamp(NOW)}
    submit(state, "x", gpu=8, status={"provisioning": request})
    _, found = run_cycle(state)
    assert isinstance(found["uid-x"], Admitted)
    assert status_of(state, "x").provisioning is None


def test_a_request_that_was_given_up_is_written_at_once() -> None:
    given_up = Provisioning(pool="v100", nodes=1, workers=1, requested_time=timestamp(NOW), failures=1)
    before = Waits(key="uid-x", reason="Provisioning", message="requested")
    after = replace_of(before, given_up)
    pacing = VerdictPacing()
    assert not pacing.hold_back(before, before=None, rank=5000, now=0.0)
    assert not pacing.hold_back(after, before=before, rank=5000, now=1.0)
    assert pacing.hold_back(after, before=after, rank=5000, now=2.0)


def replace_of(verdict: Waits, request: Provisioning) -> Waits:
    return Waits(key=verdict.key, reason=verdict.reason, message="given up", provisioning=request)


def test_a_changed_configuration_counts_from_the_next_cycle_on() -> None:
    state = make_state(a=4, growing=RULES)
    submit(state, "x", gpu=8)
    run_cycle(state)
    state.growing.configure(replace(RULES, pools=()))
    run_cycle(state)
    assert status_of(state, "x").reason == "ExceedsCapacity"


def test_a_refusal_of_the_cluster_autoscaler_ends_the_request_at_once() -> None:
    state = make_state(a=4, growing=RULES)
    submit(state, "x", gpu=8)
    run_cycle(state)
    assert answer(state, "Accepted").message.endswith(", accepted by the cluster autoscaler")
    assert answer(state, "Accepted", "Provisioned").message.endswith(", provisioned by the cluster autoscaler")
    status = answer(state, "Accepted", "Failed")
    retry = timestamp(NOW + timedelta(seconds=RULES.back_off_seconds))
    assert status.provisioning is not None
    assert (status.provisioning.retry_time, status.provisioning.failures) == (retry, 1)
    at = timestamp(NOW)
    expected = f"1 node of pool v100 requested at {at}: Failed (Stockout): none left; requests again at {retry}"
    assert (status.reason, status.message) == ("Provisioning", expected)


def test_an_answer_to_another_request_does_not_count() -> None:
    state = make_state(a=4, growing=RULES)
    submit(state, "x", gpu=8)
    run_cycle(state)
    status = answer(state, "Failed", workers=7)
    assert status.provisioning is not None
    assert status.provisioning.retry_time is None


def answer(state: State, *true: str, workers: int = 1) -> GPUJobStatus:
    """The status of job x after the autoscaler set these conditions on the request for so many workers."""
    job = state.store.jobs["team/x"]
    asked = Provisioning(pool="v100", nodes=1, workers=workers, requested_time=timestamp(NOW))
    name = provisioning_request_name(asked, of=job.metadata)
    conditions = [{"type": each, "status": "True", "reason": "Stockout", "message": "none left."} for each in true]
    found = {"metadata": {"name": name, "namespace": "team"}, "status": {"conditions": conditions}}
    state.growing.provisioning_request_event("MODIFIED", msgspec.convert(found, ProvisioningRequest))
    run_cycle(state)
    return status_of(state, "x")

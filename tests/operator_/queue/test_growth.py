"""Requests for new nodes over the operator's state: the cycle, the status, and a new operator."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from dovetail.api.gpujob import GPUJob, GPUJobStatus, Provisioning
from dovetail.formats.durations import timestamp
from dovetail.queue.growing.pools import GrowingPool, GrowingRules
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

"""Changes of GPUs: a state machine of all that take part, and what people read."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import settings

from dovetail.api.builtin import PodStatus
from dovetail.api.gpunode import GPUNodeStatus
from dovetail.api.resources import GPUNODES
from dovetail.formats.durations import timestamp
from tests.operator_.builders import NOW, at
from tests.operator_.queue.reshaping.machine import CARD, LAYOUTS, NODE, ReshapeMachine, pod_with

TestReshape = ReshapeMachine.TestCase
TestReshape.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def requested(machine: ReshapeMachine) -> None:
    machine.queue_decides(layout=LAYOUTS[0])
    machine.operator_checks()
    machine.watches_deliver()


def drained(machine: ReshapeMachine) -> None:
    requested(machine)
    machine.operator_checks()
    machine.time_passes(seconds=11.0)
    machine.operator_checks()


def test_a_gpu_is_drained_partitioned_and_given_back() -> None:
    machine = ReshapeMachine()
    requested(machine)
    (request,) = machine.server.gpunode.spec.reshape.values()
    assert (request.profiles, request.job, request.drained) == (["3g.40gb", "3g.40gb"], "uid-x", False)
    machine.agent_acts(late_tenants=False, refuses=False)
    assert len(machine.gpu.instances) == 7
    drained(machine)
    assert machine.server.gpunode.spec.reshape["GPU-0"].drained
    machine.agent_acts(late_tenants=False, refuses=False)
    machine.agent_reports(late_tenants=False)
    machine.watches_deliver()
    machine.operator_checks()
    assert machine.server.gpunode.spec.reshape == {}
    assert sorted(machine.gpu.instances.values()) == ["3g.40gb", "3g.40gb"]
    assert [event.message for event in machine.events] == [
        "Reshaping GPU 0 of node a into 2 x 3g.40gb", "Reshaped GPU 0 of node a into 2 x 3g.40gb",
    ]  # fmt: skip


def test_each_request_waits_for_binds_that_began_before_it() -> None:
    machine = ReshapeMachine()
    requested(machine)
    machine.operator_checks()
    machine.time_passes(seconds=11.0)
    # The operator before, which took the first request back, has made another one meanwhile.
    again = {"profiles": list(LAYOUTS[0]), "requestedTime": timestamp(NOW + timedelta(seconds=11)), "job": "uid-x"}
    version = machine.server.gpunode.metadata.resource_version
    patch = {"metadata": {"resourceVersion": version}, "spec": {"reshape": {CARD: again}}}
    asyncio.run(machine.server.patch(GPUNODES, name=NODE, patch=patch))
    machine.watches_deliver()
    machine.operator_checks()
    assert not machine.server.gpunode.spec.reshape[CARD].drained
    machine.time_passes(seconds=11.0)
    machine.operator_checks()
    assert machine.server.gpunode.spec.reshape[CARD].drained


def test_a_pod_that_came_before_the_request_keeps_its_instance() -> None:
    machine = ReshapeMachine()
    requested(machine)
    machine.server.pods["p"] = pod_with("p", uuid="MIG-3")
    drained(machine)
    assert machine.server.gpunode.spec.reshape == {}
    assert len(machine.gpu.instances) == 7


def test_a_bind_that_began_before_the_request_keeps_its_instance() -> None:
    machine = ReshapeMachine()
    machine.bind_begins(choice=2, by_old_view=False)
    requested(machine)
    machine.operator_checks()
    machine.time_passes(seconds=5.0)
    machine.operator_checks()
    machine.agent_acts(late_tenants=True, refuses=False)
    machine.bind_arrives()
    machine.no_instance_is_destroyed_under_a_pod()
    machine.time_passes(seconds=11.0)
    machine.operator_checks()
    assert machine.server.gpunode.spec.reshape == {}


def test_a_bind_by_an_old_view_takes_no_instance_of_a_requested_gpu() -> None:
    machine = ReshapeMachine()
    requested(machine)
    machine.bind_begins(choice=2, by_old_view=True)
    assert machine.sent == []


def test_a_pod_whose_allocation_cannot_be_read_counts_as_a_tenant() -> None:
    machine = ReshapeMachine()
    requested(machine)
    broken = pod_with("p", uuid="MIG-3")
    broken.metadata.annotations["dovetail.dev/allocation"] = "{"
    machine.server.pods["p"] = broken
    drained(machine)
    assert machine.server.gpunode.spec.reshape == {}


def test_a_request_whose_job_is_deleted_is_taken_back() -> None:
    machine = ReshapeMachine()
    requested(machine)
    machine.state.store.job_deleted("team/x", uid="uid-x")
    machine.operator_checks()
    assert machine.server.gpunode.spec.reshape == {}


def test_a_failure_is_said_on_the_job_and_the_node() -> None:
    machine = ReshapeMachine()
    drained(machine)
    machine.agent_acts(late_tenants=False, refuses=True)
    machine.agent_reports(late_tenants=False)
    machine.watches_deliver()
    machine.operator_checks()
    sentence = "GPU 0 of node a could not be reshaped into 2 x 3g.40gb: Insufficient Resources"
    assert machine.server.gpunode.spec.reshape == {}
    said = [(event.of == GPUNODES, event.about.name) for event in machine.events if event.message == sentence]
    assert said == [(True, NODE), (False, "x")]
    assert machine.state.decisions.reshape_problem("uid-x") == sentence
    assert machine.changed == ["team/x"], "its status is to say so"


def test_a_tenant_that_the_agent_alone_sees_keeps_its_instance() -> None:
    machine = ReshapeMachine()
    drained(machine)
    seen = machine._seen(late_tenants=False)
    machine.server.pods["p"] = pod_with("p", uuid="MIG-3")
    machine.agent_acts(late_tenants=False, refuses=False)
    assert len(machine.gpu.instances) == 7
    machine.server.pods.clear()
    assert machine.agent.amend(machine._status(), seen=seen).reshapable[0].problem == "a pod has an instance of the GPU"


def test_an_agent_that_was_killed_after_the_change_leaves_it_as_it_is() -> None:
    machine = ReshapeMachine()
    drained(machine)
    machine.agent_acts(late_tenants=False, refuses=False)
    made = dict(machine.gpu.instances)
    machine.agent_restarts()
    machine.agent_acts(late_tenants=False, refuses=False)
    assert machine.gpu.instances == made


def test_an_operator_without_requests_asks_for_nothing() -> None:
    machine = ReshapeMachine()
    asyncio.run(machine.operator.check())
    assert machine.events == []


def test_a_check_reads_only_the_gpunodes_with_requests() -> None:
    machine = ReshapeMachine()
    store = machine.state.store
    assert store.gpunode(NODE) is not None
    assert store.reshaped == {}
    requested(machine)
    assert list(store.reshaped) == [NODE]


def test_a_deleted_gpunode_has_no_requests_left() -> None:
    machine = ReshapeMachine()
    requested(machine)
    assert list(machine.state.store.reshaped) == [NODE]
    machine.state.store.gpunode_deleted(NODE)
    asyncio.run(machine.operator.check())
    assert machine.state.store.reshaped == {}


def test_another_request_for_the_same_gpu_waits_by_itself_for_binds_that_are_on_their_way() -> None:
    machine = ReshapeMachine()
    requested(machine)
    machine.state.decisions.set_reshapes(())
    machine.operator_checks()
    machine.time_passes(seconds=11.0)
    gpunode = machine.server.gpunode
    (request,) = gpunode.spec.reshape.values()
    later = msgspec.structs.replace(request, requested_time="2026-02-01T00:00:00Z")
    spec = msgspec.structs.replace(gpunode.spec, reshape={"GPU-0": later})
    machine.server.put(msgspec.structs.replace(gpunode, spec=spec))
    for drains in (False, False, True):
        machine.watches_deliver()
        machine.operator_checks()
        (request,) = machine.server.gpunode.spec.reshape.values()
        assert request.drained is drains
        machine.time_passes(seconds=6.0)


def test_a_drain_is_forgotten_with_its_request() -> None:
    machine = ReshapeMachine()
    requested(machine)
    machine.operator_checks()
    assert machine.operator._drains
    machine.state.store.job_deleted("team/x", uid="uid-x")
    machine.state.decisions.set_reshapes(())
    machine.operator_checks()
    machine.watches_deliver()
    assert machine.server.gpunode.spec.reshape == {}
    machine.operator_checks()
    assert machine.operator._drains == {}


def reshaped(machine: ReshapeMachine, *, refuses: bool = False) -> None:
    """A change from its request to its end."""
    drained(machine)
    machine.agent_acts(late_tenants=False, refuses=refuses)
    machine.agent_reports(late_tenants=False)
    machine.watches_deliver()
    machine.state.decisions.set_reshapes(())
    machine.operator_checks()
    machine.watches_deliver()


def test_the_answer_to_an_earlier_request_does_not_end_the_next_one() -> None:
    machine = ReshapeMachine()
    reshaped(machine)
    said = len(machine.events)
    machine.time_passes(seconds=60.0)
    machine.queue_decides(layout=LAYOUTS[2])
    machine.operator_checks()
    machine.state.decisions.set_reshapes(())
    machine.watches_deliver()
    machine.operator_checks()
    assert list(machine.server.gpunode.spec.reshape) == [CARD]
    assert [event.reason for event in machine.events[said:]] == ["Reshaping"]


def test_a_change_that_succeeds_clears_the_words_about_one_that_failed() -> None:
    machine = ReshapeMachine()
    reshaped(machine, refuses=True)
    assert machine.state.decisions.reshape_problem("uid-x")
    machine.time_passes(seconds=60.0)
    reshaped(machine)
    assert machine.state.decisions.reshape_problem("uid-x") == ""
    assert machine.events[-1].reason == "Reshaped"


def test_a_pod_that_has_ended_holds_no_instance() -> None:
    machine = ReshapeMachine()
    requested(machine)
    pod = pod_with("p", uuid="MIG-3")
    machine.server.pods["p"] = msgspec.structs.replace(pod, status=msgspec.convert({"phase": "Succeeded"}, PodStatus))
    drained(machine)
    assert machine.server.gpunode.spec.reshape["GPU-0"].drained


def test_an_end_that_could_not_be_written_is_said_when_it_is() -> None:
    machine = ReshapeMachine()
    drained(machine)
    machine.agent_acts(late_tenants=False, refuses=False)
    machine.agent_reports(late_tenants=False)
    machine.watches_deliver()
    machine.server.put(machine.server.gpunode)
    machine.state.decisions.set_reshapes(())
    for reasons in (["Reshaping"], ["Reshaping", "Reshaped"]):
        machine.operator_checks()
        assert [event.reason for event in machine.events] == reasons
        machine.watches_deliver()


@pytest.mark.parametrize(("ready", "stays"), [("True", False), ("False", True), (None, True)])
def test_a_drained_request_ends_only_by_an_agent_that_can_say_so(ready: str | None, stays: bool) -> None:
    """One that cannot read its devices may be at work on this one."""
    machine = ReshapeMachine()
    drained(machine)
    gpunode, conditions = machine.server.gpunode, list[Any]()
    if ready is not None:
        conditions = [{"type": "Ready", "status": ready, "reason": "R", "message": "", "lastTransitionTime": at(0)}]
    status = msgspec.convert({"devices": [], "conditions": conditions}, GPUNodeStatus)
    machine.server.put(msgspec.structs.replace(gpunode, status=status))
    machine.state.decisions.set_reshapes(())
    machine.watches_deliver()
    machine.operator_checks()
    assert bool(machine.server.gpunode.spec.reshape) is stays

"""Whatever a user stores, the operator's handlers take it, and the other jobs are decided on all the same."""

import random
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from dovetail import names
from dovetail.api.builtin import Event, Job, Node, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpunodetenants import GPUNodeTenantsSpec
from dovetail.api.resources import EVENTS, GPUJOBS, GPUNODES, JOBS, PODS
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail.kube.workqueue import WorkQueue
from dovetail_operator.controller.controller import build_controller
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.metrics import make_counters
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.watchers.node_tenants import NodeTenants
from dovetail_operator.writes.job_numbers import Numbers
from tests.core import hostile
from tests.operator_.builders import NOW, make_job, make_keeper, make_pod, make_state

HOSTILE = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


class Followed:
    """The operator's handlers behind reflectors of their own, without an API server."""

    def __init__(self) -> None:
        client = Client(Connection(server="http://127.0.0.1:1"))
        state = make_state(a=2)
        registry = CollectorRegistry()
        controller = build_controller(
            client,
            state=state,
            queue=WorkQueue(),
            numbers=Numbers(client, namespace="dovetail-system"),
            counters=make_counters(registry),
            post=lambda _: None,
            now=lambda: NOW,
            rng=random.Random(1),
            pods={},
            guests=make_keeper(client, state=state),
        )
        changes = controller.changes
        self.state = state
        self.jobs = Reflector(
            client, resource=GPUJOBS, as_type=GPUJob, on_event=changes.job_event, transform=state.store.lean
        )
        self.pods = Reflector(client, resource=PODS, as_type=Pod, on_event=changes.pod_event)
        self.children = Reflector(client, resource=JOBS, as_type=Job, on_event=changes.child_event)
        self.events = Reflector(client, resource=EVENTS, as_type=Event, on_event=changes.refusal_event)
        self.gpunodes = Reflector(client, resource=GPUNODES, as_type=GPUNode, on_event=changes.gpunode_event)

    @property
    def unhandled(self) -> list[str]:
        reflectors: tuple[Reflector[Any], ...] = self.jobs, self.pods, self.children, self.events, self.gpunodes
        return [problem for each in reflectors for problem in hostile.unhandled(each)]

    def decide(self) -> None:
        """A look of the queue, and one at each job."""
        cycle = survey(self.state, now=NOW)
        list(decide(self.state, cycle=cycle))
        for key in list(self.state.store.jobs):
            seen = self.state.observe(key, now=NOW)
            assert seen is not None
            reconcile(seen)


@HOSTILE
@given(
    jobs=st.lists(hostile.gpujobs(), max_size=2),
    pods=st.lists(hostile.pods(), max_size=2),
    children=st.lists(hostile.jobs(), max_size=1),
    events=st.lists(hostile.events(), max_size=1),
)
async def test_no_object_ends_a_handler_or_keeps_another_job_from_being_decided(
    jobs: list[bytes], pods: list[bytes], children: list[bytes], events: list[bytes]
) -> None:
    followed = Followed()
    fed: list[tuple[Reflector[Any], list[bytes]]] = [
        (followed.jobs, jobs), (followed.pods, pods), (followed.children, children), (followed.events, events),
    ]  # fmt: skip
    for reflector, texts in fed:
        for text in texts:
            hostile.feed(reflector, text)
    followed.state.store.job_changed(make_job())
    followed.decide()
    assert followed.unhandled == []
    assert [key for each in (followed.pods, followed.children, followed.events) for key in each.unreadable] == []
    for reflector, texts in fed:
        for text in texts:
            hostile.feed(reflector, text, event="DELETED")
    assert followed.unhandled == []


@HOSTILE
@given(pods=st.lists(hostile.pods(node="a"), min_size=1, max_size=3))
async def test_no_pod_keeps_a_nodes_programs_from_hearing_of_the_others(pods: list[bytes]) -> None:
    """The API server refuses an object with one value beyond its schema whole."""
    client = Client(Connection(server="http://127.0.0.1:1"))
    told = NodeTenants(client, pods=list, vendors=DEFAULT_VENDORS, rng=random.Random(1))
    told.node_event(
        "ADDED", msgspec.convert({"metadata": {"name": "a", "labels": {names.LABEL_MANAGED: "true"}}}, Node)
    )
    reflector = Reflector(client, resource=PODS, as_type=Pod, on_event=told.pod_event)
    for text in pods:
        hostile.feed(reflector, text)
    told.pod_event("ADDED", make_pod(devices=1, node="a"))
    assert hostile.unhandled(reflector) == []
    spec = GPUNodeTenantsSpec(tenants=list(told._tenants["a"].values()))
    read = msgspec.json.decode(msgspec.json.encode(spec), type=GPUNodeTenantsSpec)
    assert read == spec
    assert [tenant.name for tenant in read.tenants if tenant.devices][-1:] == ["x-0-running"]


@HOSTILE
@given(gpunode=hostile.gpunodes())
async def test_no_report_ends_a_handler(gpunode: bytes) -> None:
    followed = Followed()
    hostile.feed(followed.gpunodes, gpunode)
    followed.decide()
    assert not followed.gpunodes.unreadable

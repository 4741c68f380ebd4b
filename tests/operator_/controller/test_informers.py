"""What the operator follows: who gets the events, and when all caches are complete."""

import asyncio
import random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.conversion import values_of
from dovetail.api.meta import EventType, ObjectMeta
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.kube.client import Client
from dovetail.kube.workqueue import WorkQueue
from dovetail_operator.controller.controller import build_controller
from dovetail_operator.controller.informers import Handlers, Informers
from dovetail_operator.metrics import make_counters
from dovetail_operator.state.state import State
from dovetail_operator.watchers.node_tenants import NodeTenants
from dovetail_operator.watchers.waiting_pods import WaitingPods
from dovetail_operator.writes.job_numbers import Numbers
from tests.background import running
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import NOW, make_job, make_keeper, make_pod, make_state

DOVETAIL = "/apis/dovetail.dev/v1beta1"
PATHS = {
    "gpujobs": f"{DOVETAIL}/gpujobs",
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "gpunodes": f"{DOVETAIL}/gpunodes",
    "jobs": "/apis/batch/v1/jobs",
    "gpuquotas": f"{DOVETAIL}/gpuquotas",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
    "gpunodetenants": f"{DOVETAIL}/gpunodetenants",
}
SLICES = [f"/apis/resource.k8s.io/{version}/resourceslices" for version in ("v1", "v1beta2", "v1beta1")]


def connected(client: Client, *, state: State, unreadable: list[str]) -> Informers:
    """The informers with all handlers of an operator."""
    informers, rng = Informers(client, transform=state.store.lean), random.Random(7)
    guests = make_keeper(client, state=state, pods=informers.pods)
    controller = build_controller(
        client,
        state=state,
        queue=WorkQueue(),
        numbers=Numbers(client, namespace="home"),
        counters=make_counters(CollectorRegistry()),
        post=lambda _: None,
        now=lambda: NOW,
        rng=rng,
        pods=informers.pods,
        guests=guests,
    )
    informers.connect(
        controller.changes,
        on_unreadable_job=lambda meta, _problem: unreadable.append(meta.name),
        tenants=NodeTenants(client, pods=informers.pods.values, vendors=DEFAULT_VENDORS, rng=rng),
        guests=guests,
        waiting=WaitingPods(client, state=state, nodes=informers.nodes, post=lambda _: None, rng=rng),
    )
    return informers


def listing(*items: Any) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "5"}, "items": list(items)})


@pytest.fixture
def lists(api: Api) -> dict[str, Answer]:
    """The lists of a cluster with one job, one pod and one job that cannot be read."""
    for path in SLICES:
        api.answer(f"GET {path}", refusal(404))
    unread = {"metadata": {"name": "odd", "namespace": "team", "uid": "uid-odd", "resourceVersion": "4"}, "spec": 7}
    return dict.fromkeys(PATHS, listing()) | {
        "gpujobs": listing(values_of(make_job()), unread),
        "pods": listing(values_of(make_pod(node="a"))),
    }


def test_an_event_reaches_all_its_handlers_in_the_order_in_which_they_were_added() -> None:
    handlers, seen = Handlers[[EventType, ObjectMeta]](), list[str]()
    handlers.add(lambda type_, meta: seen.append(f"first {type_} {meta.name}"))
    handlers.add(lambda type_, meta: seen.append(f"second {type_} {meta.name}"))
    handlers("ADDED", ObjectMeta(name="a"))
    assert seen == ["first ADDED a", "second ADDED a"]


def test_each_kind_reaches_all_that_follow_it(client: Client) -> None:
    seen = list[str]()

    class Follower:
        def __init__(self, name: str) -> None:
            self._name = name
            self.reflector = object()

        def __getattr__(self, event: str) -> Any:
            return lambda *_event: seen.append(f"{self._name}.{event}")

    changes, guests, waiting, tenants, jobs = map(Follower, ("changes", "guests", "waiting", "tenants", "jobs"))
    informers: Any = Informers(client, transform=lambda job: job)
    informers.connect(changes, on_unreadable_job=jobs.unreadable, tenants=tenants, guests=guests, waiting=waiting)
    found = {}
    for name, handlers in vars(informers).items():
        if isinstance(handlers, Handlers):
            seen.clear()
            handlers("ADDED", object())
            found[name] = list(seen)
    assert found == {
        "_on_job": ["changes.job_event"],
        "_on_unreadable_job": ["jobs.unreadable"],
        "_on_child": ["changes.child_event"],
        "_on_pod": ["changes.pod_event", "guests.pod_event", "waiting.pod_event", "tenants.pod_event"],
        "_on_node": ["changes.node_event", "tenants.node_event"],
        "_on_gpunode": ["changes.gpunode_event", "tenants.gpunode_event"],
        "_on_quota": ["changes.quota_event"],
        "_on_budget": ["changes.budget_event"],
        "_on_slice": ["changes.slice_event"],
    }
    reflected = {each.resource.plural: each._on_event for each in informers._reflectors[:-1]}
    assert reflected == {
        "gpujobs": informers._on_job, "pods": informers._on_pod, "nodes": informers._on_node,
        "gpunodes": informers._on_gpunode, "jobs": informers._on_child, "gpuquotas": informers._on_quota,
        "poddisruptionbudgets": informers._on_budget,
    }  # fmt: skip


async def test_the_caches_are_complete_once_every_kind_is_listed(
    api: Api, client: Client, lists: dict[str, Answer]
) -> None:
    released = asyncio.Event()
    lists["nodes"] = Answer(body=listing().body, released=released)
    for plural, answer in lists.items():
        api.answer(f"GET {PATHS[plural]}", answer)
    state, unreadable = make_state(), list[str]()
    informers = connected(client, state=state, unreadable=unreadable)
    checks = informers.ready()
    assert checks.keys() == {*PATHS, "resourceslices"}
    assert checks["nodes"]() == "nodes are not listed yet"
    synced = asyncio.create_task(informers.synced())
    async with running(informers.run()), asyncio.timeout(60):
        await api.until(f"GET {PATHS['nodes']}", count=1)
        assert not synced.done()
        released.set()
        await synced
        assert {name: check() for name, check in checks.items() if check() is not None} == {}
    assert list(state.store.jobs) == ["team/x"]
    assert unreadable == ["odd"]
    assert [pod.spec.node_name for pod in informers.pods.values()] == ["a"]
    assert informers.ages_seconds().keys() == PATHS.keys()

"""Placeholder pods follow the requests of the statuses, on a scripted API server."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod, Taint
from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.kube.client import Client
from dovetail.kube.retry import Backoff
from dovetail.pods.demand import ask_of_job, ask_of_pod, template_spec
from dovetail.queue.growing.pools import GrowingPool, GrowingRules
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.manifests.placeholder import placeholders_of
from dovetail_operator.state.state import State
from dovetail_operator.watchers.placeholders import PlaceholderKeeper
from tests.background import eventually, running
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import NOW, at, make_job, make_state

LIST = "GET /api/v1/pods"
PODS = "/api/v1/namespaces/team/pods"
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


def request(*, workers: int = 1, **more: Any) -> dict[str, Any]:
    return {"pool": "v100", "nodes": 1, "workers": workers, "requestedTime": at(-10), **more}


def job_with(provisioning: dict[str, Any] | None = None, **spec: Any) -> GPUJob:
    asked = provisioning or request()
    return make_job(**{"gpu": 2, **spec}, status={"number": 1, "phase": "Queued", "provisioning": asked})


def made_for(job: GPUJob, *, pool: GrowingPool = POOL, besides: tuple[str, ...] = (), **ask: Any) -> list[Any]:
    wanted = replace(ask_of_job(job, ranking=DEFAULT_RANKING), **ask)
    return list(placeholders_of(job, ask=wanted, pool=pool, spec=template_spec(job), besides=besides).values())


def page(*items: dict[str, Any]) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "5"}, "items": list(items)})


def stored(manifest: dict[str, Any], *, marked: bool = False, version: int = 3) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}] if marked else []
    meta = {**manifest["metadata"], "uid": f"uid-{manifest['metadata']['name']}", "resourceVersion": str(version)}
    return {**manifest, "metadata": meta, "status": {"phase": "Pending", "conditions": conditions}}


class Rig:
    """A keeper of placeholders over a state with one job."""

    def __init__(self, api: Api, client: Client) -> None:
        self.api = api
        self.state: State = make_state(growing=GrowingRules(pools=(POOL,)), a=4)
        self.events: asyncio.Queue[Announcement] = asyncio.Queue()
        self.keeper = PlaceholderKeeper(
            client,
            state=self.state,
            post=self.events.put_nowait,
            now=lambda: NOW,
            rng=random.Random(7),
            backoff=Backoff(first_seconds=0.001, longest_seconds=0.001),
        )


@pytest.fixture
def rig(api: Api, client: Client) -> Rig:
    return Rig(api, client)


def test_a_placeholder_asks_for_what_a_worker_needs_and_no_scheduler_takes_it() -> None:
    (made,) = made_for(job_with(), cpu_milli=500, memory_mib=1024)
    assert made["spec"]["schedulerName"] == "dovetail-placeholder"
    assert made["spec"]["priorityClassName"] == "dovetail-placeholder"
    assert "nodeName" not in made["spec"]
    assert made["spec"]["nodeSelector"] == {"pool": "v100"}
    (container,) = made["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "500m", "memory": "1024Mi", "dovetail.dev/gpu-milli": "2000"},
        "limits": {"dovetail.dev/gpu-milli": "2000"},
    }
    assert container["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("GPUJob", "x", "uid-x")
    assert made["metadata"]["labels"] == {"dovetail.dev/placeholder": "uid-x"}


def test_a_placeholder_for_a_vendors_pool_asks_for_its_resource() -> None:
    (made,) = made_for(job_with(), pool=replace(POOL, resource="nvidia.com/gpu"), resource="nvidia.com/gpu")
    (container,) = made["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert "env" not in container, "the plugin says what the container sees"


def test_there_is_one_placeholder_for_each_worker_that_needs_a_new_node() -> None:
    names = [each["metadata"]["name"] for each in made_for(job_with(request(workers=3), workers=5))]
    assert len(set(names)) == 3
    assert all(len(name) <= 63 and name.startswith("x-placeholder-") for name in names)


def test_a_request_that_was_given_up_has_no_placeholders() -> None:
    assert made_for(job_with(request(retryTime=at(600)))) == []


def test_another_request_has_placeholders_of_other_names() -> None:
    (first,), (second,) = made_for(job_with()), made_for(job_with(request(requestedTime=at(0))))
    assert first["metadata"]["name"] != second["metadata"]["name"]


def test_a_placeholder_keeps_the_constraints_of_the_job() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    spec = {
        "containers": [{"name": "main", "image": "train:1"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": affinity,
    }
    pool = replace(POOL, taints=(Taint(key="gpu", effect="NoSchedule"),))
    (made,) = made_for(job_with(template={"spec": spec}), pool=pool, besides=("b", "a"))
    assert made["spec"]["nodeSelector"] == {"disk": "ssd", "pool": "v100"}
    assert made["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert made["spec"]["containers"][0]["image"] == "train:1"
    required = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    other_hosts = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["a", "b"]}
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [*term["matchExpressions"], other_hosts]}]}


def test_workers_that_need_a_node_each_have_placeholders_that_do_too() -> None:
    (made, _) = made_for(job_with(request(workers=2), workers=2), apart=True)
    (term,) = made["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"] == {"matchLabels": {"dovetail.dev/placeholder": "uid-x"}}


async def test_a_request_gets_its_placeholders_and_autoscalers_see_them(rig: Rig, api: Api) -> None:
    job = job_with(request(workers=2), workers=2)
    names = [each["metadata"]["name"] for each in made_for(job)]
    api.answer(LIST, page())
    api.answer(f"POST {PODS}", *(Answer(body=stored(each), status=201) for each in made_for(job)))
    for name in names:
        api.answer(f"PATCH {PODS}/{name}/status", Answer(body={"metadata": {"name": name}}))
    rig.state.store.job_changed(job)
    async with running(rig.keeper.run()):
        await api.until(f"PATCH {PODS}/{names[-1]}/status", count=1)
    assert [seen.body["metadata"]["name"] for seen in api.of(f"POST {PODS}")] == names
    (condition,) = api.of(f"PATCH {PODS}/{names[0]}/status")[0].body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")


async def test_a_new_operator_finds_the_placeholders_and_marks_those_that_are_not(rig: Rig, api: Api) -> None:
    job = job_with(request(workers=2), workers=2)
    first, second = made_for(job)
    name = second["metadata"]["name"]
    api.answer(LIST, page(stored(first, marked=True), stored(second)))
    api.answer(f"PATCH {PODS}/{name}/status", Answer(body={"metadata": {"name": name}}))
    rig.state.store.job_changed(job)
    async with running(rig.keeper.run()):
        await api.until(f"PATCH {PODS}/{name}/status", count=1)
    assert api.of(f"POST {PODS}") == []


@pytest.mark.parametrize(
    "status", [{"phase": "Starting"}, {"phase": "Queued", "provisioning": request(retryTime=at(9))}]
)
async def test_the_placeholders_go_at_the_start_and_at_giving_up(rig: Rig, api: Api, status: dict[str, Any]) -> None:
    (old,) = made_for(job_with())
    name = old["metadata"]["name"]
    api.answer(LIST, page(stored(old, marked=True)))
    api.answer(f"DELETE {PODS}/{name}", Answer(body={}))
    rig.state.store.job_changed(make_job(gpu=2, status={"number": 1, **status}))
    async with running(rig.keeper.run()):
        await api.until(f"DELETE {PODS}/{name}", count=1)
    (seen,) = api.of(f"DELETE {PODS}/{name}")
    assert seen.body["preconditions"] == {"uid": f"uid-{name}"}


async def test_a_placeholder_of_an_earlier_job_of_the_name_goes(rig: Rig, api: Api) -> None:
    earlier = make_job(gpu=2, meta={"uid": "uid-earlier"}, status={"number": 1, "provisioning": request()})
    (old,) = made_for(earlier)
    name = old["metadata"]["name"]
    api.answer(LIST, page(stored(old, marked=True)))
    api.answer(f"DELETE {PODS}/{name}", Answer(body={}))
    rig.state.store.job_changed(make_job(gpu=2, status={"number": 1}))
    async with running(rig.keeper.run()):
        await api.until(f"DELETE {PODS}/{name}", count=1)


async def test_a_refused_placeholder_is_announced_once(rig: Rig, api: Api) -> None:
    api.answer(LIST, page())
    api.answer(f"POST {PODS}", refusal(403, message="pods is forbidden: exceeded quota: team"))
    job = job_with()
    rig.state.store.job_changed(job)
    async with running(rig.keeper.run()):
        await eventually(lambda: not rig.events.empty())
    event = rig.events.get_nowait()
    assert (event.severity, event.reason) == ("Warning", "Provisioning")
    assert event.message == "The API server refuses the placeholder pod: pods is forbidden: exceeded quota: team"


async def test_what_the_api_server_cannot_take_now_is_tried_again(rig: Rig, api: Api) -> None:
    job = job_with()
    (made,) = made_for(job)
    name = made["metadata"]["name"]
    api.answer(LIST, page())
    api.answer(f"POST {PODS}", *[refusal(503)] * 3, Answer(body=stored(made), status=201))
    api.answer(f"PATCH {PODS}/{name}/status", Answer(body={"metadata": {"name": name}}))
    rig.state.store.job_changed(job)
    async with running(rig.keeper.run()):
        await api.until(f"PATCH {PODS}/{name}/status", count=1)


async def test_a_pool_that_the_configuration_no_longer_has_gets_no_placeholders(rig: Rig, api: Api) -> None:
    job = job_with()
    (old,) = made_for(job)
    name = old["metadata"]["name"]
    rig.state.growing.configure(GrowingRules())
    api.answer(LIST, page(stored(old, marked=True)))
    api.answer(f"DELETE {PODS}/{name}", Answer(body={}))
    rig.state.store.job_changed(job)
    async with running(rig.keeper.run()):
        await api.until(f"DELETE {PODS}/{name}", count=1)


def test_a_placeholder_asks_dovetail_for_nothing() -> None:
    (made,) = made_for(job_with())
    pod = msgspec.convert(stored(made), Pod)
    assert pod.spec.scheduler_name == "dovetail-placeholder"
    assert ask_of_pod(pod, ranking=DEFAULT_RANKING) is None

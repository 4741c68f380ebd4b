"""The batch Jobs of placeholder pods follow the requests of the statuses, on a scripted API server."""

import asyncio
import json
import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Job, Node, Pod, Taint
from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.kube.client import Client
from dovetail.kube.retry import Backoff
from dovetail.pods.demand import ask_of_job, ask_of_pod, template_spec
from dovetail.queue.growing.pools import GrowingPool, GrowingRules
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.manifests.placeholder import placeholder_job
from dovetail_operator.state.state import State
from dovetail_operator.watchers.node_requests import node_request_of
from dovetail_operator.watchers.placeholders import PlaceholderKeeper
from tests.background import eventually, running
from tests.core.kube.api import Answer, Api, Seen, Stream, refusal
from tests.operator_.builders import NOW, at, make_job, make_state

LIST = "GET /apis/batch/v1/jobs"
LIST_PODS = "GET /api/v1/pods"
JOBS = "/apis/batch/v1/namespaces/team/jobs"
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


def job_with(
    provisioning: dict[str, Any] | None = None, *, name: str = "x", meta: dict[str, Any] | None = None, **spec: Any
) -> GPUJob:
    asked = provisioning or request()
    return make_job(
        name, meta=meta, **{"gpu": 2, **spec}, status={"number": 1, "phase": "Queued", "provisioning": asked}
    )


def job_for(job: GPUJob, *, pool: GrowingPool = POOL, besides: tuple[str, ...] = (), **ask: Any) -> Any:
    """The batch Job of the placeholders of a GPUJob."""
    wanted = replace(ask_of_job(job, ranking=DEFAULT_RANKING), **ask)
    return placeholder_job(job, ask=wanted, pool=pool, spec=template_spec(job), besides=besides)


def pod_for(job: GPUJob, **more: Any) -> Any:
    """A placeholder, as the Job controller makes it."""
    made = job_for(job, **more)
    template = made["spec"]["template"]
    name = f"{made['metadata']['name']}-abcde"
    return {"metadata": {**template["metadata"], "name": name, "namespace": "team"}, "spec": template["spec"]}


def page(*items: dict[str, Any]) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "5"}, "items": list(items)})


def stored(manifest: dict[str, Any], *, marked: bool = False, version: int = 3) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}] if marked else []
    meta = {**manifest["metadata"], "uid": f"uid-{manifest['metadata']['name']}", "resourceVersion": str(version)}
    return {**manifest, "metadata": meta, "status": {"conditions": conditions}}


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
    made = pod_for(job_with(), cpu_milli=500, memory_mib=1024)
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
    assert made["metadata"]["labels"] == {"dovetail.dev/placeholder": "uid-x"}


def test_a_placeholder_for_a_vendors_pool_asks_for_its_resource() -> None:
    made = pod_for(job_with(), pool=replace(POOL, resource="nvidia.com/gpu"), resource="nvidia.com/gpu")
    (container,) = made["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert "env" not in container, "the plugin says what the container sees"


def test_there_is_one_placeholder_for_each_worker_that_needs_a_new_node() -> None:
    made = job_for(job_with(request(workers=3), workers=5))
    assert made["spec"]["parallelism"] == 3
    assert made["metadata"]["name"].startswith("x-placeholder-")
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("GPUJob", "x", "uid-x")


def test_the_pods_of_a_long_name_have_host_names() -> None:
    made = job_for(job_with(name="x" * 63))
    assert len(f"{made['metadata']['name']}-abcde") <= 63


def test_a_request_that_was_given_up_has_no_placeholders() -> None:
    assert job_for(job_with(request(retryTime=at(600)))) is None


def test_another_request_has_placeholders_of_other_names() -> None:
    first, second = job_for(job_with()), job_for(job_with(request(requestedTime=at(0))))
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
    made = pod_for(job_with(template={"spec": spec}), pool=pool, besides=("b", "a"))
    assert made["spec"]["nodeSelector"] == {"disk": "ssd", "pool": "v100"}
    assert [each["key"] for each in made["spec"]["tolerations"]] == ["gpu", "nvidia.com/gpu"]
    assert made["spec"]["containers"][0]["image"] == "train:1"
    required = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    other_hosts = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["a", "b"]}
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [*term["matchExpressions"], other_hosts]}]}


def test_workers_that_need_a_node_each_have_placeholders_that_do_too() -> None:
    made = pod_for(job_with(request(workers=2), workers=2), apart=True)
    (term,) = made["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"] == {"matchLabels": {"dovetail.dev/placeholder": "uid-x"}}


def test_a_placeholder_asks_dovetail_for_nothing() -> None:
    pod = msgspec.convert(stored(pod_for(job_with())), Pod)
    assert pod.spec.scheduler_name == "dovetail-placeholder"
    assert ask_of_pod(pod, ranking=DEFAULT_RANKING) is None


async def test_a_request_gets_its_placeholders(rig: Rig, api: Api) -> None:
    job = job_with(request(workers=2), workers=2)
    api.answer(LIST, page())
    api.answer(LIST_PODS, page())
    api.answer(f"POST {JOBS}", Answer(body=stored(job_for(job)), status=201))
    rig.state.store.job_changed(job)
    async with running(rig.keeper.run()):
        await api.until(f"POST {JOBS}", count=1)
    assert api.of(f"POST {JOBS}")[0].body == job_for(job)
    assert api.of(LIST)[0].query["labelSelector"] == "dovetail.dev/placeholder"


async def test_autoscalers_see_placeholders_and_no_other_pod_of_the_label_is_touched(rig: Rig, api: Api) -> None:
    job = job_with()
    ours = pod_for(job)
    name = ours["metadata"]["name"]
    others = {"metadata": {"name": "other", "namespace": "team"}, "spec": {"schedulerName": "default-scheduler"}}
    done = {**ours, "metadata": {**ours["metadata"], "name": "done"}}
    api.answer(LIST, page(stored(job_for(job))))
    api.answer(LIST_PODS, page(stored(others), stored(done, marked=True), stored(ours)))
    api.answer(f"PATCH {PODS}/{name}/status", Answer(body={"metadata": {"name": name}}))
    rig.state.store.job_changed(job)
    async with running(rig.keeper.run()):
        await api.until(f"PATCH {PODS}/{name}/status", count=1)
    (condition,) = api.of(f"PATCH {PODS}/{name}/status")[0].body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")


async def test_a_request_that_grows_gets_more_placeholders(rig: Rig, api: Api) -> None:
    before = job_with(request(workers=1), workers=3)
    name = job_for(before)["metadata"]["name"]
    api.answer(LIST, page(stored(job_for(before))))
    api.answer(LIST_PODS, page())
    api.answer(f"PATCH {JOBS}/{name}", Answer(body=stored(job_for(before))))
    rig.state.store.job_changed(job_with(request(workers=3), workers=3))
    async with running(rig.keeper.run()):
        await api.until(f"PATCH {JOBS}/{name}", count=1)
    assert api.of(f"PATCH {JOBS}/{name}")[0].body["spec"] == {"parallelism": 3}


def node_of(pool: GrowingPool, *, name: str, created: float) -> Node:
    labels = {**pool.labels, "kubernetes.io/hostname": f"host-{name}"}
    meta = {"name": name, "labels": labels, "creationTimestamp": at(created)}
    return msgspec.convert({"metadata": meta}, Node)


def test_a_request_is_for_nodes_beside_those_that_were_there_before_it() -> None:
    """By their host names; a node that came since is one that was requested."""
    state = make_state(growing=GrowingRules(pools=(POOL,)))
    for name, created in (("old", -60), ("new", -5)):
        state.store.view.node_changed(node_of(POOL, name=name, created=created))
    state.store.view.node_changed(node_of(replace(POOL, labels={"pool": "other"}), name="other", created=-60))
    wanted = node_request_of(job_with(), state=state)
    assert wanted is not None
    assert (wanted.pool, list(wanted.besides), wanted.ask.gpu) == (
        POOL,
        ["host-old"],
        ask_of_job(job_with(), ranking=DEFAULT_RANKING).gpu,
    )


@pytest.mark.parametrize(
    ("resource", "found"), [("", ""), ("nvidia.com/gpu", "nvidia.com/gpu"), ("example.com/other", None)]
)
def test_workers_ask_a_pool_for_what_its_nodes_have(resource: str, found: str | None) -> None:
    """A vendor's resource where a vendor's plugin serves them; a pool that has neither gets no request."""
    state = make_state(growing=GrowingRules(pools=(replace(POOL, resource=resource),)))
    wanted = node_request_of(job_with(), state=state)
    assert (None if wanted is None else wanted.ask.resource) == found


@pytest.mark.parametrize(
    "job",
    [
        make_job(status={"phase": "Succeeded", "provisioning": request()}),
        job_with(meta={"deletionTimestamp": at(0)}),
        job_with(managedBy="example.org/other"),
        make_job(status={"phase": "Queued"}),
    ],
)
def test_a_job_that_is_over_goes_or_is_another_s_requests_nothing(job: GPUJob) -> None:
    assert node_request_of(job, state=make_state(growing=GrowingRules(pools=(POOL,)))) is None


async def test_an_object_of_an_earlier_job_is_deleted_though_it_has_the_right_name(rig: Rig, api: Api) -> None:
    made = stored(job_for(job_with()))
    made["metadata"]["ownerReferences"][0]["uid"] = "uid-earlier"
    path = f"DELETE {JOBS}/{made['metadata']['name']}"
    api.answer(path, Answer(body={}))
    rig.state.store.job_changed(job_with())
    rig.keeper._on_object("ADDED", msgspec.convert(made, Job))
    await rig.keeper._keep("team/x")
    assert [seen.body["preconditions"] for seen in api.of(path)] == [{"uid": made["metadata"]["uid"]}]


@pytest.mark.parametrize(("there", "wanted"), [(1, 3), (3, 1), (2, 2)])
async def test_there_are_as_many_placeholders_as_workers_need_nodes_now(
    rig: Rig, api: Api, there: int, wanted: int
) -> None:
    made = stored(job_for(job_with(request(workers=there), workers=3)))
    name, uid = made["metadata"]["name"], made["metadata"]["uid"]
    api.answer(f"PATCH {JOBS}/{name}", Answer(body=made))
    rig.state.store.job_changed(job_with(request(workers=wanted), workers=3))
    rig.keeper._on_object("ADDED", msgspec.convert(made, Job))
    await rig.keeper._keep("team/x")
    patches = [seen.body for seen in api.of(f"PATCH {JOBS}/{name}")]
    assert patches == [{"metadata": {"uid": uid}, "spec": {"parallelism": wanted}}] * (there != wanted)


async def test_a_request_that_is_withdrawn_or_made_anew_is_followed_while_the_operator_runs(rig: Rig, api: Api) -> None:
    """The status says so, and nothing else happens to the placeholders."""
    first, second = stored(job_for(job_with())), stored(job_for(job_with(request(requestedTime=at(0)))))
    api.answer(LIST, page(first))
    api.answer(LIST_PODS, page())
    gone = f"DELETE {JOBS}/{first['metadata']['name']}"
    api.answer(gone, Answer(body={}))
    api.answer(f"POST {JOBS}", Answer(body=second, status=201))
    rig.state.store.job_changed(job_with())
    async with running(rig.keeper.run()):
        await eventually(lambda: bool(rig.keeper._by_job) and not rig.keeper._queue.load)
        assert not api.of(gone)
        rig.state.store.job_changed(make_job(gpu=2, status={"number": 1}, meta={"resourceVersion": "11"}))
        await api.until(gone, count=1)
        rig.keeper._on_object("DELETED", msgspec.convert(first, Job))
        assert rig.keeper._by_job == {}
        again = job_with(request(requestedTime=at(0)))
        meta = msgspec.structs.replace(again.metadata, resource_version="12")
        rig.state.store.job_changed(msgspec.structs.replace(again, metadata=meta))
        await api.until(f"POST {JOBS}", count=1)


async def test_placeholders_that_someone_deletes_come_back(rig: Rig, api: Api) -> None:
    made = stored(job_for(job_with()))
    api.answer(LIST, page(made))
    gone = {**made, "metadata": {**made["metadata"], "resourceVersion": "6"}}
    line = json.dumps({"type": "DELETED", "object": gone}).encode() + b"\n"
    api.answer("WATCH /apis/batch/v1/jobs", Stream(chunks=[line]))
    api.answer(LIST_PODS, page())
    api.answer(f"POST {JOBS}", Answer(body=made, status=201))
    rig.state.store.job_changed(job_with())
    async with running(rig.keeper.run()):
        await api.until(f"POST {JOBS}", count=1)


async def test_a_refusal_is_told_again_once_it_was_over_or_of_the_next_job_of_the_name(rig: Rig, api: Api) -> None:
    refused = refusal(403, message="exceeded quota: team")
    made = Answer(body=stored(job_for(job_with())), status=201)
    api.answer(f"POST {JOBS}", refused, refused, made, refused, refused)
    rig.state.store.job_changed(job_with())
    for told in (1, 1, 1, 2):
        await rig.keeper._keep("team/x")
        assert rig.events.qsize() == told
    rig.state.store.job_deleted("team/x", uid="uid-x")
    rig.state.store.job_changed(job_with(meta={"uid": "uid-next", "resourceVersion": "12"}))
    await rig.keeper._keep("team/x")
    assert rig.events.qsize() == 3


async def test_objects_of_one_namespace_are_not_those_of_a_job_of_the_same_name_in_another(rig: Rig, api: Api) -> None:
    theirs = stored(job_for(job_with(meta={"namespace": "lab", "uid": "uid-theirs"})))
    theirs["metadata"] |= {"namespace": "lab"}
    api.answer(f"POST {JOBS}", Answer(body=stored(job_for(job_with())), status=201))
    rig.state.store.job_changed(job_with())
    rig.keeper._on_object("ADDED", msgspec.convert(theirs, Job))
    await rig.keeper._keep("team/x")
    assert [f"{seen.method} {seen.path}" for seen in api.seen] == [f"POST {JOBS}"]


@pytest.mark.parametrize("answer", [refusal(409), refusal(404)])
async def test_a_placeholder_is_marked_once_as_that_very_pod_and_not_while_it_goes(
    rig: Rig, api: Api, answer: Answer
) -> None:
    ours = stored(pod_for(job_with()))
    name, uid = ours["metadata"]["name"], ours["metadata"]["uid"]
    path = f"PATCH {PODS}/{name}/status"
    api.answer(path, answer)
    pods: Any = rig.keeper._pods._store
    pods[f"team/{name}"] = msgspec.convert(ours, Pod)
    await rig.keeper._mark(f"team/{name}")
    assert [seen.body["metadata"] for seen in api.of(path)] == [{"uid": uid}]
    going = {**ours, "metadata": {**ours["metadata"], "deletionTimestamp": at(0)}}
    pods[f"team/{name}"] = msgspec.convert(going, Pod)
    await rig.keeper._mark(f"team/{name}")
    assert len(api.of(path)) == 1


@pytest.mark.parametrize(
    "status", [{"phase": "Starting"}, {"phase": "Queued", "provisioning": request(retryTime=at(9))}]
)
async def test_the_placeholders_go_at_the_start_and_at_giving_up(rig: Rig, api: Api, status: dict[str, Any]) -> None:
    seen = await deleted(rig, api, old=job_with(), now=make_job(gpu=2, status={"number": 1, **status}))
    assert seen.body["preconditions"] == {"uid": f"uid-{job_for(job_with())['metadata']['name']}"}


async def test_a_placeholder_of_an_earlier_job_of_the_name_goes(rig: Rig, api: Api) -> None:
    earlier = make_job(gpu=2, meta={"uid": "uid-earlier"}, status={"number": 1, "provisioning": request()})
    await deleted(rig, api, old=earlier, now=make_job(gpu=2, status={"number": 1}))


async def test_a_pool_that_the_configuration_no_longer_has_gets_no_placeholders(rig: Rig, api: Api) -> None:
    rig.state.growing.configure(GrowingRules())
    await deleted(rig, api, old=job_with(), now=job_with())


async def test_a_pool_that_now_uses_provisioning_requests_gets_no_placeholders(rig: Rig, api: Api) -> None:
    pool = replace(POOL, provisioning_class="check-capacity.autoscaling.x-k8s.io")
    rig.state.growing.configure(GrowingRules(pools=(pool,)))
    await deleted(rig, api, old=job_with(), now=job_with())


async def deleted(rig: Rig, api: Api, *, old: GPUJob, now: GPUJob) -> Seen:
    """The request that deletes the placeholders of `old` once the operator knows the job as it is now."""
    manifest = job_for(old)
    request_line = f"DELETE {JOBS}/{manifest['metadata']['name']}"
    api.answer(LIST, page(stored(manifest)))
    api.answer(LIST_PODS, page())
    api.answer(request_line, Answer(body={}))
    rig.state.store.job_changed(now)
    async with running(rig.keeper.run()):
        await api.until(request_line, count=1)
    (seen,) = api.of(request_line)
    return seen


async def test_the_jobs_own_batch_job_survives_an_api_server_that_ignores_selectors(rig: Rig, api: Api) -> None:
    own = stored(job_for(job_with()))
    own["metadata"] |= {"name": "x", "labels": {"dovetail.dev/job": "x"}}
    api.answer(LIST, page(own))
    api.answer(LIST_PODS, page())
    api.answer(f"POST {JOBS}", Answer(body=stored(job_for(job_with())), status=201))
    rig.state.store.job_changed(job_with())
    async with running(rig.keeper.run()):
        await api.until(f"POST {JOBS}", count=1)
    assert not [seen for seen in api.seen if seen.method == "DELETE"]


async def test_refused_placeholders_are_announced_once_and_tried_later(rig: Rig, api: Api) -> None:
    api.answer(LIST, page())
    api.answer(LIST_PODS, page())
    api.answer(f"POST {JOBS}", refusal(403, message="jobs is forbidden: exceeded quota: team"))
    rig.state.store.job_changed(job_with())
    async with running(rig.keeper.run()):
        await eventually(lambda: not rig.events.empty())
        await eventually(lambda: bool(rig.keeper._queue._timers))
    event = rig.events.get_nowait()
    assert (event.severity, event.reason) == ("Warning", "Provisioning")
    assert event.message == "The API server refuses the Job of placeholders: jobs is forbidden: exceeded quota: team"


async def test_refused_placeholders_are_tried_until_they_are_made(
    rig: Rig, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail_operator.watchers.node_requests._REFUSED_SECONDS", 0.0)
    job, refused = job_with(), refusal(403, message="jobs is forbidden: exceeded quota: team")
    api.answer(LIST, page())
    api.answer(LIST_PODS, page())
    api.answer(f"POST {JOBS}", *[refused] * 3, Answer(body=stored(job_for(job)), status=201))
    rig.state.store.job_changed(job)
    async with running(rig.keeper.run()):
        await api.until(f"POST {JOBS}", count=4)


async def test_what_the_api_server_cannot_take_now_is_tried_again(rig: Rig, api: Api) -> None:
    job = job_with()
    api.answer(LIST, page())
    api.answer(LIST_PODS, page())
    api.answer(f"POST {JOBS}", *[refusal(503)] * 3, Answer(body=stored(job_for(job)), status=201))
    rig.state.store.job_changed(job)
    async with running(rig.keeper.run()):
        await api.until(f"POST {JOBS}", count=4)

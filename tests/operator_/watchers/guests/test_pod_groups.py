"""Groups of plain pods on a scripted API server: records, gates, evictions, and what is said about them."""

import msgspec
import pytest
from msgspec.structs import replace

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, GPUJobStatus, job_of
from dovetail.api.meta import EventType, ObjectMeta, OwnerReference
from dovetail.jobs.guests.kind import Guest
from dovetail.jobs.guests.pod_group import POD_GROUPS, PodGroup, group_of
from dovetail.jobs.guests.record import record_of
from dovetail.kube.client import Client
from dovetail.kube.errors import TooManyRequests
from dovetail_operator.watchers.guests.pod_groups import PodGroupWatch, WarmNodes
from tests.core.jobs.guests.test_pod_group import pod
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.watchers.guests.test_keeper import PODS, RECORDS, Rig

KEY = "team/podgroup-pair"


class Groups(Rig):
    """A keeper with the watch of pods, whose events the test gives."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.watch = self.keeper._groups

    def seen(self, *pods: Guest, type_: str = "MODIFIED") -> None:
        """Events of pods, as both informers bring them."""
        for each in pods:
            self.pod(msgspec.convert(msgspec.to_builtins(each), Pod))
            self.watch.pod_event(type_, each)  # type: ignore[arg-type]
        self.watch.pass_on()


@pytest.fixture
def groups(client: Client) -> Groups:
    return Groups(client)


def record(*pods: Guest) -> GPUJob:
    """The record of a group as the API server has it."""
    found = group_of(pods)
    assert found is not None
    made = record_of(found, kind=POD_GROUPS)
    meta = {**made["metadata"], "uid": "uid-record", "resourceVersion": "5", "generation": 1}
    plan = {"generation": 1, "nodes": [{"name": "a", "workers": 2}], "worker": {"request": "1"}}
    return job_of({**made, "metadata": meta, "status": {"placement": plan, "plans": 1}})


async def test_a_complete_group_gets_its_record(groups: Groups, api: Api) -> None:
    pods = (pod("a-0"), pod("a-1"))
    api.answer(f"POST {RECORDS}", Answer(body=values_of(record(*pods)), status=201))
    groups.seen(*pods)
    await groups.keep(KEY)
    assert api.of(f"POST {RECORDS}")[0].body["spec"]["workers"] == 2


def replica(name: str, *, of: str = "serve", workload: str = "Inference", node: str = "", version: str = "aa") -> Guest:
    """A pod of its own of a Deployment, with that template; one with a node has started there."""
    made = pod(name, seat="job" if node else "", **{names.WORKLOAD: workload})
    meta = made.metadata
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=f"{of}-{version}", uid="u", controller=True)
    labels = {names.LABEL_QUEUE: "default", names.RUN: f"pod-{name}", "pod-template-hash": version}
    said = {key: text for key, text in meta.annotations.items() if key != names.POD_GROUP_SIZE}
    started = {"startTime": "2026-01-01T00:00:00Z", "phase": "Running"} if node else {}
    return replace(
        made,
        metadata=replace(meta, labels=labels, annotations=said, owner_references=[owner]),
        spec={**made.spec, **({"nodeName": node} if node else {})},
        status={**made.status, **started},
    )


@pytest.mark.parametrize(
    ("next_one", "warm"),
    [
        (replica("w-9"), "n1,n2"),
        (replica("w-9", version="bb"), "n1,n2"),
        (replica("w-9", of="other"), None),
        (replica("w-9", workload="Training"), None),
    ],
)
async def test_the_next_replica_of_a_service_is_planned_where_the_others_ran(
    groups: Groups, api: Api, next_one: Guest, warm: str | None
) -> None:
    first, second = replica("w-1", node="n1"), replica("w-2", node="n2")
    groups.seen(first, second)
    groups.seen(first, type_="DELETED")
    # A pod that is bound and has not started brought nothing to its node.
    groups.seen(replace(replica("w-3", node="n3"), status={"phase": "Pending"}))
    api.answer(f"POST {RECORDS}", Answer(body=values_of(record(pod("a-0"), pod("a-1"))), status=201))
    groups.seen(next_one)
    await groups.keep("team/pod-w-9")
    (made,) = api.of(f"POST {RECORDS}")
    assert made.body["spec"]["template"].get("metadata", {}).get("annotations", {}).get(names.WARM_NODES) == warm


async def test_a_record_keeps_its_warm_nodes_while_it_follows_its_group(groups: Groups, api: Api) -> None:
    groups.seen(replica("w-1", node="n1"), replica("w-9"))
    api.answer(f"POST {RECORDS}", Answer(body=values_of(record(pod("a-0"), pod("a-1"))), status=201))
    await groups.keep("team/pod-w-9")
    (made,) = api.of(f"POST {RECORDS}")
    meta = {**made.body["metadata"], "uid": "uid-record", "resourceVersion": "5", "generation": 1}
    groups.state.store.job_changed(job_of({**made.body, "metadata": meta}))
    groups.seen(replica("w-2", node="n2"), replica("w-9"))
    await groups.keep("team/pod-w-9")
    assert [seen.method for seen in api.seen if seen.method != "GET"] == ["POST"]


def test_pods_without_inference_leave_no_warm_nodes() -> None:
    warm = WarmNodes()
    warm.saw(replica("w-1", workload="Training", node="n1"))
    assert warm.of(replica("w-2").metadata) == []


def test_the_services_and_nodes_that_are_remembered_are_few() -> None:
    warm = WarmNodes()
    for at in range(10):
        warm.saw(replica("w-1", node=f"n{at}"))
    assert warm.of(replica("w-1").metadata) == [f"n{at}" for at in range(9, 1, -1)]
    for at in range(5000):
        warm.saw(replica("w-1", of=f"service-{at}", node="n1"))
    assert warm.of(replica("w-1").metadata) == []
    assert len(warm._nodes) == 4096


async def test_an_incomplete_group_is_told_after_a_moment(groups: Groups, api: Api) -> None:
    at = 100.0
    groups.keeper._clock = lambda: at
    groups.seen(pod("a-0"))
    await groups.keep(KEY)
    assert groups.said == []
    at = 121.0
    await groups.keep(KEY)
    (news,) = groups.said
    assert (news.about.name, news.of.kind, news.reason) == ("a-0", "Pod", "NotQueued")
    assert news.message.startswith("Is not queued: group pair has 1 of 2 pods: create the others")
    assert not api.seen


async def test_a_waiting_group_that_loses_a_pod_leaves_the_queue(groups: Groups, api: Api) -> None:
    pods = (pod("a-0"), pod("a-1"))
    groups.state.store.job_changed(record(*pods))
    groups.seen(*pods)
    groups.seen(pods[1], type_="DELETED")
    api.answer(f"DELETE {RECORDS}/podgroup-pair", Answer(body={}))
    await groups.keep(KEY)
    assert api.of(f"DELETE {RECORDS}/podgroup-pair")


async def test_letting_a_group_go_opens_all_gates_and_ending_it_evicts_its_pods(groups: Groups, api: Api) -> None:
    pods = (pod("a-0"), pod("a-1"))
    groups.state.store.job_changed(record(*pods))
    groups.seen(*pods)
    api.answer(f"GET {RECORDS}/podgroup-pair", Answer(body=values_of(record(*pods))))
    seated = []
    for index, each in enumerate(pods):
        after = pod(each.metadata.name, seat=f"uid-record/{index}")
        api.answer(f"PATCH {PODS}/{each.metadata.name}", Answer(body=msgspec.to_builtins(after)))
        seated.append(after)
    shown = await groups.keeper.hold(record(*pods), suspend=False)
    assert shown is not None
    assert not shown.spec.suspend
    seats = [api.of(f"PATCH {PODS}/{each.metadata.name}")[0].body["metadata"]["annotations"] for each in pods]
    assert [each[names.SEAT] for each in seats] == ["uid-record/0", "uid-record/1"]

    done = pod("a-0", seat="uid-record/0", phase="Succeeded")
    groups.seen(done, seated[1])
    api.answer(f"POST {PODS}/a-1/eviction", Answer(body={}, status=201))
    shown = await groups.keeper.hold(record(*pods), suspend=True)
    assert shown is not None
    assert (shown.spec.suspend, shown.metadata.resource_version) == (True, "8")
    assert api.of(f"POST {PODS}/a-1/eviction")[0].body["deleteOptions"] == {"preconditions": {"uid": "uid-a-1"}}
    assert not api.of(f"POST {PODS}/a-0/eviction"), "it has ended"


async def test_a_disruption_budget_keeps_a_group_running(groups: Groups, api: Api) -> None:
    pods = (pod("a-0", seat="uid-record/0", phase="Running"), pod("a-1", seat="uid-record/1", phase="Running"))
    groups.state.store.job_changed(record(*pods))
    groups.seen(*pods)
    api.answer(f"POST {PODS}/a-0/eviction", refusal(429))
    with pytest.raises(TooManyRequests):
        await groups.keeper.hold(record(*pods), suspend=True)
    assert not api.of(f"POST {PODS}/a-1/eviction")


async def test_a_replacement_owns_the_record_too(groups: Groups, api: Api) -> None:
    failed, runs = pod("a-0", seat="uid-record/0", phase="Failed"), pod("a-1", seat="uid-record/1", phase="Running")
    groups.state.store.job_changed(record(failed, runs))
    groups.seen(failed, runs, pod("a-2"))
    api.answer(f"PATCH {RECORDS}/podgroup-pair", Answer(body=values_of(record(failed, runs))))
    api.answer(f"PATCH {PODS}/a-2", Answer(body=msgspec.to_builtins(pod("a-2", seat="uid-record/0"))))
    await groups.keep(KEY)
    metadata = api.of(f"PATCH {RECORDS}/podgroup-pair")[0].body["metadata"]
    assert metadata["uid"] == "uid-record", "of that very record"
    assert [owner["name"] for owner in metadata["ownerReferences"]] == ["a-1", "a-2"]
    assert api.of(f"PATCH {PODS}/a-2")[0].body["metadata"]["annotations"][names.SEAT] == "uid-record/0"


async def test_a_surplus_pod_is_told_of_and_stays_gated(groups: Groups, api: Api) -> None:
    pods = (pod("a-0", seat="uid-record/0"), pod("a-1", seat="uid-record/1"))
    groups.state.store.job_changed(record(*pods))
    groups.seen(*pods, pod("a-2"))
    await groups.keep(KEY)
    await groups.keep(KEY)
    (news,) = groups.said
    assert news.message.startswith("GPUJob podgroup-pair goes on, but it has 3 pods")
    assert not api.seen


async def test_a_gated_pod_of_a_group_that_has_ended_is_told_of(groups: Groups, api: Api) -> None:
    pods = (pod("a-0"), pod("a-1"))
    ended = msgspec.structs.replace(record(*pods), status=GPUJobStatus(phase="Cancelled"))
    groups.state.store.job_changed(ended)
    groups.seen(*pods)
    await groups.keep(KEY)
    assert [news.message for news in groups.said] == [
        "GPUJob podgroup-pair has ended (Cancelled), and pod a-0 does not start: delete the pod, and create it again"
    ]
    assert not api.seen


async def test_the_pods_of_an_object_are_no_group(groups: Groups) -> None:
    other = pod("a-0")
    labels = {**other.metadata.labels, names.RUN: "of-a-job"}
    meta: ObjectMeta = msgspec.structs.replace(other.metadata, labels=labels)
    groups.seen(msgspec.structs.replace(other, metadata=meta))
    assert list(groups.keeper._guests) == []


async def test_a_group_whose_pods_have_another_request_than_the_record_waits_without_an_error(
    groups: Groups, api: Api
) -> None:
    planned, pods = (pod("a-0"), pod("a-1")), tuple(pod(name, **{names.REQUEST: "2"}) for name in ("a-0", "a-1"))
    groups.state.store.job_changed(record(*planned))
    groups.seen(*pods)
    api.answer(f"GET {RECORDS}/podgroup-pair", Answer(body=values_of(record(*planned))))
    assert await groups.keeper.hold(record(*planned), suspend=False) is None


def test_a_group_has_the_version_of_its_newest_pod_and_never_an_older_one(groups: Groups) -> None:
    versions: list[str] = []
    watch = PodGroupWatch(groups.keeper._client, on_event=lambda _, group, __: versions.append(version_of(group)))

    def pass_on(type_: EventType, name: str, version: str) -> None:
        found = pod(name)
        watch.pod_event(type_, replace(found, metadata=replace(found.metadata, resource_version=version)))

    pass_on("ADDED", "a-0", "12")
    pass_on("ADDED", "a-1", "9")
    watch.pass_on()
    pass_on("DELETED", "a-0", "15")
    watch.pass_on()
    pass_on("MODIFIED", "a-1", "13")
    watch.pass_on()
    assert versions == ["12", "15", "15"]


def version_of(found: Guest) -> str:
    return found.metadata.resource_version


def test_groups_of_one_name_in_two_namespaces_are_two_and_leave_nothing(groups: Groups) -> None:
    """The label with which pods say their group is theirs to write."""
    passed = list[tuple[str, str, int]]()
    watch = PodGroupWatch(
        groups.keeper._client,
        on_event=lambda type_, group, __: passed.append((type_, group.metadata.namespace, len(members(group)))),
    )

    def pass_on(type_: EventType, name: str, namespace: str) -> None:
        found = pod(name)
        meta = replace(found.metadata, namespace=namespace, uid=f"{namespace}-{name}", resource_version="12")
        watch.pod_event(type_, replace(found, metadata=meta))
        watch.pass_on()

    for namespace in ("team", "lab"):
        pass_on("ADDED", "a-0", namespace)
    pass_on("ADDED", "a-1", "team")
    assert passed == [("MODIFIED", "team", 1), ("MODIFIED", "lab", 1), ("MODIFIED", "team", 2)]
    passed.clear()
    for namespace, name in (("lab", "a-0"), ("team", "a-0"), ("team", "a-1")):
        pass_on("DELETED", name, namespace)
    assert [(type_, namespace) for type_, namespace, _ in passed] == [
        ("DELETED", "lab"), ("MODIFIED", "team"), ("DELETED", "team"),
    ]  # fmt: skip
    assert (watch._pods, watch._groups, watch._changed) == ({}, {}, {})


def members(found: Guest) -> list[str]:
    assert isinstance(found, PodGroup)
    return [each.name for each in found.members]

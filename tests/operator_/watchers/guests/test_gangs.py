"""Pods that a PodGroup of Kubernetes starts together, on a scripted API server."""

import msgspec
import pytest

from dovetail import names
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, job_of
from dovetail.jobs.guests.gangs import POD_GROUP_OBJECTS
from dovetail.jobs.guests.kind import Guest
from dovetail.jobs.guests.pod_group import group_of, kind_of_group
from dovetail.jobs.guests.record import record_of
from dovetail.kube.client import Client
from dovetail_operator.watchers.guests.pod_groups import PodGroupWatch
from tests.core.jobs.guests.test_gangs import gang, pod, pod_group
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.watchers.guests.test_keeper import PODS, RECORDS
from tests.operator_.watchers.guests.test_pod_groups import Groups

KEY = "team/schedulinggroup-train"
STATUS = "/apis/scheduling.k8s.io/v1beta1/namespaces/team/podgroups/train/status"
PLAN = {"generation": 1, "nodes": [{"name": "a", "workers": 2}], "worker": {"request": "1"}}


class GangRig(Groups):
    """A keeper with the watches of pods and of PodGroups, whose events the test gives."""

    def object(self, found: Guest, *, type_: str = "MODIFIED") -> None:
        """An event of a PodGroup."""
        # Pods that were seen before are passed on with it.
        self.watch.gangs.object_event(type_, found, kind=POD_GROUP_OBJECTS)  # type: ignore[arg-type]
        self.watch.pass_on()


@pytest.fixture
def gangs(client: Client) -> GangRig:
    made = GangRig(client)
    made.watch = PodGroupWatch(client, on_event=made.keeper._on_guest)
    return made


def record(*pods: Guest, message: str = "", planned: bool = True) -> GPUJob:
    """The record of the pods as the API server has it."""
    found = group_of(pods, gang=gang())
    assert found is not None
    made = record_of(found, kind=kind_of_group(found))
    meta = {**made["metadata"], "uid": "uid-record", "resourceVersion": "5", "generation": 1}
    status = {"placement": PLAN, "plans": 1} if planned else {"phase": "Queued", "message": message}
    return job_of({**made, "metadata": meta, "status": status})


async def test_pods_wait_once_their_object_says_how_many_there_are(gangs: GangRig, api: Api) -> None:
    pods = (pod("a-0"), pod("a-1"))
    gangs.seen(*pods)
    await gangs.keep(KEY)
    assert not api.seen
    api.answer(f"POST {RECORDS}", Answer(body=values_of(record(*pods)), status=201))
    gangs.object(pod_group())
    await gangs.keep(KEY)
    assert api.of(f"POST {RECORDS}")[0].body["spec"]["workers"] == 2


async def test_what_is_wrong_is_said_on_the_object(gangs: GangRig) -> None:
    gangs.keeper._clock = lambda: 100.0
    gangs.object(pod_group(least=3))
    gangs.seen(pod("a-0"))
    await gangs.keep(KEY)
    assert gangs.said == [], "the others may be about to be created"
    gangs.keeper._clock = lambda: 121.0
    await gangs.keep(KEY)
    (news,) = gangs.said
    assert (news.about.name, news.of.kind) == ("train", "PodGroup")
    assert news.message == "Is not queued: PodGroup train waits for its pods: 1 of 3"


async def test_a_level_that_is_not_configured_is_said(gangs: GangRig) -> None:
    topology = {"topology": [{"key": "example.com/row"}]}
    gangs.object(pod_group({"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": topology}))
    gangs.seen(pod("a-0"), pod("a-1"))
    await gangs.keep(KEY)
    assert "node label 'example.com/row', which is no level of the network here" in gangs.said[0].message


async def test_the_level_of_the_object_is_that_of_its_record(gangs: GangRig, api: Api) -> None:
    topology = {"topology": [{"key": "dovetail.dev/rack"}]}
    gangs.object(pod_group({"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": topology}))
    pods = (pod("a-0"), pod("a-1"))
    api.answer(f"POST {RECORDS}", Answer(body=values_of(record(*pods)), status=201))
    gangs.seen(*pods)
    await gangs.keep(KEY)
    assert api.of(f"POST {RECORDS}")[0].body["spec"]["topology"] == {"required": "rack"}


async def test_an_object_that_asks_for_more_while_its_pods_wait_takes_them_out_of_the_queue(
    gangs: GangRig, api: Api
) -> None:
    pods = (pod("a-0"), pod("a-1"))
    gangs.state.store.job_changed(record(*pods, planned=False))
    gangs.object(pod_group(least=3))
    gangs.seen(*pods)
    api.answer(f"DELETE {RECORDS}/schedulinggroup-train", Answer(body={}))
    await gangs.keep(KEY)
    assert api.of(f"DELETE {RECORDS}/schedulinggroup-train")


async def test_a_pod_beyond_those_that_start_together_waits_by_itself(gangs: GangRig, api: Api) -> None:
    seated = [pod(f"a-{index}", job="schedulinggroup-train", node="a") for index in range(2)]
    for index, each in enumerate(seated):
        each.metadata.annotations[names.SEAT] = f"uid-record/{index}"
    gangs.state.store.job_changed(record(*seated))
    api.answer(f"PATCH {STATUS}", Answer(body=msgspec.to_builtins(pod_group())))
    gangs.object(pod_group())
    gangs.seen(*seated, pod("a-2"))
    await gangs.keep(KEY)
    api.answer(f"POST {RECORDS}", Answer(body=values_of(record(*seated)), status=201))
    await gangs.keep("team/pod-a-2")
    (made,) = api.of(f"POST {RECORDS}")
    assert (made.body["metadata"]["name"], made.body["spec"]["workers"]) == ("pod-a-2", 1)
    assert not api.of(f"PATCH {PODS}/a-2"), "its gate stays closed"


async def test_gates_open_in_the_order_of_ranks(gangs: GangRig, api: Api) -> None:
    pods = (pod("a-10"), pod("a-2"))
    gangs.state.store.job_changed(record(*pods))
    gangs.object(pod_group())
    gangs.seen(*pods)
    api.answer(f"GET {RECORDS}/schedulinggroup-train", Answer(body=values_of(record(*pods))))
    for each in pods:
        api.answer(f"PATCH {PODS}/{each.metadata.name}", Answer(body=msgspec.to_builtins(each)))
    await gangs.keeper.hold(record(*pods), suspend=False)
    seats = {
        name: api.of(f"PATCH {PODS}/{name}")[0].body["metadata"]["annotations"][names.SEAT] for name in ("a-2", "a-10")
    }
    assert seats == {"a-2": "uid-record/0", "a-10": "uid-record/1"}


async def test_the_object_says_why_its_pods_wait_and_when_they_are_scheduled(gangs: GangRig, api: Api) -> None:
    pods = (pod("a-0"), pod("a-1"))
    gangs.state.store.job_changed(record(*pods, planned=False, message="Need 2 GPUs, only 1 available"))
    api.answer(f"PATCH {STATUS}", Answer(body=msgspec.to_builtins(pod_group())))
    gangs.object(pod_group())
    gangs.seen(*pods)
    await gangs.keep(KEY)
    (condition,) = api.of(f"PATCH {STATUS}")[0].body["status"]["conditions"]
    assert (condition["status"], condition["message"]) == ("False", "Need 2 GPUs, only 1 available")

    api.answer(f"PATCH {STATUS}", Answer(body=msgspec.to_builtins(pod_group())))
    seated = [pod(f"a-{index}", job="schedulinggroup-train", node="a") for index in range(2)]
    gangs.seen(*seated)
    await gangs.keep(KEY)
    (condition,) = api.of(f"PATCH {STATUS}")[1].body["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodGroupInitiallyScheduled", "True")


@pytest.mark.parametrize("answer", [404, 409])
async def test_an_object_that_has_gone_or_changed_is_told_nothing(gangs: GangRig, api: Api, answer: int) -> None:
    pods = (pod("a-0"), pod("a-1"))
    gangs.state.store.job_changed(record(*pods, planned=False, message="Need 2 GPUs"))
    api.answer(f"PATCH {STATUS}", refusal(answer))
    gangs.object(pod_group())
    gangs.seen(*pods)
    await gangs.keep(KEY)
    assert len(api.of(f"PATCH {STATUS}")) == 1

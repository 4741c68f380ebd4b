"""One extender acts: who does not hold the lease answers nothing, and who held it before binds nothing any more."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack

import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.cluster.view import ClusterView
from dovetail.kube.leader_election import WANTED_BY, LeaseLostError, Times
from dovetail_extender.bind.binder import Binder
from dovetail_extender.decide.filter_score import Decisions, Rules
from dovetail_extender.protocol import BindingArgs
from dovetail_extender.service import IDLE_SECONDS, Options
from tests.background import eventually
from tests.clock import Clock
from tests.core.engine.builders import make_ledger
from tests.extender.api_server import ApiServer
from tests.extender.bind.test_never_twice import InOffice, Truth
from tests.extender.builders import asking, binding, make_pod
from tests.extender.desk import NoGPUNodes, NoJobs
from tests.extender.harness import Face, watching

QUICK = Times(duration_seconds=1, renew_seconds=1, look_seconds=0.01)
PROMPT = Times(renew_seconds=0.5, look_seconds=0.01)
IMPATIENT = Options(bind_deadline_seconds=1)


async def test_another_extender_answers_nothing_while_the_first_holds_the_lease(api: ApiServer, face: Face) -> None:
    async with watching(api, identity="two") as other:
        await eventually(lambda: "held by one" in other.extender.obstacle())
        for verb, body in (("filter", asking(make_pod(), "a")), ("bind", binding(make_pod(), "a"))):
            status, text = await other.ask(verb, body)
            assert status == 503
            assert text == "not ready: the lease dovetail-extender is held by one\n"
        assert other.extender.ready()["lease"]() == "the lease is not ours now"
    assert face.extender.ready()["lease"]() is None


async def test_the_next_begins_at_once_when_the_first_takes_its_leave(api: ApiServer) -> None:
    pod = make_pod()
    api.put("pods", pod)
    async with watching(api, identity="one") as first:
        await first.ready()
    async with watching(api, identity="two") as second:
        await second.ready()
        assert await second.bind(pod, "a") == ""
    assert api.bindings[0]["metadata"]["annotations"][names.TERM] == "2"


async def test_after_a_crash_the_next_lets_binds_that_are_under_way_end_and_lists_then(api: ApiServer) -> None:
    api.leases["dovetail-extender"] = {
        "metadata": {"name": "dovetail-extender", "namespace": "dovetail-system", "resourceVersion": "1"},
        "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 7},
    }
    async with watching(api, identity="one", options=IMPATIENT) as after:
        await eventually(lambda: "may still be on their way" in after.extender.obstacle())
        api.put("pods", make_pod("late", "8", milli=8000, nodeName="a"))
        kinds = ["nodes", "gpunodes", "pods", "gpujobs", "gpuquotas", "poddisruptionbudgets", "resourceslices"]
        assert after.extender.watching.missing == kinds
        await after.ready()
        assert after.extender.watching.cached(namespace="default", name="late") is not None


async def test_an_extender_that_nobody_asks_makes_way_for_one_that_is_asked(api: ApiServer) -> None:
    """Beside each extender runs a kube-scheduler, and which of these leads is not for the extenders to say."""

    def notes() -> dict[str, str]:
        return dict(api.leases["dovetail-extender"]["metadata"].get("annotations", {}))

    async with AsyncExitStack() as of_first, AsyncExitStack() as of_second:
        first = await of_first.enter_async_context(watching(api, identity="one", times=PROMPT))
        await first.ready()
        second = await of_second.enter_async_context(watching(api, identity="two", times=PROMPT))
        await eventually(lambda: "held by one" in second.extender.obstacle())
        leaving = asyncio.create_task(first.extender.until_wanted_elsewhere())
        await first.filter(make_pod(), "a")
        assert (await second.ask("filter", asking(make_pod(), "a")))[0] == 503
        await eventually(lambda: notes() == {WANTED_BY: "two"})
        await asyncio.sleep(2 * PROMPT.renew_seconds)
        assert not leaving.done(), "it is asked as well"
        first.clock.now += IDLE_SECONDS
        await asyncio.wait_for(leaving, 60)
        await of_first.aclose()
        await second.ready()
        assert notes() == {}


async def test_an_extender_that_unsettled_binds_are_left_of_keeps_the_lease_to_its_end(api: ApiServer) -> None:
    api.put("pods", pod := make_pod())
    api.binding_status = 500
    async with watching(api, options=IMPATIENT) as face:
        await face.ready()
        assert "it is not known" in await face.bind(pod, "a")
    assert api.leases["dovetail-extender"]["spec"]["holderIdentity"] == "one"


async def test_a_bind_that_the_lease_does_not_cover_is_not_sent(api: ApiServer) -> None:
    api.put("pods", pod := make_pod())
    async with watching(api, options=Options(bind_deadline_seconds=4), times=QUICK) as face:
        await face.ready()
        assert await face.bind(pod, "a") == "the extender's lease does not cover the time that a bind may take"
        assert face.ledger.claims() == []
    assert api.bindings == []


async def test_who_was_deposed_answers_nothing_and_ends(api: ApiServer) -> None:
    api.put("pods", make_pod())
    with pytest.raises(ExceptionGroup) as lost:
        await is_deposed_and_asked_to_bind(api)
    assert lost.group_contains(LeaseLostError, match="held by two", depth=1)
    assert api.bindings == []


async def is_deposed_and_asked_to_bind(api: ApiServer) -> None:
    async with watching(api, options=IMPATIENT, times=QUICK) as old:
        await old.ready()
        api.leases["dovetail-extender"]["metadata"]["resourceVersion"] = "999"
        api.leases["dovetail-extender"]["spec"] |= {"holderIdentity": "two", "leaseTransitions": 2}
        await eventually(lambda: "held by two" in old.extender.obstacle())
        status, _ = await old.ask("bind", binding(make_pod(), "a"))
        assert status == 503


class Asleep(Truth):
    """The process is stopped while it reads the pod, and goes on when its time in office is over."""

    def __init__(self, office: InOffice) -> None:
        super().__init__()
        self.office = office
        self.written = 0

    async def read(self, *, namespace: str, name: str, deadline_seconds: float) -> Pod:
        self.office.remaining_seconds = 0.0
        return await super().read(namespace=namespace, name=name, deadline_seconds=deadline_seconds)

    async def bind(self, pod: Pod, *, node: str, annotations: Mapping[str, str], deadline_seconds: float) -> None:
        self.written += 1


async def test_a_holder_that_was_asleep_between_the_request_and_the_write_sends_nothing() -> None:
    office = InOffice()
    pods = Asleep(office)
    pods.put(make_pod())
    ledger = make_ledger(a=8)
    decisions = Decisions(view=ClusterView(ledger=ledger), rules=Rules(), clock=Clock())
    binder = Binder(
        ledger=ledger,
        pods=pods,
        jobs=NoJobs(),
        gpunodes=NoGPUNodes(),
        office=office,
        decisions=decisions,
        deadline_seconds=4,
        clock=Clock(),
    )
    args = BindingArgs(pod_name="p", pod_namespace="default", pod_uid="uid-p", node="a")
    assert "does not cover" in (await binder.bind(args)).error
    assert (pods.written, ledger.claims()) == (0, [])

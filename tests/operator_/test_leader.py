"""One operator acts: who stands by is ready and writes nothing, and who lost the lease ends."""

import asyncio

import pytest

from dovetail import names
from dovetail.api.resources import CONFIGMAPS
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership, NotLeaderError, Times
from dovetail_operator import leader
from tests.core.kube.api import Answer, Api, refusal

LEASE = "/apis/coordination.k8s.io/v1/namespaces/home/leases/dovetail-operator"
LEASES = LEASE.rsplit("/", maxsplit=1)[0]
# A request may take as long as it is until the next renewal; the script has each answer once.
QUICK = Times(duration_seconds=15, renew_seconds=2, look_seconds=0.01)


def held_by(holder: str, *, term: int = 1, version: int = 1) -> Answer:
    metadata = {"name": "dovetail-operator", "namespace": "home", "resourceVersion": str(version)}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 60, "leaseTransitions": term}
    return Answer(body={"metadata": metadata, "spec": spec})


def candidate(client: Client, *, identity: str = "one") -> Leadership:
    return Leadership(client, namespace="home", name=names.OPERATOR_LEASE, identity=identity, times=QUICK)


async def never() -> None:
    await asyncio.Event().wait()


def test_the_identity_is_the_pods(client: Client) -> None:
    office = leader.leadership(client, namespace="home", environ={"POD_NAME": "dovetail-operator-abc"})
    assert (office.identity, office.name) == ("dovetail-operator-abc", "dovetail-operator")


async def test_who_stands_by_is_ready_and_does_not_act(api: Api, client: Client) -> None:
    api.answer(f"GET {LEASE}", *[held_by("another")] * 50)
    office, stop, acted = candidate(client), asyncio.Event(), asyncio.Event()
    checks = leader.ready(office, acting={"pods": lambda: "pods are not listed yet"})
    assert checks["lease"]() == "the lease dovetail-operator has no holder yet"
    assert checks["pods"]() == "pods are not listed yet"

    async def run() -> None:
        acted.set()

    task = asyncio.create_task(leader.act(office, run=run, stop=stop))
    await api.until(f"GET {LEASE}", count=2)
    assert [check() for check in checks.values()] == [None, None]
    stop.set()
    await task
    assert not acted.is_set()


async def test_who_acts_is_ready_when_all_is_listed(api: Api, client: Client) -> None:
    api.answer(f"GET {LEASE}", refusal(404))
    api.answer(f"POST {LEASES}", held_by("one"))
    api.answer(f"PUT {LEASE}", *[held_by("one", version=version) for version in range(2, 200)])
    office, stop, acting = candidate(client), asyncio.Event(), asyncio.Event()

    async def run() -> None:
        acting.set()
        await never()

    task = asyncio.create_task(leader.act(office, run=run, stop=stop))
    await asyncio.wait_for(acting.wait(), 60)
    checks = leader.ready(office, acting={"pods": lambda: "pods are not listed yet"})
    assert (checks["lease"](), checks["pods"]()) == (None, "pods are not listed yet")
    stop.set()
    await task
    assert api.of(f"PUT {LEASE}")[-1].body["spec"]["holderIdentity"] == ""


async def test_who_lost_the_lease_ends_and_writes_nothing_more(api: Api) -> None:
    async with Client(Connection(server=api.url)) as lease_client:
        office, stop = candidate(lease_client), asyncio.Event()
        async with Client(Connection(server=api.url), guard=office.guard) as client:
            api.answer(f"GET {LEASE}", refusal(404), held_by("another", term=2))
            api.answer(f"POST {LEASES}", held_by("one"))
            api.answer(f"PUT {LEASE}", refusal(409))
            await asyncio.wait_for(leader.act(office, run=never, stop=stop), 60)
            assert stop.is_set()
            with pytest.raises(NotLeaderError, match="nothing is written while the lease dovetail-operator"):
                await client.create(CONFIGMAPS, body={"metadata": {"name": "x"}}, as_type=dict, namespace="home")
    assert not api.of("POST /api/v1/namespaces/home/configmaps")

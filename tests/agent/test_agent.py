"""One agent against an API server in memory, in virtual time: what it writes, when, and after which change."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.gpunode import GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.resources import GPUNODES, GPUNODETENANTS, NODES
from dovetail.cluster.node_tenants import tenant_of_pod
from dovetail.config.settings import Settings
from dovetail.kube.errors import ServerFault, Status
from dovetail_agent.agent import _in_loop
from dovetail_agent.devices.simulated.provider import SimulatedProvider, device_uuid
from dovetail_agent.feature.enforcement import with_enforcement
from dovetail_agent.feature.protocol import Feature, Seen
from dovetail_agent.report.publishing import Why
from tests import virtual_time
from tests.agent.builders import allocated, make_pod
from tests.agent.cluster import NODE, Cluster
from tests.faults import Effects, Killed, at_each_effect
from tests.virtual_time import clock

# What a pass writes at most, in order.
ALL = ["GPUNode", "GPUNode.status", "Node.status"]


def test_news_of_the_cards_after_the_end_is_no_error() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    _in_loop(loop, lambda: None)


async def test_news_from_another_thread_is_heard_in_the_loop() -> None:
    heard = asyncio.Event()
    await asyncio.to_thread(_in_loop, asyncio.get_running_loop(), heard.set)
    async with asyncio.timeout(60):
        await heard.wait()


def scenario(test: Callable[[Cluster], Awaitable[None]]) -> Callable[[], None]:
    """A test that plays in virtual time, on a node whose tenants are known."""

    def played() -> None:
        async def play() -> None:
            cluster = Cluster()
            cluster.node()
            cluster.tenants()
            await test(cluster)

        virtual_time.run(play())

    played.__name__ = test.__name__
    return played


def listed(*devices: Any, **options: Any) -> NodeTenant:
    found = tenant_of_pod(make_pod(*devices, **options))
    assert found is not None
    return found


def capacity(cluster: Cluster) -> dict[str, str]:
    return {
        key: value for key, value in cluster.of(NODES)["status"]["capacity"].items() if key in names.MANAGED_RESOURCES
    }


class Looks(Feature):
    """Keeps what each look saw."""

    name = "looks"

    def __init__(self) -> None:
        self.seen: list[tuple[float, Seen]] = []

    async def act(self, seen: Seen, *, status: Any) -> None:
        self.seen.append((clock(), seen))


@scenario
async def test_a_node_is_reported_and_advertised_once_and_then_by_heartbeats(cluster: Cluster) -> None:
    async with cluster.served() as agent:
        await asyncio.sleep(1)
        assert cluster.kinds() == ALL
        found = cluster.of(GPUNODES)
        assert found["metadata"]["ownerReferences"][0]["uid"] == cluster.of(NODES)["metadata"]["uid"]
        assert [each["uuid"] for each in found["status"]["devices"]] == [
            device_uuid(NODE, index=0),
            device_uuid(NODE, index=1),
        ]
        assert capacity(cluster)[names.GPU_MILLI] == "2000"
        await asyncio.sleep(298)
        assert cluster.kinds() == []
        await asyncio.sleep(32)
        assert cluster.kinds() == ["GPUNode.status"]
        assert agent.published_total == {**dict.fromkeys(Why, 0), Why.FIRST: 1, Why.HEARTBEAT: 1}


@scenario
async def test_without_a_list_of_tenants_a_node_is_reported_after_five_seconds(cluster: Cluster) -> None:
    cluster.delete(GPUNODETENANTS)
    for _ in range(2):  # and a node that comes again is waited for again
        async with cluster.served():
            await asyncio.sleep(4.9)
            assert cluster.kinds() == []
            await asyncio.sleep(1)
            assert cluster.kinds() == ALL
            cluster.delete(NODES)
            cluster.delete(GPUNODES)
            await asyncio.sleep(1)
            cluster.node()
            await asyncio.sleep(4.9)
            assert cluster.kinds() == []
            cluster.tenants()
            await asyncio.sleep(0.5)
            assert cluster.kinds() == ALL
        for each in (NODES, GPUNODES, GPUNODETENANTS):
            cluster.delete(each)
        cluster.node()


@scenario
async def test_the_gpunode_of_a_node_that_was_made_again_gets_its_owner_though_nothing_else_differs(
    cluster: Cluster,
) -> None:
    async with cluster.served():
        await asyncio.sleep(1)
        cluster.kinds()
        before = cluster.of(NODES)
        cluster.delete(NODES)
        cluster.put(NODES, NODE, metadata=before["metadata"], status=before["status"])
        cluster.tenants()
        await asyncio.sleep(1)
        assert cluster.kinds() == ["GPUNode", "GPUNode.status"]
        assert cluster.of(GPUNODES)["metadata"]["ownerReferences"][0]["uid"] == cluster.of(NODES)["metadata"]["uid"]


@scenario
async def test_a_gpunode_that_somebody_deletes_is_made_again_at_once(cluster: Cluster) -> None:
    async with cluster.served():
        await asyncio.sleep(1)
        cluster.kinds()
        cluster.delete(GPUNODES)
        await asyncio.sleep(1)
        assert cluster.kinds() == ALL[:2]


@scenario
async def test_what_people_write_is_looked_at_at_once_and_the_agents_own_report_is_not(cluster: Cluster) -> None:
    looks = Looks()
    async with cluster.served(looks):
        await asyncio.sleep(1)
        looks.seen.clear()
        cluster.put(GPUNODES, NODE, spec={"cordoned": ["GPU-1"]})
        await asyncio.sleep(0.5)
        ((_, seen),) = looks.seen
        assert seen.gpunode is not None
        assert seen.gpunode.spec.cordoned == ["GPU-1"]
        cluster.put(GPUNODES, NODE, metadata={"labels": {"a": "b"}})
        await asyncio.sleep(28)
        assert len(looks.seen) == 1
        await asyncio.sleep(5)
        assert len(looks.seen) == 2


@scenario
async def test_tenants_and_the_operators_answer_are_looked_at_at_once(cluster: Cluster) -> None:
    looks = Looks()
    async with cluster.served(looks):
        await asyncio.sleep(1)
        cluster.tenants(listed(allocated(0)), answers=7)
        await asyncio.sleep(0.5)
        seen = looks.seen[-1][1]
        assert ([each.uid for each in seen.tenants], seen.answers) == (["pod-uid"], 7)


@scenario
async def test_a_change_is_written_at_once_and_a_load_waits_for_others(cluster: Cluster) -> None:
    async with cluster.served() as agent:
        await asyncio.sleep(40)
        cluster.kinds()
        cluster.tenants(listed(allocated(0)))
        await asyncio.sleep(0.5)
        assert cluster.kinds() == ["GPUNode.status"]
        assert agent.published_total[Why.LOAD] == 1
        cluster.tenants(listed(allocated(0)), listed(allocated(1), labels={}))
        cluster.tenants()
        await asyncio.sleep(0.5)
        assert cluster.kinds() == [], "a load waits for the pause between two reports"
        cluster.node(faults={"0": "Xid79FellOffTheBus"})
        await asyncio.sleep(0.5)
        assert "GPUNode.status" in cluster.kinds()
        assert agent.published_total[Why.CHANGE] == 1


@scenario
async def test_a_load_that_had_to_wait_is_written_when_the_pause_is_over(cluster: Cluster) -> None:
    async with cluster.served() as agent:
        await asyncio.sleep(1)
        cluster.kinds()
        cluster.tenants(listed(allocated(0)))
        await asyncio.sleep(1)
        assert cluster.kinds() == []
        await asyncio.sleep(10)
        assert cluster.kinds() == ["GPUNode.status"]
        assert agent.published_total[Why.LOAD] == 1


@scenario
async def test_what_kubelet_resets_is_advertised_again(cluster: Cluster) -> None:
    async with cluster.served():
        await asyncio.sleep(1)
        before = capacity(cluster)
        cluster.kinds()
        zero = dict.fromkeys(names.MANAGED_RESOURCES, "0")
        cluster.put(NODES, NODE, status={"capacity": zero, "allocatable": zero})
        await asyncio.sleep(0.5)
        assert cluster.kinds() == ["Node.status"]
        assert capacity(cluster) == before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"devices": None}, id="declares no devices any more"),
        pytest.param({"devices": "{"}, id="cannot be read"),
        pytest.param({"faults": {"0": "Xid79FellOffTheBus", "1": "Xid79FellOffTheBus"}}, id="has broken devices alone"),
        pytest.param({"capacity": {"nvidia.com/gpu": "2"}}, id="is a vendor's plugin's too"),
    ],
)
def test_a_node_that_has_nothing_to_give_advertises_nothing(change: dict[str, Any]) -> None:
    async def play() -> None:
        cluster = Cluster()
        cluster.node()
        cluster.tenants()
        async with cluster.served():
            await asyncio.sleep(1)
            assert capacity(cluster)[names.GPU_MILLI] == "2000"
            own = cluster.of(NODES)["status"]["capacity"]
            cluster.node(**{**change, "capacity": {**own, **change.get("capacity", {})}})
            await asyncio.sleep(1)
            assert set(capacity(cluster).values()) == {"0"}

    virtual_time.run(play())


@scenario
async def test_a_node_that_is_managed_no_longer_loses_our_resources_and_labels_and_is_still_reported(
    cluster: Cluster,
) -> None:
    async with cluster.served():
        await asyncio.sleep(1)
        assert cluster.of(NODES)["metadata"]["labels"][names.LABEL_DESCRIBED] == "true"
        labels = {**cluster.of(NODES)["metadata"]["labels"]}
        del labels[names.LABEL_MANAGED]
        cluster.put(NODES, NODE, metadata={"labels": labels})
        cluster.tenants(listed(allocated(0)))
        await asyncio.sleep(20)
        assert set(capacity(cluster).values()) == {"0"}
        assert cluster.of(NODES)["metadata"]["labels"] == {}
        assert len(cluster.of(GPUNODES)["status"]["devices"]) == 2


@pytest.mark.parametrize(
    ("turns", "checkpoint", "times"),
    [(True, True, Settings().tenants_per_device), (True, False, 1), (False, True, 1), (False, False, 1)],
)
def test_memory_counts_once_a_turn_only_where_tenants_have_turns_and_are_moved(
    *, turns: bool, checkpoint: bool, times: int
) -> None:
    class Enforcing(Feature):
        def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:
            status = with_enforcement(status, name="turns", holds=turns)
            return with_enforcement(status, name="checkpoint", holds=checkpoint)

    async def play() -> None:
        cluster = Cluster()
        cluster.node()
        cluster.tenants()
        async with cluster.served(Enforcing()):
            await asyncio.sleep(1)
        assert capacity(cluster)[names.GPU_MEMORY_MIB] == str(2 * 32768 * times)

    virtual_time.run(play())


@scenario
async def test_a_write_that_fails_is_counted_and_made_again(cluster: Cluster) -> None:
    cluster.refusals = [ServerFault(Status(code=500)), ServerFault(Status(code=503))]
    async with cluster.served() as agent:
        await asyncio.sleep(20)
        assert cluster.kinds() == ALL
        assert agent.write_failures_total == 2
        assert agent.published_total[Why.FIRST] == 1


@scenario
async def test_ready_is_an_agent_whose_nodes_are_reported_and_it_stays_so(cluster: Cluster) -> None:
    refused = [ServerFault(Status(code=500)), ServerFault(Status(code=500))]
    cluster.refusals = [*refused]
    async with cluster.served() as agent:
        assert agent.unreported == "the nodes are not listed yet"
        await asyncio.sleep(0.1)
        assert agent.unreported == f"not reported yet: {NODE}"
        await asyncio.sleep(10)
        assert (agent.unreported, agent.write_failures_total) == (None, 2)
        cluster.delete(NODES)
        await asyncio.sleep(1)
        cluster.node()
        cluster.refusals = [*refused]
        await asyncio.sleep(0.3)
        assert agent.unreported is None
    # A node that leaves before its first report is waited for no longer.
    cluster.refusals = [ServerFault(Status(code=500)) for _ in range(100)]
    async with cluster.served() as agent:
        await asyncio.sleep(1)
        assert agent.unreported == f"not reported yet: {NODE}"
        cluster.delete(NODES)
        await asyncio.sleep(1)
        assert agent.unreported is None


@scenario
async def test_what_is_gone_when_it_is_written_is_no_failure_and_made_again(cluster: Cluster) -> None:
    gone = [GPUNODES]

    def deleted(kind: str) -> None:
        if kind == "GPUNode.status" and gone:
            cluster.delete(gone.pop())

    cluster.before_write = deleted
    async with cluster.served() as agent:
        await asyncio.sleep(3)
        assert agent.write_failures_total == 0
        assert sum(agent.published_total.values()) == 1
        assert cluster.of(GPUNODES)["status"]["devices"]
        assert capacity(cluster)[names.GPU_MILLI] == "2000"


@scenario
async def test_a_node_that_is_gone_is_written_no_more_and_its_figures_go(cluster: Cluster) -> None:
    cluster.tenants(listed(allocated(0)))
    looks = Looks()
    async with cluster.served(looks) as agent:
        await asyncio.sleep(1)
        assert (list(agent.looks), len(agent.tenants.tenants(NODE))) == ([NODE], 1)
        cluster.delete(NODES)
        cluster.kinds()
        number = len(looks.seen)
        await asyncio.sleep(700)
        assert (dict(agent.looks), len(looks.seen), cluster.kinds()) == ({}, number, [])
        assert agent.tenants.tenants(NODE) == ()


@scenario
async def test_news_of_the_driver_and_of_a_feature_are_looked_at_at_once(cluster: Cluster) -> None:
    class Telling(SimulatedProvider):
        def listen(self, news: Callable[[], None]) -> None:
            heard.append(news)

    class Waking(Looks):
        async def run(self, wake: Callable[[], None]) -> None:
            heard.append(wake)

    heard = list[Callable[[], None]]()
    looks = Waking()
    async with cluster.served(looks, provider=Telling()):
        await asyncio.sleep(1)
        assert len(heard) == 2
        for news in heard:
            looks.seen.clear()
            news()
            await asyncio.sleep(0.5)
            assert len(looks.seen) == 1


@scenario
async def test_an_agent_of_one_node_leaves_the_others_alone_and_one_without_a_node_serves_all(cluster: Cluster) -> None:
    other = {key: cluster.of(NODES)["metadata"][key] for key in ("labels", "annotations")}
    cluster.put(NODES, "other", metadata=other, status={"capacity": {}, "allocatable": {}})
    cluster.put(GPUNODETENANTS, "other", spec={"tenants": []})
    async with cluster.served() as agent:
        await asyncio.sleep(1)
        assert list(agent.looks) == [NODE]
    async with cluster.served(node=None) as agent:
        await asyncio.sleep(1)
        assert set(agent.looks) == {NODE, "other"}
        assert {name for kind, name in cluster.objects if kind == "gpunodes"} == {NODE, "other"}


def test_an_agent_that_is_killed_at_any_write_leaves_the_rest_to_the_next_one() -> None:
    def make(effects: Effects) -> Cluster:
        cluster = Cluster(effects)
        cluster.node(faults={"1": "Xid79FellOffTheBus"})
        cluster.tenants(listed(allocated(0)), listed(allocated(1)))
        return cluster

    def journey(cluster: Cluster) -> None:
        async def serve() -> None:
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(cluster.agent().run())
                await asyncio.sleep(2)
                serving.cancel()

        try:
            virtual_time.run(serve())
        except* Killed as errors:
            raise Killed from errors

    def end(cluster: Cluster) -> Any:
        found = msgspec.json.decode(msgspec.json.encode([cluster.of(GPUNODES), cluster.of(NODES)]))
        for each in found:
            del each["metadata"]["resourceVersion"]
        return found

    assert at_each_effect(make, journey=journey, end=end, restart=lambda cluster: cluster) == 3

"""Pods of no GPUJob that are to end for their memory, as honest and as forged reports ask for it."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from dovetail.api.builtin import Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import GPUNode, Overuse
from dovetail.kube.client import Client
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.metrics import make_counters
from dovetail_operator.writes.evictions import OF_A_NODE, OF_ALL_NODES, PodEvictions
from tests.core.builders import make_gpunode
from tests.core.kube.api import Answer, Api, refusal

EVICTED = Answer(body={"kind": "Status", "status": "Success"})
RULES = EndingRules(ends=True, exempt_namespaces=frozenset({"kube-system"}))


def eviction_of(name: str, *, namespace: str = "team") -> str:
    return f"POST /api/v1/namespaces/{namespace}/pods/{name}/eviction"


def report(*overuses: Overuse, node: str = "n1") -> GPUNode:
    gpunode = make_gpunode(node)
    return msgspec.structs.replace(gpunode, status=msgspec.structs.replace(gpunode.status, overuses=list(overuses)))


def above(name: str, *, namespace: str = "team", evict: bool = True) -> Overuse:
    return Overuse(
        uid=f"uid-{name}", namespace=namespace, name=name, device="GPU-a", index=0, promised_mib=1, used_mib=2,
        since="then", ends=True, evict=evict,
    )  # fmt: skip


class Scene:
    """Evictions at work, the pods that the operator knows, and a clock that the test moves."""

    def __init__(self, client: Client, *, rules: EndingRules = RULES) -> None:
        self.pods: dict[tuple[str, str], Pod] = {}
        self.now = 1000.0
        self.registry = CollectorRegistry()
        self.evictions = PodEvictions(
            client,
            is_of_a_job=lambda uid: uid == "uid-of-a-job",
            pod=lambda namespace, name: self.pods.get((namespace, name)),
            rules=rules,
            count=make_counters(self.registry).overuse_evictions,
            clock=lambda: self.now,
        )

    def tenant(self, name: str, *, node: str = "n1", namespace: str = "team") -> Overuse:
        """A pod that shares a device of a node, and a report that it is above its promise."""
        device = AllocatedDevice(uuid="GPU-a", index=0, share_milli=100, memory_mib=1)
        allocation = Allocation(
            node=node, mode="Fractional", containers=[ContainerAllocation(index=0, devices=[device])]
        )
        metadata = {
            "name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": annotations_of(allocation),
        }  # fmt: skip
        self.pods[namespace, name] = msgspec.convert(
            {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}}, Pod
        )
        return above(name, namespace=namespace)

    def counted(self, result: str) -> float | None:
        return self.registry.get_sample_value("dovetail_overuse_evictions_total", {"result": result})


@pytest.fixture
async def scene(client: Client) -> AsyncIterator[Scene]:
    scene = Scene(client)
    task = asyncio.create_task(scene.evictions.run())
    yield scene
    task.cancel()


async def settled() -> None:
    """Let the hands look at everything that waits."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_such_a_pod_is_evicted_and_no_other_of_its_name(api: Api, scene: Scene) -> None:
    api.answer(eviction_of("web"), EVICTED)
    scene.evictions.changed(report(scene.tenant("web")))
    await api.until(eviction_of("web"), count=1)
    body = api.of(eviction_of("web"))[0].body
    assert (body["kind"], body["deleteOptions"]) == ("Eviction", {"preconditions": {"uid": "uid-web"}})


async def test_a_disruption_budget_that_forbids_it_is_asked_again(api: Api, scene: Scene) -> None:
    api.answer(eviction_of("web"), refusal(429, reason="TooManyRequests"), EVICTED)
    scene.evictions.changed(report(scene.tenant("web")))
    await api.until(eviction_of("web"), count=2)


async def test_who_is_warned_and_the_pods_of_jobs_are_left_alone(api: Api, scene: Scene) -> None:
    api.answer(eviction_of("web"), EVICTED)
    scene.tenant("warned")
    scene.evictions.changed(report(above("warned", evict=False), scene.tenant("of-a-job"), scene.tenant("web")))
    await api.until(eviction_of("web"), count=1)
    assert [seen.path for seen in api.seen] == [eviction_of("web").removeprefix("POST ")]


async def test_a_pod_that_is_gone_already_is_as_good(api: Api, scene: Scene) -> None:
    api.answer(eviction_of("web"), refusal(404, reason="NotFound"))
    api.answer(eviction_of("other"), EVICTED)
    scene.evictions.changed(report(scene.tenant("web")))
    await api.until(eviction_of("web"), count=1)
    scene.evictions.changed(report(scene.tenant("other")))
    await api.until(eviction_of("other"), count=1)
    assert len(api.of(eviction_of("web"))) == 1


async def test_what_a_node_that_is_gone_wanted_is_wanted_no_more(api: Api, scene: Scene) -> None:
    api.answer(eviction_of("other"), EVICTED)
    scene.evictions.changed(report(scene.tenant("web")))
    scene.evictions.gone("n1")
    scene.evictions.changed(report(scene.tenant("other")))
    await api.until(eviction_of("other"), count=1)
    assert api.of(eviction_of("web")) == []


async def test_forged_reports_evict_nothing_and_each_is_counted_once(api: Api, scene: Scene) -> None:
    coredns = scene.tenant("coredns", namespace="kube-system")
    elsewhere = scene.tenant("elsewhere", node="n2")
    forged = report(coredns, elsewhere, above("unknown"))
    with capture_logs() as lines:
        for _ in range(5):
            scene.evictions.changed(forged)
            await settled()
    assert api.seen == []
    reasons = ["ExemptNamespace", "OtherNode", "UnknownPod"]
    assert [scene.counted(each) for each in [*reasons, "Evicted"]] == [1, 1, 1, None]
    refused = [line for line in lines if line["event"] == "reported overuse does not end the pod"]
    assert sorted(line["reason"] for line in refused) == reasons


async def test_a_flood_of_forged_names_is_one_line_of_log(api: Api, scene: Scene) -> None:
    with capture_logs() as lines:
        for burst in range(10):
            scene.evictions.changed(report(*(above(f"pod/{burst}-{i}") for i in range(50))))
            await settled()
    assert api.seen == []
    assert scene.counted("UnknownPod") == 500
    assert len([line for line in lines if line["event"] == "reported overuse does not end the pod"]) == 1


async def test_under_warn_no_report_evicts(api: Api, client: Client) -> None:
    scene = Scene(client, rules=EndingRules())
    task = asyncio.create_task(scene.evictions.run())
    scene.evictions.changed(report(scene.tenant("web")))
    await settled()
    task.cancel()
    assert (api.seen, scene.counted("Policy")) == ([], 1)


async def test_a_node_that_reports_all_its_tenants_ends_a_few_at_once(api: Api, scene: Scene) -> None:
    tenants = [scene.tenant(f"t{i}") for i in range(20)]
    for each in tenants:
        api.answer(eviction_of(each.name), EVICTED)
    scene.evictions.changed(report(*tenants))
    await api.until(eviction_of(tenants[OF_A_NODE.burst - 1].name), count=1)
    await settled()
    assert len(api.seen) == OF_A_NODE.burst
    scene.now += OF_A_NODE.every_seconds
    scene.evictions.changed(report(*tenants[OF_A_NODE.burst :]))
    await api.until(eviction_of(tenants[OF_A_NODE.burst].name), count=1)
    await settled()
    assert len(api.seen) == OF_A_NODE.burst + 1


async def test_many_nodes_together_have_a_bound_of_their_own(api: Api, scene: Scene) -> None:
    nodes = [f"n{i}" for i in range(3 * OF_ALL_NODES.burst)]
    for node in nodes:
        api.answer(eviction_of(f"on-{node}"), EVICTED)
        scene.evictions.changed(report(scene.tenant(f"on-{node}", node=node), node=node))
    await api.until(eviction_of(f"on-{nodes[OF_ALL_NODES.burst - 1]}"), count=1)
    await settled()
    assert len(api.seen) == OF_ALL_NODES.burst


async def test_a_node_that_is_gone_takes_along_what_was_known_of_it_and_of_no_other(client: Client) -> None:
    scene = Scene(client)
    for node in ("n1", "n2"):
        scene.evictions.changed(report(above(f"x-{node}"), node=node))
        await scene.evictions._evict(f"{node}/uid-x-{node}")
    assert {node for node, _ in scene.evictions._logged} == {"n1", "n2"}
    scene.evictions.gone("n1")
    await scene.evictions._evict("n1/uid-x-n1")
    kept = (scene.evictions._wanted, scene.evictions._refused, dict(scene.evictions._logged))
    assert [set(each) for each in kept] == [{"n2"}] * 3


async def test_a_report_that_is_made_again_counts_again_and_one_that_was_withdrawn_is_forgotten(client: Client) -> None:
    scene = Scene(client)
    for counted in (1, 2):
        for _ in range(2):
            scene.evictions.changed(report(above("x")))
            await scene.evictions._evict("n1/uid-x")
            assert scene.counted("UnknownPod") == counted
        scene.evictions.changed(report())
        assert scene.evictions._refused == {"n1": {}}


async def test_of_nodes_whose_allowance_is_full_again_nothing_is_kept(api: Api, client: Client) -> None:
    scene = Scene(client)
    for number in range(3):
        name = f"t{number}"
        api.answer(eviction_of(name), EVICTED)
        scene.evictions.changed(report(scene.tenant(name, node=f"n{number}"), node=f"n{number}"))
        await scene.evictions._evict(f"n{number}/uid-{name}")
        assert list(scene.evictions._spent) == [f"n{number}"]
        scene.now += OF_A_NODE.every_seconds

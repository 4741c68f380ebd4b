"""The growing pools that count: the declared ones, with the NodePools that a watch has brought."""

from typing import Any

import msgspec

from dovetail.api.autoscaler import ProvisioningRequest
from dovetail.api.karpenter import NodePool
from dovetail.queue.growing.pools import GrowingPool, GrowingRules
from dovetail_operator.state.growing_pools import GrowingPools

DECLARED = GrowingPool(name="a100", labels={}, max_nodes=8, gpus=8, model="A100", cpu_milli=90_000, memory_mib=900_000)


def node_pool(**spec: Any) -> NodePool:
    return msgspec.convert({"metadata": {"name": "a100"}, "spec": spec}, NodePool)


def test_a_node_pool_bounds_the_declared_pool_and_its_end_frees_it() -> None:
    pools, seen = GrowingPools(GrowingRules(pools=(DECLARED,))), list[int]()
    pools.on_change(lambda: seen.append(pools.rules.pools[0].max_nodes))
    pools.node_pool_event("ADDED", node_pool(limits={"nodes": "2"}))
    pools.node_pool_event("DELETED", node_pool())
    assert seen == [2, 8]


def test_an_event_that_changes_nothing_wakes_no_one() -> None:
    pools, seen = GrowingPools(GrowingRules()), list[int]()
    pools.on_change(lambda: seen.append(1))
    pools.node_pool_event("ADDED", node_pool())
    assert seen == []


def request(name: str = "r", *, namespace: str = "team", **conditions: str) -> ProvisioningRequest:
    found = [{"type": type_, "status": status, "reason": "R", "message": "m"} for type_, status in conditions.items()]
    meta = {"name": name, "namespace": namespace}
    return msgspec.convert({"metadata": meta, "status": {"conditions": found}}, ProvisioningRequest)


def test_an_answer_that_says_something_wakes_the_queue_and_no_other_does() -> None:
    pools, woken = GrowingPools(GrowingRules()), list[int]()
    pools.on_change(lambda: woken.append(len(pools.answers)))
    pools.provisioning_request_event("ADDED", request())
    assert woken == [], "no answer yet"
    for found in (request(Failed="True"), request(Failed="True")):
        pools.provisioning_request_event("MODIFIED", found)
        assert woken == [1]
    pools.provisioning_request_event("ADDED", request("other", Failed="True"))
    assert woken == [1, 2], "one that has its answer when it is first seen"


def test_requests_of_one_name_in_two_namespaces_have_two_answers() -> None:
    pools = GrowingPools(GrowingRules())
    pools.provisioning_request_event("ADDED", request(Failed="True"))
    pools.provisioning_request_event("ADDED", request(namespace="lab"))
    assert pools.answers.keys() == {"team/r", "lab/r"}
    pools.provisioning_request_event("DELETED", request(namespace="lab"))
    assert [answer.refusal != "" for answer in pools.answers.values()] == [True]


def test_a_new_configuration_keeps_what_node_pools_say() -> None:
    pools = GrowingPools(GrowingRules())
    pools.node_pool_event("ADDED", node_pool(limits={"nodes": "2"}))
    pools.configure(GrowingRules(pools=(DECLARED,)))
    assert [each.max_nodes for each in pools.rules.pools] == [2]

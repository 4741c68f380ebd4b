"""Pools: which nodes a job may use, by what it asks and what quotas allow."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Node
from dovetail.api.gpuquota import GPUQuota
from dovetail.pods.node_affinity import admits
from dovetail.queue.limits.pools import in_pools, pools_of
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.gate import Refused

ADA = Subject(namespace="vision", user="ada")


def make_quota(name: str, *pools: str, **spec: Any) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec | {"pools": list(pools)}}, GPUQuota)


def make_node(**labels: str) -> Node:
    return msgspec.convert({"metadata": {"name": "n", "labels": {"dovetail.dev/pool": "a100"} | labels}}, Node)


def test_a_job_may_go_anywhere_where_nobody_says_otherwise() -> None:
    assert pools_of([make_quota("q", "a100", namespaces=["nlp"])], subject=ADA) == ()


def test_a_job_goes_to_the_pool_that_it_asks_for() -> None:
    assert pools_of([], subject=ADA, asked="a100") == ("a100",)
    assert pools_of([make_quota("q", "t4", "a100")], subject=ADA, asked="a100") == ("a100",)


def test_quotas_keep_those_they_bind_to_the_pools_that_all_of_them_allow() -> None:
    quotas = [make_quota("q", "t4", "a100"), make_quota("r", "h100", "a100")]
    assert pools_of(quotas, subject=ADA) == ("a100",)


def test_jobs_of_a_namespace_with_a_quota_for_each_pool_choose_one_by_their_project() -> None:
    quotas = [
        make_quota("q", "t4", namespaces=["vision"], projects=["small"]),
        make_quota("r", "a100", namespaces=["vision"], projects=["large"]),
    ]
    assert [pools_of(quotas, subject=replace(ADA, project=each)) for each in ("small", "large", "")] == [
        ("t4",), ("a100",), (),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pools", "asked", "message"),
    [
        (["t4", "a100"], "h100", "Asks for pool h100, GPUQuota q allows a100 or t4 alone"),
        (["t4"], None, "GPUQuota r allows pool v100 alone, other quotas t4"),
    ],
    ids=["it asks for another", "no pool is left"],
)
def test_a_job_that_no_pool_is_left_to_is_told_so(pools: list[str], asked: str | None, message: str) -> None:
    quotas = [make_quota("q", *pools), *([] if asked else [make_quota("r", "v100")])]
    assert pools_of(quotas, subject=ADA, asked=asked) == Refused(reason="Quota", message=message)


def test_nodes_of_other_pools_do_not_admit_the_pod() -> None:
    spec = in_pools({"nodeSelector": {"zone": "b"}}, pools=["a100", "t4"])
    assert admits(make_node(zone="b"), pod_spec=spec)
    assert not admits(make_node(zone="a"), pod_spec=spec)
    assert not admits(make_node(zone="b", **{"dovetail.dev/pool": "v100"}), pod_spec=spec)


def test_what_the_pod_requires_itself_stays_required_in_each_term() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "bc"]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = in_pools({"affinity": {"nodeAffinity": required}}, pools=["a100"])
    assert admits(make_node(zone="c"), pod_spec=spec)
    assert not admits(make_node(zone="d"), pod_spec=spec)
    assert not admits(make_node(zone="c", **{"dovetail.dev/pool": "t4"}), pod_spec=spec)


def test_without_pools_the_spec_is_as_it_was() -> None:
    assert in_pools({"containers": []}, pools=()) == {"containers": []}

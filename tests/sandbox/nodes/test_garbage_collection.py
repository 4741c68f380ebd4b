"""How seldom the Go programs of a sandbox collect garbage."""

from pathlib import Path

import pytest

from tests.sandbox.nodes.kwok_documents import configured


def limits(*, nodes: int, memory_gib: float, lasting: Path | None = None) -> dict[str, str]:
    """GOMEMLIMIT by program; empty where Go's defaults hold."""
    patches = configured(nodes=nodes, memory_gib=memory_gib, lasting=lasting)["componentsPatches"]
    found = {each["name"]: {env["name"]: env["value"] for env in each.get("extraEnvs", ())} for each in patches}
    return {name: env["GOMEMLIMIT"] for name, env in found.items() if env.get("GOGC") == "400"}


@pytest.mark.parametrize(
    ("nodes", "memory_gib", "limit"),
    [
        pytest.param(10, 24.0, "4GiB", id="few nodes"),
        pytest.param(500, 24.0, "7GiB", id="64 nodes for each GiB"),
        pytest.param(5_000, 24.0, "8GiB", id="a third of the machine's memory"),
        pytest.param(5_000, 8.0, "4GiB", id="a small machine"),
    ],
)
def test_the_api_server_of_many_nodes_collects_seldom_up_to_more_memory_and_nothing_else_does(
    nodes: int, memory_gib: float, limit: str
) -> None:
    found = limits(nodes=nodes, memory_gib=memory_gib)
    assert found.pop("kube-apiserver") == limit
    assert found == dict.fromkeys(("etcd", "kube-controller-manager", "kwok-controller"), "4GiB")


def test_on_ones_own_machine_all_collect_early_and_only_what_it_needs_runs() -> None:
    patches = configured(nodes=0, memory_gib=24.0, lasting=Path("etcd"))["componentsPatches"]
    found = {each["name"]: {env["name"]: env["value"] for env in each.get("extraEnvs", ())} for each in patches}
    early = {"GOGC": "30", "GOMEMLIMIT": "250MiB"}
    assert found["etcd"] == found["kube-controller-manager"] == early
    assert found["kube-apiserver"] == {"GOGC": "30", "GOMEMLIMIT": "700MiB"}
    manager = next(each for each in patches if each["name"] == "kube-controller-manager")
    (chosen,) = (each["value"] for each in manager["extraArgs"] if each["key"] == "controllers")
    assert {"job-controller", "garbage-collector-controller"} <= set(chosen.split(","))
    assert "endpointslice-controller" not in chosen


def test_ones_own_machine_keeps_no_versions_beyond_those_that_watches_need() -> None:
    found = configured(nodes=0, memory_gib=24.0, lasting=Path("etcd"), feature_gates="GenericWorkload=true")
    gates = "ListFromCacheSnapshot=false,DetectCacheInconsistency=false,GenericWorkload=true"
    assert found["options"]["kubeFeatureGates"] == gates
    etcd = next(each for each in found["componentsPatches"] if each["name"] == "etcd")
    assert {"snapshot-catchup-entries": "100", "data-dir": "etcd"}.items() <= {
        each["key"]: each["value"] for each in etcd["extraArgs"]
    }.items()
    api_server = next(each for each in found["componentsPatches"] if each["name"] == "kube-apiserver")
    assert {"key": "etcd-compaction-interval", "value": "1m", "override": False} in api_server["extraArgs"]


def test_a_simulated_cluster_has_all_controllers_and_kubernetes_own_gates() -> None:
    found = configured(nodes=10, memory_gib=24.0)
    keys = [argument["key"] for each in found["componentsPatches"] for argument in each.get("extraArgs", ())]
    assert not {"controllers", "snapshot-catchup-entries", "etcd-compaction-interval"} & set(keys)
    assert "kubeFeatureGates" not in found["options"]

"""What an uninstall removes and what stays, on an API server that plays the rest of the cluster."""

import re
from pathlib import Path
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.api.resources import (
    CONFIGMAPS,
    GPUJOBS,
    GPUNODES,
    GPUNODETENANTS,
    HISTORYQUERIES,
    JOBS,
    LEASES,
    NODES,
    PODS,
    PROVISIONINGREQUESTS,
    SECRETS,
)
from dovetail.decoding import convert
from dovetail_release import cleanup, leftovers
from tests.operator_.release.objects import Objects

HOME = "dovetail-system"
OURS = {"app.kubernetes.io/name": "dovetail", "app.kubernetes.io/instance": "dovetail"}
CHART = Path(__file__).parents[3] / "helm" / "dovetail" / "templates" / "cleanup.yaml"


async def clean(cluster: Objects, *words: str) -> tuple[list[str], list[str]]:
    """What failed, and all that was said."""
    said: list[str] = []
    args = cleanup.parser().parse_args(["--wait=0", "--secret=dovetail-webhook", *words])
    async with cluster.client() as client:
        return await cleanup.clean(client, args=args, say=said.append), said


def node_of(status: dict[str, Any]) -> Node:
    return convert({"metadata": {"name": "n"}, "status": status}, as_type=Node)


def test_all_resources_of_ours_and_no_others_are_removed_from_a_node() -> None:
    amounts = {"cpu": "8", "nvidia.com/gpu": "1", names.GPU_MILLI: "8k", names.GPU_TURN: "0"}
    ours = {names.GPU_MILLI: None, names.GPU_TURN: None}
    node = node_of({"capacity": amounts, "allocatable": amounts})
    assert leftovers.capacity_removal(node) == {"status": {"capacity": ours, "allocatable": ours}}
    assert leftovers.capacity_removal(node_of({"capacity": {"cpu": "8"}})) is None


async def test_what_the_components_created_is_deleted() -> None:
    cluster = Objects()
    cluster.add(NODES, "gpu-1", status={"capacity": {names.GPU_MILLI: "1k"}, "allocatable": {}})
    cluster.add(NODES, "plain", status={"capacity": {"cpu": "1"}, "allocatable": {}})
    cluster.add(GPUNODES, "gpu-1")
    cluster.add(GPUNODETENANTS, "gpu-1")
    cluster.add(HISTORYQUERIES, "q", namespace="team")
    for name in (*leftovers.CONFIGMAP_NAMES, "dovetail-job-numbers", "kube-root-ca.crt"):
        cluster.add(CONFIGMAPS, name, namespace=HOME)
    for name in leftovers.LEASE_NAMES:
        cluster.add(LEASES, name, namespace=HOME)
    cluster.add(
        SECRETS, "dovetail-webhook", namespace=HOME, labels={names.LABEL_MANAGED_BY: names.CERTIFICATES_MANAGER}
    )
    label = {names.LABEL_PLACEHOLDER: "uid"}
    cluster.add(PROVISIONINGREQUESTS, "a-request", namespace="team", labels=label)
    cluster.add(JOBS, "a-placeholder", namespace="team", labels={names.LABEL_PLACEHOLDER: "uid"})
    cluster.add(PODS, leftovers.TEST_POD, namespace=HOME, labels={**OURS, "app.kubernetes.io/component": "test"})

    failed, said = await clean(cluster)

    assert not failed
    assert {path for path, _ in cluster.patches} == {NODES.path(name="gpu-1")}
    assert sorted(each["metadata"]["name"] for each in cluster.by_path.values()) == [
        "gpu-1",
        "kube-root-ca.crt",
        "plain",
    ]
    assert "Removed the capacity dovetail.dev/… of 1 node." in said
    assert said[-1].endswith("kubectl delete crd --selector app.kubernetes.io/name=dovetail")


async def test_what_people_own_stays() -> None:
    cluster = Objects()
    spec = {"gpu": "1", "template": {"spec": {"containers": [{"name": "main"}]}}}
    for name, phase in (("runs", "Running"), ("waits", "Queued")):
        cluster.add(GPUJOBS, name, namespace="team", spec=spec, status={"phase": phase})
    cluster.add(JOBS, "runs", namespace="team", labels={names.LABEL_JOB: "runs"})
    cluster.add(CONFIGMAPS, "dovetail-job-numbers", namespace=HOME)
    cluster.add(GPUNODES, "gpu-1", spec={"cordoned": ["GPU-1"]})
    cluster.add(SECRETS, "dovetail-webhook", namespace=HOME, labels={names.LABEL_MANAGED_BY: "someone"})
    before = dict(cluster.by_path)

    failed, said = await clean(cluster)

    assert not failed
    assert cluster.by_path == before
    assert "Kept 2 GPUJobs, which a new installation continues." in said
    assert "1 of them are active: their pods continue to their end. Nothing retries or preempts them." in said
    assert "Kept Secret dovetail-webhook: dovetail-certificates has not issued it." in said


async def test_the_numbers_of_jobs_stay_with_a_history() -> None:
    cluster = Objects()
    cluster.add(CONFIGMAPS, "dovetail-job-numbers", namespace=HOME)
    await clean(cluster, "--keep-numbers")
    assert cluster.names(CONFIGMAPS) == ["dovetail-job-numbers"]


async def test_a_cluster_without_the_crds_and_a_second_run_have_nothing_to_do() -> None:
    cluster = Objects()
    cluster.unknown = {each.plural for each in (GPUJOBS, GPUNODES, GPUNODETENANTS, HISTORYQUERIES)}
    for _ in range(2):
        failed, said = await clean(cluster)
        assert not failed
        assert len(said) == 1


async def test_a_step_without_a_right_fails_with_a_sentence_and_the_others_are_taken() -> None:
    cluster = Objects()
    cluster.add(LEASES, "dovetail-operator", namespace=HOME)
    cluster.refused.add(NODES.path())
    failed, said = await clean(cluster)
    assert failed == [f"Failed to remove the nodes' capacity: GET {NODES.path()}: no right to GET {NODES.path()} (403)"]
    assert failed[0] in said
    assert not cluster.names(LEASES)


async def test_pods_that_do_not_end_are_named_and_hinder_nothing() -> None:
    cluster = Objects()
    cluster.add(PODS, "dovetail-agent-x", namespace="dovetail-nodes", labels=OURS)
    cluster.add(LEASES, "dovetail-operator", namespace=HOME)
    _, said = await clean(cluster, "--node-namespace=dovetail-nodes")
    remain = "Pods of the release still exist after 0 s, perhaps on a lost node: dovetail-nodes/dovetail-agent-x."
    assert remain in said
    assert not cluster.names(LEASES)


async def test_a_clean_up_that_takes_too_long_ends() -> None:
    cluster = Objects()
    cluster.add(PODS, "dovetail-agent-x", namespace=HOME, labels=OURS)
    failed, _ = await clean(cluster, "--wait=60", "--timeout=0.05")
    assert failed == ["Not finished within 0.05 s: run dovetail-cleanup again."]


def test_the_names_are_those_that_the_chart_allows() -> None:
    lists = re.findall(r"resourceNames: \[(.*)\]", CHART.read_text(encoding="utf-8"))
    allowed = {name for each in lists for name in each.split(", ")}
    wanted = {*leftovers.LEASE_NAMES, *leftovers.CONFIGMAP_NAMES, names.JOB_NUMBERS, leftovers.TEST_POD}
    secrets = {
        "dovetail-webhook",
        "dovetail-webhook-ca",
        "dovetail-extender",
        "dovetail-extender-client",
        "dovetail-extender-ca",
    }
    assert allowed == wanted | secrets


def test_without_a_connection_the_program_ends_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cleanup.main([f"--kubeconfig={tmp_path / 'none'}"]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err

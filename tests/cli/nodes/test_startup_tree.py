"""The tree that `gflowd up` prints: once the agents have reported, or after its time."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from dovetail.api.builtin import Node
from dovetail.api.conversion import values_of
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import Condition
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.nodes import startup_tree
from tests.cli.builders import make_gpunode, make_node
from tests.cli.ui.test_live_screen import KUBECONFIG
from tests.core.kube.api import Answer, Api

NOON = "2026-01-01T12:00:00Z"
FIRST = "Your first job: gbatch --gpus 1 python train.py"
WITHOUT = [
    "Your first job: gbatch python train.py",
    "A job that requests a GPU runs on the CPUs with --cpu-fallback.",
]
GPUNODES = "GET /apis/dovetail.dev/v1beta1/gpunodes"


def listed(*objects: object) -> Answer:
    return Answer(body={"metadata": {}, "items": [values_of(each) for each in objects]})


@pytest.fixture
def looks(api: Api, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """For each look the node whose agent is silent; after the last one, none is."""
    silent = ["a", "a"]
    monkeypatch.setattr(startup_tree, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(startup_tree, "silent_nodes", lambda *_, **__: [silent.pop(0)] if silent else [])
    monkeypatch.setattr(startup_tree, "device_tree", lambda nodes, *, silent: f"{sorted(nodes)} without {silent}")
    api.answer("GET /api/v1/namespaces/dovetail-system/configmaps/dovetail-config", Answer(status=404, body={}))
    api.answer("GET /api/v1/nodes", *[listed(make_node("a"))] * 9)
    api.answer("GET /api/v1/pods", listed())
    return silent


async def test_the_tree_waits_for_each_agents_report(api: Api, cluster: Cluster, looks: list[str]) -> None:
    api.answer(GPUNODES, *[listed(make_gpunode("a"))] * 9)
    assert await startup_tree._tree(cluster, seconds=60) == f"['a'] without []\n{FIRST}"
    assert len(api.of(GPUNODES)) == 3


async def test_without_a_node_that_reports_the_tree_waits_for_one(api: Api, cluster: Cluster, looks: list[str]) -> None:
    looks.clear()
    api.answer(GPUNODES, listed(), listed(), listed(make_gpunode("a")))
    assert await startup_tree._tree(cluster, seconds=60) == f"['a'] without []\n{FIRST}"
    assert len(api.of(GPUNODES)) == 3


async def test_after_its_time_the_tree_is_as_it_is(api: Api, cluster: Cluster, looks: list[str]) -> None:
    api.answer(GPUNODES, listed(make_gpunode("a")))
    assert await startup_tree._tree(cluster, seconds=0) == f"['a'] without ['a']\n{FIRST}"


async def test_a_tree_that_cannot_be_read_is_a_sentence_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dovetail.kube.retry.Backoff.seconds", lambda *_args, **_options: 0.0)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG.format(url="http://127.0.0.1:9"))
    await asyncio.to_thread(startup_tree.show, tmp_path / "kubeconfig")
    said = capsys.readouterr()
    assert (said.out, said.err.startswith("dovetail: the devices cannot be listed: cannot reach")) == ("", True)


def machine(*, cpus: str, memory: str) -> Node:
    node = make_node("local")
    return replace(node, status=replace(node.status, allocatable={"cpu": cpus, "memory": memory}))


def report(*, gpus: int = 0, reason: str = "") -> GPUNode:
    made = make_gpunode("local", gpus=gpus)
    if not reason:
        return made
    ready = Condition(type="Ready", status="False", reason=reason, message="why", last_transition_time=NOON)
    return replace(made, status=replace(made.status, conditions=[ready]))


@pytest.mark.parametrize(
    ("node", "reported", "says"),
    [
        (machine(cpus="2", memory="7900Mi"), report(gpus=1), ["the tree", FIRST]),
        (
            machine(cpus="2", memory="7900Mi"),
            report(reason="NoLibrary"),
            [
                "This machine has 2 CPUs and 7.7 GiB of memory. No driver of a GPU is installed: jobs run on the CPUs.",
                *WITHOUT,
            ],
        ),
        (
            machine(cpus="1", memory="1Gi"),
            report(reason="NoLibrary"),
            [
                "This machine has 1 CPU and 1.0 GiB of memory. No driver of a GPU is installed: jobs run on the CPUs.",
                *WITHOUT,
            ],
        ),
        (machine(cpus="2", memory="1Gi"), report(gpus=1, reason="Driver"), ["the tree", *WITHOUT]),
        (machine(cpus="2", memory="1Gi"), report(), ["the tree", *WITHOUT]),
        (machine(cpus="2", memory="1Gi"), None, ["the tree", *WITHOUT]),
    ],
)
def test_a_machine_says_what_it_runs_and_a_first_job(node: Node, reported: GPUNode | None, says: list[str]) -> None:
    assert list(startup_tree._said("the tree", nodes=[node], reports=[reported])) == says

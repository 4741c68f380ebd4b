"""What `dovetail adopt` prints, and what it needs."""

import csv
import io
import json

import pytest

from dovetail.answers.observe import Adoption
from dovetail.cluster.observed import Seen
from dovetail.query.explain.observe.adoption import adoption
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.observe import render_steps
from dovetail_cli.observe.look import steps
from dovetail_cli.ui.errors import CommandError
from tests.cli.observe.test_look import scripted
from tests.core.kube.api import Api
from tests.core.query.explain.observe.builders import make_node, make_pod


def found() -> Adoption:
    pods = [make_pod("a", gpus=3, on="n1", job="train"), make_pod("waits", gpus=6)]
    return adoption(Seen(nodes=[make_node("n1", cordoned=True), make_node("n2")], pods=pods), node="n1")


def test_the_text_has_a_command_for_each_step_that_is_not_done_and_the_way_back() -> None:
    lines = render_steps.render(found(), form="table").splitlines()
    assert lines[:2] == [
        "n1: 8 nvidia.com/gpu, by DevicePlugin.",
        "Afterwards 8 nvidia.com/gpu on other nodes are left to DevicePlugin; pods without a node ask for 6.",
    ]
    typed = [line.strip() for line in lines if line.startswith("   $ ")]
    assert typed == [
        "$ kubectl drain n1 --ignore-daemonsets --delete-emptydir-data",
        "$ kubectl label node n1 dovetail.dev/managed=true",
        "$ dovetail doctor n1",
        "$ kubectl uncordon n1",
    ]
    assert "1. Keep new pods off (done)" in lines
    assert lines[-1] == "  kubectl uncordon n1"


def test_json_and_csv_have_the_steps() -> None:
    document = json.loads(render_steps.render(found(), form="json"))
    assert [step["state"] for step in document["steps"]] == ["done", "todo", "todo", "todo", "waits", "todo"]
    rows = list(csv.DictReader(io.StringIO(render_steps.render(found(), form="csv"))))
    assert [row["state"] for row in rows] == [step["state"] for step in document["steps"]]


@pytest.mark.parametrize(("code", "lacks"), [("nodes", "nodes"), ("pods", "pods of all namespaces")])
async def test_it_names_the_right_that_is_missing(api: Api, cluster: Cluster, code: str, lacks: str) -> None:
    scripted(api, **{code: 403})
    with pytest.raises(CommandError, match=f"you may not list {lacks}"):
        await steps(cluster, node="a")


async def test_it_only_lists(api: Api, cluster: Cluster) -> None:
    scripted(api)
    with pytest.raises(CommandError, match="there is no node a"):
        await steps(cluster, node="a")
    assert {each.method for each in api.seen} == {"GET"}

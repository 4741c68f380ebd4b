"""What `dovetail observe report` prints, and what it needs."""

import json

import pytest

from dovetail.answers.observe import Forecast
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.observe import render_report
from dovetail_cli.observe.look import report
from dovetail_cli.ui.errors import CommandError
from tests.cli.observe.test_look import scripted
from tests.core.kube.api import Api
from tests.core.simulator.test_observed_replay import of, ran


def found(*, late: float = 101) -> Forecast:
    return of([ran("a", came=0, bound=0, ended=100, gpus=4), ran("b", came=10, bound=late, ended=160, gpus=3)])


def test_the_text_says_first_how_good_the_replay_is() -> None:
    assert render_report.text(found(), most=1).splitlines() == [
        "2 pods since 2026-11-28T11:00:00Z, mean wait 45s.",
        "A replay in the order of their own scheduler meets 100% of their starts within 10 s.",
        "In that order: 2 of 2 start, mean wait 45s, 0 device hours free while a pod waits.",
        "By Dovetail's queue and engine: 2 of 2 start, mean wait 45s, 0 device hours free while a pod waits.",
        "0 pods start sooner, 0 later, 2 within 10 s of each other.",
        "",
        "POD       DEVICES  WAITED  REPLAYED  DOVETAIL  GAIN",
        "vision/a  4        0s      0s        0s        0s",
        "… and 1 more: --all shows them, -o json has everything",
    ]


def test_a_poor_replay_warns_of_the_forecast() -> None:
    assert "do not rely on what follows" in render_report.text(found(late=150), most=None)


def test_json_has_every_pod() -> None:
    assert len(json.loads(render_report.render(found(), form="json", everything=False))["items"]) == 2


@pytest.mark.parametrize(("code", "lacks"), [("nodes", "nodes"), ("pods", "pods of all namespaces")])
async def test_a_report_names_the_right_that_is_missing(api: Api, cluster: Cluster, code: str, lacks: str) -> None:
    scripted(api, **{code: 403})
    with pytest.raises(CommandError, match=f"you may not list {lacks}"):
        await report(cluster)


async def test_a_cluster_without_gpu_pods_has_nothing_to_replay(api: Api, cluster: Cluster) -> None:
    scripted(api)
    with pytest.raises(CommandError, match="there is nothing to replay"):
        await report(cluster)

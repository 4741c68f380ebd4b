"""What ends a campaign before its jobs have ended, against an API server that plays its part from a script."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import template_of
from dovetail_cli.app import main
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.replay import campaign
from dovetail_cli.replay.tally import Counts, Tally
from dovetail_cli.ui.errors import CommandError, MissingError
from tests.cli.builders import make_gpunode, make_job
from tests.core.kube.api import Answer, Api, Stream

JOBS = "/apis/dovetail.dev/v1beta1/namespaces/replay/gpujobs"
ALL_JOBS = "/apis/dovetail.dev/v1beta1/gpujobs"
QUOTAS = "/apis/dovetail.dev/v1beta1/gpuquotas"
GPUNODES = "/apis/dovetail.dev/v1beta1/gpunodes"
CONFIG = "/api/v1/namespaces/dovetail-system/configmaps/dovetail-config"
NONE = Answer(body={"metadata": {"resourceVersion": "1"}, "items": []})
NO_CONFIG = Answer(status=404, body={"code": 404, "reason": "NotFound", "message": "none", "details": {"name": "x"}})


@pytest.fixture
def api(api: Api) -> Api:
    api.answer("POST /api/v1/namespaces", Answer(body={}))
    return api


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    return replace(cluster, namespace="replay")


def listing(*objects: Any) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "1"}, "items": [values_of(each) for each in objects]})


def ready_to_audit(api: Api) -> None:
    for path in ("/api/v1/pods", "/api/v1/nodes", ALL_JOBS, QUOTAS):
        api.answer(f"GET {path}", NONE)
    # One list for each driver.
    api.answer("GET /apis/resource.k8s.io/v1/resourceslices", *[NONE] * len(names.GPU_DRIVERS))
    api.answer(f"GET {CONFIG}", NO_CONFIG)


async def test_when_nothing_moves_any_more_the_campaign_ends_and_says_so(api: Api, cluster: Cluster) -> None:
    waiting = make_job("x", namespace="replay", phase="Queued", reason="Resources")
    api.answer(f"GET {JOBS}", NONE, NONE)
    api.answer(f"GET {GPUNODES}", listing(make_gpunode("a")), listing(make_gpunode("a")))
    api.answer(f"POST {JOBS}", Answer(body=values_of(waiting)))
    ready_to_audit(api)
    told = []
    ended = await campaign.run(
        cluster, jobs=[make_job("x")], watcher=lambda _tally, standing: told.append(standing), stalled_seconds=-1.0
    )
    assert "nothing has moved" in ended.problem
    assert told
    assert [report.devices for report in ended.audits] == [2]


async def test_jobs_that_are_there_already_are_not_mixed_with_new_ones(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {JOBS}", listing(make_job("x", namespace="replay")))
    with pytest.raises(CommandError, match='namespace replay has a job "x" already'):
        await campaign.run(cluster, jobs=[make_job("x"), make_job("y")], watcher=lambda *_: None)


async def test_a_cluster_without_dovetail_is_told_apart(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {JOBS}", Answer(status=404, body={"code": 404, "reason": "NotFound", "message": "no such kind"}))
    with pytest.raises(MissingError, match="install Dovetail's chart"):
        await campaign.run(cluster, jobs=[make_job("x")], watcher=lambda *_: None)


async def test_a_job_that_the_api_server_refuses_ends_the_campaign(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {JOBS}", NONE, NONE)
    api.answer(f"WATCH {JOBS}", Stream())
    api.answer(f"GET {GPUNODES}", listing(make_gpunode("a")))
    api.answer(f"POST {JOBS}", Answer(status=422, body={"code": 422, "reason": "Invalid", "message": "no such mode"}))
    with pytest.raises(Exception, match="no such mode") as refused:
        await campaign.run(cluster, jobs=[make_job("x")], watcher=lambda *_: None)
    assert "unhandled errors in a TaskGroup" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "Replay", "a/b", "x" * 64])
def test_a_namespace_that_cannot_be_is_refused_before_anything_starts(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--pods", "none.csv", "--namespace", name]) == 2
    assert f'--namespace "{name}": write up to 63 lower-case letters' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("phase", "seconds", "rightly"), [("Running", 30, 30), ("Starting", 30, 30), ("Queued", 30, 0)]
)
def test_a_campaign_stalls_only_after_the_longest_job_that_runs(phase: str, seconds: int, rightly: float) -> None:
    tally = Tally(jobs=3, nodes={})
    for name, lasts, its in (("short", 5, "Running"), ("long", seconds, phase)):
        job = make_job(name, namespace="replay", phase=its)
        template = template_of({"containers": [{"name": "main", "command": ["sleep", str(lasts)]}]})
        tally.saw(msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=template)), at=1.0)
    assert campaign._longest_run(tally) == max(5, rightly)
    assert campaign._longest_run(Tally(jobs=0, nodes={})) == 0


async def test_a_job_that_runs_for_long_is_no_stall(api: Api, cluster: Cluster) -> None:
    template = template_of({"containers": [{"name": "main", "command": ["sleep", "1000"]}]})
    job = make_job("x", namespace="replay", phase="Running")
    job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=template))
    api.answer(f"GET {JOBS}", NONE, listing(job))
    api.answer(f"GET {GPUNODES}", listing(make_gpunode("a")), listing(make_gpunode("a")))
    api.answer(f"POST {JOBS}", Answer(body=values_of(job)))
    ready_to_audit(api)
    looks = 0

    def over(_tally: Tally, _standing: Counts) -> bool:
        nonlocal looks
        looks += 1
        return looks == 3

    ended = await campaign.run(cluster, jobs=[job], watcher=lambda *_: None, over=over, stalled_seconds=-1.0)
    assert (ended.problem, looks) == ("", 3)

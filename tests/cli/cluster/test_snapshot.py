"""Reading the whole cluster from an API server that plays its part from a script; and the word while it takes long."""

import io
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import ResourceSlice as Slice
from dovetail.api.conversion import values_of
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.kube.errors import Forbidden
from dovetail_cli.cluster import snapshot
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.explain import reads
from dovetail_cli.ui import progress
from dovetail_cli.ui.errors import MissingError
from tests.cli.builders import make_gpunode, make_job, make_pod, make_quota
from tests.core.explain.builders import make_node
from tests.core.kube.api import Answer, Api

PODS, NODES = "GET /api/v1/pods", "GET /api/v1/nodes"
GPUNODES, JOBS = "GET /apis/dovetail.dev/v1beta1/gpunodes", "GET /apis/dovetail.dev/v1beta1/gpujobs"
QUOTAS = "GET /apis/dovetail.dev/v1beta1/gpuquotas"
BATCH_JOBS = "GET /apis/batch/v1/jobs"
NODE_POOLS = "GET /apis/karpenter.sh/v1/nodepools"
SLICES = "GET /apis/resource.k8s.io/v1/resourceslices"
CONFIG = "GET /api/v1/namespaces/dovetail-system/configmaps/dovetail-config"

MIX = "GET /api/v1/namespaces/dovetail-system/configmaps/dovetail-mix-of"
ESTIMATES = "GET /api/v1/namespaces/dovetail-system/configmaps/dovetail-estimates"


def page(*objects: Any, more: str = "") -> Answer:
    metadata = {"resourceVersion": "1", "continue": more}
    return Answer(body={"metadata": metadata, "items": [values_of(each) for each in objects]})


def refusal(code: int, reason: str) -> Answer:
    return Answer(status=code, body={"code": code, "reason": reason, "message": "no", "details": {"name": ""}})


@pytest.fixture
def api(api: Api) -> Api:
    api.answer(NODES, page(make_node("a")))
    api.answer(GPUNODES, page(make_gpunode("a")))
    api.answer(JOBS, page(make_job("x", number=1)))
    api.answer(BATCH_JOBS, refusal(403, "Forbidden"))
    api.answer(SLICES, refusal(403, "Forbidden"))
    api.answer(NODE_POOLS, refusal(403, "Forbidden"))
    for mix in ("jobs", "pods"):
        api.answer(f"{MIX}-{mix}", refusal(404, "NotFound"))
    api.answer(ESTIMATES, refusal(404, "NotFound"))
    api.answer(CONFIG, Answer(body={"data": {"gpu_config.yaml": "policy: Spread\n"}}))
    return api


async def test_everything_is_read_page_by_page_and_counted(api: Api, cluster: Cluster) -> None:
    api.answer(PODS, page(make_pod("p"), more="next"), page(make_pod("q")))
    api.answer(QUOTAS, page(make_quota(limit={"gpus": 3})))
    said: list[str] = []
    taken = await snapshot.take(cluster, say=said.append)
    assert [pod.metadata.name for pod in taken.pods] == ["p", "q"]
    assert (len(taken.nodes), len(taken.gpunodes), len(taken.jobs)) == (1, 1, 1)
    assert taken.settings.policy == "Spread"
    assert taken.quotas is not None
    assert [quota.spec.limits.gpus for quota in taken.quotas] == [3]
    assert said[:2] == ["Reading 1 pods …", "Reading 2 pods …"]
    assert taken.view().ledger.nodes() == ["a"]


async def test_who_may_not_see_quotas_sees_the_rest(api: Api, cluster: Cluster) -> None:
    api.answer(PODS, page(make_pod("p")))
    api.answer(QUOTAS, refusal(403, "Forbidden"))
    assert (await snapshot.take(cluster, say=lambda _: None)).quotas is None


def test_what_a_dra_driver_hands_out_shows_in_the_view() -> None:
    served = msgspec.convert({"metadata": {"name": "s"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "a"}}, Slice)
    taken = ClusterObjects(nodes=[make_node("a")], gpunodes=[], pods=[], jobs=[], settings=Settings(), slices=[served])
    assert "both Dovetail and the DRA driver" in taken.view().ledger.obstacle("a")


async def test_a_cluster_without_dovetail_is_told_apart(api: Api, cluster: Cluster) -> None:
    api.answer(PODS, refusal(404, "NotFound"))
    with pytest.raises(MissingError, match="install Dovetail's chart"):
        await snapshot.take(cluster, say=lambda _: None)


async def test_who_may_not_see_all_pods_gets_no_half_answer(api: Api, cluster: Cluster) -> None:
    api.answer(PODS, refusal(403, "Forbidden"))
    with pytest.raises(Forbidden):
        await snapshot.take(cluster, say=lambda _: None)


async def test_a_pod_or_a_job_that_is_not_there_is_missing(api: Api, cluster: Cluster) -> None:
    api.answer(QUOTAS, page())
    api.answer(PODS, page())
    taken = await snapshot.take(cluster, say=lambda _: None)
    api.answer("GET /api/v1/namespaces/default/pods/nope", refusal(404, "NotFound"))
    with pytest.raises(MissingError, match="no pod nope in namespace default"):
        await reads.find_pod("nope")(cluster, taken)
    with pytest.raises(MissingError, match="no job 9 in namespace default"):
        await reads.find_job("9")(cluster, taken)
    assert (await reads.find_job("1")(cluster, taken)).name == "x"
    asked = await reads.find_request("1", mode=None, policy=None, cpu=None, memory=None, workload=None)(cluster, taken)
    assert asked.ask is not None
    assert asked.ask.policy == "Spread"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_said_in_the_first_second_nor_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with progress.patiently(clock=iter([0.0, 0.9]).__next__) as say:
        say("Reading …")
    assert terminal.getvalue() == ""
    monkeypatch.setattr("sys.stderr", file := io.StringIO())
    with progress.patiently(clock=lambda: 9.0) as say:
        say("Reading …")
    assert file.getvalue() == ""


def test_what_takes_longer_is_said_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with progress.patiently(clock=iter([0.0, 1.1]).__next__) as say:
        say("Reading 5,000 nodes …")
    assert "Reading 5,000 nodes …" in terminal.getvalue()

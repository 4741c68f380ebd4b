"""The whole cluster at one moment: what cannot be read is left out where the answer does not rest on it."""

import pytest

from dovetail.engine.score.mix_record import EXTENDER_CONFIGMAP, KEY, QUEUE_CONFIGMAP
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden
from dovetail.kube.queries.cluster import read_cluster
from tests.core.kube.api import Answer, Api, listing, make_object, refusal

LISTS = (
    "/api/v1/pods",
    "/api/v1/nodes",
    "/apis/dovetail.dev/v1beta1/gpunodes",
    "/apis/dovetail.dev/v1beta1/gpujobs",
    "/apis/dovetail.dev/v1beta1/gpuquotas",
    "/apis/batch/v1/jobs",
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/karpenter.sh/v1/nodepools",
)
ESTIMATES = "GET /api/v1/namespaces/home/configmaps/dovetail-estimates"
MIX = '{"policy": "fgd", "arrivals": 7, "inUse": [[1, 1, 2, 1000, ["V100"], 3]], "counted": []}'


def cluster(api: Api, *, mix: Answer, estimates: Answer | None = None) -> None:
    """An empty cluster whose two mixes are answered alike."""
    api.answer(ESTIMATES, estimates or refusal(404))
    for path in LISTS:
        api.answer(f"GET {path}", *[listing(version=1)] * 4)
    api.answer("GET /api/v1/namespaces/home/configmaps/dovetail-config", refusal(404))
    for name in (QUEUE_CONFIGMAP, EXTENDER_CONFIGMAP):
        api.answer(f"GET /api/v1/namespaces/home/configmaps/{name}", mix)


def configmap(**data: str) -> Answer:
    return Answer(body=make_object("a-mix", version=5, namespace="home", data=data))


async def test_the_learned_mixes_are_read(api: Api, client: Client) -> None:
    cluster(api, mix=configmap(**{KEY: MIX}))
    found = await read_cluster(client, release_namespace="home", on_page=lambda _kind, _count: None)
    for record in (found.job_mix, found.pod_mix):
        assert record is not None
        assert (record.policy, record.mix.classes[0].models, record.mix.weights) == ("fgd", ("V100",), (3,))


@pytest.mark.parametrize(
    "mix",
    [refusal(404), refusal(403), configmap(), configmap(**{KEY: "{"})],
    ids=["not stored yet", "forbidden", "empty", "unreadable"],
)
async def test_without_readable_mixes_there_are_none(api: Api, client: Client, mix: Answer) -> None:
    cluster(api, mix=mix)
    found = await read_cluster(client, release_namespace="home", on_page=lambda _kind, _count: None)
    assert (found.job_mix, found.pod_mix) == (None, None)


@pytest.mark.parametrize("known", [{"factors": "2.5 0.5", "held": "1 1.00"}, {}])
async def test_what_was_learned_of_estimates_is_read_where_it_may_be(
    api: Api, client: Client, known: dict[str, str]
) -> None:
    cluster(api, mix=refusal(404), estimates=configmap(**known) if known else refusal(403))
    found = await read_cluster(client, release_namespace="home", on_page=lambda _kind, _count: None)
    assert found.estimates == known


async def test_each_mix_is_that_of_its_own_configmap(api: Api, client: Client) -> None:
    cluster(api, mix=refusal(404))
    api._script[f"GET /api/v1/namespaces/home/configmaps/{QUEUE_CONFIGMAP}"].clear()
    api.answer(f"GET /api/v1/namespaces/home/configmaps/{QUEUE_CONFIGMAP}", configmap(**{KEY: MIX}))
    found = await read_cluster(client, release_namespace="home", on_page=lambda _kind, _count: None)
    assert (found.job_mix is not None, found.pod_mix) == (True, None)


FORBIDDEN = {
    "/apis/dovetail.dev/v1beta1/gpuquotas": ("quotas", None),
    "/apis/batch/v1/jobs": ("batch_jobs", None),
    "/apis/resource.k8s.io/v1/resourceslices": ("slices", []),
    "/apis/karpenter.sh/v1/nodepools": ("node_pools", []),
}


@pytest.mark.parametrize("path", LISTS)
async def test_what_may_not_be_read_is_left_out_or_an_error_where_the_answer_rests_on_it(
    api: Api, client: Client, path: str
) -> None:
    cluster(api, mix=refusal(404))
    api._script[f"GET {path}"].clear()
    api.answer(f"GET {path}", *[refusal(403)] * 4)
    reading = read_cluster(client, release_namespace="home", on_page=lambda _kind, _count: None)
    if path not in FORBIDDEN:
        with pytest.raises(Forbidden):
            await reading
        return
    found, (name, left) = await reading, FORBIDDEN[path]
    assert getattr(found, name) == left
    others = [getattr(found, other) for other, _ in FORBIDDEN.values() if other != name]
    assert all(each == [] for each in others)


async def test_each_page_is_reported_with_its_kind(api: Api, client: Client) -> None:
    cluster(api, mix=refusal(404))
    api._script["GET /api/v1/pods"].clear()
    pods = [make_object(name, version=1) for name in "abc"]
    api.answer("GET /api/v1/pods", listing(*pods[:2], version=9, token="more"), listing(pods[2], version=9))
    told = list[tuple[str, int]]()
    found = await read_cluster(client, release_namespace="home", on_page=lambda kind, count: told.append((kind, count)))
    assert [each for each in told if each[0] == "pods"] == [("pods", 2), ("pods", 1)]
    assert {kind for kind, _ in told} == {"pods", "nodes", "gpunodes", "gpujobs", "jobs"}
    assert len(found.pods) == 3

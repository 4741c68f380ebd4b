"""A look at a cluster: what may not be listed is named, and hides nothing else."""

import pytest

from dovetail.api.resources import PODS
from dovetail.kube.client import Client
from dovetail.kube.queries.observed import read_observed
from tests.core.kube.api import Api, listing, make_object, refusal

LISTS = (
    "/api/v1/nodes",
    "/apis/dovetail.dev/v1beta1/gpunodes",
    "/api/v1/resourcequotas",
    "/api/v1/events",
)
EVERYWHERE, OWN = "GET /api/v1/pods", "GET /api/v1/namespaces/team/pods"


@pytest.fixture(autouse=True)
def empty(api: Api) -> None:
    for path in LISTS:
        api.answer(f"GET {path}", listing(version=1))
    for version in ("v1beta2", "v1beta1"):
        for plural in ("workloads", "clusterqueues"):
            api.answer(f"GET /apis/kueue.x-k8s.io/{version}/{plural}", refusal(404))


async def test_the_pods_of_all_namespaces_are_asked_once(api: Api, client: Client) -> None:
    api.answer(EVERYWHERE, listing(make_object("a", version=1, namespace="other"), version=1))
    seen = await read_observed(client, namespace="team")
    assert ([pod.metadata.name for pod in seen.pods], seen.everywhere, seen.unlisted) == (["a"], True, [])
    assert api.of(OWN) == []


async def test_who_may_not_list_them_sees_those_of_the_own_namespace(api: Api, client: Client) -> None:
    api.answer(EVERYWHERE, refusal(403))
    api.answer(OWN, listing(make_object("b", version=1, namespace="team"), version=1))
    seen = await read_observed(client, namespace="team")
    assert ([pod.metadata.name for pod in seen.pods], seen.everywhere) == (["b"], False)
    assert (seen.unlisted, seen.blind) == ([PODS], False)


async def test_who_may_list_neither_pods_nor_nodes_is_blind(api: Api, client: Client) -> None:
    api._script["GET /api/v1/nodes"].clear()
    for path in (EVERYWHERE, OWN, "GET /api/v1/nodes"):
        api.answer(path, refusal(403))
    seen = await read_observed(client, namespace="team")
    assert (list(seen.pods), seen.blind) == ([], True)

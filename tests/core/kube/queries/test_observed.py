"""A look at a cluster: what may not be listed is named, and hides nothing else."""

from random import Random
from typing import Any

import pytest

from dovetail.api.kueue import CLUSTERQUEUES, WORKLOADS
from dovetail.api.resources import EVENTS, GPUNODES, NODES, PODS, RESOURCEQUOTAS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, NotFound, Status
from dovetail.kube.queries.observed import read_observed
from tests.core.kube.api import Api, listing, make_object, refusal
from tests.core.kube.queries.test_whole_picture import Server

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


async def test_kueues_objects_are_those_of_the_version_that_has_any(api: Api, client: Client) -> None:
    api.answer(EVERYWHERE, listing(version=1))
    api._script["GET /apis/kueue.x-k8s.io/v1beta2/workloads"].clear()
    api._script["GET /apis/kueue.x-k8s.io/v1beta1/workloads"].clear()
    api.answer("GET /apis/kueue.x-k8s.io/v1beta2/workloads", listing(version=1))
    api.answer("GET /apis/kueue.x-k8s.io/v1beta1/workloads", listing(make_object("w", version=1), version=1))
    seen = await read_observed(client, namespace="team")
    assert [each.metadata.name for each in seen.workloads] == ["w"]


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_may_not_be_listed_is_named_and_the_rest_is_there(seed: int) -> None:
    """Any of the lists may be refused, or be of a kind that the cluster does not have."""
    rng = Random(seed)
    objects = {
        "pods": [make_object("a", version=1, namespace="other"), make_object("b", version=1, namespace="team")],
        **{kind: [make_object(kind, version=1)] for kind in ("nodes", "gpunodes", "resourcequotas", "events")},
        **{kind: [make_object(kind, version=1)] for kind in ("workloads", "clusterqueues")},
    }
    for items in objects.values():
        for each in items:
            each["metadata"]["labels"] = {}
    kinds = {
        "nodes": NODES, "gpunodes": GPUNODES, "resourcequotas": RESOURCEQUOTAS, "events": EVENTS,
        "workloads": WORKLOADS[0], "clusterqueues": CLUSTERQUEUES[0],
    }  # fmt: skip
    for _ in range(40):
        refused = {kind for kind in (*kinds, "pods everywhere", "pods of team") if rng.random() < 0.4}
        absent = {kind for kind in kinds if rng.random() < 0.2} - {"nodes"}

        class Refusing(Server):
            async def list(self, resource: Resource, **asked: Any) -> Any:
                called = resource.plural
                if called == "pods":
                    called = f"pods {'everywhere' if asked.get('namespace') is None else 'of team'}"
                if called in absent:  # noqa: B023 - it is asked before the next turn
                    raise NotFound(Status(code=404))
                if called in refused:  # noqa: B023
                    raise Forbidden(Status(code=403))
                # The reasons of events are chosen by the API server.
                return await super().list(resource, **{**asked, "field_selector": None})

        seen = await read_observed(Refusing(objects), namespace="team")  # type: ignore[arg-type] # what it calls of one
        everywhere = "pods everywhere" not in refused
        own = everywhere or "pods of team" not in refused
        assert [pod.metadata.name for pod in seen.pods] == (["a", "b"] if everywhere else ["b"] if own else [])
        hidden = refused - absent
        wanted = [*([] if everywhere else [PODS]), *(kinds[kind] for kind in kinds if kind in hidden)]
        assert (seen.everywhere, seen.unlisted) == (everywhere, wanted)
        assert seen.blind == ("nodes" in hidden and not own)
        assert (seen.nodes is None) == ("nodes" in hidden)
        for kind in ("gpunodes", "resourcequotas", "events", "workloads", "clusterqueues"):
            found = getattr(seen, {"resourcequotas": "quotas"}.get(kind, kind))
            assert [each.metadata.name for each in found] == ([] if kind in hidden | absent else [kind]), kind

"""Every route of the table × every reader: no byte of an answer has a mark of a tenant that the reader may not list."""

import itertools
import json
from datetime import timedelta
from typing import Any

import pytest

from dovetail_gateway.access.legacy_account import Account
from dovetail_gateway.app import Options
from dovetail_gateway.routing.table import Route
from tests.gateway.canary.expected import words_hidden_from
from tests.gateway.canary.objects import EMPTY, NAMESPACES, ONE, SETTINGS, TENANTS, TOKENS, TWO, Tenant
from tests.gateway.canary.rbac import RbacApiServer
from tests.gateway.openapi import table
from tests.gateway.samples.week import Clock
from tests.gateway.served import NOW, Face, Reply, serving

ROUTES = [each for each in table() if each.media_type != "text/event-stream"]
READERS = [*TOKENS, "unknown-token", ""]
# Of each tenant: jobs of several kinds, one that cannot be read, and one that does not exist.
NAMES = ("train", "waits", "next", "broken", "none")
# What is asked of routes about the past; the namespace is that of a tenant.
QUERIES = {
    "/api/v3/series": (
        "of=Cluster", "of=Model", "of=Namespace", "of=Node&name=one", "of=Device&name=one", "of=Device&name=two",
        "of=Namespace&name={namespace}", "of=Project", "of=Job&namespace={namespace}&name=train",
    ),
    "/api/v3/devices/then": ("at=2026-11-01T00:10:00Z",),
    "/api/v3/moves": ("jobs={namespace}/train", "jobs={namespace}/waits,{namespace}/next", "jobs={namespace}/none"),
    "/api/v3/usage": tuple(f"by={by}" for by in ("Namespace", "Project", "User", "Model", "Day")),
}  # fmt: skip
TEMPLATE = {"spec": {"containers": [{"name": "m", "image": "x"}]}}
TASK = {"model": "m", "num_classes": 2, "train_path": "/t", "val_path": "/v", "save_path": "/s", "device": "cuda:9"}


def bodies(namespace: str, name: str) -> dict[str, list[Any]]:
    """What is asked of each route that takes a body."""
    return {
        "/api/v1/gpu/validate": [{"gpu_count": 1}, {"gpu_count": 9}, {"gpu_requirement": "0.5"}],
        "/api/v1/gpu/allocate": [{"gpu_count": 4}],
        "/api/v1/gpu/setup-pytorch": [{"allocation_id": name}],
        "/api/v1/gpu/setup-tensorflow": [{"allocation_id": name}],
        "/api/v2/training/start": [TASK],
        "/api/v2/inference/start": [{"cfg_path": "/c", "weight_path": "/w", "source_path": "/s"}],
        "/api/v2/resources/config": [{"max_concurrent": {"cuda:0": {"training": 2}}}],
        "/api/v3/jobs": [{"namespace": namespace, "name": name, "spec": {"gpu": 1, "template": TEMPLATE}}],
        "/api/v3/jobs/{namespace}/{name}": [{"priority": 11}],
        "/api/v3/jobs/{namespace}/{name}/effects": [{"cancel": True}, {"priority": 250}],
        "/api/v3/quotas/{name}": [{"spec": {"guaranteed": {"gpus": 1}}}],
        "/api/v3/quotas/{name}/effects": [{"spec": {"guaranteed": {"gpus": 9}, "namespaces": [namespace]}}],
        "/api/v3/dry-run": [
            {"namespace": namespace, "spec": {"gpu": gpu, "workers": workers, "template": TEMPLATE, "priority": 250}}
            for gpu, workers in ((8, 2), ("0.5", 1), ("3g.40gb", 1))
        ],
    }


def asked(each: Route, namespace: str, name: str) -> list[dict[str, Any]]:
    """The options of the requests to a route."""
    return [{"json": body} for body in bodies(namespace, name)[each.path]] if each.body_type is not None else [{}]


def targets(each: Route) -> list[tuple[str, str]]:
    """Namespaces and names that a route is asked about; routes without a name are asked once for each namespace."""
    if "{namespace}" in each.path:
        return list(itertools.product((ONE.namespace, TWO.namespace), NAMES))
    if "/quotas/" in each.path:
        return [(ONE.namespace, name) for name in ("together", "tree", ONE.mark("quota"), TWO.mark("branch"), "none")]
    if "{name}" in each.path:
        return [(ONE.namespace, name) for name in ("one", "two", "none")]
    if each.path in QUERIES:
        return [(namespace, name) for namespace in (ONE.namespace, TWO.namespace) for name in QUERIES[each.path]]
    if "{id}" in each.path or each.body_type is not None:
        return list(itertools.product((ONE.namespace, TWO.namespace), ("alloc", "failed")))
    return [(ONE.namespace, "none")]


def leaks(reply: Reply, *, hidden: list[str], repeats: tuple[str, ...]) -> list[str]:
    """The hidden words in an answer. An error may repeat what its request or the configuration names."""
    sent = reply.text + json.dumps(dict(reply.headers))
    for each in repeats if reply.status >= 400 or '"found":' in reply.text else ():
        sent = sent.replace(each, "")
    return [word for word in hidden if word in sent]


# With v1's allocations and v2's tasks where the reader may see them, and where not; and with scripts' own account.
SETUPS = [
    Options(rates=None, allocation_namespace=ONE.namespace),
    Options(rates=None, allocation_namespace=TWO.namespace),
    Options(rates=None, allocation_namespace=EMPTY, legacy=Account(namespace=ONE.namespace, name="scripts")),
]


@pytest.mark.parametrize("options", SETUPS, ids=["tasks of the first", "tasks of the second", "account of scripts"])
async def test_no_answer_has_a_mark_of_a_tenant_that_the_reader_may_not_list(
    cluster: RbacApiServer, options: Options
) -> None:
    cluster.add_user("red-token", ONE.user)
    # v3 has no namespace of its own.
    routes = ROUTES if options is SETUPS[0] else [each for each in ROUTES if each.tag != "v3"]
    found = list[str]()
    clock = Clock()
    async with serving(cluster, options=options, settings=SETTINGS, wait_seconds=0.01, now=clock) as face:
        for _ in range(3):
            await face.made.sampler.sample()
            clock.move(minutes=10)
        for each in routes:
            for token in READERS:
                found += await _of_route(
                    cluster, face, each, token=token, namespace_of_tasks=options.allocation_namespace
                )
    assert not found, "\n".join(found)


async def _of_route(
    cluster: RbacApiServer, face: Face, each: Route, *, token: str, namespace_of_tasks: str
) -> list[str]:
    # Without a token, the account of scripts reads what its tenant may read.
    reader = token if token in cluster.users else "red-token"
    hidden = words_hidden_from(cluster.visible_to(reader, list(NAMESPACES)))
    found = list[str]()
    for namespace, name in targets(each) if hidden else ():
        path = each.path.format(namespace=namespace, name=name, id=name)
        if each.path in QUERIES:
            path += "?" + name.format(namespace=namespace)
        for options in asked(each, namespace, name):
            saved = {kind: dict(objects) for kind, objects in cluster.objects.items()}
            reply = await face.ask(each.method, path, token=token, **options)
            assert reply.status < 500 or each.path.endswith("/health"), (each.operation, token, reply.text)
            own = (name,) if "/quotas/" in each.path else ()
            wrong = leaks(reply, hidden=hidden, repeats=(namespace, namespace_of_tasks, *own))
            found += [f"{each.operation} as {token} of {namespace}/{name}: {word} in {reply.text}" for word in wrong]
            await _restore(cluster, saved)
    return found


async def _restore(cluster: RbacApiServer, saved: dict[str, dict[str, Any]]) -> None:
    """Undo what a request has changed, so that each of them meets the same cluster."""
    for kind, objects in saved.items():
        for key in cluster.objects[kind].keys() - objects.keys():
            cluster.delete(kind, key)
        for key in objects.keys() - cluster.objects[kind].keys():
            cluster.put(kind, objects[key])


@pytest.mark.parametrize("reader", TENANTS, ids=lambda tenant: tenant.word)
async def test_a_hidden_job_and_none_look_the_same(face: Face, reader: Tenant) -> None:
    """The answer about a job of another tenant is that about a job that does not exist."""
    other, token = next(each for each in TENANTS if each is not reader), f"{reader.word}-token"
    for each in [each for each in ROUTES if "{namespace}" in each.path]:
        known, unknown = [await _about(face, each, other.namespace, name, token=token) for name in ("train", "none")]
        assert known == unknown, each.operation
        nowhere = await _about(face, each, "none-ns", "none", token=token)
        assert known == nowhere, each.operation


async def _about(face: Face, each: Route, namespace: str, name: str, *, token: str) -> tuple[int, str]:
    path = each.path.format(namespace=namespace, name=name)
    reply = await face.ask(each.method, path, token=token, **asked(each, namespace, name)[0])
    return reply.status, reply.text.replace(namespace, "NAMESPACE").replace(name, "NAME")


@pytest.mark.parametrize("query", [
    "jobs?namespace={other}-ns", "jobs?user={other}-user", "jobs?project={other}-project", "jobs?cursor={other}-ns/a",
    "jobs?phase=Running", "jobs?unfinished=true", "plan?namespace={other}-ns", "plan?bounded=true",
    "right-sizes?namespace={other}-ns", "jobs?limit=1", "plan?limit=1", "right-sizes?limit=1", "nodes?model=V100",
])  # fmt: skip
@pytest.mark.parametrize("reader", TENANTS, ids=lambda tenant: tenant.word)
async def test_no_filter_finds_what_the_reader_may_not_list(face: Face, reader: Tenant, query: str) -> None:
    other = next(each for each in TENANTS if each is not reader)
    path, hidden, rows = f"/api/v3/{query.format(other=other.word)}", [other.word], 0
    for _ in range(20):
        reply = await face.get(path, token=f"{reader.word}-token")
        assert reply.status == 200
        assert not leaks(reply, hidden=hidden, repeats=())
        rows += len(reply.json["items"])
        if reply.json["next"] is None:
            break
        path = f"/api/v3/{query.partition('&')[0]}&cursor={reply.json['next']}"
    assert ("{other}" in query and "cursor" not in query) <= (rows == 0)


async def test_who_may_list_all_gets_the_marks_of_both(face: Face) -> None:
    """The fixture has marks to hide, so that the tests above show something."""
    for minutes in (0, 10):
        face.made.sampler._now = lambda minutes=minutes: NOW + timedelta(minutes=minutes)
        await face.made.sampler.sample()
    for path in (
        "v3/jobs", "v3/nodes", "v3/quotas", "v3/snapshot", "v3/plan", "v1/gpu/monitoring", "v3/right-sizes",
        "v3/series?of=Namespace", "v3/usage?by=User", "v3/usage?by=Project",
    ):  # fmt: skip
        reply = await face.get(f"/api/{path}", token="admin-token")
        assert leaks(reply, hidden=[each.word for each in TENANTS], repeats=()) == [each.word for each in TENANTS], path

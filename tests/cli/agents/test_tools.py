"""The tools on the cluster of two tenants with equal names: each says and changes what its namespace has alone."""

import copy
from collections.abc import AsyncIterator
from random import Random
from typing import Any, Final

import pytest
from aiohttp import web
from mcp import Client as Agent

from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_cli.agents import reads
from dovetail_cli.agents.server import build
from dovetail_cli.agents.session import Session
from dovetail_cli.cluster.connection import Cluster, leave_out
from tests.cli import test_two_tenants
from tests.extender.api_server import _status
from tests.gateway.canary.cluster import fill
from tests.gateway.canary.objects import ONE, TENANTS, TWO, Tenant

ENDED: Final = {"Succeeded", "Failed", "Cancelled", "TimedOut"}


class Server(test_two_tenants.Server):
    """It remembers patches, and refuses one of another version or object, as the real one does."""

    def __init__(self) -> None:
        super().__init__()
        self.patches: list[dict[str, Any]] = []
        self.tails: list[str] = []

    async def _log(self, request: web.Request) -> web.StreamResponse:
        self.tails.append(request.query["tailLines"])
        return await super()._log(request)

    async def _patch(self, request: web.Request) -> web.Response:
        patch, key = await request.json(), "{namespace}/{name}".format(**request.match_info)
        self.patches.append(patch)
        known = self.objects["gpujobs"][key]["metadata"]
        bound = patch.get("metadata", {})
        if any(bound.get(name, known[name]) != known[name] for name in ("uid", "resourceVersion")):
            return _status(409, "Conflict", "the object has been modified")
        return await super()._patch(request)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server().running() as made:
        fill(made)
        yield made


class Tools:
    """The tools of a session whose own namespace is one of neither tenant."""

    def __init__(self, session: Session) -> None:
        self._server = build(session, read_only=False)

    async def _called(self, tool: str, *, arguments: dict[str, Any]) -> Any:
        # The protocol's client has to be left in the task that has entered it.
        async with Agent(self._server) as agent:
            return await agent.call_tool(tool, arguments)

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = await self._called(tool, arguments=arguments)
        assert not answer.is_error, answer.content
        found: dict[str, Any] = answer.structured_content
        return found

    async def refused(self, tool: str, **arguments: Any) -> str:
        answer = await self._called(tool, arguments=arguments)
        assert answer.is_error
        return str(answer.content[0].text)


@pytest.fixture
async def tools(server: Server) -> AsyncIterator[Tools]:
    made = Connection(server=server.connection.server, token="admin-token")
    async with Client(made, on_unreadable=leave_out) as client:
        yield Tools(Session(cluster=Cluster(client=client, namespace="default")))


@pytest.fixture(params=TENANTS, ids=lambda tenant: tenant.word)
def tenant(request: pytest.FixtureRequest) -> Tenant:
    found: Tenant = request.param
    return found


def jobs_of(server: Server, tenant: Tenant) -> dict[str, Any]:
    return {
        each["metadata"]["name"]: each
        for each in server.objects["gpujobs"].values()
        if each["metadata"]["namespace"] == tenant.namespace and isinstance(each["spec"].get("workers", 1), int)
    }


async def test_the_jobs_are_those_of_the_namespace_that_are_asked_for(server: Server, tools: Tools) -> None:
    rng = Random(1)
    for _ in range(8):
        tenant, finished, limit = rng.choice(TENANTS), rng.random() < 0.5, rng.randrange(1, 9)
        states = rng.choice([None, "PD,R", "Running"])
        found = await tools("list_jobs", namespace=tenant.namespace, finished=finished, states=states, limit=limit)
        phases = {name: job["status"].get("phase") or "Queued" for name, job in jobs_of(server, tenant).items()}
        wanted = {name for name, phase in phases.items() if finished or phase not in ENDED}
        if states is not None:
            chosen = {"PD,R": {"Queued", "Starting", "Running"}, "Running": {"Running"}}[states]
            wanted = {name for name, phase in phases.items() if phase in chosen}
        items = found["items"]
        assert {row["namespace"] for row in items} <= {tenant.namespace}
        assert {row["name"] for row in items} <= wanted, (states, finished)
        assert (len(items), found["left_out"]) == (min(limit, len(wanted)), max(0, len(wanted) - limit))


async def test_a_job_is_shown_with_its_own_events_log_and_reason(server: Server, tools: Tools, tenant: Tenant) -> None:
    where, other = {"namespace": tenant.namespace}, TWO if tenant is ONE else ONE
    numbers = {name: job["status"].get("number") for name, job in jobs_of(server, tenant).items()}
    for word in ("train", numbers["train"], str(numbers["train"])):
        shown = await tools("show_job", job=word, **where)
        assert (shown["row"]["namespace"], shown["row"]["name"]) == (tenant.namespace, "train")
        assert [each["message"] for each in shown["events"]] == [f"{tenant.word}-line-of-event"]
        assert other.word not in str(shown)
    for worker, lines in ((0, 7), (1, 100)):
        found = await tools("read_log", job="train", worker=worker, lines=lines, **where)
        assert found == {"lines": [f"{tenant.word}-line-of-train-{worker}"]}
        assert server.tails[-1] == str(lines)
    explained = await tools("explain_job", job="waits", **where)
    assert (explained["namespace"], explained["name"]) == (tenant.namespace, "waits")
    assert await tools.refused("show_job", job="train") == "no job train"


async def test_the_history_is_asked_for_that_namespace_since_then_and_no_more_rows(
    server: Server, tools: Tools, tenant: Tenant
) -> None:
    record = {
        "uid": "u", "namespace": tenant.namespace, "name": "train", "number": 3, "phase": "Succeeded",
        "submitted": "2026-11-01T00:00:00Z", "ended": "2026-11-02T00:00:00Z",
    }  # fmt: skip
    for following in ("", "after"):
        server.answer = {"answered": True, "records": [record], "next": following}
        server.requests.clear()
        found = await tools("history", namespace=tenant.namespace, since="2026-11-01T10:00:00Z", limit=7)
        assert ([each["name"] for each in found["items"]], found["more"]) == (["train"], bool(following))
        assert [key for _, verb, key in server.requests if verb == "create"] == [f"{tenant.namespace}/query"]
        assert {name: server.questions[-1].get(name) for name in ("since", "limit")} == {
            "since": "2026-11-01T10:00:00Z",
            "limit": 7,
        }


@pytest.mark.parametrize(
    ("kind", "arguments", "spec"),
    [
        ("cancel", {}, {"cancel": True}),
        ("change", {"held": True}, {"suspend": True}),
        ("change", {"held": False, "priority": 0}, {"suspend": False, "priority": 0}),
        ("change", {"priority": 77}, {"priority": 77}),
    ],
)
async def test_what_was_shown_is_done_to_that_very_job(
    server: Server, tools: Tools, tenant: Tenant, kind: str, arguments: dict[str, Any], spec: dict[str, Any]
) -> None:
    before, key = copy.deepcopy(server.objects["gpujobs"]), f"{tenant.namespace}/waits"
    shown = await tools(f"preview_{kind}", job="waits", namespace=tenant.namespace, **arguments)
    assert (shown["job"]["namespace"], shown["change"]) == (tenant.namespace, spec)
    assert server.objects["gpujobs"] == before, "a preview changes nothing"
    done = await tools(f"{kind}_job", preview_id=shown["preview_id"])
    assert (done["job"]["namespace"], done["job"]["name"]) == (tenant.namespace, "waits")
    after = server.objects["gpujobs"]
    assert {name for name, job in after.items() if job["spec"] != before[name]["spec"]} == {key}
    assert after[key]["spec"] == before[key]["spec"] | spec
    known = before[key]["metadata"]
    assert server.patches[-1]["metadata"] == {"uid": known["uid"], "resourceVersion": known["resourceVersion"]}
    assert "it was used" in await tools.refused(f"{kind}_job", preview_id=shown["preview_id"])


@pytest.mark.parametrize("changed", ["resourceVersion", "uid"])
async def test_a_job_that_is_another_by_now_stays_as_it_is(
    server: Server, tools: Tools, tenant: Tenant, changed: str
) -> None:
    shown = await tools("preview_cancel", job="waits", namespace=tenant.namespace)
    job = server.objects["gpujobs"][f"{tenant.namespace}/waits"]
    job["metadata"][changed] = "999"
    assert "has changed since the preview" in await tools.refused("cancel_job", preview_id=shown["preview_id"])
    assert not job["spec"].get("cancel")


async def test_a_preview_is_for_its_own_kind_of_change_and_for_who_saw_it(server: Server, tools: Tools) -> None:
    shown = await tools("preview_change", job="waits", namespace=ONE.namespace, held=True)
    assert "it is of change_job" in await tools.refused("cancel_job", preview_id=shown["preview_id"])
    admin = server.users["admin-token"]
    server.users["admin-token"] = server.users["quokka-token"]
    assert "it was for" in await tools.refused("change_job", preview_id=shown["preview_id"])
    server.users["admin-token"] = admin
    assert "no such preview" in await tools.refused("change_job", preview_id="none")
    assert not server.patches


async def test_what_has_ended_or_says_no_change_has_no_preview(tools: Tools, tenant: Tenant) -> None:
    where = {"namespace": tenant.namespace}
    assert "has ended already" in await tools.refused("preview_cancel", job="done", **where)
    assert "say what to change" in await tools.refused("preview_change", job="waits", **where)
    assert "priority" in await tools.refused("preview_change", job="waits", priority=256, **where)


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("list_jobs", {"limit": 0}, "limit 0: must be from 1 to 200"),
        ("list_jobs", {"limit": 201}, "limit 201: must be from 1 to 200"),
        ("history", {"limit": 201}, "limit 201: must be from 1 to 200"),
        ("read_log", {"job": "train", "lines": 1001}, "lines 1001: must be from 1 to 1000"),
        ("read_log", {"job": "train", "worker": -1}, "worker -1: workers count from 0"),
        ("list_jobs", {"name": "x"}, "name: list_jobs has no such argument"),
        ("read_log", {"job": "train", "lines": "many"}, 'lines "many": '),
        ("show_job", {}, "job: this argument is missing"),
    ],
)
async def test_a_wrong_argument_is_named(tools: Tools, tool: str, arguments: dict[str, Any], sentence: str) -> None:
    assert sentence in await tools.refused(tool, **arguments)


async def test_who_and_what_there_is_belongs_to_no_namespace(server: Server, tools: Tools) -> None:
    who = await tools("whoami")
    assert (who["user"], who["namespace"]) == ("admin-user", "default")
    nodes = await tools("list_nodes")
    assert {each["name"] for each in nodes["nodes"]} == set(server.objects["gpunodes"])
    quotas = await tools("list_quotas")
    assert {each["name"] for each in quotas["items"]} == set(server.objects["gpuquotas"])
    assert (reads.MOST_ROWS, reads.MOST_LINES) == (200, 1000)

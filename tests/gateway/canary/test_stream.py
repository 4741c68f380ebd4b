"""After each change of rights and objects, a stream holds what the objects say for its reader, and nothing else."""

import json
from collections.abc import Callable
from typing import Any

from dovetail_gateway.app import Options
from dovetail_gateway.routing.open_streams import Times
from tests.gateway.canary import counted, expected
from tests.gateway.canary.objects import EMPTY, NAMESPACES, ONE, SETTINGS, TWO
from tests.gateway.canary.rbac import RbacApiServer
from tests.gateway.served import Face, serving
from tests.gateway.test_stream import Event, Reader, stream

TOKEN, USER = "follower-token", "follower-user"
Change = Callable[[RbacApiServer], None]


def gets(namespace: str) -> Change:
    return lambda api: api.grant("editor", USER, namespace=namespace)


def loses(namespace: str) -> Change:
    return lambda api: api.revoke("editor", USER, namespace=namespace)


# One change in each step: a review asks about one namespace after the other, and would see neither of two that change
# places meanwhile, which ends the stream.
WALK: list[tuple[str, Change]] = [
    ("a second tenant", gets(TWO.namespace)),
    ("the first one lost", loses(ONE.namespace)),
    ("both again", gets(ONE.namespace)),
    ("the second one lost", loses(TWO.namespace)),
    ("a namespace without anything", gets(EMPTY)),
]


class Follower:
    """A page that keeps rows by the stream's events, as docs/rest.md says: it takes a new snapshot on `resync`."""

    def __init__(self, face: Face) -> None:
        self.face = face
        self.jobs: dict[tuple[str, str], Any] = {}
        self.nodes: dict[str, Any] = {}

    async def take_snapshot(self) -> str:
        found = (await self.face.get("/api/v3/snapshot", token=TOKEN)).json
        self.jobs = {(row["namespace"], row["name"]): row for row in found["jobs"]}
        self.nodes = {row["name"]: row for row in found["nodes"]}
        return f"{found['epoch']}:{found['seq']}"

    async def follow(self, event: Event) -> None:
        if event.name == "resync":
            await self.take_snapshot()
            return
        assert event.name == "delta", event.data
        self.jobs |= {(row["namespace"], row["name"]): row for row in event.data["jobs"]}
        self.nodes |= {row["name"]: row for row in event.data["nodes"]}
        for gone in event.data["goneJobs"]:
            self.jobs.pop((gone["namespace"], gone["name"]), None)
        for name in event.data["goneNodes"]:
            self.nodes.pop(name, None)

    async def until_job(self, reader: Reader, name: str, *, hidden: list[str]) -> None:
        """Follow until this job is there; no event names anything hidden."""
        while not any(key[1] == name for key in self.jobs):
            event = await reader.next()
            leaked = [word for word in hidden if word in json.dumps(event.data)]
            assert not leaked, (name, leaked, event.data)
            await self.follow(event)

    def check(self, api: RbacApiServer) -> None:
        sees = api.visible_to(TOKEN, list(NAMESPACES))
        jobs = {(row["namespace"], row["name"]): row for row in map(expected.job_row, counted.jobs(api, sees))}
        wrong = expected.differences(sorted(self.jobs), sorted(jobs), at="jobs")
        wrong += [each for key in jobs for each in expected.differences(self.jobs.get(key), jobs[key], at=str(key))]
        nodes = {row["name"]: row for row in expected.node_rows(api, sees)}
        wrong += expected.differences(self.nodes, nodes, at="nodes")
        assert not wrong, "\n".join(wrong)


def change(api: RbacApiServer, *, step: int) -> None:
    """Jobs and pods of both tenants come, change and go."""
    for tenant in (ONE, TWO):
        template = api.objects["gpujobs"][f"{tenant.namespace}/cpu"]
        meta = template["metadata"] | {"name": f"new-{step}", "uid": f"{tenant.word}-{step}"}
        api.put("gpujobs", template | {"metadata": meta})
        if step:
            api.delete("gpujobs", f"{tenant.namespace}/new-{step - 1}")
        waits = api.objects["gpujobs"][f"{tenant.namespace}/waits"]
        api.put("gpujobs", waits | {"status": waits["status"] | {"message": tenant.mark("step", str(step))}})
        pod = api.objects["pods"][f"{tenant.namespace}/share-0"]
        api.put("pods", pod | {"status": {"phase": "Running" if step % 2 else "Succeeded"}})


async def test_a_stream_shows_what_its_reader_may_see_after_each_change_of_rights(cluster: RbacApiServer) -> None:
    cluster.add_user(TOKEN, USER)
    cluster.grant("editor", USER, namespace=ONE.namespace)
    times = Times(review_seconds=0.1, heartbeat_seconds=0.05)
    options = Options(rates=None, allocation_namespace=ONE.namespace, stream_times=times)
    async with serving(cluster, options=options, settings=SETTINGS) as face:
        follower = Follower(face)
        since = await follower.take_snapshot()
        async with stream(face, token=TOKEN, since=since) as reader:
            await _changed(cluster, follower, reader, step=0)
            for step, (_, rights) in enumerate(WALK, start=1):
                rights(cluster)
                await _follow_until_resync(follower, reader)
                await _changed(cluster, follower, reader, step=step)
            for namespace in (ONE.namespace, EMPTY):
                cluster.revoke("editor", USER, namespace=namespace)
            assert "may not watch" in (await reader.until("bye")).data["why"]


async def _follow_until_resync(follower: Follower, reader: Reader) -> None:
    while (event := await reader.next()).name != "resync":
        await follower.follow(event)
    await follower.follow(event)


async def _changed(api: RbacApiServer, follower: Follower, reader: Reader, *, step: int) -> None:
    hidden = expected.words_hidden_from(api.visible_to(TOKEN, list(NAMESPACES)))
    change(api, step=step)
    # What comes last, in a namespace that the reader sees.
    sees = api.visible_to(TOKEN, list(NAMESPACES)) or frozenset()
    last = json.loads(json.dumps(api.objects["gpujobs"][f"{ONE.namespace}/cpu"]).replace(ONE.word, "last"))
    meta = last["metadata"] | {
        "namespace": next(iter(sees - {EMPTY}), EMPTY),
        "name": f"last-{step}",
        "uid": f"last-{step}",
    }
    api.put("gpujobs", last | {"metadata": meta, "status": last["status"] | {"message": ""}})
    await follower.until_job(reader, f"last-{step}", hidden=hidden)
    follower.check(api)

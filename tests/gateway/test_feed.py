"""Who follows the deltas from any position has what a new snapshot has, or is told to take one."""

import json
from random import Random
from typing import Any

import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.decoding import decode
from dovetail_gateway.access.visibility import EVERYTHING, Visibility
from dovetail_gateway.cluster.cache import Changes
from dovetail_gateway.stream import feed as module
from dovetail_gateway.stream.feed import Feed
from tests.gateway.builders import make_job
from tests.gateway.test_v1 import use_of

State = tuple[dict[str, Any], dict[str, Any]]
AUDIENCES = (EVERYTHING, Visibility(frozenset({"red"})), Visibility(frozenset({"red", "blue"})))


class Cluster:
    """What the feed reads of the cache; two tenants have jobs of equal names."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.jobs: dict[str, GPUJob] = {}
        self.gpunodes: dict[str, Any] = {}
        self.obstacle = ""
        self.number = 0
        self._changes = Changes()

    def take_changes(self) -> Changes:
        found, self._changes = self._changes, Changes()
        return found

    def node_use(self, name: str) -> Any:
        return self.gpunodes.get(name)

    def node_uses(self) -> list[Any]:
        return list(self.gpunodes.values())

    def change(self) -> None:
        self.number += 1
        if self.rng.random() < 0.7:
            namespace, name = self.rng.choice(["red", "blue"]), self.rng.choice("abc")
            key = f"{namespace}/{name}"
            self._changes.jobs.add(key)
            if key in self.jobs and self.rng.random() < 0.3:
                del self.jobs[key]
            else:
                made = make_job(name, namespace=namespace, number=self.number)
                self.jobs[key] = decode(json.dumps(made), as_type=GPUJob)
        else:
            name = self.rng.choice("xyz")
            self._changes.nodes.add(name)
            if name in self.gpunodes and self.rng.random() < 0.3:
                del self.gpunodes[name]
            else:
                self.gpunodes[name] = use_of(name, gpus=1 + self.number % 3)


def snapshot(feed: Feed, sees: Visibility) -> tuple[int, State]:
    text, _ = feed.snapshot(sees=sees)
    found = json.loads(text)
    jobs = {f"{row['namespace']}/{row['name']}": row for row in found["jobs"]}
    return found["seq"], (jobs, {row["name"]: row for row in found["nodes"]})


def followed(state: State, *, deltas: list[bytes]) -> None:
    jobs, nodes = state
    for delta in (json.loads(each) for each in deltas if each):
        jobs.update({f"{row['namespace']}/{row['name']}": row for row in delta["jobs"]})
        nodes.update({row["name"]: row for row in delta["nodes"]})
        for gone in delta["goneJobs"]:
            jobs.pop(f"{gone['namespace']}/{gone['name']}", None)
        for gone in delta["goneNodes"]:
            nodes.pop(gone, None)


@pytest.mark.parametrize("seed", range(4))
async def test_deltas_lead_to_the_snapshot_from_every_position(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(module, "_MOST_KEPT", 6)
    # More changes at once are a relist.
    monkeypatch.setattr(module, "_MOST_CHANGES", 4)
    rng = Random(seed)
    cluster = Cluster(rng)
    feed = Feed(cluster)  # type: ignore[arg-type] # what it reads of one
    clients = [(sees, *snapshot(feed, sees)) for sees in AUDIENCES for _ in range(2)]
    resyncs = 0
    for _ in range(150):
        for _ in range(rng.choice([0, 1, 1, 2, 12])):
            cluster.change()
        relisted = len(cluster._changes.jobs) + len(cluster._changes.nodes) > 4
        before = feed.seq
        feed.collect()
        await feed._encode_ahead()
        assert set(feed._job_rows._kept) <= set(cluster.jobs), "no row of a job that is gone is kept"
        if relisted:
            assert feed.since(before) is None
        elif before and feed.seq > before:
            assert [change.seq for change in feed.since(before) or ()] == [feed.seq], "no one who is up to date resyncs"
        for at, (sees, seq, state) in enumerate(clients):
            if rng.random() < 0.4:
                continue
            changes = feed.since(seq)
            wanted = snapshot(feed, sees)
            if changes is None:
                resyncs += 1
                clients[at] = (sees, *wanted)
                continue
            followed(state, deltas=[feed.delta(change, sees=sees) for change in changes])
            assert (feed.seq, state) == wanted
            clients[at] = (sees, feed.seq, state)
        for rows in feed._node_rows.values():
            assert set(rows._kept) <= {*cluster.gpunodes, *"xyz"}
    for sees in AUDIENCES:
        snapshot(feed, sees)
    feed.seq += 1
    for sees in AUDIENCES:
        snapshot(feed, sees)
    assert all(set(rows._kept) == set(cluster.gpunodes) for rows in feed._node_rows.values())
    assert resyncs
    assert feed.since(feed.seq + 1) is None

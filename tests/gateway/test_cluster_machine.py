"""The cache and the feed over time, beside ones that are built from the objects alone: what is kept, must be found.

After each change, the cache answers as one that has just listed everything. A reader of the feed that applies deltas
has what a new snapshot has. Once everything is deleted, nothing is kept.
"""

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dovetail import names
from dovetail.answers.node_rows import node_row
from dovetail.api.builtin import ResourceSlice
from dovetail.api.gpujob import GPUJob
from dovetail.api.karpenter import NodePool
from dovetail.api.meta import key_of
from dovetail.config.settings import Settings
from dovetail.decoding import decode
from dovetail.engine.score.mix_record import EXTENDER_CONFIGMAP, KEY, QUEUE_CONFIGMAP, record_in
from dovetail.gpu.device_indexes import CONFIGMAP_NAME
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_gateway.access.callers import Clients
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.access.visibility import EVERYTHING, Visibility
from dovetail_gateway.cluster import cache as cache_module
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.stream import feed as feed_module
from dovetail_gateway.stream.feed import Feed
from tests import virtual_time
from tests.extender.builders import make_gpunode, make_node
from tests.extender.cluster.test_drivers import make_slice
from tests.gateway.builders import make_bound_pod, make_job

NODES: Final = ("a", "b", "c")
NAMESPACES: Final = ("red", "blue")
TASKS: Final = "tasks"
# The figures of a report count so long, by the first settings and by the second ones.
MAX_AGES: Final = (400, 1000)
SEES: Final = (EVERYTHING, Visibility(frozenset({"red"})), Visibility(frozenset(NAMESPACES)), Visibility(frozenset()))
_MIX: Final = {"policy": "live", "inUse": [], "counted": []}


class Clock:
    """Seconds that only a rule lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def make_settings(at: int) -> Settings:
    return Settings(topology_levels=[f"rack=rack-{at}"], measurement_max_age=MAX_AGES[at])


def make_cache(configured: Settings) -> ClusterCache:
    connection = Connection(server="http://127.0.0.1:1")
    client = Client(connection)
    reviews = Reviews(Clients(connection, own=client))
    return ClusterCache(
        client, settings=configured, reviews=reviews, namespace="dovetail-system", allocation_namespace=TASKS
    )


def tell(cache: ClusterCache, kind: str, event: str, subject: dict[str, Any]) -> None:
    """What comes through a watch."""
    if kind == "resourceslices":
        cache._on_slice(event, decode(json.dumps(subject), as_type=ResourceSlice))  # type: ignore[arg-type]
    elif kind == "nodepools":
        cache._on_node_pool(event, decode(json.dumps(subject), as_type=NodePool))  # type: ignore[arg-type]
    else:
        for each in cache._reflectors:
            named = each._selectors.get("fieldSelector", "").partition("=")[2]
            if each.resource.plural == kind and named in ("", subject["metadata"]["name"]):
                each._handle(json.dumps({"type": event, "object": subject}).encode())


class CacheMachine(RuleBasedStateMachine):
    """Objects beside a cache that sees each of their changes once, and readers of its feed."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.clock = Clock()
        self.patch.setattr(cache_module, "time", SimpleNamespace(monotonic=self.clock.monotonic))
        self.patch.setattr(feed_module, "_MOST_CHANGES", 2)
        self.patch.setattr(feed_module, "_MOST_KEPT", 3)
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        # When the report of a node was new to the cache.
        self.reported_at: dict[str, float] = {}
        self.count = 0
        self.settings = make_settings(0)
        self.cache = make_cache(self.settings)
        self.feed = Feed(self.cache)
        self.seen_version = (-1, "")
        self.readers = {sees: (0, dict[Any, Any](), dict[str, Any]()) for sees in SEES}

    def teardown(self) -> None:
        try:
            self.everything_goes()
        finally:
            self.patch.undo()

    # --- changes -----------------------------------------------------------------------------------------------

    @initialize()
    def nodes_report(self) -> None:
        for name in NODES[:2]:
            self.node_changes(name, racks=("r1", "r2"), cordoned=False)
            self.report_comes(name, gpus=4, used=0)

    @rule(
        name=st.sampled_from(NODES),
        racks=st.tuples(*[st.sampled_from(["r1", "r2", ""])] * 2),
        cordoned=st.booleans(),
    )
    def node_changes(self, name: str, racks: tuple[str, str], cordoned: bool) -> None:
        node = make_node(name)
        node["metadata"]["labels"] |= {f"rack-{at}": rack for at, rack in enumerate(racks)}
        node["spec"] = {"unschedulable": cordoned}
        self.put("nodes", node)

    @rule(name=st.sampled_from(NODES), gpus=st.integers(2, 4), used=st.integers(0, 3))
    def report_comes(self, name: str, gpus: int, used: int) -> None:
        report = make_gpunode(name, gpus=gpus, utilization=used / 4, usedMiB=1024 * used)
        report["status"]["observedAt"] = f"2100-01-01T00:{self.count // 60 % 60:02}:{self.count % 60:02}Z"
        self.reported_at[name] = self.clock.now
        self.put("gpunodes", report)

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        name=st.sampled_from(["p", "q"]),
        node=st.sampled_from(["", *NODES]),
        job=st.sampled_from(["train", "other"]),
        holds=st.sampled_from(["promise", "promise", "claim", "plugin", "nothing"]),
        is_new=st.booleans(),
    )
    def pod_changes(self, namespace: str, name: str, node: str, job: str, holds: str, is_new: bool) -> None:
        # No two pods share a device: their order there is that of their events.
        device = f"{node or 'a'}-{2 * NAMESPACES.index(namespace) + (name == 'q')}"
        pod = make_bound_pod(name, namespace=namespace, job=job, number=1, device=device, node=node)
        if is_new:
            # Another pod under the same name: the deletion of the first one was missed.
            pod["metadata"]["uid"] = f"pod-{self.count}"
        if holds == "claim":
            # It requests its devices by a resource claim, and no amount of them.
            pod["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "1"}
        elif holds != "promise" or not node:
            del pod["metadata"]["annotations"][names.ALLOCATION]
            limits = {"nvidia.com/gpu": "1"} if holds == "plugin" else {"cpu": "1"}
            pod["spec"]["containers"][0]["resources"]["limits"] = limits
        self.put("pods", pod)

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        name=st.sampled_from(["train", "other"]),
        message=st.sampled_from(["waits", "runs"]),
    )
    def job_changes(self, namespace: str, name: str, message: str) -> None:
        self.put("gpujobs", make_job(name, namespace=namespace, status={"phase": "Queued", "message": message}))

    @rule(name=st.sampled_from(["one", "two"]), namespaces=st.lists(st.sampled_from(NAMESPACES), max_size=3))
    def quota_changes(self, name: str, namespaces: list[str]) -> None:
        spec = {"namespaces": namespaces, "limit": {"gpus": 1}}
        self.put("gpuquotas", {"metadata": {"name": name, "uid": f"quota-{name}"}, "spec": spec})

    @rule(name=st.sampled_from(["s", "t"]), node=st.sampled_from(NODES))
    def slice_changes(self, name: str, node: str) -> None:
        self.put("resourceslices", make_slice(name, node=node))

    @rule(name=st.sampled_from(["pool"]), weight=st.integers(0, 2))
    def node_pool_changes(self, name: str, weight: int) -> None:
        self.put("nodepools", {"metadata": {"name": name, "uid": "pool"}, "spec": {"weight": weight}})

    @rule(namespace=st.sampled_from(NAMESPACES), active=st.integers(0, 1))
    def batch_job_changes(self, namespace: str, active: int) -> None:
        meta = {"name": "train", "namespace": namespace, "uid": f"batch-{namespace}", "labels": {names.LABEL_JOB: "t"}}
        self.put("jobs", {"metadata": meta, "spec": {"parallelism": active}, "status": {"active": active}})

    @rule(
        name=st.sampled_from([CONFIGMAP_NAME, QUEUE_CONFIGMAP, EXTENDER_CONFIGMAP, names.ESTIMATES]),
        text=st.sampled_from(["a/cuda:0", "b/cuda:0"]),
        learned=st.sampled_from([1, 2, None]),
    )
    def configmap_changes(self, name: str, text: str, learned: int | None) -> None:
        is_text = name in {CONFIGMAP_NAME, names.ESTIMATES}
        data = {"0": text} if is_text else {KEY: "{" if learned is None else mix(learned)}
        self.put("configmaps", {"metadata": {"name": name, "namespace": "dovetail-system", "uid": name}, "data": data})

    @rule(data=st.data())
    def one_goes(self, data: st.DataObject) -> None:
        if self.objects:
            self.delete(*data.draw(st.sampled_from(sorted(self.objects))))

    @rule(at=st.integers(0, 1))
    def configured(self, at: int) -> None:
        self.settings = make_settings(at)
        self.cache.configure(self.settings)
        # By the new settings, every report is seen for the first time.
        self.reported_at = dict.fromkeys(self.reported_at, self.clock.now)

    @rule(seconds=st.sampled_from([60.0, 399.0, 400.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    def everything_goes(self) -> None:
        for key in sorted(self.objects):
            self.delete(*key)
        self.every_answer_is_that_of_a_new_cache()
        kept = {name: value for name, value in vars(self.cache).items() if isinstance(value, (dict, set)) and value}
        assert kept == {"_namespaces": {TASKS: 1}}
        assert not self.cache._freshness._reports

    def put(self, kind: str, subject: dict[str, Any]) -> None:
        self.count += 1
        subject["metadata"]["resourceVersion"] = str(self.count)
        key = (kind, self._key(subject))
        tell(self.cache, kind, "MODIFIED" if key in self.objects else "ADDED", subject)
        self.objects[key] = subject

    def delete(self, kind: str, key: str) -> None:
        subject = self.objects.pop((kind, key))
        if kind == "gpunodes":
            del self.reported_at[key]
        tell(self.cache, kind, "DELETED", subject)

    def _key(self, subject: dict[str, Any]) -> str:
        meta = subject["metadata"]
        return "/".join(filter(None, (meta.get("namespace"), meta["name"])))

    # --- what has to hold --------------------------------------------------------------------------------------

    def namespaces_with_something(self) -> Iterator[str]:
        """The namespaces of which an answer could show a job, a pod with devices or a quota."""
        for (kind, _), subject in self.objects.items():
            if kind == "gpujobs":
                yield subject["metadata"]["namespace"]
            if kind == "gpuquotas":
                yield from subject["spec"]["namespaces"]
            if kind == "pods":
                is_promised = names.ALLOCATION in subject["metadata"]["annotations"]
                limits = subject["spec"]["containers"][0]["resources"]["limits"]
                if is_promised or "cpu" not in limits:
                    yield subject["metadata"]["namespace"]

    def rebuilt(self) -> ClusterCache:
        """A cache that sees each object once, each report at its time."""
        now, fresh = self.clock.now, make_cache(self.settings)
        for (kind, key), subject in sorted(self.objects.items()):
            self.clock.now = self.reported_at[key] if kind == "gpunodes" else now
            tell(fresh, kind, "ADDED", subject)
        self.clock.now = now
        return fresh

    @invariant()
    def every_answer_is_that_of_a_new_cache(self) -> None:
        version, fresh = self.cache.version, self.rebuilt()
        expected = answers(fresh)
        assert answers(self.cache) == expected
        assert self.cache._namespaces == fresh._namespaces
        assert self.cache._namespaces.keys() == {TASKS, *self.namespaces_with_something()}
        if repr(expected) != self.seen_version[1]:
            assert version != self.seen_version[0], "an answer that is kept by the version would be an old one"
            self.seen_version = (version, repr(expected))
        for sees in SEES[: 1 + version % len(SEES)]:
            self.reader_follows(sees, fresh=Feed(fresh))

    def reader_follows(self, sees: Visibility, *, fresh: Feed) -> None:
        """The reader of the feed has what a new snapshot has: some follow each change, others now and then."""
        self.feed.collect()
        seq, jobs, nodes = self.readers[sees]
        changes = self.feed.since(seq)
        expected = rows(self.feed, sees)
        assert expected == rows(fresh, sees), "the snapshot"
        if changes is None or not seq:
            jobs, nodes = expected
        for change in changes or ():
            delta = json.loads(self.feed.delta(change, sees=sees) or b"{}")
            for gone in delta.get("goneJobs", ()):
                jobs.pop((gone["namespace"], gone["name"]), None)
            for name in delta.get("goneNodes", ()):
                nodes.pop(name, None)
            jobs |= {(row["namespace"], row["name"]): row for row in delta.get("jobs", ())}
            nodes |= {row["name"]: row for row in delta.get("nodes", ())}
        assert (jobs, nodes) == expected, "the deltas"
        self.readers[sees] = self.feed.seq, dict(jobs), dict(nodes)


def mix(learned: int) -> str:
    return json.dumps(_MIX | {"arrivals": learned})


def rows(feed: Feed, sees: Visibility) -> tuple[dict[Any, Any], dict[str, Any]]:
    found = json.loads(feed.snapshot(sees=sees)[0])
    jobs = {(row["namespace"], row["name"]): row for row in found["jobs"]}
    return jobs, {row["name"]: row for row in found["nodes"]}


def answers(cache: ClusterCache) -> dict[str, Any]:
    """Everything that the cache answers, in one order."""
    objects = cache.objects()
    kinds = ("nodes", "gpunodes", "pods", "jobs", "quotas", "slices", "node_pools", "batch_jobs")
    found = {kind: sorted(map(msgspec.json.encode, getattr(objects, kind))) for kind in kinds}
    jobs = [
        decode(json.dumps(make_job(name, namespace=space)), as_type=GPUJob)
        for space in NAMESPACES
        for name in ("train", "other")
    ]
    return found | {
        "settings": objects.settings,
        "mixes": (objects.job_mix, objects.pod_mix),
        "estimates": objects.estimates,
        "rows": [msgspec.to_builtins(node_row(each, sees=EVERYTHING.sees)) for each in cache.node_uses()],
        "stale": [(each.name, each.stale, each.rack) for each in cache.node_uses()],
        "pods of": [sorted(key_of(pod.metadata) for pod in cache.pods_of(job)) for job in jobs],
        "pods on": [sorted(key_of(pod.metadata) for pod in cache.pods_on(name)) for name in NODES],
        "indexes": cache.device_indexes,
    }


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)


def test_a_valid_mix_is_drawn() -> None:
    assert record_in({KEY: mix(1)}) is not None


async def _waiters(leaves: str) -> tuple[float, list[str | None]]:
    """Two wait for one job, of which the first leaves: how long, and what the second has seen."""
    cache = make_cache(make_settings(0))

    async def wait(message: str, *, seconds: float) -> str | None:
        found = await cache.until(
            "red/train", holds=lambda job: job is not None and job.status.message == message, seconds=seconds
        )
        return None if found is None else found.status.message

    begin = virtual_time.clock()
    first = asyncio.ensure_future(wait("waits", seconds=5 if leaves == "has waited long enough" else 900))
    second = asyncio.ensure_future(wait("runs", seconds=900))
    await asyncio.sleep(1)
    if leaves == "hangs up":
        first.cancel()
    await asyncio.sleep(9)
    for version, message in enumerate(("waits", "runs")):
        job = make_job("train", namespace="red", status={"phase": "Queued", "message": message})
        job["metadata"]["resourceVersion"] = str(version + 1)
        tell(cache, "gpujobs", "MODIFIED" if version else "ADDED", job)
        await asyncio.sleep(1)
    found = [None if first.cancelled() else await first, await second]
    assert not cache._waiting
    return virtual_time.clock() - begin, found


@pytest.mark.parametrize("leaves", ["hangs up", "has waited long enough", "has seen what it waits for"])
def test_one_of_two_who_wait_for_a_job_leaves_the_other_one_waiting(leaves: str) -> None:
    seconds, (first, second) = virtual_time.run(_waiters(leaves))
    assert (seconds, second) == (12, "runs")
    assert first == ("waits" if leaves == "has seen what it waits for" else None)


def test_a_pod_that_cannot_be_read_holds_what_its_allocation_says() -> None:
    """A device that is shown as free would be taken twice."""
    cache = make_cache(make_settings(0))
    for kind, subject in (("nodes", make_node("a")), ("gpunodes", make_gpunode("a", gpus=2))):
        subject["metadata"]["resourceVersion"] = "1"
        tell(cache, kind, "ADDED", subject)
    pod = make_bound_pod("p", namespace="red", job="train", number=1, device="a-1")
    pod["metadata"]["resourceVersion"] = "2"
    pod["spec"]["containers"] = "of a later version"
    tell(cache, "pods", "ADDED", pod)
    use = cache.node_use("a")
    assert use is not None
    assert [[(each.namespace, each.pod) for each in device.holders] for device in use.uses] == [[], [("red", "p")]]
    assert [each.device.index for each in use.available] == [0]
    tell(cache, "pods", "DELETED", pod | {"metadata": pod["metadata"] | {"resourceVersion": "3"}})
    use = cache.node_use("a")
    assert use is not None
    assert [each.device.index for each in use.available] == [0, 1]

"""Why pods wait, over many changes, beside who has to have read it by now.

Pods of two namespaces have equal names, come again under them, are placed before the operator looks, and ask Dovetail
or a vendor's plugin. Nodes become managed and stop being so, and the API server fails at times.
"""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.kube.errors import Unreachable
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.watchers.waiting_pods import WaitingPods
from tests import virtual_time
from tests.background import running
from tests.operator_.builders import make_state
from tests.operator_.watchers.test_waiting_pods import NVIDIA, make_pod
from tests.seeds import seeds

KEYS = [(namespace, name) for namespace in ("team", "other") for name in "pq"]
# No node has more GPUs.
LARGEST = 2


class Cluster:
    """What the API server has, which fails at times, and what was told of whom."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.nodes: dict[str, Node] = {}
        self.made = 0
        self.fails = 0
        self.told: list[Announcement] = []
        self.have_read: set[str] = set()
        client: Any = self
        self.watcher = WaitingPods(
            client, state=make_state(a=LARGEST, b=LARGEST), nodes=self.nodes, post=self.told.append, rng=Random(1)
        )

    async def list(self, *_: Any, namespace: str, field_selector: str, **__: Any) -> Any:
        if self.fails:
            self.fails -= 1
            raise Unreachable("server", problem="cut off")
        found = self.pods.get((namespace, field_selector.removeprefix("metadata.name=")))
        return SimpleNamespace(items=[] if found is None else [found])

    # --- steps --------------------------------------------------------------------------------------------------

    def label(self) -> None:
        name, value = self.random.choice("ab"), self.random.choice(["true", "false", None])
        labels = {} if value is None else {names.LABEL_MANAGED: value}
        self.nodes[name] = msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node)

    def make(self) -> None:
        namespace, name = self.random.choice(KEYS)
        if (namespace, name) in self.pods:
            return
        self.made += 1
        resource = self.random.choice([names.GPU_MILLI, names.GPU_MILLI, NVIDIA])
        pod = make_pod(name, gpus=self.random.choice([1, 3, 16]), resource=resource)
        pod["metadata"] |= {"namespace": namespace, "uid": f"uid-{self.made}"}
        if self.random.random() < 0.3:
            pod["status"]["conditions"][0]["message"] = "0/2 nodes are available: 2 Insufficient cpu."
        self.pods[namespace, name] = pod
        self.show(pod)

    def change(self) -> None:
        """kube-scheduler tries again: the pod is refused for GPUs now."""
        if self.pods:
            pod = self.random.choice(list(self.pods.values()))
            resource = next(iter(pod["spec"]["containers"][0]["resources"]["limits"]))
            said = f"0/2 nodes are available: 2 Insufficient {resource}."
            pod["status"]["conditions"][0]["message"] = said
            self.show(pod)

    def place(self) -> None:
        """The pod gets a node; the event of an earlier change may still come after that."""
        if self.pods:
            pod = self.random.choice(list(self.pods.values()))
            before = msgspec.convert(pod, Pod, strict=False)
            pod["spec"]["nodeName"] = "a"
            pod["status"]["conditions"][0]["status"] = "True"
            if self.random.random() < 0.5:
                self.watcher.pod_event("MODIFIED", before)
            self.show(pod)

    def delete(self) -> None:
        if self.pods:
            pod = self.pods.pop(self.random.choice(sorted(self.pods)))
            self.watcher.pod_event("DELETED", msgspec.convert(pod, Pod, strict=False))
            self.have_read.discard(pod["metadata"]["uid"])

    def fail(self) -> None:
        self.fails = 2

    def show(self, pod: dict[str, Any]) -> None:
        self.watcher.pod_event("MODIFIED", msgspec.convert(pod, Pod, strict=False))
        uid = pod["metadata"]["uid"]
        if pod["spec"].get("nodeName"):
            self.have_read.discard(uid)
        elif self.is_told(pod):
            self.have_read.add(uid)

    # --- what has to be -----------------------------------------------------------------------------------------

    def is_told(self, pod: dict[str, Any]) -> bool:
        """Whether it waits for GPUs that it does not get, or that it does not ask Dovetail for where Dovetail is."""
        if "cpu" in pod["status"]["conditions"][0]["message"]:
            return False
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        if NVIDIA in limits:
            return any(node.metadata.labels.get(names.LABEL_MANAGED) == "true" for node in self.nodes.values())
        return int(limits[names.GPU_MILLI]) > 1000 * LARGEST

    def check(self, *, before: set[str]) -> None:
        """Each that has to has read it, once."""
        assert self.watcher._told == self.have_read
        new = sorted(each.about.uid for each in self.told)
        assert new == sorted(self.have_read - before)
        for each in self.told:
            pod = self.pods[each.about.namespace, each.about.name]
            foreign = NVIDIA in pod["spec"]["containers"][0]["resources"]["limits"]
            assert (each.reason == "NotAskedOfDovetail") == foreign
            assert each.about.uid == pod["metadata"]["uid"]
        self.told.clear()


async def walk(seed: int) -> None:
    cluster = Cluster(seed)
    async with running(cluster.watcher.run()):
        for _ in range(40):
            before = set(cluster.have_read)
            step = cluster.random.choice(["label", "make", "make", "change", "change", "place", "delete", "fail"])
            getattr(cluster, step)()
            await asyncio.sleep(60)
            cluster.check(before=before)
        for key in list(cluster.pods):
            pod = cluster.pods.pop(key)
            cluster.watcher.pod_event("DELETED", msgspec.convert(pod, Pod, strict=False))
        assert cluster.watcher._told == set()


@seeds(15)
def test_each_pod_that_waits_for_what_it_does_not_get_reads_why_once(seed: int) -> None:
    virtual_time.run(walk(seed))

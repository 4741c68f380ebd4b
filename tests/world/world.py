"""A cluster with its operator, in memory and in virtual time: change objects, let time pass, kill the operator."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any, Final

from dovetail import names
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import GPUJob
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.model.claims import Claim
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from tests.core.engine.builders import make_ask
from tests.virtual_time import VirtualLoop
from tests.world.api import ApiServer, Values
from tests.world.cluster import Cluster, view_of
from tests.world.operator import Operator, now, watched

# How long after its last change a cluster has come to rest: delays, notices, ends of pods and pauses of the operator.
SETTLED_SECONDS: Final = 20.0
_STEP_SECONDS: Final = 0.5
_DOWN_SECONDS: Final = 0.7


class World:
    """`seed` decides how late writes, answers and events are; None for at once. For the other options see `watched`."""

    def __init__(self, *, seed: int | None = None, slow_cycles: bool = False, checked_cycles: bool = True) -> None:
        self.loop = VirtualLoop()
        self._stack = ExitStack()
        # What failed within the operator, which goes on.
        self.failures: list[Exception] = []
        self._stack.enter_context(
            watched(self.loop, failures=self.failures, slow_cycles=slow_cycles, checked_cycles=checked_cycles)
        )
        self._seed = seed
        self.server = ApiServer(self.time)
        self.cluster = self._make_cluster()
        self.kills = 0
        self.operator = self._born()

    def _make_cluster(self) -> Cluster:
        return Cluster(self.server, now=self.now)

    def _make_operator(self, seed: int | None) -> Operator:
        return Operator(self.server, loop=self.loop, seed=seed, died=lambda: None)

    def close(self) -> None:
        self.run(self._killed())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self._stack.close()

    # --- time --------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return now(self.loop)

    def time(self) -> str:
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def run(self, coroutine: Any) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(coroutine)

    def pass_time(self, seconds: float) -> None:
        self.run(self._play(seconds))

    def settle(self) -> None:
        """Let everything follow that follows, until no event is on its way."""
        self.pass_time(SETTLED_SECONDS)
        for _ in range(200):
            if self.operator.is_idle:
                return
            self.pass_time(0.05)
        raise AssertionError("the operator does not come to rest")

    def look(self) -> None:
        """One more cycle."""
        self.operator.controller.changes._scheduling.jobs_changed()
        self.pass_time(1.0)

    async def _play(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            self.cluster.step()
            await asyncio.sleep(min(_STEP_SECONDS, end - self.loop.time()))
            if self.operator._is_dead:
                await self._replace()
            self.operator.check()
            if self.failures:
                raise self.failures[0]

    # --- the operator ------------------------------------------------------------------------------------------

    def _born(self) -> Operator:
        seed = None if self._seed is None else self._seed + self.kills

        async def build() -> Operator:
            made = self._make_operator(seed)
            made.start()
            return made

        asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(build())

    def restart(self) -> None:
        """The process is killed, and another one begins."""
        self.run(self._killed())
        self.kills += 1
        self.operator = self._born()

    def kill_after(self, writes: int) -> None:
        """The process is killed right after that write, before it hears of it."""
        self.operator.left = writes

    async def _killed(self) -> None:
        await self.operator.kill()

    async def _replace(self) -> None:
        await self.operator.kill()
        self.kills += 1
        await asyncio.sleep(_DOWN_SECONDS)
        self.operator = self._make_operator(None if self._seed is None else self._seed + self.kills)
        self.operator.start()

    # --- objects -----------------------------------------------------------------------------------------------

    def add_node(self, name: str, *, gpus: int, model: str = "V100", sizes: Sequence[int] = (), **spec: Any) -> None:
        """A node and its devices; those of `sizes` in MiB come first."""
        metadata = {"name": name, "labels": {names.LABEL_MANAGED: "true"}}
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": {"cpu": "64", "memory": "256Gi"}, "conditions": conditions}
        self.server.create("nodes", {"metadata": metadata, "spec": spec, "status": status})
        memory = [*sizes, *[32768] * gpus][:gpus]
        devices = [
            {"index": at, "uuid": f"GPU-{name}-{at}", "vendor": "nvidia", "model": model, "memoryMiB": memory[at]}
            for at in range(gpus)
        ]
        self.server.create("gpunodes", {"metadata": {"name": name}, "spec": {}, "status": {"devices": devices}})

    def remove_node(self, name: str) -> None:
        for pod in self.server.all("pods"):
            if pod["spec"].get("nodeName") == name:
                self.server.delete("pods", f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
        for plural in ("gpunodes", "nodes"):
            self.server.delete(plural, name)

    def cordon(self, name: str, *, cordoned: bool = True) -> None:
        self.server.change("nodes", name, lambda node: node["spec"].update(unschedulable=cordoned))

    def submit(
        self, name: str, *, namespace: str = "team", user: str = "", project: str = "", queue: str = "", **spec: Any
    ) -> str:
        """A GPUJob; `queue` is one of Kueue's."""
        if "gpu" not in spec:
            spec["gpu"] = 1
        spec.setdefault("template", {"spec": {"containers": [{"name": "main", "image": "busybox"}]}})
        labels = {names.LABEL_PROJECT: project, names.KUEUE_QUEUE: queue}
        metadata = {
            "name": name,
            "namespace": namespace,
            "annotations": {names.USER: user} if user else {},
            "labels": {name: value for name, value in labels.items() if value},
        }
        self.server.create("gpujobs", {"metadata": metadata, "spec": spec, "status": {}})
        return f"{namespace}/{name}"

    def requeue(self, key: str, *, queue: str) -> None:
        """Name another queue of Kueue's; none for Dovetail's own."""
        label = {names.KUEUE_QUEUE: queue} if queue else {}

        def change(job: Values) -> None:
            others = {name: value for name, value in job["metadata"]["labels"].items() if name != names.KUEUE_QUEUE}
            job["metadata"]["labels"] = others | label

        self.server.change("gpujobs", key, change)

    def edit(self, key: str, **spec: Any) -> None:
        self.server.change("gpujobs", key, lambda job: job["spec"].update(spec))

    def set_quota(self, name: str, **spec: Any) -> None:
        def change(quota: Values) -> None:
            quota["spec"] = spec

        if self.server.find("gpuquotas", name) is None:
            self.server.create("gpuquotas", {"metadata": {"name": name}, "spec": spec, "status": {}})
        else:
            self.server.change("gpuquotas", name, change)

    def add_pod(self, name: str, *, namespace: str, claim: Claim, project: str = "") -> None:
        """A pod of no GPUJob that is bound with this claim."""
        devices = [
            AllocatedDevice(uuid=each.uuid, index=each.index, share_milli=each.share_milli, memory_mib=each.memory_mib)
            for each in claim.devices
        ]
        containers = [ContainerAllocation(index=0, devices=devices)]
        allocation = Allocation(node=claim.node, mode=claim.mode, containers=containers)
        labels = {names.LABEL_PROJECT: project} if project else {}
        metadata = {
            "name": f"{name}-{self.server._version}",
            "namespace": namespace,
            "annotations": annotations_of(allocation),
            "labels": labels,
        }
        spec = {"nodeName": claim.node, "containers": [{"name": "main"}]}
        self.server.create("pods", {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})

    def add_pod_with_room(self, node: str, *, namespace: str, project: str = "", shape: str = "1") -> bool:
        """The same, where the node has room for such a request."""
        found = check(view_of(self.server).ledger, ask=make_ask(shape), node=node, key="other")
        if isinstance(found, Fit):
            self.add_pod("pod", namespace=namespace, claim=found.claim, project=project)
        return isinstance(found, Fit)

    def remove_other_pods(self) -> None:
        """Delete all pods of no GPUJob."""
        for key, pod in list(self.server.objects.get("pods", {}).items()):
            if "ownerReferences" not in pod["metadata"]:
                self.server.delete("pods", key)

    def finish(self, key: str, *, exit_code: int = 0, most: int | None = None, disrupted: bool = False) -> None:
        """The pods of a job that run end, or at most so many of them."""
        job = self.server.find("jobs", key)
        pods = self.cluster._pods_of(job) if job is not None else []
        running = [
            each["metadata"]
            for each in pods
            if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
        ]
        for meta in running[:most]:
            key = f"{meta['namespace']}/{meta['name']}"
            self.cluster.end_worker(key, exit_code=exit_code, disrupted=disrupted)

    def delete_pod(self, key: str, node: str) -> None:
        """Delete the pods of a job on a node, which take a while to end."""
        job = self.server.find("jobs", key)
        for pod in self.cluster._pods_of(job) if job is not None else ():
            if pod["spec"].get("nodeName") == node:
                self.cluster._delete("pods", pod)

    def jobs(self) -> dict[str, GPUJob]:
        return {f"{job.metadata.namespace}/{job.metadata.name}": job for job in self.server.typed("gpujobs")}

    def clear(self) -> None:
        """Delete everything."""
        for plural in ("gpujobs", "pods", "gpuquotas", "gpunodes", "nodes"):
            for key in list(self.server.objects.get(plural, {})):
                self.server.delete(plural, key)

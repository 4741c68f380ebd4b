"""Random clusters as the API server would have them: nodes, quotas, and jobs in every state with their pods."""

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dovetail import names
from dovetail.api.builtin import Job, Node, Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import GPUJob, Placement, PlannedNode, PlannedWorker
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.jobs.plan import annotation_of
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail.pods.options import annotations
from tests.operator_.builders import at, condition, make_child, make_job, make_pod
from tests.spec_values import CARRIED, RANKED

NAMESPACES = ("team", "other")
POOLS = ("fast", "slow")


@dataclass
class RandomCluster:
    """Objects as they are made; `free` are the devices that no pod holds, by node."""

    rng: random.Random
    settings: Settings = field(default_factory=Settings)
    nodes: list[Node] = field(default_factory=list)
    gpunodes: list[GPUNode] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    jobs: list[GPUJob] = field(default_factory=list)
    children: list[Job] = field(default_factory=list)
    quotas: list[GPUQuota] = field(default_factory=list)
    free: dict[str, list[int]] = field(default_factory=dict)
    number: int = 0

    def objects(self) -> ClusterObjects:
        return ClusterObjects(
            nodes=self.nodes,
            gpunodes=self.gpunodes,
            pods=self.pods,
            jobs=self.jobs,
            settings=self.settings,
            quotas=self.quotas,
            batch_jobs=self.children,
        )

    def chance(self, part: float) -> bool:
        return self.rng.random() < part

    def add_node(self, name: str) -> None:
        labels = {names.LABEL_MANAGED: "true", names.LABEL_POOL: self.rng.choice(POOLS)}
        gpus = self.rng.randint(2, 4)
        status = {"allocatable": {"cpu": "64", "memory": "256Gi"}, "conditions": [condition("Ready")]}
        self.nodes.append(msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, Node))
        devices = [
            {"index": i, "uuid": f"GPU-{name}-{i}", "vendor": "nvidia", "model": "V100", "memoryMiB": 32768}
            for i in range(gpus)
        ]
        report = {"devices": devices, "observedAt": at(-5)}
        self.gpunodes.append(msgspec.convert({"metadata": {"name": name}, "status": report}, GPUNode))
        self.free[name] = list(range(gpus))

    def add_quota(self, name: str) -> None:
        rng = self.rng
        spec: dict[str, Any] = {"namespaces": [rng.choice(NAMESPACES)]}
        limit = {"gpus": rng.randint(2, 8)} if self.chance(0.4) else {}
        limit |= {"queuedJobs": rng.randint(1, 6)} if self.chance(0.3) else {}
        spec |= {"limit": limit} if limit else {}
        spec |= {"maxPriority": rng.randint(5, 30)} if self.chance(0.3) else {}
        spec |= {"preemptionPolicy": "Never"} if self.chance(0.2) else {}
        spec |= {"shares": rng.randint(1, 4)} if self.chance(0.5) else {}
        spec |= {"pools": [rng.choice(POOLS)]} if self.chance(0.2) else {}
        if self.chance(0.3):
            window = {
                "name": "w",
                "startTime": at(rng.randint(-600, 3600)),
                "endTime": at(7200),
                "gpus": rng.randint(1, 3),
            }
            spec["advanceReservations"] = [window]
        if self.chance(0.3):
            spec["guaranteed"] = {"gpus": rng.randint(0, limit.get("gpus", 4))}
        if self.quotas and self.chance(0.3):
            spec["parent"] = rng.choice([*(quota.metadata.name for quota in self.quotas), "missing"])
        self.quotas.append(msgspec.convert({"metadata": {"name": name}, "spec": spec}, GPUQuota))

    def new_job(self, prefix: str, *, status: dict[str, Any] | None = None, created: int = -100, **spec: Any) -> GPUJob:
        self.number += 1
        name = f"{prefix}-{self.number}"
        namespace = spec.pop("namespace", None) or self.rng.choice(NAMESPACES)
        meta = {
            "namespace": namespace,
            "generateName": f"{prefix}-",
            "creationTimestamp": at(created - self.rng.randint(0, 5000)),
            "annotations": {names.USER: self.rng.choice(("ada", "bob"))},
            "labels": spec.pop("labels", {}),
        }
        status = {"number": self.number, "request": str(spec.get("gpu", 1)), **(status or {})}
        return make_job(name, meta=meta, status=status, **spec)

    def limits(self) -> dict[str, Any]:
        """How long a job may run, and how long its pods may take to end."""
        spec: dict[str, Any] = {}
        if self.chance(0.6):
            spec["activeDeadlineSeconds"] = self.rng.randint(600, 9000)
        if self.chance(0.2):
            spec["maximumExecutionTimeSeconds"] = self.rng.randint(3000, 20000)
        pod: dict[str, Any] = {"containers": [{"name": "main", "image": "busybox"}]}
        if self.chance(0.5):
            pod["terminationGracePeriodSeconds"] = self.rng.randint(0, 900)
        if self.chance(0.2):
            pod["nodeSelector"] = {names.LABEL_POOL: self.rng.choice(POOLS)}
        return {**spec, "template": {"spec": pod}}

    def lease(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"durationSeconds": self.rng.randint(600, 6000)}
        if self.chance(0.6):
            spec["renewTime"] = at(-self.rng.randint(1, 900))
        return {"reservation": spec, "template": {"spec": {}}}

    def add_running(self) -> None:
        """A job at work, or just over: with its batch Job and pods on devices that are free."""
        node = self.rng.choice([name for name, free in self.free.items() if free] or [""])
        if not node:
            return
        gpus = self.rng.randint(1, min(2, len(self.free[node])))
        started = -self.rng.randint(60, 5000)
        terms = self.lease() if self.chance(0.25) else self.limits()
        earlier = {"earlierRunSeconds": self.rng.randint(0, 2000)} if self.chance(0.3) else {}
        made: dict[str, Any] = {"count": self.rng.randint(1, 3), "lastTime": at(-4000)} if self.chance(0.3) else {}
        status = {"phase": "Running", "startTime": at(started), "attempt": 1, **earlier}
        status |= {"preemption": made} if made else {}
        labels = {names.KUEUE_QUEUE: "q"} if self.chance(0.15) else {}
        job = self.new_job("run", gpu=gpus, priority=self.rng.randint(0, 20), status=status, labels=labels, **terms)
        ended = [condition("Complete", seconds=-5)] if self.chance(0.1) else []
        child_status = {"startTime": at(started + self.rng.randint(0, 50)), "conditions": ended}
        child = make_child(job, uid=f"child-{job.metadata.name}", status=child_status, parallelism=1, completions=1)
        self.jobs.append(job)
        self.children.append(child)
        deleted = {"deletionTimestamp": at(-2)} if self.chance(0.1) else {}
        self.add_pod(job, child, worker=0, node=node, gpus=gpus, **deleted)

    def add_starting(self) -> None:
        """A gang that was admitted, of which some workers have no node yet."""
        nodes = [name for name, free in self.free.items() for _ in free]
        self.rng.shuffle(nodes)
        planned = sorted(nodes[:2])
        if len(planned) < 2:
            return
        plan = [{"name": name, "workers": planned.count(name)} for name in dict.fromkeys(planned)]
        placement = {"generation": 1, "nodes": plan, "worker": {"request": "1"}}
        status = {"phase": "Starting", "placement": placement, "plans": 1, "attempt": 1}
        job = self.new_job("start", gpu=1, workers=2, status=status, priority=self.rng.randint(0, 20), **self.limits())
        self.jobs.append(job)
        child = make_child(job, uid=f"child-{job.metadata.name}", parallelism=2, completions=2)
        self.children.append(child)
        bound = self.rng.randint(0, 1)
        for worker, node in enumerate(planned):
            self.add_pod(job, child, worker=worker, node=node if worker < bound else "", gpus=1, on=node)

    def add_carried(self, *, bound: bool) -> None:
        """A job whose batch Job carries its plan, which its status does not have yet."""
        node = next((name for name, free in self.free.items() if free), "")
        if not node:
            return
        job = self.new_job("carried", gpu=1, **self.limits())
        placement = Placement(
            generation=1, nodes=[PlannedNode(name=node, workers=1)], worker=PlannedWorker(request="1")
        )
        text = annotation_of(placement, job_uid=job.metadata.uid, carried=True)
        template = {"metadata": {"annotations": {names.PLAN: text}}}
        child = make_child(job, uid=f"child-{job.metadata.name}", parallelism=1, completions=1, template=template)
        self.jobs.append(job)
        self.children.append(child)
        self.add_pod(job, child, worker=0, node=node if bound else "", gpus=1, on=node)

    def add_ended(self) -> None:
        """A job that is over: it counts for shares, and teaches how long such jobs run and what memory they need."""
        start = -self.rng.randint(2000, 9000)
        end = start + self.rng.randint(100, 1500)
        memory = {"strategy": "Dynamic", "basis": "", "peakMiB": self.rng.randint(1000, 9000)}
        status = {"phase": "Succeeded", "startTime": at(start), "completionTime": at(end), "memory": memory}
        self.jobs.append(self.new_job("wait", gpu="0.5", status=status, created=start, activeDeadlineSeconds=2000))

    def waiting_spec(self) -> dict[str, Any]:
        rng = self.rng
        spec: dict[str, Any] = {"gpu": rng.choice((1, 1, 2, 3, "0.5", "0.5", 9)), "priority": rng.randint(0, 30)}
        spec |= {"workers": rng.randint(2, 3)} if self.chance(0.3) else {}
        if self.chance(0.15):
            spec |= {"workers": 4, "minWorkers": rng.randint(1, 3)}
        spec |= {"pool": rng.choice(POOLS)} if self.chance(0.15) else {}
        spec |= {"group": "g", "maxConcurrent": 1} if self.chance(0.15) else {}
        spec |= {"memory": {"strategy": "Dynamic"}} if spec["gpu"] == "0.5" else {}
        if self.chance(0.2):
            spec |= {"onNoGPU": "RunOnCPU", "onNoGPUAfterSeconds": rng.choice((0, 600, 3600))}
        elif self.chance(0.1):
            spec |= {"onNoGPU": rng.choice(("RunOnCPU", "Wait"))}
        ranking = [each for each in CARRIED if each.annotation in annotations.CHANGING and each.field not in spec]
        spec |= {each.field: each.value for each in ranking if self.chance(0.2)}
        return spec | (self.lease() if self.chance(0.1) else self.limits())

    def add_waiting(self) -> None:
        """A job that has not started; some of them something else holds back than the queue."""
        spec, reason = self.waiting_spec(), "Resources"
        match self.rng.randint(0, 9):
            case 0:
                spec, reason = spec | {"beginTime": at(900)}, "BeginTime"
            case 1:
                spec, reason = spec | {"dependencies": [{"name": "run-1"}]}, "Dependency"
            case 2:
                spec, reason = spec | {"suspend": True}, "Held"
            case 3:
                spec["array"] = {"indexes": "0-3"}
        status = {"phase": "Queued", "reason": reason, "message": ""}
        if reason == "Resources" and "onNoGPUAfterSeconds" in spec:
            status["gpuWaitStartTime"] = at(-self.rng.randint(0, 1200))
        self.jobs.append(self.new_job("wait", status=status, **spec))

    def add_pod(self, job: GPUJob, child: Job, *, worker: int, node: str, gpus: int, on: str = "", **meta: Any) -> None:
        name = f"{job.metadata.name}-{worker}"
        metadata = {
            "name": name,
            "namespace": job.metadata.namespace,
            "uid": f"pod-{name}",
            "labels": {names.LABEL_JOB: job.metadata.name, names.LABEL_JOB_NUMBER: str(job.status.number)},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": child.metadata.name,
                    "uid": child.metadata.uid,
                    "controller": True,
                }
            ],
            **meta,
        }
        # What a plan counts on is taken too, so that no later job is put there.
        taken = [self.free[node or on].pop() for _ in range(gpus)]
        if not node:
            self.pods.append(make_pod(worker, phase="Pending", node="", meta=metadata))
            return
        pod = make_pod(worker, node=node, devices=gpus, meta=metadata)
        self.pods.append(_holding(pod, node=node, indexes=taken))


def _holding(pod: Pod, *, node: str, indexes: list[int]) -> Pod:
    """The pod with an allocation of just these whole devices."""
    held = [{"uuid": f"GPU-{node}-{i}", "index": i, "share_milli": 1000, "memory_mib": 32000} for i in indexes]
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, annotations=_allocated(held, node))
    )


def _allocated(held: list[dict[str, Any]], node: str) -> dict[str, str]:
    devices = [AllocatedDevice(**each) for each in held]
    containers = [ContainerAllocation(index=0, devices=devices)]
    return annotations_of(Allocation(node=node, mode="Exclusive", containers=containers))


def _by_namespace(rng: random.Random) -> dict[str, Any]:
    """What a configuration may say of one of the two namespaces, and how fast use is forgotten."""
    found: dict[str, Any] = {"fair_share_half_life": rng.choice((600, 604800))}
    if rng.random() < 0.5:
        found["namespace_time_limits"] = {NAMESPACES[1]: rng.choice((600, 7200))}
    if rng.random() < 0.3:
        found["namespace_cpu_fallback"] = {NAMESPACES[0]: rng.choice((0, 900))}
    return found


def random_cluster(seed: int, *, by_namespace: bool = False) -> RandomCluster:
    """The cluster of that seed; with `by_namespace`, its configuration says something of a namespace."""
    rng = random.Random(seed)
    preemption = {"priority_gap": rng.choice((0, 5)), "grace": 20, "min_run": rng.choice((0, 300))}
    settings = Settings.model_validate(
        {
            "preemption": preemption,
            "default_time_limit": rng.choice((3600, 86400)),
            **({key: {NAMESPACES[0]: value} for key, value in RANKED.items()} if rng.random() < 0.5 else {}),
            **(_by_namespace(random.Random(f"settings of {seed}")) if by_namespace else {}),
        }
    )
    cluster = RandomCluster(rng=rng, settings=settings)
    steps = [
        *([cluster.add_running] * rng.randint(2, 6)),
        *([cluster.add_starting] * rng.randint(0, 2)),
        # Of fewer ends nothing is learned: then estimates play one future alone, which is quick.
        *([cluster.add_ended] * rng.randint(0, 3)),
        *([cluster.add_waiting] * rng.randint(0, 7)),
    ]
    for node in range(rng.randint(2, 4)):
        cluster.add_node(f"n{node}")
    for quota in range(rng.randint(0, 3)):
        cluster.add_quota(f"q{quota}")
    for step in steps:
        step()
    for bound in random.Random(f"carried of {seed}").sample([False, True], seed % 3):
        cluster.add_carried(bound=bound)
    return cluster

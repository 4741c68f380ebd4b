"""What a dry run costs on a large cluster, for jobs that start, wait and never fit.

The objects are as a gateway has them in its caches: nodes that are full with running jobs, finished jobs from which run
times are learned, and waiting jobs. The queue is prepared once (`prepare_seconds`), as `gbatch --dry-run` does for its
one answer. Each question is then answered on the prepared queue, as a gateway does between two changes of the cluster,
with a few simulated cycles for the estimate of the start. All times are CPU times.

    python benchmarks/dry_run.py [--nodes 1000] [--finished 10000] [--waiting 1000] [--cycles 1] [--rounds 5]
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import queue_plane
from counts import count

from dovetail import names
from dovetail.api.builtin import Job, Node, Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import GPUJob, job_of
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail.query.dry_run import dry_run_on, prepare

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
TARGET_SECONDS = 0.3
DEVICES = 8
LIMITS = (1800, 3600, 14400, 43200)
# Of a thousand devices this many are free.
FREE_PER_MILLE = 2
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=1_000, help="nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument("--finished", type=count, default=10_000, help="finished jobs (default: %(default)s)")
    options.add_argument("--waiting", type=count, default=1_000, help="waiting jobs (default: %(default)s)")
    options.add_argument("--plain-pods", type=count, default=30_000, help="pods without GPUs (default: %(default)s)")
    options.add_argument(
        "--cycles", type=count, default=1, help="simulated cycles for an estimate (default: %(default)s)"
    )
    options.add_argument("--rounds", type=count, default=5, help="answers to each question (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/dry_run.json"), help="where it is written too")
    args = options.parse_args()
    objects = cluster(
        nodes=args.nodes, finished=args.finished, waiting=args.waiting, plain_pods=args.plain_pods, rng=Random(7)
    )
    found = {name: measured(job, objects, rounds=args.rounds, cycles=args.cycles) for name, job in questions()}
    once = {
        "view_seconds": timed(objects.view, rounds=args.rounds),
        "prepare_seconds": timed(lambda: prepare(objects, now=NOW), rounds=args.rounds),
    }
    shown = {"nodes": args.nodes, "finished": args.finished, "waiting": args.waiting, "pods": len(objects.pods)}
    queue_plane.report({**shown, **once, "target_seconds": TARGET_SECONDS, "questions": found}, path=args.json)


def questions() -> Iterator[tuple[str, GPUJob]]:
    """One job for each kind of answer."""
    yield "starts", gpujob("asks", number=0, limit=3600, priority=200)
    yield "waits first", gpujob("asks", number=0, limit=3600, gpu=8, priority=200)
    yield "waits last", gpujob("asks", number=0, limit=3600, gpu=8)
    yield "waits with workers", gpujob("asks", number=0, limit=3600, gpu=8, workers=4)
    yield "never", gpujob("asks", number=0, limit=3600, gpu=16)


def measured(job: GPUJob, objects: ClusterObjects, *, rounds: int, cycles: int) -> dict[str, Any]:
    """The median seconds of an answer on a prepared queue, and the answer."""
    prepared = prepare(objects, now=NOW)
    found = dry_run_on(prepared, job=job, most_cycles=cycles)
    return {
        "outcome": found.outcome,
        "position": found.position,
        "start_in_seconds": None if found.start is None else found.start.in_seconds,
        "seconds": timed(lambda: dry_run_on(prepared, job=job, most_cycles=cycles), rounds=rounds),
    }


def timed(answer: Callable[[], object], *, rounds: int) -> float:
    """The median of the rounds, by CPU time."""
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        answer()
        taken.append(time.process_time() - began)
    return round(statistics.median(taken), 3)


def cluster(*, nodes: int, finished: int, waiting: int, plain_pods: int, rng: Random) -> ClusterObjects:
    """A full cluster with a history and a queue."""
    running = list(at_work(nodes=nodes, rng=rng))
    jobs = [job for job, _, _ in running]
    jobs += [ended(number, rng=rng) for number in range(finished)]
    jobs += [queued(number, rng=rng) for number in range(waiting)]
    return ClusterObjects(
        nodes=[node(at) for at in range(nodes)],
        gpunodes=[gpunode(at) for at in range(nodes)],
        pods=[pod for _, _, pod in running] + [plain_pod(at, node=at % nodes) for at in range(plain_pods)],
        jobs=jobs,
        settings=Settings(),
        quotas=[quota()],
        batch_jobs=[child for _, child, _ in running],
    )


def at(seconds: float) -> str:
    """RFC 3339, in seconds from now."""
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def quota() -> GPUQuota:
    """A fair share for each user. The operator has counted what the finished jobs used."""
    spec, status = {"per": "User", "shares": 1}, {"asOf": at(-5)}
    return msgspec.convert({"metadata": {"name": "all"}, "spec": spec, "status": status}, GPUQuota)


def node(index: int) -> Node:
    status = {
        "allocatable": {"cpu": "128", "memory": "1024Gi", "pods": "250"},
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": at(-9000)}
        ],
    }
    labels = {names.LABEL_MANAGED: "true"}
    return msgspec.convert({"metadata": {"name": f"node-{index:04d}", "labels": labels}, "status": status}, Node)


def gpunode(index: int) -> GPUNode:
    name = f"node-{index:04d}"
    devices = [
        {"index": i, "uuid": f"GPU-{name}-{i}", "vendor": "nvidia", "model": "V100", "memoryMiB": 32768}
        for i in range(DEVICES)
    ]
    return msgspec.convert({"metadata": {"name": name}, "status": {"devices": devices, "observedAt": at(-5)}}, GPUNode)


def gpujob(
    prefix: str, *, number: int, limit: int, gpu: int = 1, workers: int = 1, priority: int = 10, **status: Any
) -> GPUJob:
    """A job of one of twenty users and fifty works."""
    name = f"{prefix}-{number % 50}-{number}"
    metadata = {
        "name": name, "namespace": f"team-{number % 10}", "uid": f"uid-{prefix}-{number}",
        "creationTimestamp": status.pop("created", at(-60)), "annotations": {names.USER: f"user-{number % 20}"},
    }  # fmt: skip
    spec = {
        "gpu": gpu, "workers": workers, "priority": priority, "activeDeadlineSeconds": limit, "template": TEMPLATE,
    }  # fmt: skip
    return job_of({"metadata": metadata, "spec": spec, "status": {"request": str(gpu), **status} if number else {}})


def ended(number: int, *, rng: Random) -> GPUJob:
    limit, began = rng.choice(LIMITS), -rng.uniform(50_000, 14 * 86_400)
    times = {"startTime": at(began), "completionTime": at(began + limit * rng.betavariate(2, 3))}
    return gpujob("old", number=number + 1, limit=limit, created=at(began - 60), phase="Succeeded", gpus=1, **times)


def queued(number: int, *, rng: Random) -> GPUJob:
    workers, gpu = rng.choice(((1, 1), (1, 2), (1, 4), (1, 8), (2, 8)))
    return gpujob(
        "new", number=number + 1, limit=rng.choice(LIMITS), gpu=gpu, workers=workers, created=at(-rng.uniform(1, 9000)),
        priority=rng.choice((10, 10, 10, 50)), phase="Queued", reason="Resources", message="no room",
    )  # fmt: skip


def at_work(*, nodes: int, rng: Random) -> Iterator[tuple[GPUJob, Job, Pod]]:
    """Running jobs of one worker each, on nearly all devices."""
    number = 0
    for index in range(nodes):
        free = list(range(DEVICES))
        while free:
            gpus = min(rng.choice((1, 2, 4)), len(free))
            held, free = free[:gpus], free[gpus:]
            if rng.randrange(1000) >= FREE_PER_MILLE:
                number += 1
                yield one_at_work(number, node=f"node-{index:04d}", devices=held, rng=rng)


def one_at_work(number: int, *, node: str, devices: Sequence[int], rng: Random) -> tuple[GPUJob, Job, Pod]:
    limit = rng.choice(LIMITS)
    began = at(-rng.uniform(0, limit))
    job = gpujob(
        "run", number=number, limit=limit, gpu=len(devices), created=began, phase="Running", startTime=began,
        gpus=len(devices), nodes=[node],
    )  # fmt: skip
    meta = job.metadata
    owner = {"apiVersion": names.API_VERSION, "kind": "GPUJob", "name": meta.name, "uid": meta.uid, "controller": True}
    labels = {names.LABEL_JOB: meta.name}
    child = {
        "metadata": {
            "name": meta.name, "namespace": meta.namespace, "uid": f"child-{meta.uid}", "ownerReferences": [owner],
            "labels": labels,
        },
        "spec": {"parallelism": 1, "completions": 1}, "status": {"startTime": began, "active": 1, "ready": 1},
    }  # fmt: skip
    return job, msgspec.convert(child, Job), worker_pod(job, node=node, devices=devices, began=began)


def worker_pod(job: GPUJob, *, node: str, devices: Sequence[int], began: str) -> Pod:
    held = [AllocatedDevice(uuid=f"GPU-{node}-{i}", index=i, share_milli=1000, memory_mib=32768) for i in devices]
    allocation = Allocation(node=node, mode="Exclusive", containers=[ContainerAllocation(index=0, devices=held)])
    meta = job.metadata
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta.name, "uid": f"child-{meta.uid}", "controller": True}
    requests = {names.GPU_MILLI: str(1000 * len(devices)), "cpu": "4", "memory": "16Gi"}
    pod = {
        "metadata": {
            "name": f"{meta.name}-0", "namespace": meta.namespace, "uid": f"pod-{meta.uid}", "creationTimestamp": began,
            "labels": {names.LABEL_JOB: meta.name}, "ownerReferences": [owner],
            "annotations": {names.REQUEST: str(len(devices)), **annotations_of(allocation)},
        },
        "spec": {
            "nodeName": node, "schedulerName": names.SCHEDULER_NAME,
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running", "startTime": began},
    }  # fmt: skip
    return msgspec.convert(pod, Pod)


def plain_pod(number: int, *, node: int) -> Pod:
    requests = {"cpu": "100m", "memory": "128Mi"}
    pod = {
        "metadata": {"name": f"plain-{number}", "namespace": "kube-system", "uid": f"plain-{number}"},
        "spec": {"nodeName": f"node-{node:04d}", "containers": [{"name": "main", "resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }
    return msgspec.convert(pod, Pod)


if __name__ == "__main__":
    main()

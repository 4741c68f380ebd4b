"""Measure the CPU that all programs take for a GPUJob: created to running, against a bare batch Job, and to its reason.

Everything is real except the nodes' kubelets. The operator, extender and webhook of this checkout and those of
`--other` run in turns on one sandbox, each with the CRDs and policies of its chart, and so do bare batch Jobs with
Dovetail's annotation. With `--workers`, each job is a gang of so many pods, and its bare Job names the nodes.

A round of all kinds is rejected if a program ended in it by itself, such as a kube-scheduler that lost its lease, and
for no other reason. With fewer than half of the rounds left it fails.

    python benchmarks/job_cost.py [--nodes 25] [--rounds 3] [--workers 1] [--asks 200] [--rate 20]
        [--other CHECKOUT] [--json FILE]
"""

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import api_rules
import plane
import queue_plane
import turns
from counts import count
from queue_admission import followed
from queue_plane import NAMESPACE
from queue_running import until_reported

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, JOBS, PODS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster

BARE = "bare"
KINDS: Final = (*api_rules.CRDS, *api_rules.POLICIES)
IDLE_SECONDS = 10.0
# Events and figures that follow a job's start are written within this time.
SETTLING_SECONDS = 4.0


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--workers", type=count, default=1, help="workers of each (default: %(default)s)")
    options.add_argument("--nodes", type=count, default=25, help="nodes with 8 GPUs each, all used by a turn")
    options.add_argument("--rounds", type=count, default=3, help="turns of each kind (default: %(default)s)")
    options.add_argument("--rate", type=float, default=20.0, help="submissions a second (default: %(default)s)")
    options.add_argument("--asks", type=int, default=200, help="jobs without room of a turn (default: %(default)s)")
    options.add_argument("--other", type=Path, help="another checkout, whose programs run in turns with these")
    options.add_argument("--json", type=Path, default=Path("out/job_cost.json"), help="where it is written too")
    args = options.parse_args()
    nodes = queue_plane.gpu_nodes(args.nodes)
    with queue_plane.sandbox(nodes=nodes, without=["gateway"]) as made, tempfile.TemporaryDirectory() as folder:
        rules = api_rules.write(made, kinds=KINDS, other=args.other, folder=Path(folder))
        found = asyncio.run(measure(made, args, rules=rules))
    queue_plane.report(found, path=args.json)


async def measure(made: Cluster, args: argparse.Namespace, *, rules: Mapping[str, Path]) -> dict[str, Any]:
    """Take the turns: each checkout's jobs, then bare batch Jobs with the rules of this one."""
    jobs = 8 * args.nodes // args.workers
    checkouts = ({"other": args.other.resolve()} if args.other else {}) | {"this": turns.HERE}
    found: dict[str, list[dict[str, Any]]] = {}
    async with plane.client_of(made) as client:
        await until_reported(client, args.nodes)
        idle = await turns.idle(made, seconds=IDLE_SECONDS)
        rejected = 0
        for turn in range(args.rounds):
            taken_now: dict[str, dict[str, Any]] = {}
            for name, checkout in checkouts.items():
                if args.other:
                    await api_rules.use(made, files=rules, name=name)
                await asyncio.to_thread(turns.use, made, checkout=checkout)
                await warmed_up(made, client, rate=args.rate)
                bodies = [_job(f"{name}-{turn}-{at:04d}", args=args) for at in range(jobs)]
                taken = await started(made, client, bodies, args=args, idle=idle)
                if args.asks:
                    asked = [queue_plane.job(f"asks-{name}-{turn}-{at:04d}") for at in range(args.asks)]
                    taken["reasons"] = await reasons(made, client, asked, rate=args.rate, idle=idle)
                taken_now[name] = taken
                await clear(client)
            bodies = [bare(f"bare-{turn}-{at:04d}", args=args) for at in range(jobs)]
            taken_now[BARE] = await started(made, client, bodies, args=args, idle=idle)
            await clear(client)
            if any(each["restarted"] or each.get("reasons", each)["restarted"] for each in taken_now.values()):
                rejected += 1
                continue
            for name, taken in taken_now.items():
                found.setdefault(name, []).append(taken)
    if 2 * rejected > args.rounds:
        raise SystemExit(f"{rejected} of {args.rounds} rounds are rejected: programs ended in them by themselves")
    result = {"jobs": jobs, "workers": args.workers, "nodes": args.nodes, "rejected": rejected}
    return {**result, "medians": medians(found), "turns": found}


async def warmed_up(made: Cluster, client: Client, *, rate: float) -> None:
    """Wait until programs and API server have nothing left to do, also with a first job."""
    await api_rules.settled(made)
    await submit(client, [queue_plane.job("warm")], rate=rate)
    await asyncio.sleep(SETTLING_SECONDS)
    await clear(client)


async def started(
    made: Cluster, client: Client, bodies: Sequence[dict[str, Any]], *, args: argparse.Namespace, idle: dict[str, float]
) -> dict[str, Any]:
    """CPU milliseconds and writes for each job, from its creation until its pods run and its GPUJob says so."""
    pods: set[str] = set()
    with_reason: set[str] = set()
    wanted = {body["metadata"]["name"] for body in bodies}

    def pod(event: EventType, seen: Pod) -> None:
        if seen.status.phase == "Running" and event != "DELETED":
            pods.add(seen.metadata.uid)

    def job(_event: EventType, seen: GPUJob) -> None:
        if seen.status.phase == "Running" and seen.status.workers_active == seen.spec.workers:
            with_reason.add(seen.metadata.name)

    is_bare = bodies[0]["kind"] == "Job"
    async with followed(client, PODS, Pod, pod), followed(client, GPUJOBS, GPUJob, job):
        with turns.measured(made) as used:
            await submit(client, bodies, rate=args.rate)
            async with asyncio.timeout(300):
                while len(pods) < len(bodies) * args.workers or not (is_bare or with_reason >= wanted):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            await asyncio.sleep(SETTLING_SECONDS)
    return summary(used, count=len(bodies), idle=idle)


async def reasons(
    made: Cluster, client: Client, bodies: Sequence[dict[str, Any]], *, rate: float, idle: dict[str, float]
) -> dict[str, Any]:
    """CPU milliseconds and writes for each job that does not fit, from its creation until it has a reason."""
    with_reason: set[str] = set()

    def job(_event: EventType, seen: GPUJob) -> None:
        if seen.status.reason not in {"", "Evaluating"}:
            with_reason.add(seen.metadata.name)

    wanted = {body["metadata"]["name"] for body in bodies}
    async with followed(client, GPUJOBS, GPUJob, job):
        with turns.measured(made) as used:
            await submit(client, bodies, rate=rate)
            async with asyncio.timeout(120):
                while not with_reason >= wanted:  # noqa: ASYNC110 - a watch fills it
                    await asyncio.sleep(0.1)
            await asyncio.sleep(SETTLING_SECONDS)
    return summary(used, count=len(bodies), idle=idle)


async def submit(client: Client, bodies: Sequence[dict[str, Any]], *, rate: float) -> None:
    """Create GPUJobs or batch Jobs at a rate."""
    if bodies[0]["kind"] == "GPUJob":
        await queue_plane.submit(client, bodies, per_second=rate)
        return
    for body in bodies:
        await client.create(JOBS, body=body, as_type=dict[str, Any], namespace=NAMESPACE)
        await asyncio.sleep(1 / rate)


async def clear(client: Client) -> None:
    """Delete all jobs, and wait until their pods are gone."""
    for resource in (GPUJOBS, JOBS):
        found, _ = await client.list(resource, as_type=dict[str, Any], namespace=NAMESPACE)

        async def delete(body: dict[str, Any], resource: Any = resource) -> None:
            if not body["metadata"].get("ownerReferences"):
                await client.delete(resource, name=body["metadata"]["name"], namespace=NAMESPACE)

        await plane.each(found, delete, what="tidying")
    for resource in (GPUJOBS, JOBS, PODS):
        while (await client.list(resource, as_type=dict[str, Any], namespace=NAMESPACE)).items:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    await asyncio.sleep(SETTLING_SECONDS)


def summary(used: turns.Used, *, count: int, idle: dict[str, float]) -> dict[str, Any]:
    """Milliseconds of CPU by program, and writes, for each job."""
    writes = {name: round(total / count, 2) for name, total in used.writes.items() if total * 20 >= count}
    runs = {name: round(total / count, 2) for name, total in used.runs.items()}
    spent = {"seconds": round(used.seconds, 1), "restarted": used.restarted, **runs}
    return {**spent, "cpu_ms": used.per(count, idle=idle), "writes": writes}


def medians(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The median CPU of each kind, and the median ratios of the turns."""
    ratios: dict[str, float] = {}

    def add(name: str, *, over: Sequence[float], under: Sequence[float]) -> None:
        ratios[name] = round(statistics.median(a / b for a, b in zip(over, under, strict=True)), 3)

    all_ms = {name: [each["cpu_ms"]["all"] for each in each_turn] for name, each_turn in found.items()}
    add("this_to_bare", over=all_ms["this"], under=all_ms[BARE])
    if "other" in found:
        add("other_to_bare", over=all_ms["other"], under=all_ms[BARE])
        add("this_to_other", over=all_ms["this"], under=all_ms["other"])
    cpu = {name: _median_ms([each["cpu_ms"] for each in each_turn]) for name, each_turn in found.items()}
    reasons_ms = {
        name: _median_ms([each["reasons"]["cpu_ms"] for each in each_turn])
        for name, each_turn in found.items()
        if all("reasons" in each for each in each_turn)
    }
    if len(reasons_ms) > 1:
        pairs = zip(found["this"], found["other"], strict=True)
        ratios["reasons_this_to_other"] = round(
            statistics.median(a["reasons"]["cpu_ms"]["all"] / b["reasons"]["cpu_ms"]["all"] for a, b in pairs), 3
        )
    writes = {name: _median_ms([each["writes"] for each in each_turn]) for name, each_turn in found.items()}
    return {"ratios": ratios, "cpu_ms": cpu, "reasons_cpu_ms": reasons_ms, "writes": writes}


def _median_ms(taken: Sequence[dict[str, float]]) -> dict[str, float]:
    names = {name: None for each in taken for name in each}
    return {name: round(statistics.median(each.get(name, 0.0) for each in taken), 2) for name in names}


def _job(name: str, *, args: argparse.Namespace) -> dict[str, Any]:
    return queue_plane.job(name, workers=args.workers)


def bare(name: str, *, args: argparse.Namespace) -> dict[str, Any]:
    """A batch Job of the same pods, without a GPUJob."""
    template: dict[str, Any] = queue_plane.job(name)["spec"]["template"]
    metadata = {"annotations": {**template["metadata"]["annotations"], names.REQUEST: "1"}}
    spec = {**template["spec"], "schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never"}
    if args.workers > 1:
        hosts = [f"gpu-{at}" for at in range(args.nodes)]
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    batch = {
        "completionMode": "Indexed",
        "completions": args.workers,
        "parallelism": args.workers,
        "backoffLimit": 0,
        "template": {"metadata": metadata, "spec": spec},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": batch}


if __name__ == "__main__":
    main()

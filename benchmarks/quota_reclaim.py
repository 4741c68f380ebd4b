"""Guarantees of GPUQuotas: the time until a reclaim is decided, and what a tree adds to a look of the queue.

1. The decision alone, in CPU time: on a full cluster of borrowers, an owner wants one GPU, or a gang of 1,000 or 4,000.
2. A look over 15,000 waiting jobs with 200 quotas in five levels, in turns with the same quotas without a tree.
3. With --plane: from the creation of a job to its pod running, on a sandbox that is full of borrowers' jobs.
   KAI-Scheduler publishes 13.9 s for one GPU.

    python benchmarks/quota_reclaim.py [--rounds 5] [--waiting 15000] [--plane] [--json FILE]
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import plane
import queue_plane
from queue_running import until_reported
from queue_workload import DEVICES, cluster

from dovetail.api.gpujob import GPUJob, job_of
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.resources import GPUJOBS, GPUQUOTAS
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim, DeviceClaim
from dovetail.gpu.request import parse
from dovetail.kube.client import Client
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.limits.guarantees import capacity_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.state.state import State, build_state

KAI_SECONDS = 13.9
NOW = datetime(2026, 1, 9, tzinfo=UTC)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=5, help="looks in each way (default: %(default)s)")
    options.add_argument("--waiting", type=int, default=15_000, help="waiting jobs (default: %(default)s)")
    options.add_argument("--plane", action="store_true", help="measure on a sandbox too")
    options.add_argument("--json", type=Path, default=Path("out/quota_reclaim.json"), help="where it is written too")
    args = options.parse_args()
    found: dict[str, Any] = {
        "decision_cpu_seconds": {
            "1 GPU of 1,000": decision(gpus=1, nodes=125),
            "1,000 GPUs in one gang of 1,000": decision(gpus=1_000, nodes=125),
            "4,000 GPUs in one gang of 4,000": decision(gpus=4_000, nodes=500),
        },
        "look": looks(rounds=args.rounds, waiting=args.waiting),
    }
    if args.plane:
        found["plane"] = on_plane()
    queue_plane.report(found, path=args.json)


# --- the decision --------------------------------------------------------------------------------------------------


def decision(*, gpus: int, nodes: int) -> dict[str, float]:
    """CPU seconds of a look in which an owner reclaims so many GPUs; borrowers fill the cluster with jobs of 1 to 8."""
    rng, ledger = Random(7), cluster(nodes)
    running, counted = borrowers(ledger, rng=rng)
    workers, each = (1, gpus) if gpus < DEVICES else (gpus // DEVICES, DEVICES)
    job = candidate("owner", gpus=each, workers=workers)
    counted.append(Counted(uid="owner", subject=Subject(namespace="owner", user="o"), milli=gpus * 1000, queued=True))
    quotas = quotas_of({"owner": {"guaranteed": {"gpus": gpus}}, "borrower": {"guaranteed": {"gpus": 0}}})
    began = time.process_time()
    gate = quotas.gate(counted, capacity=capacity_of(ledger))
    evictor = Evictor(running=running, rules=Rules())
    look = SchedulingCycle(ledger, sites={}, gate=gate, evictor=evictor)
    look.at(job)
    seconds = time.process_time() - began
    milli = {each.uid: each.milli for each in counted}
    ended = sum(milli[key] for key in evictor.orders) / 1000
    assert ended >= gpus, (ended, gpus)
    return {"seconds": round(seconds, 3), "ended_jobs": len(evictor.orders), "ended_gpus": ended}


def candidate(key: str, *, gpus: int = 1, workers: int = 1, created: str = "", priority: int = 10) -> Candidate:
    ask = Ask(gpu=parse(gpus))
    return Candidate(key=key, ask=ask, workers=workers, created=created, name=f"ns/{key}", priority=priority)


def borrowers(ledger: Ledger, *, rng: Random) -> tuple[list[Running], list[Counted]]:
    """Jobs that fill each node."""
    running, counted = list[Running](), list[Counted]()
    for node in ledger.nodes():
        devices, at = ledger.devices(node), 0
        while at < len(devices):
            size = min(rng.choice((1, 2, 4, 8)), len(devices) - at)
            key = f"{node}-{at}"
            held = tuple(
                DeviceClaim(index=each.index, uuid=each.uuid, share_milli=1000, memory_mib=each.memory_mib)
                for each in devices[at : at + size]
            )
            ledger.commit(Claim(key=key, node=node, devices=held))
            running.append(Running(key=key, priority=10, run_seconds=rng.uniform(0, 86400), claims=(key,)))
            counted.append(Counted(uid=key, subject=Subject(namespace="borrower", user="b"), milli=size * 1000))
            at += size
    return running, counted


def quotas_of(specs: Mapping[str, dict[str, Any]]) -> Quotas:
    quotas = Quotas()
    for quota in made(specs):
        quotas.update(quota)
    return quotas


def made(specs: Mapping[str, dict[str, Any]]) -> list[GPUQuota]:
    """Quotas of the namespaces of their names; those above others name none."""
    parents = {spec.get("parent") for spec in specs.values()}
    return [
        msgspec.convert(
            {"metadata": {"name": name}, "spec": spec | ({} if name in parents else {"namespaces": [name]})}, GPUQuota
        )
        for name, spec in specs.items()
    ]


# --- a look of the queue -------------------------------------------------------------------------------------------


def looks(*, rounds: int, waiting: int) -> dict[str, float]:
    """CPU seconds of the operator's look with 200 quotas in five levels, and with the same quotas without a tree."""
    tree, flat, leaves = five_levels()
    states = {
        "flat": operator(flat, leaves=leaves, waiting=waiting),
        "tree": operator(tree, leaves=leaves, waiting=waiting),
    }
    caches = {name: caches_for(state) for name, state in states.items()}
    seconds: dict[str, list[float]] = {name: [] for name in states}
    for _ in range(rounds + 1):
        for name, state in states.items():
            began = time.process_time()
            cycle = survey(state, now=NOW, caches=caches[name])
            for verdict in decide(state, cycle=cycle, previous=state.decisions.verdicts):
                state.decisions.set_verdict(verdict.key, verdict=verdict)
            seconds[name].append(time.process_time() - began)
    # The first look of each way fills its caches.
    median = {name: statistics.median(each[1:]) for name, each in seconds.items()}
    return {
        "flat_seconds": round(median["flat"], 3),
        "tree_seconds": round(median["tree"], 3),
        "ratio": round(median["tree"] / median["flat"], 2),
    }


def operator(quotas: list[GPUQuota], *, leaves: list[str], waiting: int, nodes: int = 500) -> State:
    """The operator's state over a full cluster whose jobs wait in the namespaces of the lowest quotas."""
    rng = Random(11)
    state = build_state(ClusterView(ledger=cluster(nodes)))
    borrowers(state.store.view.ledger, rng=rng)
    for quota in quotas:
        state.store.quotas.update(quota)
    for at in range(waiting):
        name = f"job-{at}"
        body = queue_plane.job(name, gpu=rng.choice((1, 1, 2, 4, 8)), priority=rng.choice((10, 10, 20)))
        created = f"2026-01-08T{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}Z"
        meta = {"namespace": rng.choice(leaves), "uid": name, "resourceVersion": "1", "creationTimestamp": created}
        job = job_of(body | {"metadata": body["metadata"] | meta, "status": {"phase": "Queued"}})
        state.store.job_changed(job)
        state.decisions.set_number(name, number=at + 1)
    return state


def five_levels() -> tuple[list[GPUQuota], list[GPUQuota], list[str]]:
    """200 quotas as a tree, the same without parents and guarantees, and the namespaces of the lowest."""
    names: list[list[str]] = [["l0-0", "l0-1"]]
    for level, size in enumerate((6, 24, 48, 120), start=1):
        names.append([f"l{level}-{at}" for at in range(size)])
    tree: dict[str, dict[str, Any]] = {}
    for level, here in enumerate(names):
        for at, name in enumerate(here):
            parent = {} if not level else {"parent": names[level - 1][at % len(names[level - 1])]}
            own = {} if level < len(names) - 1 else {"guaranteed": {"gpus": 32}}
            tree[name] = {"limit": {"gpus": 4_000}, **parent, **own}
    flat = {name: {"limit": spec["limit"], "namespaces": [name]} for name, spec in tree.items()}
    return made(tree), made(flat), names[-1]


# --- on a control plane --------------------------------------------------------------------------------------------


def on_plane(nodes: int = 4, rounds: int = 5) -> dict[str, Any]:
    """Seconds from the creation of an owner's job until it runs, on nodes that are full of borrowers' jobs."""
    with queue_plane.sandbox(
        nodes=queue_plane.gpu_nodes(nodes), overrides=["config.preemption.reclaim_grace=0"]
    ) as made:
        return asyncio.run(_reclaims(made, nodes=nodes, rounds=rounds))


async def _reclaims(made: Any, *, nodes: int, rounds: int) -> dict[str, Any]:
    async with plane.client_of(made) as client:
        await until_reported(client, nodes)
        spec = {"projects": ["owner"], "guaranteed": {"gpus": nodes * DEVICES}}
        body = {"apiVersion": GPUQUOTAS.api_version, "kind": GPUQUOTAS.kind, "metadata": {"name": "owner"}}
        await client.create(GPUQUOTAS, body=body | {"spec": spec}, as_type=dict[str, Any])
        for at in range(nodes * DEVICES):
            await _create(client, queue_plane.job(f"borrows-{at}"))
        for at in range(nodes * DEVICES):
            await _until_running(client, f"borrows-{at}")
        one = [await _timed(client, queue_plane.job(f"owner-{at}")) for at in range(rounds)]
        gang = await _timed(client, queue_plane.job("gang", gpu=DEVICES, workers=nodes - 1))
    return {
        "one_gpu_seconds": one,
        "one_gpu_median_seconds": statistics.median(one),
        f"gang_of_{(nodes - 1) * DEVICES}_gpus_seconds": gang,
        "kai_one_gpu_seconds": KAI_SECONDS,
    }


async def _create(client: Client, body: dict[str, Any]) -> None:
    await client.create(GPUJOBS, body=body, as_type=dict[str, Any], namespace=queue_plane.NAMESPACE)


async def _timed(client: Client, body: dict[str, Any]) -> float:
    body["metadata"]["labels"] = {"dovetail.dev/project": "owner"}
    began = time.monotonic()
    await _create(client, body)
    await _until_running(client, body["metadata"]["name"])
    return round(time.monotonic() - began, 2)


async def _until_running(client: Client, name: str) -> None:
    async with asyncio.timeout(120):
        while True:
            job = await client.get(GPUJOBS, name=name, as_type=GPUJob, namespace=queue_plane.NAMESPACE)
            if job.status.phase == "Running":
                return
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    main()

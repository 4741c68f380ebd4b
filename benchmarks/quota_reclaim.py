"""Guarantees of GPUQuotas: the time until a reclaim is decided, and what a tree adds to a look of the queue.

1. The decision alone, in CPU time: on a full cluster of borrowers, an owner wants one GPU, or a gang of 1,000 or 4,000;
   and each later look until the jobs have ended, which proves the decision again.
2. A look over 15,000 waiting jobs with 200 quotas in five levels, in turns with the same quotas without a tree.
3. With --plane, that alone: from the creation of a job until it runs, on a sandbox that is full of borrowers' jobs.

    python benchmarks/quota_reclaim.py [--rounds 5] [--waiting 15000] [--json FILE]
    python benchmarks/quota_reclaim.py --plane [--nodes 500] [--gangs 1000x8 4000x8] [--json FILE]
"""

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import queue_plane
import quota_plane
from counts import count
from queue_workload import DEVICES, cluster

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import job_of
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.gpu.request import parse
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

NOW = datetime(2026, 1, 9, tzinfo=UTC)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=count, default=5, help="looks in each way (default: %(default)s)")
    options.add_argument("--waiting", type=count, default=15_000, help="waiting jobs (default: %(default)s)")
    options.add_argument("--plane", action="store_true", help="measure on a sandbox instead")
    options.add_argument("--nodes", type=count, default=500, help="its nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument("--singles", type=int, default=5, help="its reclaims of one GPU (default: %(default)s)")
    options.add_argument(
        "--gangs",
        nargs="*",
        type=quota_plane.gang,
        default=[quota_plane.gang(each) for each in ("1000x8", "1000x1", "4000x8")],
        help="its reclaims of gangs, GPUS x GPUs of a worker (default: 1000x8 1000x1 4000x8)",
    )
    options.add_argument("--json", type=Path, default=Path("out/quota_reclaim.json"), help="where it is written too")
    args = options.parse_args()
    if args.plane:
        if (most := max((gpus for gpus, _ in args.gangs), default=0)) > args.nodes * DEVICES:
            options.error(f"--gangs: {most} GPUs, but --nodes {args.nodes} has {args.nodes * DEVICES}")
        found = quota_plane.on_plane(nodes=args.nodes, singles=args.singles, gangs=args.gangs)
        queue_plane.report(found, path=args.json)
        return
    found = {
        "decision_cpu_seconds": {
            "1 GPU of 1,000": decision(gpus=1, nodes=125),
            "1,000 GPUs in one gang of 1,000": decision(gpus=1_000, nodes=125),
            "4,000 GPUs in one gang of 4,000": decision(gpus=4_000, nodes=500),
        },
        "look": looks(rounds=args.rounds, waiting=args.waiting),
    }
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
    seconds, orders = _look(job, ledger=ledger, quotas=quotas, counted=counted, running=running)
    milli = {each.uid: each.milli for each in counted}
    ended = sum(milli[key] for key in orders) / 1000
    assert ended >= gpus, (ended, gpus)
    announced = [replace(each, yields_to=job.key) if each.key in orders else each for each in running]
    again, same = _look(job, ledger=ledger, quotas=quotas, counted=counted, running=announced)
    assert same <= orders, "a later look asks no one else"
    return {
        "seconds": round(seconds, 3),
        "later_look_seconds": round(again, 3),
        "ended_jobs": len(orders),
        "ended_gpus": ended,
    }


def _look(
    job: Candidate, *, ledger: Ledger, quotas: Quotas, counted: Sequence[Counted], running: Sequence[Running]
) -> tuple[float, set[str]]:
    """CPU seconds of a look, and the jobs that it ends."""
    began = time.process_time()
    gate = quotas.gate(counted, capacity=capacity_of(ledger))
    evictor = Evictor(running=running, rules=Rules())
    SchedulingCycle(ledger, sites={}, gate=gate, evictor=evictor).at(job)
    return time.process_time() - began, set(evictor.orders)


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
                AllocatedDevice(index=each.index, uuid=each.uuid, share_milli=1000, memory_mib=each.memory_mib)
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


if __name__ == "__main__":
    main()

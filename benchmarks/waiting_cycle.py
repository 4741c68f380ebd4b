"""Measure the scheduling cycle over many waiting jobs on a full cluster: the first after a start, and those after it.

Without an API server, in a process with the settings of a deployable. The jobs have forty shapes. "Nothing changed" is
a cycle whose inputs are those of the cycle before. Each checkout runs in a process of its own, in turns; compare within
a turn.

    python benchmarks/waiting_cycle.py [--nodes 5000] [--jobs 50000] [--rounds 3] [--other CHECKOUT] [--json FILE]
"""

import argparse
import json
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import plane
import turns
from counts import count

from dovetail.api.builtin import Node
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.state.state import State, build_state

CYCLES = 3
DEVICES = 8
GPUS = ("1", "2", "4", "8", "0.25", "0.5", "4G,0.25", "8G,0.5", "1(V100)", "2(V100)")
CPU = ("500m", "1", "2", "4")


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument(
        "--nodes", type=count, default=5_000, help="nodes with 8 GPUs, all in use (default: %(default)s)"
    )
    options.add_argument("--jobs", type=count, default=50_000, help="waiting jobs (default: %(default)s)")
    options.add_argument("--rounds", type=count, default=3, help="turns of each checkout (default: %(default)s)")
    options.add_argument("--other", type=Path, help="another checkout, which runs in turns with this one")
    options.add_argument("--json", type=Path, default=Path("out/waiting_cycle.json"), help="where it is written too")
    options.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.alone:
        print(json.dumps(turns.as_program(measure(nodes=args.nodes, jobs=args.jobs))))
        return
    words = [__file__, "--alone", f"--nodes={args.nodes}", f"--jobs={args.jobs}"]
    turns.report(turns.of_processes(words, other=args.other, rounds=args.rounds), path=args.json)


async def measure(*, nodes: int, jobs: int) -> dict[str, float]:
    """CPU seconds of the first cycle, and the median of those in which nothing changed."""
    state = _full(nodes)
    for at in range(jobs):
        state.store.job_changed(_job(at))
    caches, taken = caches_for(state), []
    for _ in range(1 + CYCLES):
        began = time.process_time()
        cycle = survey(state, now=datetime(2026, 1, 1, tzinfo=UTC), caches=caches)
        previous = state.decisions.verdicts
        for verdict in decide(state, cycle=cycle, previous=previous):
            if verdict is not previous.get(verdict.key):
                state.decisions.set_verdict(verdict.key, verdict=verdict)
        taken.append(time.process_time() - began)
    assert len(state.decisions.verdicts) == jobs
    return {"first": round(taken[0], 3), "nothing changed": round(statistics.median(taken[1:]), 4)}


def _full(nodes: int) -> State:
    state = build_state(ClusterView(ledger=Ledger()))
    view = state.store.view
    for at in range(nodes):
        shape = plane.NodeShape(name=f"n-{at}")
        view.node_changed(msgspec.convert(plane.node_manifest(shape), Node))
        view.gpunode_changed(msgspec.convert(plane.gpunode_manifest(shape), GPUNode))
        held = tuple(
            AllocatedDevice(uuid=shape.uuid(slot), index=slot, share_milli=1000, memory_mib=shape.device_memory_mib)
            for slot in range(DEVICES)
        )
        view.ledger.commit(Claim(key=f"full-{at}", node=shape.name, devices=held))
    return state


def _job(at: int) -> GPUJob:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": CPU[at % len(CPU)]}}}
    return msgspec.json.decode(
        msgspec.json.encode({
            "metadata": {
                "name": f"job-{at}", "namespace": "bench", "uid": f"uid-{at}", "resourceVersion": str(at + 1),
                "generation": 1,
                "creationTimestamp": f"2026-01-01T{at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02}Z",
            },
            "spec": {"gpu": GPUS[at // len(CPU) % len(GPUS)], "template": {"spec": {"containers": [container]}}},
            "status": {"phase": "Queued", "reason": "Resources", "number": at + 1},
        }),
        type=GPUJob,
    )  # fmt: skip


if __name__ == "__main__":
    main()

"""Measure the CPU that an extender takes for the pods of its first list: a few large nodes, and many small ones.

Without an API server: the informer of pods gets the pages of a list, as after a start, in a process with the settings
of a deployable, of which those of the garbage collector count. Each checkout runs in a process of its own, in turns;
compare within a turn.

    python benchmarks/restart.py [--sizes 200x100,5000x10] [--rounds 3] [--other CHECKOUT] [--json FILE]
"""

import argparse
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import plane
import turns
from counts import count

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import GPUNode
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.kube.client import PAGE_SIZE
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail_extender.cluster.informers import Watching

DEVICES = 8
# Each holds a hundredth of a device: a node of 100 pods has room.
SHARE_MILLI = 10


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--sizes", default="200x100,5000x10", help="nodes x pods on each (default: %(default)s)")
    options.add_argument("--rounds", type=count, default=3, help="turns of each checkout (default: %(default)s)")
    options.add_argument("--other", type=Path, help="another checkout, which runs in turns with this one")
    options.add_argument("--json", type=Path, default=Path("out/restart.json"), help="where it is written too")
    options.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.alone:
        sizes = {size: map(int, size.split("x")) for size in args.sizes.split(",")}
        print(json.dumps({size: turns.as_program(measure(*numbers)) for size, numbers in sizes.items()}))
        return
    words = [__file__, "--alone", f"--sizes={args.sizes}"]
    turns.report(turns.of_processes(words, other=args.other, rounds=args.rounds), path=args.json)


async def measure(nodes: int, pods_on_each: int) -> float:
    """CPU seconds from the first page of pods until the last one counts in the ledger."""
    view = ClusterView(ledger=Ledger())
    for at in range(nodes):
        shape = plane.NodeShape(name=f"n-{at}")
        view.node_changed(msgspec.convert(plane.node_manifest(shape), Node))
        view.gpunode_changed(msgspec.convert(plane.gpunode_manifest(shape), GPUNode))
    pages = Pages(nodes, pods_on_each)
    watching = Watching(pages, view=view, on_pod=_nothing, on_job=_nothing, on_quota=_nothing)  # type: ignore[arg-type] # a client that only lists
    pods = next(each for each in watching._reflectors if each.resource.plural == "pods")  # noqa: SLF001 - the list alone
    began = time.process_time()
    await pods._relist()  # noqa: SLF001 - the list alone
    view.ledger.totals()  # what is promised of each node is computed before the first reading
    taken = time.process_time() - began - pages.making_seconds
    assert len(view.ledger.claims()) == nodes * pods_on_each
    return round(taken, 3)


class Page(msgspec.Struct):
    """A page of a list."""

    metadata: Any
    items: list[msgspec.Raw]


class Pages:
    """A client that lists bound pods, in the order of an API server: by name, so those of a node are far apart."""

    def __init__(self, nodes: int, pods_on_each: int) -> None:
        self._nodes = nodes
        self._pods = nodes * pods_on_each
        self.making_seconds = 0.0

    async def pages(self, *_: Any, **__: Any) -> AsyncIterator[Page]:
        """The pages, without the time that it takes to make them."""
        for first in range(0, self._pods, PAGE_SIZE):
            began = time.process_time()
            made = [self._pod(at) for at in range(first, min(first + PAGE_SIZE, self._pods))]
            page = Page(metadata=_Meta(), items=[msgspec.Raw(msgspec.json.encode(pod)) for pod in made])
            self.making_seconds += time.process_time() - began
            yield page

    def _pod(self, at: int) -> dict[str, Any]:
        node = plane.NodeShape(name=f"n-{at % self._nodes}")
        index = at // self._nodes % DEVICES
        held = AllocatedDevice(uuid=node.uuid(index), index=index, share_milli=SHARE_MILLI, memory_mib=64)
        allocation = Allocation(
            node=node.name, mode="Fractional", containers=[ContainerAllocation(index=0, devices=[held])]
        )
        pod = plane.pod(f"pod-{at:06d}", gpu="0.01", milli=SHARE_MILLI)
        meta = pod["metadata"]
        meta |= {"namespace": "bench", "uid": f"uid-{at}", "resourceVersion": str(at + 1)}
        meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
        meta["annotations"] |= annotations_of(allocation)
        meta["labels"] = {names.LABEL_JOB: f"job-{at}"}
        return pod | {"spec": pod["spec"] | {"nodeName": node.name}, "status": {"phase": "Running"}}


class _Meta:
    resource_version = "9"


def _nothing(_event: object, _seen: object) -> None:
    """Ignore the change: only the ledger is measured."""


if __name__ == "__main__":
    main()

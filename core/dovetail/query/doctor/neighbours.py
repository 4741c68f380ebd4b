"""Other systems that place or admit GPU work in the cluster, and how they and Dovetail share it. Pure.

A module of its own: each subject of the doctor has one, with its `judge`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dovetail.answers.doctor import CheckResult
from dovetail.api.builtin import Node
from dovetail.cluster.node_kind import serving
from dovetail.cluster.picture import Picture, Unseen
from dovetail.config.settings import Settings
from dovetail.query.doctor.findings import listed, unknown

_CHECK: Final = "neighbour"
# HAMi's device plugin reports each node's devices in annotations of this group.
_HAMI: Final = "hami.io/node-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A system by one of its CRDs, and what holds where it runs together with Dovetail."""

    name: str
    crd: str
    says: str
    page: str


NEIGHBOURS: Final = (
    Neighbour(
        name="Kueue", crd="clusterqueues.kueue.x-k8s.io", page="docs/alongside.md",
        says="it admits GPUJobs that name its queue; give each queue GPUs of its own",
    ),
    Neighbour(
        name="KAI Scheduler", crd="queues.scheduling.run.ai", page="docs/alongside.md#other-schedulers",
        says="it places pods with its own schedulerName; its pods count on nodes of a device plugin, and cannot use "
        "managed nodes",
    ),
    Neighbour(
        name="Volcano", crd="queues.scheduling.volcano.sh", page="docs/alongside.md#other-schedulers",
        says="it places pods with its own schedulerName; its pods count on nodes of a device plugin, and cannot use "
        "managed nodes",
    ),
    Neighbour(
        name="NVIDIA's DRA driver", crd="computedomains.resource.nvidia.com", page="docs/vendor.md",
        says="its nodes must not be managed; pods with resource claims count there",
    ),
)  # fmt: skip


def judge(picture: Picture, *, settings: Settings) -> Iterator[CheckResult]:
    """A note for each neighbour, and a problem where HAMi hands out devices that Dovetail counts."""
    if isinstance(picture.neighbours, Unseen):
        yield unknown(_CHECK, unseen=picture.neighbours)
    else:
        for each in NEIGHBOURS:
            if each.crd in picture.neighbours:
                yield CheckResult(level="ok", check=_CHECK, subject=each.name, message=f"{each.says} ({each.page})")
    if not isinstance(picture.nodes, Unseen):
        hami = [node for node in picture.nodes if _is_hamis(node)]
        if hami:
            yield from _with_hami(hami, settings=settings)


def _is_hamis(node: Node) -> bool:
    return any(key.startswith(_HAMI) for key in node.metadata.annotations)


def _with_hami(nodes: list[Node], *, settings: Settings) -> Iterator[CheckResult]:
    kinds = {node.metadata.name: serving(node, vendors=settings.vendors) for node in nodes}
    managed = [name for name, serves in kinds.items() if serves.managed]
    counted = [name for name, serves in kinds.items() if serves.resource and not serves.managed]
    if managed:
        yield CheckResult(
            level="error", check=_CHECK, subject="HAMi",
            message=f"it hands out the devices of {listed(managed)} too: each may promise what the other has given",
            fix=f"kubectl label node {managed[0]} dovetail.dev/managed-, or keep HAMi's device plugin off these nodes",
        )  # fmt: skip
    if counted:
        # Its plugin advertises each device as many times as pods may share it, and serves only pods that its own
        # scheduler has placed.
        yield CheckResult(
            level="warning", check=_CHECK, subject="HAMi",
            message=f"on {listed(counted)} it advertises {kinds[counted[0]].resource} several times for each device: "
            "Dovetail counts each as a device, and its pods do not start there",
            fix="give HAMi's resource a name of its own (resourceName of its chart), or move the nodes "
            "(docs/migration.md#from-hami)",
        )  # fmt: skip
    if not managed and not counted:
        message = f"it hands out the devices of {listed(list(kinds))}, which Dovetail does not use"
        yield CheckResult(level="ok", check=_CHECK, subject="HAMi", message=message)

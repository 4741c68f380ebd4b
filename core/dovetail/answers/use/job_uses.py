"""What each job holds, over all devices: the inventory grouped by job. Pure."""

from collections import defaultdict
from collections.abc import Sequence

from dovetail.answers import Row
from dovetail.answers.inventory import DeviceUse, Inventory
from dovetail.answers.nodes import TenantRow
from dovetail.answers.questions import ExplainedDevice
from dovetail.api.gpujob import Workload
from dovetail.gpu.request import WHOLE_MILLI

_Held = tuple[str, DeviceUse, TenantRow]


class JobUse(Row, frozen=True, kw_only=True):
    """What a job, or a pod that belongs to no job, holds.

    job         its number in its namespace; None for such a pod
    name        `job 5`, or `pod notebook`
    namespace   its namespace
    workload    Training, Inference or None: what it counts as for tenant limits
    gpus        the number of GPUs that it holds; a share counts as its part, a MIG instance by its slices
    memory_mib  what is promised of their memory, in MiB
    devices     the devices, by node and index
    """

    job: int | None
    name: str
    namespace: str
    workload: Workload | None
    gpus: float
    memory_mib: int
    devices: list[ExplainedDevice]


def job_uses(found: Inventory) -> list[JobUse]:
    """One entry for each job, by namespace and number; pods that belong to no job follow, by name."""
    held: dict[tuple[str, bool, int, str], list[_Held]] = defaultdict(list)
    for use in found.devices:
        for holder in use.holders:
            held[_key(holder)].append((use.node, use, holder))
    return [_job_use(held[key]) for key in sorted(held)]


def available(found: Inventory) -> dict[str, list[int]]:
    """The indexes of the devices that a job could take as a whole, by node."""
    free = {node: [use.device.index for use in each.uses if use.available] for node, each in found.nodes.items()}
    return {node: indexes for node, indexes in free.items() if indexes}


def _key(holder: TenantRow) -> tuple[str, bool, int, str]:
    is_pod = holder.job is None
    return holder.namespace, is_pod, holder.job or 0, holder.pod if is_pod else ""


def _job_use(held: Sequence[_Held]) -> JobUse:
    first = held[0][2]
    return JobUse(
        job=first.job,
        name=first.holder,
        namespace=first.namespace,
        workload=first.workload,
        gpus=round(sum(use.gpus * holder.share_milli for _, use, holder in held) / WHOLE_MILLI, 3),
        memory_mib=sum(holder.memory_mib for _, _, holder in held),
        devices=[
            ExplainedDevice(
                node=node,
                index=use.device.index,
                uuid=use.device.uuid,
                pod=holder.pod,
                share_milli=holder.share_milli,
                memory_mib=holder.memory_mib,
            )
            for node, use, holder in held
        ],
    )

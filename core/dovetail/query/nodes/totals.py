"""Sums over devices, of a node or of the whole cluster: GPUs, and apart from them MIG instances. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from dovetail.api.gpujob import GPUJob
from dovetail.formats.timestamps import timestamp
from dovetail.query.jobs.states import short_state
from dovetail.query.nodes.inventory import DeviceUse, Inventory
from dovetail.query.nodes.rows import NodeRow, node_rows
from dovetail.query.nodes.tenants import TenantCounts, tenant_counts


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over devices.

    total_gpus                the number of GPUs; one that is split into MIG instances is none of them
    available_gpus            how many of them a job could take as a whole
    held_gpus                 how many of them pods hold, also as shares
    total_mig_instances       the number of MIG instances
    available_mig_instances   how many of them a job could take
    held_mig_instances        how many of them pods hold
    utilization               the mean utilization of the GPUs, from 0 to 1; 0 without any
    memory_used_mib           the memory of GPUs and instances in use, in MiB
    memory_total_mib          their memory, in MiB
    tenants                   their holders by kind
    """

    total_gpus: int
    available_gpus: int
    held_gpus: int
    total_mig_instances: int
    available_mig_instances: int
    held_mig_instances: int
    utilization: float
    memory_used_mib: int
    memory_total_mib: int
    tenants: TenantCounts


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that run, and the jobs that wait in the queue or start."""

    running: int
    waiting: int


class Overview(Totals, frozen=True, kw_only=True):
    """The cluster at one time.

    time          when it was read (RFC 3339)
    jobs_running  the number of jobs that run
    jobs_waiting  the number of jobs that wait in the queue, or start
    nodes         the nodes, by name
    """

    time: str
    jobs_running: int
    jobs_waiting: int
    nodes: list[NodeRow]


def totals(uses: Sequence[DeviceUse]) -> Totals:
    """The sums over these devices."""
    gpus, instances = [use for use in uses if not use.is_instance], [use for use in uses if use.is_instance]
    return Totals(
        total_gpus=len(gpus),
        available_gpus=sum(use.available for use in gpus),
        held_gpus=sum(bool(use.holders) for use in gpus),
        total_mig_instances=len(instances),
        available_mig_instances=sum(use.available for use in instances),
        held_mig_instances=sum(bool(use.holders) for use in instances),
        # The driver does not report that of an instance.
        utilization=sum(use.device.utilization for use in gpus) / len(gpus) if gpus else 0.0,
        memory_used_mib=sum(use.device.used_mib for use in uses),
        memory_total_mib=sum(use.device.memory_mib for use in uses),
        tenants=tenant_counts(holder for use in uses for holder in use.holders),
    )


def job_counts(jobs: Iterable[GPUJob]) -> JobCounts:
    """How many of the jobs run and wait."""
    states = [short_state(job) for job in jobs]
    return JobCounts(running=states.count("R"), waiting=states.count("PD"))


def overview(found: Inventory, *, jobs: Iterable[GPUJob], now: datetime) -> Overview:
    """The cluster's sums, jobs and nodes. The utilization is rounded to four digits."""
    sums, counts = totals(found.devices), job_counts(jobs)
    rounded = msgspec.structs.replace(sums, utilization=round(sums.utilization, 4))
    return Overview(
        **msgspec.structs.asdict(rounded),
        time=timestamp(now),
        jobs_running=counts.running,
        jobs_waiting=counts.waiting,
        nodes=node_rows(found),
    )

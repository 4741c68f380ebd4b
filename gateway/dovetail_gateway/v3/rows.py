"""Rows of jobs and nodes, as a caller may see them. Pure."""

from collections.abc import Sequence

from dovetail import names
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.meta import find_condition
from dovetail.formats.timestamps import after, moment, timestamp
from dovetail.query.jobs.owners import project_of, user_of
from dovetail.query.nodes.inventory import DeviceUse, Holder, enforcing
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import NodeUse
from dovetail_gateway.v3.types.jobs import JobDevice, JobRow
from dovetail_gateway.v3.types.nodes import DeviceRow, NodeRow, OtherTenants, TenantRow


def job_row(job: GPUJob) -> JobRow:
    """The row of a job."""
    meta, spec, status = job.metadata, job.spec, job.status
    place = status.queue
    return JobRow(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        number=status.number,
        user=user_of(job) or "",
        project=project_of(job),
        phase=status.phase or "Queued",
        reason=status.reason,
        message=status.message,
        request=status.request,
        gpus=status.gpus,
        device=status.device,
        workers=spec.workers,
        priority=spec.priority,
        reservation=spec.reservation is not None,
        position=None if place is None else place.position,
        estimated_start=None if place is None else place.estimated_start,
        earliest=None if place is None else place.estimated_start_earliest,
        latest=None if place is None else place.estimated_start_latest,
        after=[each.name for each in spec.dependencies],
        nodes=status.nodes,
        devices=job_devices(job),
        submitted_at=meta.creation_timestamp,
        started_at=status.start_time,
        completed_at=status.completion_time,
        lease_ends_at=None if status.lease is None else status.lease.expiration_time,
        ends_by=end_of(job),
        idle=_idle(status),
    )


def end_of(job: GPUJob) -> str | None:
    """When the job's lease or time limit ends it, from its start or estimated start; None without either."""
    status, limit = job.status, job.spec.active_deadline_seconds
    if status.lease is not None and status.lease.expiration_time:
        return status.lease.expiration_time
    starts_at = status.start_time or (None if status.queue is None else status.queue.estimated_start)
    if limit is None or starts_at is None:
        return None
    return timestamp(after(moment(starts_at), seconds=limit))


def _idle(status: GPUJobStatus) -> str:
    """Since when the job leaves its GPUs idle, in a sentence; empty if it does not."""
    found = find_condition(status.conditions, type=names.CONDITION_IDLE)
    return found.message if found is not None and found.status == "True" else ""


def job_devices(job: GPUJob) -> list[JobDevice]:
    """The devices that a job's workers hold or held."""
    return [
        JobDevice(
            worker=each.worker,
            node=each.node,
            index=each.index,
            uuid=each.uuid,
            share_milli=each.share_milli,
            memory_mib=each.memory_mib,
        )
        for each in job.status.devices
    ]


def node_row(node: NodeUse, *, sees: Visibility) -> NodeRow:
    """The row of a node; tenants of hidden namespaces are sums."""
    status = node.gpunode.status
    labels = {} if node.node is None else node.node.metadata.labels
    return NodeRow(
        name=node.name,
        takes_work=node.takes_work,
        pool=labels.get(names.LABEL_POOL, ""),
        rack=node.rack,
        driver_version=status.driver_version,
        enforces=enforcing(status.enforcement),
        observed_at=status.observed_at,
        devices=device_rows(node, sees=sees),
    )


def device_rows(node: NodeUse, *, sees: Visibility) -> list[DeviceRow]:
    """The rows of a node's devices."""
    takes_work = node.takes_work
    return [_device(use, node=node.name, takes_work=takes_work, sees=sees) for use in node.uses]


def _device(use: DeviceUse, *, node: str, takes_work: bool, sees: Visibility) -> DeviceRow:
    device = use.device
    shown = [holder for holder in use.holders if sees.sees(holder.namespace)]
    used = {each.uid: each.used_mib for each in device.tenants}
    return DeviceRow(
        node=node,
        index=device.index,
        uuid=device.uuid,
        vendor=device.vendor,
        model=device.model,
        mig_profile=device.mig_profile,
        memory_mib=device.memory_mib,
        used_mib=device.used_mib,
        utilization=device.utilization,
        temperature_celsius=device.temperature_celsius,
        power_watts=device.power_watts,
        health=device.health,
        health_reason=device.health_reason,
        cordoned=use.cordoned,
        available=takes_work and use.available,
        strangers=len(device.strangers),
        tenants=[_tenant(holder, used_mib=used.get(holder.uid)) for holder in shown],
        others=_others([holder for holder in use.holders if not sees.sees(holder.namespace)]),
    )


def _tenant(holder: Holder, *, used_mib: int | None) -> TenantRow:
    return TenantRow(
        namespace=holder.namespace,
        pod=holder.pod,
        job=holder.job,
        share_milli=holder.share_milli,
        memory_mib=holder.memory_mib,
        used_mib=used_mib,
    )


def _others(holders: Sequence[Holder]) -> OtherTenants | None:
    if not holders:
        return None
    return OtherTenants(
        tenants=len(holders),
        share_milli=sum(holder.share_milli for holder in holders),
        memory_mib=sum(holder.memory_mib for holder in holders),
    )

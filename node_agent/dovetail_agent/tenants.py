"""What the pods of a node were promised, and which work they are. Pure."""

from dovetail.api.gpunodetenants import NodeTenant


def work_of(tenant: NodeTenant) -> str:
    """Namespace and job or pod, the same for all workers of a job."""
    return f"{tenant.namespace}/{tenant.job or tenant.name}"


def promised_mib(tenant: NodeTenant, *, uuid: str) -> int:
    """Memory in MiB that a tenant was promised on one device."""
    return sum(device.memory_mib for device in tenant.devices if device.uuid == uuid)


def promised_milli(tenant: NodeTenant, *, uuid: str) -> int:
    """Share of one device, in thousandths, that a tenant was promised."""
    return sum(device.share_milli for device in tenant.devices if device.uuid == uuid)

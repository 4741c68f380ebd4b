"""Devices that a pod has by a resource claim that the scheduler created for a resource.

Pure.

Kubernetes can serve an extended resource by dynamic resource allocation (KEP-5004). Then no node advertises it, and the
pod's status says which container's request became which claim.
"""

from collections import Counter
from typing import Final

from dovetail.api.builtin import Pod
from dovetail.formats.quantities import whole
from dovetail.gpu.device_plugins import Vendors
from dovetail.pods.containers import every_container

# The resource name of a ledger claim without an extended resource.
BY_CLAIM: Final = "resource.k8s.io/claim"
_BY_CLASS: Final = "deviceclass.resource.kubernetes.io/"


def claimed_devices(pod: Pod, *, vendors: Vendors) -> dict[str, int]:
    """Whole GPUs that the pod requested by a device class, such as gpu.nvidia.com, by resource.

    A request of a vendor's resource is already counted there, whichever driver serves it. MIG devices are not whole
    GPUs.
    """
    claimed = pod.status.extended_resource_claim_status
    if claimed is None:
        return {}
    asked = {container.name: container.resources for container in every_container(pod.spec)}
    found: Counter[str] = Counter()
    for each in claimed.request_mappings:
        name = each.resource_name
        device_class = name.removeprefix(_BY_CLASS)
        if name == device_class or device_class.startswith("mig.") or vendors.vendor_of(device_class) is None:
            continue
        resources = asked.get(each.container_name)
        if resources is not None:
            found[name] += whole(resources.requests.get(name) or resources.limits.get(name) or 0)
    return {name: count for name, count in found.items() if count}

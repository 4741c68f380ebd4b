"""Vendor mode: whole devices that kubelet picks, requested by a device plugin's resource.

Pure.

A node is of one kind: managed by Dovetail, or served by a vendor's plugin. On the latter, kube-scheduler and kubelet
count the vendor's resource, Dovetail chooses the node by model, health and count, and the node's report later says
which devices the pod got.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from dovetail.gpu import mig, models
from dovetail.gpu.request import GPURequest

# NVIDIA's plugin puts this between a device and the number of its replica, where several pods take turns on it.
_REPLICA: Final = "::"


def card_of(device_id: str) -> str:
    """The UUID of the device of an id: `GPU-…::3` is a replica of `GPU-…`."""
    return device_id.partition(_REPLICA)[0]


def is_replica(device_id: str) -> bool:
    """Whether other pods may have the same device."""
    return _REPLICA in device_id


NodeKind = Literal["Managed", "Vendor"]
# How containers get their devices (`dovetail.pods.delivery`).
Delivery = Literal["RuntimeClass", "NRI"]

# Short names, as configurations use them, and the extended resource of each.
KNOWN_RESOURCES: Final[Mapping[str, str]] = {
    "gpu": "nvidia.com/gpu",
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "gpu.intel.com/i915",
    "npu": "huawei.com/npu",
}
MANAGED_VENDOR: Final = "nvidia"
_VENDOR_OF_DOMAIN: Final = {"nvidia.com": "nvidia", "amd.com": "amd", "intel.com": "intel", "huawei.com": "ascend"}
_NVIDIA_DOMAIN: Final = "nvidia.com/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendors:
    """The resources of vendors' devices, and the defaults of requests.

    `by_name` maps short names to resources, `default` is the resource of a request without vendor, and `first` the kind
    of node that is tried first for a job's whole devices. `resources` has every resource once, in the order of the
    configuration.
    """

    by_name: Mapping[str, str] = field(default_factory=lambda: dict(KNOWN_RESOURCES))
    default: str = "nvidia.com/gpu"
    first: NodeKind = "Managed"
    # Computed once: every pod that is seen uses them.
    resources: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "resources", tuple(dict.fromkeys(self.by_name.values())))

    @property
    def nvidia_resources(self) -> frozenset[str]:
        """The configured resources whose plugin may set NVIDIA_VISIBLE_DEVICES in a container."""
        return frozenset(name for name in self.resources if may_set_visible_devices(name))

    def vendor_of(self, resource: str) -> str | None:
        """The vendor of a resource, by its domain, else by its short name.

        None when neither says it.
        """
        domain = resource.partition("/")[0]
        for known, vendor in _VENDOR_OF_DOMAIN.items():
            if domain == known or domain.endswith(f".{known}"):
                return vendor
        names = (name for name, meant in self.by_name.items() if meant == resource)
        return next((name for name in names if name in models.VENDORS), None)

    def resources_for(self, request: GPURequest) -> tuple[str, ...]:
        """The resources that can meet a request: those of its vendor, else of its models' vendors.

        A request with neither means the default resource. MIG instances of each profile have a resource of their own.
        """
        if request.mig:
            return (mig.resource_of(request.mig),)
        vendors = {request.vendor} if request.vendor else {models.vendor_of(model) for model in request.models}
        wanted = vendors - {None}
        if wanted:
            return tuple(resource for resource in self.resources if self.vendor_of(resource) in wanted)
        return (self.by_name.get(self.default, self.default),)

    def taints_for(self, request: GPURequest) -> tuple[str, ...]:
        """The keys of the taints by which clusters keep other pods off the nodes that can meet a request."""
        return self.resources_for(replace(request, mig="") if request.mig else request)

    def amounts_in(self, amounts: Mapping[str, Any]) -> dict[str, Any]:
        """The vendors' devices in `amounts` (quantities by name), without zeros."""
        return {name: amounts[name] for name in self.resources if str(amounts.get(name, "0")) != "0"}


DEFAULT_VENDORS: Final = Vendors()


def may_set_visible_devices(resource: str) -> bool:
    """Whether a plugin of that resource may set NVIDIA_VISIBLE_DEVICES.

    The other known vendors' plugins do not.
    """
    domain = resource.partition("/")[0]
    others = (known for known, vendor in _VENDOR_OF_DOMAIN.items() if vendor != MANAGED_VENDOR)
    return not any(domain == known or domain.endswith(f".{known}") for known in others)


def is_mig(resource: str) -> bool:
    """Whether a resource is a MIG device of NVIDIA's plugin, such as `nvidia.com/mig-1g.10gb`."""
    return resource.startswith(mig.RESOURCE_PREFIX)


def is_nvidias(resource: str) -> bool:
    """Whether a resource has NVIDIA's domain.

    Not every one is a GPU (`nvidia.com/hostdev` is a network card).
    """
    return resource.startswith(_NVIDIA_DOMAIN)

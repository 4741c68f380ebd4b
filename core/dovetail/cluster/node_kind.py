"""What a Node says about its GPUs: what serves them, and, without an agent, their labels.

Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.cluster.dra_drivers import UNKNOWN
from dovetail.engine.model.inventory import DeviceFacts
from dovetail.formats.quantities import Quantity, QuantityError, whole
from dovetail.gpu import mig, models
from dovetail.gpu.device_plugins import MANAGED_VENDOR, Vendors, is_mig

MAX_DEVICES: Final = 128
# The discovery labels of vendors that name the model; ours is for nodes that have none of them.
_MODEL_LABELS: Final = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", names.LABEL_MODEL)
_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What serves a node's devices.

    - `managed`: Dovetail does
    - `resource`: a vendor's device plugin does, under this resource name
    - `count`: number of the plugin's devices that are healthy
    - `instances`: number of the plugin's MIG instances that are healthy, by profile
    - `drivers`: names of DRA drivers that do; an empty name for an unknown one

    Two of them at once is a mistake, since each would assign what the other has promised: then the node gets no pods.
    """

    managed: bool = False
    resource: str = ""
    count: int = 0
    instances: Mapping[str, int] = field(default_factory=dict)
    drivers: tuple[str, ...] = ()

    @property
    def conflict(self) -> str:
        """Why the node can take no pods with GPUs; empty when it can."""
        if not self.managed:
            return ""
        if self.resource:
            return f"the node is labelled {names.LABEL_MANAGED}, but a plugin advertises {self.resource} there too"
        if UNKNOWN in self.drivers:
            return "pods there hold resource claims, and which DRA driver hands out the node's GPUs is not known yet"
        if self.drivers:
            return f"both Dovetail and the DRA driver {' and '.join(self.drivers)} hand out the node's GPUs"
        return ""


def serving(node: Node, *, vendors: Vendors, drivers: tuple[str, ...] = ()) -> Serving:
    """What serves the node's devices; `drivers` come from their ResourceSlices.

    A plugin that is down leaves its resource in the capacity, with 0 allocatable devices.
    """
    managed = node.metadata.labels.get(names.LABEL_MANAGED) == "true"
    found = vendors.amounts_in(node.status.capacity)
    if not found and managed:
        # NVIDIA's plugin in its mixed strategy advertises each profile under its own name, and no nvidia.com/gpu.
        found = {name: amount for name, amount in node.status.capacity.items() if is_mig(name) and amount != "0"}
    instances = {} if managed else _instances(node.status.allocatable)
    if not found:
        return Serving(managed=managed, instances=instances, drivers=drivers)
    resource = next(iter(found))
    count = _whole(node.status.allocatable.get(resource, "0"))
    return Serving(managed=managed, resource=resource, count=count, instances=instances, drivers=drivers)


def _instances(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    """The MIG instances in `amounts`, by profile; a resource that is no profile counts for none."""
    found = {profile: _whole(amounts[name]) for name in amounts if (profile := mig.profile_of(name)) is not None}
    return {profile: count for profile, count in found.items() if count}


def labelled_devices(node: Node, *, serves: Serving, vendors: Vendors, specs: Mapping[str, float]) -> list[DeviceFacts]:
    """The devices of a vendor's node according to its labels, all alike, with placeholder names.

    Used until an agent reports: the count is kubelet's, the model comes from the vendor's feature discovery or our own
    label, the memory in MiB from its label, `specs` (GB by family) or the table of models (0 where none has it).
    """
    labels = node.metadata.labels
    model = next((labels[label] for label in _MODEL_LABELS if labels.get(label)), "")
    memory_mib = _whole(labels.get(_MEMORY_LABEL, "0")) or models.memory_mib(model, specs=specs) or 0
    whole_ones = [
        DeviceFacts(
            index=index,
            uuid=f"{node.metadata.name}/{index}",
            vendor=vendors.vendor_of(serves.resource) or "",
            model=model,
            memory_mib=memory_mib,
        )
        for index in range(min(MAX_DEVICES, serves.count))
    ]
    return whole_ones + _labelled_instances(node, serves=serves, model=model, first=len(whole_ones))


def _labelled_instances(node: Node, *, serves: Serving, model: str, first: int) -> list[DeviceFacts]:
    """The MIG instances of a vendor's node, numbered from `first`."""
    labels = node.metadata.labels
    each = [profile for profile, count in sorted(serves.instances.items()) for _ in range(min(MAX_DEVICES, count))]
    return [
        DeviceFacts(
            index=first + at,
            uuid=f"{node.metadata.name}/{profile}/{at}",
            vendor=MANAGED_VENDOR,
            model=model,
            memory_mib=_whole(labels.get(f"{mig.resource_of(profile)}.memory", "0")) or mig.memory_mib(profile),
            mig=profile,
        )
        for at, profile in enumerate(each)
    ]


def _whole(text: Quantity) -> int:
    # Labels are free text: one that is not a number gives nothing.
    try:
        return max(0, whole(text, rounding="down"))
    except QuantityError:
        return 0

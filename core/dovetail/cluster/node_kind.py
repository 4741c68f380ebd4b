"""What a Node says of its GPUs: who serves them, and, where no agent reports, what its labels tell of them. Pure."""

from dataclasses import dataclass
from typing import Final

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.cluster.dra_drivers import UNKNOWN
from dovetail.engine.model.inventory import DeviceFacts
from dovetail.formats.quantities import QuantityError, whole
from dovetail.gpu import models
from dovetail.gpu.device_plugins import Vendors, is_mig

MAX_DEVICES: Final = 128
# Of the labels that vendors' discovery writes, those that name the model; ours is for nodes that have none of them.
_MODEL_LABELS: Final = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", names.LABEL_MODEL)
_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Who serves a node's devices: we (`managed`), a vendor's plugin by its `resource`, `count` of them in order, or
    `drivers` of dynamic resource allocation (DRA), empty where it is not known which.

    Both at once is a mistake, since each would hand out what the other has promised: then neither gets pods.
    """

    managed: bool = False
    resource: str = ""
    count: int = 0
    drivers: tuple[str, ...] = ()

    @property
    def conflict(self) -> str:
        """Why the node can take no pods with GPUs, empty when it can."""
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
    """Who serves the node's devices; `drivers` are known by their ResourceSlices.

    A plugin that is away leaves its resource in the capacity, with none in order.
    """
    managed = node.metadata.labels.get(names.LABEL_MANAGED) == "true"
    found = vendors.amounts_in(node.status.capacity)
    if not found and managed:
        # NVIDIA's plugin in its mixed strategy advertises each profile under a name of its own, and no nvidia.com/gpu.
        found = {name: amount for name, amount in node.status.capacity.items() if is_mig(name) and amount != "0"}
    if not found:
        return Serving(managed=managed, drivers=drivers)
    resource = next(iter(found))
    count = _whole(node.status.allocatable.get(resource, "0"))
    return Serving(managed=managed, resource=resource, count=count, drivers=drivers)


def labelled_devices(node: Node, *, serves: Serving, vendors: Vendors) -> list[DeviceFacts]:
    """The devices of a vendor's node as its labels tell them, all alike, under names of our own.

    A start where no agent reports: kubelet's count, the model by the vendor's feature discovery or our own label, the
    memory by its label or the table of models (0 where neither tells).
    """
    labels = node.metadata.labels
    model = next((labels[label] for label in _MODEL_LABELS if labels.get(label)), "")
    memory_mib = _whole(labels.get(_MEMORY_LABEL, "0")) or models.memory_mib(model) or 0
    return [
        DeviceFacts(
            index=index,
            uuid=f"{node.metadata.name}/{index}",
            vendor=vendors.vendor_of(serves.resource) or "",
            model=model,
            memory_mib=memory_mib,
        )
        for index in range(min(MAX_DEVICES, serves.count))
    ]


def _whole(text: str) -> int:
    # Labels are free text: one that is no number tells nothing.
    try:
        return max(0, whole(text, rounding="down"))
    except QuantityError:
        return 0

"""Computes the labels by which other programs read a node's GPUs, and the patch for them. Pure.

They are those of NVIDIA's GPU feature discovery, which SkyPilot, autoscalers and node selectors read. Where feature
discovery or an administrator wrote one of them, all are left as they are. `nvidia.com/gpu.present` is not among them:
NVIDIA's own DaemonSets select nodes by it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.api.gpunode import Device
from dovetail.gpu.device_plugins import MANAGED_VENDOR

COUNT: Final = "nvidia.com/gpu.count"
PRODUCT: Final = "nvidia.com/gpu.product"
MEMORY: Final = "nvidia.com/gpu.memory"
# By NVIDIA's feature discovery: when it last wrote the labels.
_DISCOVERY: Final = "nvidia.com/gfd.timestamp"
LABELS: Final = (COUNT, PRODUCT, MEMORY)
_LONGEST: Final = 63
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9._-]+")
_EDGES: Final = "._-"


def described(devices: Sequence[Device]) -> dict[str, str]:
    """The labels of a node with these devices: their number, the model, and the memory of the smallest in MiB.

    Empty without a whole GPU of NVIDIA, and without a model where the node has several.
    """
    whole = [each for each in devices if each.vendor == MANAGED_VENDOR and not each.mig_profile]
    if not whole:
        return {}
    products = {_NO_LABEL.sub("-", each.model)[:_LONGEST].strip(_EDGES) for each in whole}
    labels = {COUNT: str(len(whole)), MEMORY: str(min(each.memory_mib for each in whole))}
    if len(products) == 1 and (product := products.pop()):
        labels[PRODUCT] = product
    return labels


def labels_patch(node: Node, *, wanted: Mapping[str, str]) -> dict[str, str | None]:
    """The labels to change, with None for those to remove; empty if none is."""
    found = node.metadata.labels
    ours = found.get(names.LABEL_DESCRIBED) == "true"
    if _DISCOVERY in found or (not ours and not found.keys().isdisjoint(LABELS)):
        return {}
    meant = {**wanted, names.LABEL_DESCRIBED: "true"} if wanted else {}
    gone = dict.fromkeys(key for key in (*LABELS, names.LABEL_DESCRIBED) if ours and key in found and key not in meant)
    return gone | {key: value for key, value in meant.items() if found.get(key) != value}

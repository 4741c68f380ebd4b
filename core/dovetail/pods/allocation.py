"""The allocation in a pod's annotations, which the extender writes once. Values and text.

AllocationError   an annotation that is not an allocation: what is wrong with it
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from dovetail import names
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Mode, Workload
from dovetail.api.meta import Described
from dovetail.decoding import UnreadableError, decode

ALLOCATION_VERSION: Final = 1
# The highest weight in turns, as in a GPUJob's spec.priority.
MAX_PRIORITY: Final = 255


class AllocationError(ValueError):
    """An annotation that is not an allocation."""


class ContainerAllocation(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The devices of one container; `index` counts the pod's containers from 0."""

    index: int
    devices: list[AllocatedDevice]


class Allocation(Described, frozen=True, kw_only=True, omit_defaults=False):
    """All devices of one pod.

    - `node`: name of the pod's node
    - `mode`: how the pod uses its devices
    - `containers`: the devices of each container
    - `guard_fraction`: the part of their memory, 0 to 1, that may be promised to all tenants together
    - `workload`: what the pod counts as for tenant limits
    - `movable`: whether its device memory could move to the host for another tenant's turn
    - `priority`, `reservation`, `job`: the pod's `tenancy.Tenancy`, verified by the extender; `priority` is None only
      in an
      allocation of an earlier version, which has none of the three
    - `version`: the version of this format

    All values are those at bind time, whatever the pod's annotations and the configuration say later.
    """

    node: str
    mode: Mode
    containers: list[ContainerAllocation]
    guard_fraction: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    workload: Workload | None = None
    movable: bool = False
    priority: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRIORITY)] | None = None
    reservation: bool = False
    job: str = ""
    version: int = ALLOCATION_VERSION

    @property
    def devices(self) -> list[AllocatedDevice]:
        """Every device of the pod, container by container."""
        return [device for container in self.containers for device in container.devices]


def annotations_of(allocation: Allocation) -> dict[str, str]:
    """The annotations of the Binding: the allocation, and what containers' environments read."""
    texts = {names.ALLOCATION: msgspec.json.encode(allocation).decode()}
    for container in allocation.containers:
        key = container.index
        uuids = ",".join(device.uuid for device in container.devices)
        texts[names.per_container(names.VISIBLE_DEVICES, index=key)] = uuids
        if allocation.mode != "Exclusive":
            # MPS counts devices as the client sees them: from 0, in the order of the visible ones.
            limits = ",".join(f"{i}={device.memory_mib}M" for i, device in enumerate(container.devices))
            percentage = max(1, min(device.share_milli for device in container.devices) // 10)
            texts[names.per_container(names.MPS_PERCENTAGE, index=key)] = str(percentage)
            texts[names.per_container(names.MPS_MEMORY, index=key)] = limits
    return texts


def allocation_in(annotations: Mapping[str, str]) -> Allocation | None:
    """The allocation in a pod's annotations, or None. Raises `AllocationError` for a broken one."""
    text = annotations.get(names.ALLOCATION)
    if text is None:
        return None
    try:
        allocation = decode(text, as_type=Allocation)
    except UnreadableError as error:
        raise AllocationError(f"annotation {names.ALLOCATION} is no allocation: {error}") from error
    if allocation.version != ALLOCATION_VERSION:
        raise AllocationError(
            f"annotation {names.ALLOCATION} has version {allocation.version}: allowed is {ALLOCATION_VERSION}"
        )
    return allocation

"""A device that a pod was promised: in its annotation, in the ledger, in statuses and in answers. Data only."""

from typing import Annotated

from msgspec import Meta

from dovetail.api.meta import Described
from dovetail.gpu.mig import PROFILE_PATTERN
from dovetail.gpu.request import MAX_MEMORY_MIB, WHOLE_MILLI

Uuid = Annotated[str, Meta(description="UUID of the device.", max_length=128)]
Index = Annotated[int, Meta(description="Index of the device on its node.", ge=0)]
Share = Annotated[int, Meta(description="Share of the device's compute in thousandths.", ge=1, le=WHOLE_MILLI)]
Mib = Annotated[
    int,
    Meta(
        description="Memory promised on the device in MiB; of a whole device, all except the driver's reserve.",
        ge=0,
        le=MAX_MEMORY_MIB,
    ),
]


class AllocatedDevice(Described, frozen=True, kw_only=True):
    """A device, or a share of one, that a pod was promised on its node."""

    uuid: Uuid
    index: Index
    share_milli: Share
    memory_mib: Mib
    mig: Annotated[
        str,
        Meta(
            description="Profile of the MIG instance, of which `shareMilli` is promised; unset for a GPU.",
            pattern=f"^{PROFILE_PATTERN}$",
        ),
    ] = ""


class DeviceShare(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A device of the cluster, or a share of one."""

    node: Annotated[str, Meta(description="The node's name.")]
    index: Index
    uuid: Uuid
    share_milli: Share
    memory_mib: Mib

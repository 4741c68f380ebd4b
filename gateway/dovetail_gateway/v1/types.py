"""What v1 takes. Data only; unknown fields are ignored, GB are nominal."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from dovetail_gateway.routing.table import Nothing

# A GPUJob's name. In a path, an empty name or `..` would be another resource.
_ID: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A request for GPUs; `gpu_requirement` is the compact text, such as `2(V100)`, and takes precedence."""

    gpu_count: Annotated[int, Meta(ge=1, le=9999)] = 1
    gpu_type: Annotated[str, Meta(max_length=63)] | None = None
    memory_gb: Annotated[
        Annotated[float, Meta(ge=0, le=4096)] | None, Meta(description="The least nominal memory of each GPU in GB.")
    ] = None
    distributed_training: Annotated[bool, Meta(description="The GPUs may be on several nodes.")] = False
    mixed_precision: bool = False
    gpu_memory_fraction: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None, Meta(description="The part of each GPU's memory to use.")
    ] = None
    priority: Annotated[int, Meta(ge=0, le=255)] = 10
    gpu_requirement: Annotated[str, Meta(max_length=128)] | None = None
    allocation_id: Annotated[
        Annotated[str, Meta(pattern=_ID, max_length=63)] | None,
        Meta(description="For set-up: the allocation whose devices to use."),
    ] = None


class AllocationPath(Nothing, frozen=True, kw_only=True):
    """An allocation."""

    id: Annotated[str, Meta(pattern=_ID, max_length=63)]


class NodesQuery(Nothing, frozen=True, kw_only=True):
    """Which nodes."""

    gpu_type: Annotated[str, Meta(max_length=63)] | None = None
    min_memory_gb: Annotated[float, Meta(ge=0, le=4096)] | None = None

"""What is asked of a quota: which one, and what to change of it."""

from typing import Annotated, Any

from msgspec import Meta

from dovetail_gateway.routing.table import Strictly
from dovetail_gateway.v3.types.common import Input, ObjectName


class QuotaPath(Strictly, frozen=True, kw_only=True):
    """A GPUQuota."""

    name: ObjectName


class PlannedQuotaPatch(Input, frozen=True, kw_only=True, omit_defaults=True):
    """A change to a GPUQuota that is not made."""

    spec: Annotated[
        dict[str, Any],
        Meta(description="The fields of the GPUQuota's spec to change, as a merge patch (RFC 7396): null removes one."),
    ]


class QuotaPatch(PlannedQuotaPatch, frozen=True, kw_only=True, omit_defaults=True):
    """What to change of a GPUQuota; absent fields stay."""

    generation: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="The `generation` that you have read: after another change of the spec, yours is a 409."),
    ] = None

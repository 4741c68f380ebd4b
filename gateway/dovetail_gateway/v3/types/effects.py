"""What is asked of a change to a job."""

from typing import Annotated

from msgspec import Meta

from dovetail_gateway.v3.types.common import Input


class PlannedChange(Input, frozen=True, kw_only=True, omit_defaults=True):
    """A change to a job that is not made; absent fields stay."""

    held: Annotated[bool | None, Meta(description="true holds the job, false releases it.")] = None
    priority: Annotated[int, Meta(ge=0, le=255)] | None = None
    cancel: Annotated[bool, Meta(description="Cancel the job.")] = False

"""Which part of the plan of the queue is asked for."""

from typing import Annotated

from msgspec import Meta

from dovetail_gateway.v3.types.common import Page


class PlanFilter(Page, frozen=True, kw_only=True):
    """Which jobs of the plan, and which page of them."""

    bounded: Annotated[
        bool, Meta(description="Only jobs with planned nodes, that fill a gap, or whose pods will end.")
    ] = False

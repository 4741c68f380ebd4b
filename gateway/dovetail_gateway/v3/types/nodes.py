"""Pages of nodes with GPUs and of their devices."""

from typing import Annotated

from msgspec import Meta

from dovetail_gateway.routing.table import Strictly
from dovetail_gateway.v3.types.common import Cursor, Input, Limit, ObjectName


class NodePath(Strictly, frozen=True, kw_only=True):
    """A node."""

    name: ObjectName


class NodeFilter(Input, frozen=True, kw_only=True):
    """Which nodes, and which page of them."""

    model: Annotated[
        Annotated[str, Meta(max_length=63)] | None, Meta(description="Only nodes with devices of this model.")
    ] = None
    limit: Limit = 100
    cursor: Cursor = ""

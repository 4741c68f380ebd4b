"""Whose right sizes are asked for."""

from dovetail_gateway.v3.types.common import Cursor, Input, Limit, NamespaceName


class RightSizeFilter(Input, frozen=True, kw_only=True):
    """Whose right sizes, and which page of them."""

    namespace: NamespaceName | None = None
    limit: Limit = 100
    cursor: Cursor = ""

"""The common shapes of requests and answers, and the parts that several resources share."""

from typing import Annotated

import msgspec
from msgspec import Meta

from dovetail.answers import Row
from dovetail.api.meta import wire_name

__all__ = ["Cursor", "Input", "JobName", "Limit", "NamespaceName", "ObjectName", "Page", "Row"]

_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
NamespaceName = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
ObjectName = Annotated[str, Meta(pattern=_NAME, max_length=253)]
JobName = Annotated[str, Meta(pattern=_NAME, max_length=63)]
Limit = Annotated[int, Meta(ge=1, le=1000, description="How many at most.")]
Cursor = Annotated[str, Meta(max_length=512, description="`next` of the page before.")]


class Input(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name, forbid_unknown_fields=True):
    """The common shape of requests: an unknown field is an error."""


class Page(Input, frozen=True, kw_only=True):
    """Which page of a list; with a namespace, of that namespace's rows alone."""

    namespace: NamespaceName | None = None
    limit: Limit = 100
    cursor: Cursor = ""

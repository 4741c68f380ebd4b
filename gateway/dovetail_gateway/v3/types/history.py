"""Jobs that have ended."""

from typing import Annotated

from msgspec import Meta

from dovetail.api.gpujob import Phase
from dovetail.api.historyquery import Moment
from dovetail_gateway.v3.types.common import Input, Limit, NamespaceName


class HistoryFilter(Input, frozen=True, kw_only=True):
    """Which jobs that have ended, and which page of them."""

    namespace: NamespaceName
    since: Annotated[Moment | None, Meta(description="Only jobs that ended at this time or later.")] = None
    until: Annotated[Moment | None, Meta(description="Only jobs that ended before this time.")] = None
    user: Annotated[Annotated[str, Meta(max_length=253)] | None, Meta(description="Only jobs of this user.")] = None
    name: Annotated[Annotated[str, Meta(max_length=253)] | None, Meta(description="Only jobs of this name.")] = None
    number: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="Only the job of this number.")] = None
    project: Annotated[Annotated[str, Meta(max_length=63)] | None, Meta(description="Only jobs of this project.")] = (
        None
    )
    phase: Annotated[Phase | None, Meta(description="Only jobs that ended in this phase.")] = None
    limit: Limit = 100
    cursor: Annotated[str, Meta(max_length=128, description="`next` of the page before.")] = ""

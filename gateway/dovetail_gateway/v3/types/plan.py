"""The plan of the queue: what runs, and when the jobs that wait start."""

from dovetail.api.gpujob import Phase
from dovetail_gateway.v3.types.common import Cursor, Input, Limit, NamespaceName, Row
from dovetail_gateway.v3.types.jobs import JobDevice


class PlanFilter(Input, frozen=True, kw_only=True):
    """Which jobs of the plan, and which page of them."""

    namespace: NamespaceName | None = None
    limit: Limit = 100
    cursor: Cursor = ""


class PlanRow(Row, frozen=True, kw_only=True):
    """A job that runs, or that waits with an estimated start. `earliest` and `latest` are the estimate's bounds.

    `endsBy` is when its lease or its time limit ends it, null without either.
    """

    namespace: str
    name: str
    number: int | None
    user: str
    phase: Phase
    request: str
    workers: int
    starts_at: str
    earliest: str | None
    latest: str | None
    ends_by: str | None
    position: int | None
    nodes: list[str]
    devices: list[JobDevice]


class PlanPage(Row, frozen=True, kw_only=True):
    """A page of the plan, by start."""

    items: list[PlanRow]
    next: str | None

"""What a caller must be allowed before an answer tells about the cluster."""

from dovetail.api.access_reviews import Act
from dovetail.names import GROUP
from dovetail_gateway.access.callers import Caller
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.routing.problems import RequestFailedError


async def require(reviews: Reviews, *, caller: Caller, act: Act) -> None:
    """Raise `RequestFailedError` unless the caller may do this: even a refusal tells about the cluster."""
    if not await reviews.may(caller, act=act):
        where = f" in namespace {act.namespace}" if act.namespace else ""
        message = f"you may not {act.verb} {act.resource}.{GROUP}{where}"
        raise RequestFailedError(403, reason="Forbidden", message=message)

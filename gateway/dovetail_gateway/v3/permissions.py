"""What a caller must be allowed before an answer tells about the cluster."""

from dovetail.api.access_reviews import Act
from dovetail.api.reasons import problems as says
from dovetail.names import GROUP
from dovetail_gateway.access.callers import Caller
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.routing.problems import RequestFailedError


async def require(reviews: Reviews, *, caller: Caller, act: Act) -> None:
    """Raise `RequestFailedError` unless the caller may do this: even a refusal tells about the cluster."""
    if not await reviews.may(caller, act=act):
        sentence = says.MAY_NOT(verb=act.verb, resource=f"{act.resource}.{GROUP}")
        if act.namespace:
            sentence += says.IN_NAMESPACE(namespace=act.namespace)
        raise RequestFailedError(403, reason="Forbidden", sentence=sentence)

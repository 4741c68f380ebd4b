"""Times in requests. Pure."""

from dovetail.formats.timestamps import moment
from dovetail_gateway.routing.problems import RequestFailedError


def check_time(field: str, *, text: str | None) -> None:
    """Raise `RequestFailedError` for a time that matches the pattern of one and is none."""
    if text is None:
        return
    try:
        moment(text)
    except ValueError as error:
        message = f'{field} "{text}": {error}; write for example 2026-01-31T18:00:00Z'
        raise RequestFailedError(422, reason="Invalid", message=message) from error

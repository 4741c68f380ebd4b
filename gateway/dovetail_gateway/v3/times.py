"""Times in requests. Pure."""

from dovetail.api.reasons import problems as says
from dovetail.formats.timestamps import moment
from dovetail_gateway.routing.problems import RequestFailedError


def check_time(field: str, *, text: str | None) -> None:
    """Raise `RequestFailedError` for a time that matches the pattern of one and is none."""
    if text is None:
        return
    try:
        moment(text)
    except ValueError as error:
        sentence = says.WRONG_TIME(field=field, value=text, problem=str(error))
        raise RequestFailedError(422, reason="Invalid", sentence=sentence) from error

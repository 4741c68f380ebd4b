"""Which error a refusal of the API server is, and how long it asks to wait."""

import pytest

from dovetail.kube import errors
from dovetail.kube.errors import Status, StatusDetails, StatusError, status_error


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Gone", errors.Gone),
        (410, "Expired", errors.Gone),
        # As the API server answers a list whose continuation has expired in the middle of it.
        (400, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerFault),
        (504, "Timeout", errors.ServerFault),
        (400, "BadRequest", StatusError),
        (418, "", StatusError),
    ],
)
def test_a_refusal_is_the_error_of_its_reason_or_code(code: int, reason: str, kind: type[StatusError]) -> None:
    found = status_error(Status(code=code, reason=reason, message="no"), request="GET /x")
    assert type(found) is kind
    assert (found.code, found.reason, found.message, str(found)) == (code, reason, "no", f"GET /x: no ({code})")


@pytest.mark.parametrize(
    ("header", "body", "waits"), [(None, None, None), (None, 7, 7), (3.0, 7, 3.0), (3.0, None, 3.0), (0.0, 7, 0.0)]
)
def test_the_wait_is_that_of_the_header_before_that_of_the_body(
    header: float | None, body: int | None, waits: float | None
) -> None:
    status = Status(code=429, details=StatusDetails(retry_after_seconds=body))
    assert status_error(status, retry_after_seconds=header).retry_after_seconds == waits
    assert status_error(Status(code=429), retry_after_seconds=header).retry_after_seconds == header


def test_a_refusal_without_words_says_so() -> None:
    assert str(status_error(Status(code=403))) == "no reason given (403)"
    assert str(status_error(Status(code=403, reason="Forbidden"))) == "Forbidden (403)"

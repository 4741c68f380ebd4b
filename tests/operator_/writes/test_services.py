"""What the API server's refusal of an object means for the job that needs it."""

import pytest

from dovetail.kube.errors import (
    Conflict,
    Forbidden,
    Invalid,
    ServerFault,
    Status,
    StatusError,
    TooManyRequests,
    Unauthorized,
)
from dovetail_operator.writes.services import refusal


def made(kind: type[StatusError], *, code: int, message: str = "no") -> StatusError:
    return kind(Status(code=code, message=message))


@pytest.mark.parametrize(
    "error",
    [
        made(Conflict, code=409), made(TooManyRequests, code=429), made(Unauthorized, code=401),
        made(ServerFault, code=500), made(ServerFault, code=503),
    ],
    ids=lambda error: str(error.code),
)  # fmt: skip
def test_what_may_pass_by_itself_is_tried_again_and_no_obstacle(error: StatusError) -> None:
    with pytest.raises(type(error)):
        refusal(error, kind="Service")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (made(Forbidden, code=403, message="exceeded quota: pods"), "Quota"),
        (made(Forbidden, code=403), "Invalid"),
        (made(Invalid, code=422), "Invalid"),
    ],
)
def test_what_is_refused_for_good_is_an_obstacle_with_its_sentence(error: StatusError, reason: str) -> None:
    found = refusal(error, kind="Service")
    assert found.reason == reason
    assert found.message == f"The API server refuses the Service: {error.message}"

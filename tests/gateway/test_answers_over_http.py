"""What every answer has beside its content: status and fields of a refusal, its count in the metrics, and times."""

import time
from typing import Any

import pytest

from dovetail.api.meta import MessageDetail
from dovetail.api.reasons import problems as says
from dovetail.kube.errors import KubeError, Status, StatusCause, StatusDetails, Unreachable, status_error
from dovetail_gateway.routing.problems import PROBLEM, of_kube, too_many
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.openid import jwt
from tests.gateway.served import Face

CAUSES = [StatusCause(field="spec.gpu", message="too many"), StatusCause(field="spec.workers", message="too few")]


def refusal(code: int, *, reason: str = "", seconds: float | None = None, **details: Any) -> KubeError:
    status = Status(code=code, reason=reason, message="no", details=StatusDetails(**details))
    return status_error(status, retry_after_seconds=seconds)


@pytest.mark.parametrize("code", [400, 403, 404, 409, 410, 413, 422, 429])
def test_a_refusal_of_the_api_server_keeps_its_status_and_its_words(code: int) -> None:
    found = of_kube(refusal(code, reason="Because"))
    assert (found.status, found.reason, found.sentence.message, found.headers) == (code, "Because", "no", {})


def test_a_refusal_without_a_reason_has_that_of_its_status() -> None:
    assert of_kube(refusal(409)).reason == "Conflict"


@pytest.mark.parametrize(
    "error", [refusal(500), refusal(503), refusal(504), refusal(405), Unreachable("s", problem="reset")]
)
def test_an_api_server_that_is_away_or_fails_is_a_bad_gateway(error: KubeError) -> None:
    found = of_kube(error)
    assert (found.status, found.reason, str(error) in found.sentence.message) == (502, "APIServer", True)


def test_a_token_that_the_api_server_does_not_know_is_asked_for_again() -> None:
    found = of_kube(refusal(401, reason="Unauthorized"))
    assert (found.status, found.headers) == (401, {"WWW-Authenticate": "Bearer"})


def test_each_field_that_the_api_server_objects_to_is_named() -> None:
    problem = PROBLEM.write(of_kube(refusal(422, reason="Invalid", causes=CAUSES)))
    assert [(each.field, each.message) for each in problem.errors] == [
        ("spec.gpu", "too many"),
        ("spec.workers", "too few"),
    ]
    assert (problem.status, problem.title, problem.detail) == (422, "Unprocessable Entity", "no")
    assert problem.details == [MessageDetail(code="SaidByAPIServer", parameters={"message": "no"})]


def test_a_refusal_of_the_webhook_keeps_its_clauses() -> None:
    said = StatusCause(reason="MostCombinations", field="count", message="1600")
    most = StatusCause(reason="MostCombinations", field="most", message="1000")
    problem = PROBLEM.write(of_kube(refusal(400, reason="BadRequest", causes=[said, most])))
    assert problem.details == [MessageDetail(code="MostCombinations", parameters={"count": "1600", "most": "1000"})]
    assert (problem.detail, problem.errors) == ("no", [])


@pytest.mark.parametrize(("seconds", "header"), [(0.2, "1"), (1.4, "1"), (7, "7"), (90, "90")])
def test_how_long_to_wait_is_said_in_whole_seconds_of_at_least_one(seconds: float, header: str) -> None:
    assert of_kube(refusal(429, seconds=seconds)).headers == {"Retry-After": header}
    limited = too_many(says.TOO_MANY_REQUESTS(), wait_seconds=seconds)
    assert limited.headers == {"Retry-After": header}
    assert limited.sentence.message == f"too many requests: try again in {header} s"


def counted(face: Face) -> dict[tuple[str, str], float]:
    """The requests that were answered, by route and status."""
    return {
        (each.labels["route"], each.labels["status"]): each.value
        for family in face.made.metrics.registry.collect()
        for each in family.samples
        if each.name == "dovetail_gateway_requests_total"
    }


async def test_each_request_is_counted_by_its_route_and_the_status_that_it_got(face: Face) -> None:
    for path, token in [
        ("/api/v3/jobs/red/train", "red-token"),
        ("/api/v3/jobs/red/none", "red-token"),
        ("/api/v3/jobs/red/other", "red-token"),
        ("/api/v3/jobs/red/train", ""),
        ("/nowhere", "red-token"),
        ("/elsewhere", "red-token"),
        ("/api/v3/jobs/red/train/logs", "red-token"),
    ]:
        await face.get(path, token=token)
    job = "/api/v3/jobs/{namespace}/{name}"
    assert counted(face) == {
        (job, "200"): 1,
        (job, "404"): 2,
        (job, "401"): 1,
        ("none", "404"): 2,
        (f"{job}/logs", "200"): 1,
    }
    sample = face.made.metrics.registry.get_sample_value
    assert sample("dovetail_gateway_request_duration_seconds_count", {"route": job}) == 4


async def test_an_error_of_the_gateway_s_own_is_a_500_that_tells_nothing_of_it_and_is_counted(
    face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("a secret of ours")

    monkeypatch.setattr(face.made.cache, "seen_by", fails)
    found = await face.get("/api/v3/jobs", token="red-token")
    assert (found.status, found.json["reason"], "secret" in found.text) == (500, "Internal", False)
    assert counted(face) == {("/api/v3/jobs", "500"): 1}


async def test_me_says_when_the_token_ends(api: GatewayApiServer, face: Face) -> None:
    ends = int(time.time()) + 5000
    token = jwt({"exp": ends})
    api.users[token] = User("rita", {"red": EDIT})
    found = (await face.get("/api/v3/me", token=token)).json["expiresAt"]
    assert found == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends))
    assert (await face.get("/api/v3/me", token="red-token")).json["expiresAt"] is None

"""Jobs that have ended: asked as the caller, answered by the operator."""

import msgspec
import pytest

from dovetail.api.conversion import values_of
from dovetail.api.reasons.problems import NO_HISTORY
from dovetail_gateway.app import Options
from tests.core.query.jobs.test_records import record
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face, serving

HISTORY = "/api/v3/history?namespace=red"


async def test_a_page_of_records_comes_as_the_caller_and_the_query_is_deleted(
    api: GatewayApiServer, face: Face
) -> None:
    api.answer = {"answered": True, "records": [values_of(record(2))], "next": "2026 uid-2"}
    found = await face.get(f"{HISTORY}&user=rita&phase=Failed&limit=1&since=2026-01-01T00:00:00Z", token="red-token")
    assert ([row["name"] for row in found.json["items"]], found.json["next"]) == (["job-2"], "2026 uid-2")
    [question] = api.questions
    assert (question["users"], question["phases"], question["limit"]) == (["rita"], ["Failed"], 1)
    assert [each[:2] for each in api.requests[-2:]] == [("rita", "create"), ("", "forget")]


async def test_the_last_page_has_no_cursor(face: Face) -> None:
    found = await face.get(HISTORY, token="red-token")
    assert found.json == {"items": [], "next": None}


async def test_another_namespaces_history_is_the_api_servers_to_refuse(face: Face) -> None:
    found = await face.get("/api/v3/history?namespace=canaryns", token="red-token")
    assert (found.status, found.json["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize(
    ("query", "word"),
    [("since=1000-00-00T00000000Z", "since"), ("until=soon", "until"), ("number=0", "number"), ("phase=Odd", "phase")],
)
async def test_a_wrong_question_is_refused_before_it_is_asked(
    api: GatewayApiServer, face: Face, query: str, word: str
) -> None:
    found = await face.get(f"{HISTORY}&{query}", token="red-token")
    assert (found.status, word in found.json["detail"], api.questions) == (422, True, [])


async def test_what_the_operator_cannot_answer_comes_with_its_sentence(api: GatewayApiServer, face: Face) -> None:
    api.answer = {"answered": True, "message": "history sqlite: disk I/O error"}
    found = await face.get(HISTORY, token="red-token")
    assert (found.status, found.json["detail"]) == (409, "history sqlite: disk I/O error")


async def test_without_a_history_the_problem_has_the_code_that_says_so(api: GatewayApiServer, face: Face) -> None:
    said = NO_HISTORY()
    api.answer = {"answered": True, "message": said.message, "details": msgspec.to_builtins(said.listed)}
    found = await face.get(HISTORY, token="red-token")
    assert (found.status, found.json["detail"]) == (409, said.message)
    assert [each["code"] for each in found.json["details"]] == ["NoHistory"]


async def test_an_operator_that_does_not_answer_is_named(api: GatewayApiServer) -> None:
    api.answer = {"answered": False}
    async with serving(api, options=Options(rates=None, history_seconds=0.01)) as face:
        found = await face.get(HISTORY, token="red-token")
    assert (found.status, "is dovetail-operator running?" in found.json["detail"]) == (504, True)


SINCE, UNTIL = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("", {"limit": 100}),
        (f"since={SINCE}", {"since": SINCE}),
        (f"until={UNTIL}", {"until": UNTIL}),
        ("user=rita", {"users": ["rita"]}),
        ("name=train", {"names": ["train"]}),
        ("project=vision", {"projects": ["vision"]}),
        ("number=7", {"numbers": [7]}),
        ("phase=TimedOut", {"phases": ["TimedOut"]}),
        ("limit=3&cursor=2026%20uid", {"limit": 3, "after": "2026 uid"}),
    ],
)
async def test_each_filter_is_asked_for_and_nothing_else(
    api: GatewayApiServer, face: Face, query: str, asked: dict[str, object]
) -> None:
    assert (await face.get(f"{HISTORY}&{query}", token="red-token")).status == 200
    [question] = api.questions
    said = {field: value for field, value in question.items() if value not in (None, [], "")}
    assert said == {"limit": 100} | asked

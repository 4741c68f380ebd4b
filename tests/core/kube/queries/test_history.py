"""A question to the history: its object goes in every case, and each way to have no answer is its own error."""

import asyncio
from typing import Any

import pytest

from dovetail.api.historyquery import HistoryQuerySpec
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, ServerFault
from dovetail.kube.queries.history import RefusedQueryError, UnansweredError, ask
from tests.core.kube.api import Answer, Api, refusal

QUERIES = "/apis/dovetail.dev/v1beta1/namespaces/team/historyqueries"
ONE = f"{QUERIES}/ask-1"


def query(**status: Any) -> Answer:
    meta = {"name": "ask-1", "namespace": "team", "uid": "u", "resourceVersion": "5"}
    return Answer(body={"metadata": meta, "spec": {}, "status": status})


@pytest.fixture
def asked(api: Api) -> Api:
    api.answer(f"POST {QUERIES}", query())
    api.answer(f"DELETE {ONE}", Answer(body={}))
    return api


async def put(client: Client, *, seconds: float = 30) -> Any:
    return await ask(client, namespace="team", question=HistoryQuerySpec(names=["x"]), seconds=seconds)


async def test_the_answer_is_waited_for_and_the_question_is_deleted_after_it(asked: Api, client: Client) -> None:
    asked.answer(f"GET {ONE}", query(), query(answered=True, next="more"))
    assert (await put(client)).next == "more"
    (created,) = asked.of(f"POST {QUERIES}")
    assert created.body["metadata"] == {"generateName": "ask-"}
    assert created.body["spec"]["names"] == ["x"]
    assert [seen.method for seen in asked.seen] == ["POST", "GET", "GET", "DELETE"]


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (query(answered=True, message='phases "Queued": …'), RefusedQueryError, 'phases "Queued"'),
        (refusal(403, message="not yours"), Forbidden, "not yours"),
        (refusal(500), ServerFault, "500"),
    ],
)
async def test_a_question_without_an_answer_is_an_error_and_leaves_nothing(
    asked: Api, client: Client, answer: Answer, error: type[Exception], says: str
) -> None:
    asked.answer(f"GET {ONE}", answer)
    with pytest.raises(error, match=says):
        await put(client)
    assert len(asked.of(f"DELETE {ONE}")) == 1


@pytest.mark.parametrize("code", [403, 404, 503])
async def test_a_question_that_cannot_be_deleted_takes_no_answer_away(api: Api, client: Client, code: int) -> None:
    api.answer(f"POST {QUERIES}", query(), query())
    api.answer(f"GET {ONE}", query(answered=True, next="more"), query(answered=True, message="no history"))
    api.answer(f"DELETE {ONE}", refusal(code), refusal(code))
    assert (await put(client)).next == "more"
    with pytest.raises(RefusedQueryError, match="no history"):
        await put(client)


async def test_without_an_operator_the_question_is_taken_back(asked: Api, client: Client) -> None:
    asked.answer(f"GET {ONE}", Answer(released=asyncio.Event()))
    with pytest.raises(UnansweredError, match=r"no operator has answered within 0\.06 s"):
        await put(client, seconds=0.06)
    assert len(asked.of(f"DELETE {ONE}")) == 1


async def test_who_gives_up_leaves_no_question(asked: Api, client: Client) -> None:
    asked.answer(f"GET {ONE}", Answer(released=asyncio.Event()))
    task = asyncio.create_task(put(client))
    await asked.until(f"GET {ONE}", count=1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(asked.of(f"DELETE {ONE}")) == 1


async def test_a_question_that_someone_else_has_deleted_is_no_trouble(api: Api, client: Client) -> None:
    api.answer(f"POST {QUERIES}", query())
    api.answer(f"GET {ONE}", query(answered=True))
    api.answer(f"DELETE {ONE}", refusal(404))
    assert (await put(client)).answered

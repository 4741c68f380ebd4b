"""The moves of deleted jobs count against the budget of the hour also after a restart of the operator."""

import json

import pytest

from dovetail.jobs.moves import MoveRules, MovesOfDeleted
from dovetail.kube.client import Client
from dovetail_operator.writes.estimate_store import LastingMoves
from tests.core.kube.api import Answer, Api, make_object, refusal
from tests.operator_.builders import NOW, at, make_job

PATH = "/api/v1/namespaces/home/configmaps"
ONE = f"{PATH}/dovetail-moves"


def configmap(**data: str) -> Answer:
    return Answer(body=make_object("dovetail-moves", version=5, namespace="home", data=data))


def lasting(client: Client, moves: MovesOfDeleted) -> LastingMoves:
    return LastingMoves(client, moves=moves, namespace="home", now=lambda: NOW)


def deleted(*names: str) -> MovesOfDeleted:
    moves = MovesOfDeleted()
    for name in names:
        moves.drop(make_job(name, status={"move": {"count": 1, "lastTime": at(-60)}}))
    return moves


async def test_the_next_operator_counts_what_the_one_before_kept(api: Api, client: Client) -> None:
    api.answer(f"PATCH {ONE}", configmap())
    await lasting(client, deleted("x", "y")).keep()
    (seen,) = api.of(f"PATCH {ONE}")
    api.answer(f"GET {ONE}", configmap(**seen.body["data"]))
    moves = deleted("x", "z")
    await lasting(client, moves).take_up()
    assert set(moves.times(now=NOW)) == {"uid-x", "uid-y", "uid-z"}
    assert MoveRules(per_hour=3).left([], now=NOW, of_deleted=len(moves.times(now=NOW))) == 0


async def test_moves_are_written_once_and_not_when_they_are_over(api: Api, client: Client) -> None:
    api.answer(f"PATCH {ONE}", configmap(), configmap())
    moves = deleted("x")
    kept = lasting(client, moves)
    await kept.keep()
    await kept.keep()
    assert len(api.of(f"PATCH {ONE}")) == 1
    moves.times(now=NOW.replace(year=NOW.year + 1))
    await kept.keep()
    assert len(api.of(f"PATCH {ONE}")) == 1


async def test_what_is_over_is_not_taken_up(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", configmap(movesOfDeleted=json.dumps({"a": at(-60), "b": at(-3700)})))
    moves = MovesOfDeleted()
    await lasting(client, moves).take_up()
    assert moves.times(now=NOW) == {"a": at(-60)}


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": "yesterday"}', '{"a": "2026-01-01T12:00:00"}'])
async def test_what_cannot_be_read_is_left(api: Api, client: Client, text: str) -> None:
    api.answer(f"GET {ONE}", configmap(movesOfDeleted=text))
    moves = deleted("x")
    await lasting(client, moves).take_up()
    assert set(moves.times(now=NOW)) == {"uid-x"}


@pytest.mark.parametrize("code", [403, 404, 500])
async def test_what_may_not_be_read_stops_nothing(api: Api, client: Client, code: int) -> None:
    api.answer(f"GET {ONE}", refusal(code))
    moves = deleted("x")
    await lasting(client, moves).take_up()
    assert set(moves.times(now=NOW)) == {"uid-x"}

"""What was learned of missed estimates outlives the operator."""

import pytest

from dovetail.kube.client import Client
from dovetail.queue.estimates.calibration import Factors, Foreseen, Held, Misses
from dovetail_operator.writes.estimate_store import LastingMisses
from tests.core.kube.api import Answer, Api, make_object, refusal

PATH = "/api/v1/namespaces/home/configmaps"
ONE = f"{PATH}/dovetail-estimates"


def configmap(**data: str) -> Answer:
    return Answer(body=make_object("dovetail-estimates", version=5, namespace="home", data=data))


def learned(*waits: float) -> Misses:
    misses = Misses()
    for wait in waits:
        misses.bounds_of("it", foreseen=Foreseen(seconds=1000, early_seconds=900, late_seconds=1100), now_seconds=0)
        misses.started("it", now_seconds=wait)
    return misses


async def test_what_is_kept_is_taken_up(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", configmap(factors="2.5 0.5", shift="0.25", held="40 34.50"))
    misses = Misses()
    await LastingMisses(client, misses=misses, namespace="home").take_up()
    assert (misses.factors, misses.held) == (Factors(early=2.5, late=0.5, shift=0.25), Held(jobs=40, within=34.5))


async def test_what_an_operator_without_a_shift_kept_is_taken_up(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", configmap(factors="2.5 0.5", held="40 34.50"))
    misses = Misses()
    await LastingMisses(client, misses=misses, namespace="home").take_up()
    assert (misses.factors, misses.held) == (Factors(early=2.5, late=0.5), Held(jobs=40, within=34.5))


@pytest.mark.parametrize("shift", ["", "x", "nan", "2.1", "1 1"])
async def test_a_shift_that_cannot_be_read_leaves_everything_as_it_is(api: Api, client: Client, shift: str) -> None:
    api.answer(f"GET {ONE}", configmap(factors="2.5 0.5", shift=shift, held="40 34.50"))
    misses = Misses()
    await LastingMisses(client, misses=misses, namespace="home").take_up()
    assert (misses.factors, misses.held) == (Misses().factors, Held())


@pytest.mark.parametrize("held", ["", "1", "x 1", "2 3", "-1 0", "1 nan", "1e9 1", "2 1 1"])
async def test_a_record_that_cannot_be_read_leaves_everything_as_it_is(api: Api, client: Client, held: str) -> None:
    api.answer(f"GET {ONE}", configmap(factors="2.5 0.5", held=held))
    misses = Misses()
    await LastingMisses(client, misses=misses, namespace="home").take_up()
    assert (misses.factors, misses.held) == (Misses().factors, Held())


async def test_what_is_learned_is_written_once_for_each_news(api: Api, client: Client) -> None:
    api.answer(f"PATCH {ONE}", configmap())
    misses = learned(1000)
    lasting = LastingMisses(client, misses=misses, namespace="home")
    await lasting.keep()
    await lasting.keep()
    (seen,) = api.of(f"PATCH {ONE}")
    assert seen.body == {"data": {"factors": "1.2951 1.2951", "shift": "0.0000", "held": "1 1.00"}}


async def test_where_there_is_no_configmap_it_is_made(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", refusal(404))
    api.answer(f"PATCH {ONE}", refusal(404))
    api.answer(f"POST {PATH}", configmap())
    lasting = LastingMisses(client, misses=learned(1000, 2000), namespace="home")
    await lasting.take_up()
    await lasting.keep()
    assert len(api.of(f"POST {PATH}")) == 1


async def test_nothing_is_written_before_anything_is_learned(api: Api, client: Client) -> None:
    await LastingMisses(client, misses=Misses(), namespace="home").keep()
    assert not api.of(f"PATCH {ONE}")


@pytest.mark.parametrize("text", ["", "{}", "1.5", "1 nan", "inf 1", "-1 1", "1 0", "1e9 1", "two one", "1 1 1"])
async def test_what_cannot_be_read_is_left_and_learned_anew(api: Api, client: Client, text: str) -> None:
    api.answer(f"GET {ONE}", configmap(factors=text, held="1 1.00"))
    api.answer(f"PATCH {ONE}", configmap())
    misses = learned()
    lasting = LastingMisses(client, misses=misses, namespace="home")
    await lasting.take_up()
    assert misses.factors == Misses().factors
    misses.bounds_of("it", foreseen=Foreseen(seconds=10, early_seconds=10, late_seconds=10), now_seconds=0)
    misses.started("it", now_seconds=10)
    await lasting.keep()
    assert len(api.of(f"PATCH {ONE}")) == 1


async def test_a_configmap_of_something_else_is_left(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", configmap(other="1"))
    misses = Misses()
    await LastingMisses(client, misses=misses, namespace="home").take_up()
    assert misses.factors == Misses().factors


@pytest.mark.parametrize("code", [403, 500])
async def test_what_may_not_be_read_or_written_stops_nothing(api: Api, client: Client, code: int) -> None:
    api.answer(f"GET {ONE}", refusal(code))
    api.answer(f"PATCH {ONE}", refusal(code))
    lasting = LastingMisses(client, misses=learned(1000), namespace="home")
    await lasting.take_up()
    await lasting.keep()

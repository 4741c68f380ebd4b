"""A learned mix outlives the program that learned it."""

import asyncio
import json

import pytest

from dovetail.engine.score.live_fragmentation import FragmentationSettings, LiveFragmentation
from dovetail.engine.score.mix_record import KEY, record_in
from dovetail.fragmentation.arrivals import LearningSettings
from dovetail.kube.client import Client
from dovetail.process.mix_learning import MixLearning
from tests.core.engine.builders import make_ask, make_ledger
from tests.core.kube.api import Answer, Api, make_object, refusal

PATH = "/api/v1/namespaces/home/configmaps"
ONE = f"{PATH}/the-mix"


def configmap(**data: str) -> Answer:
    return Answer(body=make_object("the-mix", version=5, namespace="home", data=data))


def make_term(*arrivals: str) -> LiveFragmentation:
    settings = FragmentationSettings(learning=LearningSettings(first_look=4))
    term = LiveFragmentation(make_ledger(a=8), settings=settings)
    term.follow()
    count(term, *arrivals)
    return term


def count(term: LiveFragmentation, *arrivals: str) -> None:
    for text in arrivals:
        term.arrived(make_ask(text), key=f"{text} {term.arrivals}")
    while term.work():
        pass
    term.follow()


class Learning:
    """A term with what stores it, and how often the objects that were there before were counted."""

    def __init__(self, client: Client, term: LiveFragmentation) -> None:
        self.present = 0
        self.now = 0.0
        self.stores = MixLearning(
            client,
            term=term,
            name="the-mix",
            namespace="home",
            count_present=self.count_present,
            clock=lambda: self.now,
        )

    async def count_present(self) -> None:
        self.present += 1


async def test_what_was_stored_is_continued_by_the_next_program(api: Api, client: Client) -> None:
    api.answer(f"PATCH {ONE}", configmap())
    term = make_term("0.5", "0.5", "2", "8")
    await Learning(client, term).stores.keep()
    (written,) = api.of(f"PATCH {ONE}")
    api.answer(f"GET {ONE}", configmap(**written.body["data"]))
    restored = make_term()
    assert await Learning(client, restored).stores.take_up()
    while restored.work():
        pass
    restored.follow()
    assert restored.arrivals == 4
    assert restored.record().in_use == term.record().in_use
    assert [each.shape for each in restored.record().counted] == [each.shape for each in term.record().counted]


async def test_a_mix_that_is_stored_is_not_learned_from_what_is_there(api: Api, client: Client) -> None:
    api.answer(f"PATCH {ONE}", configmap())
    await Learning(client, make_term("1")).stores.keep()
    (written,) = api.of(f"PATCH {ONE}")
    api.answer(f"GET {ONE}", configmap(**written.body["data"]))
    learning = Learning(client, make_term())
    await began(learning)
    assert learning.present == 0


async def test_without_a_stored_mix_what_is_there_counts(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", refusal(404))
    learning = Learning(client, make_term())
    await began(learning)
    assert learning.present == 1


async def began(learning: Learning) -> None:
    """Run it until it has read the ConfigMap."""
    task = asyncio.create_task(learning.stores.run())
    async with asyncio.timeout(10):
        await learning.stores.took_up.wait()
    task.cancel()


async def test_a_change_of_the_mix_in_use_is_stored_at_once_and_counts_every_minute(api: Api, client: Client) -> None:
    api.answer(f"PATCH {ONE}", configmap())
    learning = Learning(client, term := make_term("1", "1", "1", "1"))
    await learning.stores.keep()
    await learning.stores.keep()
    assert len(api.of(f"PATCH {ONE}")) == 1
    count(term, "1")
    await learning.stores.keep()
    assert len(api.of(f"PATCH {ONE}")) == 1
    learning.now = 60.0
    await learning.stores.keep()
    assert len(api.of(f"PATCH {ONE}")) == 2
    count(term, *["4"] * 20)
    await learning.stores.keep()
    assert len(api.of(f"PATCH {ONE}")) == 3


async def test_where_there_is_no_configmap_it_is_made(api: Api, client: Client) -> None:
    api.answer(f"PATCH {ONE}", refusal(404))
    api.answer(f"POST {PATH}", configmap())
    await Learning(client, make_term("1", "2", "2", "2")).stores.keep()
    assert len(api.of(f"POST {PATH}")) == 1


async def test_a_write_that_fails_is_tried_again(api: Api, client: Client) -> None:
    api.answer(f"PATCH {ONE}", refusal(403))
    api.answer(f"PATCH {ONE}", configmap())
    stores = Learning(client, make_term("1", "2", "2", "2")).stores
    await stores.keep()
    await stores.keep()
    assert len(api.of(f"PATCH {ONE}")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"policy": "ph", "arrivals": -1, "inUse": [], "counted": []}',
        '{"policy": "ph", "arrivals": 1, "inUse": [[1, 1, 1, 2000, [], 1]], "counted": []}',
        '{"policy": "ph", "arrivals": 1, "inUse": [], "counted": [[1, 1, 1, 1000, [], -3]]}',
    ],
)
async def test_a_mix_that_cannot_be_read_is_learned_again(api: Api, client: Client, text: str) -> None:
    api.answer(f"GET {ONE}", configmap(**{KEY: text}))
    term = make_term("1")
    assert not await Learning(client, term).stores.take_up()
    assert term.arrivals == 1


async def test_an_api_server_that_refuses_the_read_does_not_matter(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", refusal(403))
    assert not await Learning(client, make_term()).stores.take_up()


async def test_a_configmap_without_a_mix_counts_as_none(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", configmap(other="text"))
    assert not await Learning(client, make_term()).stores.take_up()


async def test_the_text_names_the_classes_in_use_and_the_policy(api: Api, client: Client) -> None:
    api.answer(f"PATCH {ONE}", configmap())
    await Learning(client, make_term(*["2"] * 8)).stores.keep()
    (written,) = api.of(f"PATCH {ONE}")
    text = written.body["data"][KEY]
    assert json.loads(text)["policy"] == "ph"
    record = record_in({KEY: text})
    assert record is not None
    assert [one.gpus for one in record.mix.classes] == [2, 8]

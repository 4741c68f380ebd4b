"""A program's configuration follows the ConfigMap of the release: what counts at once, and what changes nothing."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from dovetail.config.settings import Settings
from dovetail.kube.client import Client
from dovetail.process.live_settings import LiveSettings
from tests.background import eventually, running
from tests.core.kube.api import Api, Stream, line, listing, make_object
from tests.core.kube.conftest import api, client

__all__ = ["api", "client"]
LIST = "GET /api/v1/namespaces/gpus/configmaps"
WATCH = "WATCH /api/v1/namespaces/gpus/configmaps"


def config(text: str, *, version: int = 1) -> dict[str, Any]:
    return make_object("dovetail-config", version=version, namespace="gpus", data={"gpu_config.yaml": text})


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    """The root logger's level is as before."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


class Program:
    """A program that runs with live settings, and what they applied to it."""

    def __init__(self, client: Client, **options: Any) -> None:
        self.live = LiveSettings(client, namespace="gpus", settings=options.pop("settings", Settings()), **options)
        self.applied: list[Settings] = []

    def run(self) -> Any:
        return self.live.run(apply=self.applied.append)


@pytest.fixture
def program(client: Client) -> Program:
    return Program(client)


async def test_live_keys_count_at_once_and_only_that_object_is_watched(api: Api, program: Program) -> None:
    api.answer(LIST, listing(config("policy: Balanced\n"), version=1))
    changed = config("policy: Pack\ntraining_per_device: 2\n", version=2)
    api.answer(WATCH, Stream(chunks=[line("MODIFIED", changed)]))
    async with running(program.run()):
        await eventually(lambda: bool(program.applied))
    assert program.live.settings == Settings(policy="Pack", training_per_device=2)
    assert program.applied == [program.live.settings]
    assert {seen.query["fieldSelector"] for seen in api.seen} == {"metadata.name=dovetail-config"}


async def test_keys_that_need_a_restart_are_named_once_and_change_nothing(api: Api, program: Program) -> None:
    api.answer(LIST, listing(config("history_days: 7\npolicy: Pack\n"), version=1))
    again = config("history_days: 7\npolicy: Spread\n", version=2)
    api.answer(WATCH, Stream(chunks=[line("MODIFIED", again)]))
    with capture_logs() as logged:
        async with running(program.run()):
            await eventually(lambda: len(program.applied) == 2)
    assert [each.history_days for each in program.applied] == [400, 400]
    waiting = [each for each in logged if "restart" in each["event"]]
    assert [each["keys"] for each in waiting] == ["history_days"]


async def test_a_configuration_that_is_refused_changes_nothing_and_the_next_one_counts(
    api: Api, program: Program
) -> None:
    api.answer(LIST, listing(config("policy: Best\n"), version=1))
    chunks = [line("MODIFIED", config(text, version=at)) for at, text in ((2, "policy: ["), (3, "policy: Pack"))]
    api.answer(WATCH, Stream(chunks=chunks))
    with capture_logs() as logged:
        async with running(program.run()):
            await eventually(lambda: bool(program.applied))
    assert [each.policy for each in program.applied] == ["Pack"]
    refused = [each["problem"] for each in logged if "refused" in each["event"]]
    assert refused[0].startswith('ConfigMap dovetail-config: policy is "Best", but must be Spread, Pack or Balanced')
    assert "is not YAML" in refused[1]


async def test_the_command_line_wins_over_the_configmap(api: Api, client: Client) -> None:
    api.answer(LIST, listing(config("log_level: error\npolicy: Pack\n"), version=1))
    program = Program(client, settings=Settings(log_level="debug"), log_level="debug")
    async with running(program.run()):
        await eventually(lambda: bool(program.applied))
    assert program.live.settings.log_level == "debug"
    assert logging.getLogger().level == logging.DEBUG


async def test_a_program_without_a_configmap_goes_on_as_it_started(api: Api, program: Program) -> None:
    api.answer(LIST, listing(version=1))
    gone = config("policy: Pack\n", version=2)
    api.answer(WATCH, Stream(chunks=[line("DELETED", gone)]))
    async with running(program.run()):
        await api.until(WATCH, count=1)
        await asyncio.sleep(0)
    assert program.applied == []

"""kopf runs the operator: the work begins and ends with it, and nothing of the work is cancelled."""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest

from dovetail.kube.auth.connection import Connection
from dovetail_operator import handlers
from tests.background import free_ports
from tests.core.kube.api import Answer, Api
from tests.core.kube.auth.kubeconfigs import make_kubeconfig

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def connection(api: Api) -> Connection:
    """To an API server that answers what kopf asks at its start."""
    api.answer("GET /api", Answer(body={"versions": []}, headers=JSON))
    api.answer("GET /apis", Answer(body={"groups": []}, headers=JSON))
    return Connection(server=api.url)


class Work:
    """Runs until it is told to stop, and then needs a moment to end well."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.stop = asyncio.Event()
        self.begun = asyncio.Event()
        self.ended_well = False
        self._error = error

    async def __call__(self) -> None:
        self.begun.set()
        if self._error is not None:
            raise self._error
        helper = asyncio.create_task(self.stop.wait())
        await helper
        await asyncio.sleep(0.05)
        self.ended_well = True

    def process(self, connection: Connection) -> handlers.Process:
        return handlers.Process(connection=connection, work=self, stop=self.stop, said=lambda: {"lease": "ours"})


@pytest.mark.parametrize(
    "end",
    [lambda work: work.stop.set(), lambda _work: os.kill(os.getpid(), signal.SIGTERM)],
    ids=["told to stop", "SIGTERM"],
)
async def test_the_work_ends_in_its_own_time(end: Callable[[Work], None], connection: Connection) -> None:
    work = Work()
    running = asyncio.create_task(handlers.run(work.process(connection)))
    await work.begun.wait()
    # kopf takes the signals once its own tasks have begun.
    await asyncio.sleep(0.05)
    end(work)
    await asyncio.wait_for(running, 20)
    assert work.ended_well


@pytest.fixture
def levels() -> Iterator[None]:
    """Levels of loggers last as long as the process."""
    loggers = [logging.getLogger(name) for name in ("kopf", "kopf._core.reactor.running")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.NOTSET)
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("levels")
@pytest.mark.parametrize("main_thread", [True, False])
async def test_kopf_warns_of_what_it_leaves_undone_but_not_that_a_thread_takes_no_signals(
    connection: Connection, main_thread: bool
) -> None:
    work = Work()
    work.stop.set()
    if main_thread:
        await asyncio.wait_for(handlers.run(work.process(connection)), 20)
    else:
        await asyncio.to_thread(asyncio.run, handlers.run(work.process(connection)))
    assert logging.getLogger("kopf._core.reactor.running").isEnabledFor(logging.WARNING) == main_thread


async def test_it_starts_as_a_user_without_a_name(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, no entry of /etc/passwd has the user's number."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")

    monkeypatch.setattr("getpass.getuser", nameless)
    work = Work()
    running = asyncio.create_task(handlers.run(work.process(connection)))
    await asyncio.wait_for(work.begun.wait(), 20)
    work.stop.set()
    await asyncio.wait_for(running, 20)


async def test_what_ends_the_work_ends_the_process(connection: Connection) -> None:
    with pytest.raises(RuntimeError, match="no database"):
        await asyncio.wait_for(handlers.run(Work(error=RuntimeError("no database")).process(connection)), 20)


async def test_the_work_ends_well_when_kopf_fails(api: Api) -> None:
    # What kopf asks for at its start is answered by something that is no API server.
    api.answer("GET /api", Answer(body={"versions": []}, headers=JSON))
    api.answer("GET /apis", Answer(body={}, headers=JSON))
    work = Work()
    with pytest.raises(KeyError):
        await asyncio.wait_for(handlers.run(work.process(Connection(server=api.url))), 20)
    assert work.ended_well


async def test_kopf_answers_the_liveness_probe(connection: Connection) -> None:
    work, (port,) = Work(), free_ports(count=1)
    running = asyncio.create_task(handlers.run(work.process(connection), liveness=f"http://127.0.0.1:{port}/healthz"))
    assert json.loads(await answered(port)) == {"operator": {"lease": "ours"}}
    work.stop.set()
    await asyncio.wait_for(running, 20)


async def answered(port: int) -> str:
    async with aiohttp.ClientSession() as session, asyncio.timeout(20):
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/healthz") as response:
                    assert response.status == 200
                    return await response.text()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.01)


def login(connection: Connection, *, standard_login: bool = False) -> kopf.ConnectionInfo:
    process = replace(Work().process(connection), standard_login=standard_login)
    handler: Callable[..., kopf.ConnectionInfo] = handlers.login
    return handler(memo=process, logger=logging.getLogger("kopf"), settings=kopf.OperatorSettings())


def test_kopf_logs_in_as_the_connection_says() -> None:
    found = login(Connection(server="https://api:6443", namespace="gpu", token="secret", insecure=True))
    assert (found.server, found.default_namespace, found.token, found.insecure) == (
        "https://api:6443",
        "gpu",
        "secret",
        True,
    )
    assert found.expiration is None


def test_a_token_that_changes_is_read_again() -> None:
    found = login(Connection(server="https://api:6443", token_source=lambda *, renew: "fresh"))
    assert found.token == "fresh"
    assert found.expiration is not None


OURS = Connection(server="https://main:6443", namespace="gpu", token="ours", proxy_url="http://proxy:3128")


def by_kopf(monkeypatch: pytest.MonkeyPatch, kubeconfig: Path) -> kopf.ConnectionInfo:
    """What the operator's handler gives where kopf's own login reads that kubeconfig."""
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
    return login(OURS, standard_login=True)


def test_kopfs_own_login_is_used_where_it_finds_the_same_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = by_kopf(monkeypatch, make_kubeconfig(tmp_path / "k"))
    assert (found.token, found.default_namespace, found.proxy_url) == ("token-main", "gpu", "http://proxy:3128")


@pytest.mark.parametrize(
    "kubeconfig",
    [
        {"name": "other"},
        {"user": {}},
        {"user": {"exec": {"apiVersion": "v1", "command": "missing"}}},
        {"user": {"client-certificate": "gone"}},
    ],
    ids=["another API server", "no credentials", "a login that is only logged", "a login that fails"],
)
def test_the_operators_credentials_are_used_where_kopfs_login_finds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kubeconfig: Any
) -> None:
    assert by_kopf(monkeypatch, make_kubeconfig(tmp_path / "k", **kubeconfig)).token == "ours"


def test_an_image_without_the_official_client_uses_the_operators_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.config", None)
    assert login(OURS, standard_login=True).token == "ours"


def test_a_named_kubeconfig_is_not_looked_for_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_kubeconfig(tmp_path / "k")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    assert login(OURS).token == "ours"


async def test_kopf_sends_what_its_login_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Api, connection: Connection
) -> None:
    path = make_kubeconfig(tmp_path / "k", server=api.url)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    work = Work()
    running = asyncio.create_task(handlers.run(replace(work.process(connection), standard_login=True)))
    await api.until("GET /api", count=1)
    work.stop.set()
    await asyncio.wait_for(running, 20)
    assert api.of("GET /api")[0].headers["Authorization"] == "Bearer token-main"


def test_kopf_follows_no_objects() -> None:
    # Each body would become dictionaries: 24 MiB for a template of 1 MiB.
    followed = handlers.registry._watching.get_all_handlers() or handlers.registry._changing.get_all_handlers()
    assert not followed

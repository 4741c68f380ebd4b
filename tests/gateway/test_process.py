"""`dovetail-gateway` as a program: what its options say, when it is ready, and that each part runs until its end."""

import asyncio
import ipaddress
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from dovetail import names
from dovetail.config.errors import ConfigError
from dovetail.config.settings import Settings
from dovetail_gateway import main
from dovetail_gateway.access.legacy_account import Account
from dovetail_gateway.access.limits import Rates
from dovetail_gateway.app import Gateway, Options, bounds, gateway, routes, utc_now
from dovetail_gateway.routing.open_streams import OpenStreams
from dovetail_gateway.v2.templates import TemplateFile
from tests.background import eventually, free_ports
from tests.core.process.test_certificate import write_pair
from tests.extender.test_process import write_kubeconfig
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_job
from tests.gateway.served import TASKS, serving

SIGN_ON = ("--oidc-issuer=https://id.example", "--oidc-client-id=web", "--public-url=https://GPU.example.com:8443")


def options_of(*words: str) -> Options:
    return main.options_of(main._parser().parse_args(words))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), {"hosts": (), "rates": Rates(each=100, all=1000), "proxies": (), "legacy": None, "provider": None}),
        ((), {"namespace": "dovetail-system", "allocation_namespace": "default", "anonymous_loopback": False}),
        ((), {"templates": TemplateFile(), "legacy_own_user": True}),
        (("--rate=0",), {"rates": None}),
        (("--rate=0.5",), {"rates": Rates(each=0.5, all=1000)}),
        (("--rate=500",), {"rates": Rates(each=500, all=5000)}),
        (("--allowed-host=a", "--allowed-host=b"), {"hosts": ("a", "b")}),
        (("--allowed-host=a", *SIGN_ON), {"hosts": ("a", "gpu.example.com")}),
        (("--host=0.0.0.0",), {"legacy_own_user": False}),
        (("--namespace=gpu", "--allocation-namespace=work"), {"namespace": "gpu", "allocation_namespace": "work"}),
        (("--legacy-service-account=gpu/scripts",), {"legacy": Account(namespace="gpu", name="scripts")}),
        (("--anonymous-loopback",), {"anonymous_loopback": True}),
        ((f"--task-templates={TASKS.path}",), {"templates": TASKS}),
        (
            ("--trusted-proxy=10.8.0.0/16", "--trusted-proxy=fd00::/8"),
            {"proxies": (ipaddress.ip_network("10.8.0.0/16"), ipaddress.ip_network("fd00::/8"))},
        ),
    ],
)
def test_the_command_line_says_what_the_gateway_does(words: tuple[str, ...], said: dict[str, Any]) -> None:
    found = options_of(*words)
    assert {field: getattr(found, field) for field in said} == said


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("--rate=-1", "--rate -1: allowed are 0 (no limit) and more"),
        ("--trusted-proxy=10.8.0.1/16", '--trusted-proxy "10.8.0.1/16": write a network'),
        ("--trusted-proxy=proxy", '--trusted-proxy "proxy": write a network'),
        ("--legacy-service-account=scripts", '--legacy-service-account "scripts": write NAMESPACE/NAME'),
        ("--legacy-service-account=a/b/c", '--legacy-service-account "a/b/c": write NAMESPACE/NAME'),
        ("--legacy-service-account=/b", '--legacy-service-account "/b": write NAMESPACE/NAME'),
        ("--task-templates=/nowhere", "/nowhere"),
        ("--oidc-issuer=http://id.example", "--oidc-client-id"),
    ],
)
def test_an_option_that_does_not_fit_is_one_sentence(word: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options_of(word)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tls_needs_a_certificate_and_its_key(tmp_path: Path) -> None:
    write_pair(tmp_path)
    assert main._tls(None) is None
    assert main._tls(tmp_path) is not None
    (tmp_path / "tls.key").unlink()
    with pytest.raises(ConfigError, match=f"--tls {tmp_path}"):
        main._tls(tmp_path)


async def test_each_option_reaches_the_part_that_it_is_for(api: GatewayApiServer) -> None:
    proxies = (ipaddress.ip_network("10.8.0.0/16"),)
    options = Options(
        hosts=("gpu.example.com",), rates=None, proxies=proxies, namespace="gpu", allocation_namespace="work"
    )
    async with gateway(api.connection, settings=Settings(), options=options) as made:
        cache = made.cache
        assert ({each._namespace for each in cache._configmaps}, set(cache._namespaces)) == ({"gpu"}, {"work"})
        assert made.answers._release == "gpu"
        assert made.connections._bounds.is_proxy("10.8.0.1")
    assert bounds(proxies).is_proxy("10.8.3.4") > bounds(()).is_proxy("10.8.3.4")


class Program:
    """A gateway that runs as the command does."""

    def __init__(self, *, made: Gateway, port: int, health: int, ended: "asyncio.Task[None]", http: Any) -> None:
        self.made = made
        self.port = port
        self.health = health
        self.ended = ended
        self.http = http

    async def get(self, path: str, *, port: int | None = None) -> tuple[int, str]:
        headers = {"Authorization": "Bearer admin-token"}
        url = f"http://127.0.0.1:{port or self.port}{path}"
        async with asyncio.timeout(20), self.http.get(url, headers=headers) as response:
            return response.status, await response.text()

    async def ready(self) -> tuple[int, str]:
        return await self.get("/readyz", port=self.health)


@asynccontextmanager
async def program(
    api: GatewayApiServer, folder: Path, *, monkeypatch: pytest.MonkeyPatch, stop: asyncio.Event
) -> AsyncIterator[Program]:
    made, listens = list[Gateway](), asyncio.Event()

    @asynccontextmanager
    async def watched(*args: Any, **options: Any) -> AsyncIterator[Gateway]:
        async with gateway(*args, **options) as found:
            made.append(found)
            yield found

    together = main.serving.together

    async def all_run(*parts: Any) -> None:
        listens.set()
        await together(*parts)

    monkeypatch.setattr(main, "gateway", watched)
    monkeypatch.setattr(main, "serving", SimpleNamespace(**{**vars(main.serving), "together": all_run}))
    monkeypatch.setattr(main.heap, "keep_for_good", lambda: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    kubeconfig = write_kubeconfig(folder, api.connection.server)
    port, health = free_ports(count=2)
    words = (f"--kubeconfig={kubeconfig}", f"--port={port}", f"--metrics-port={health}", "--rate=0")
    args = main._parser().parse_args([*words, "--metrics-host=127.0.0.1", "--namespace=dovetail-system"])
    running = asyncio.ensure_future(main._serve(args, Settings(), stop))
    waiting = asyncio.ensure_future(listens.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    try:
        async with aiohttp.ClientSession() as http:
            yield Program(made=made[0], port=port, health=health, ended=running, http=http)
    finally:
        stop.set()
        waiting.cancel()
        await running


async def test_it_is_ready_once_all_is_listed_and_each_of_its_parts_runs_until_it_is_stopped(
    api: GatewayApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        api.objects["nodes"][name]["metadata"]["labels"]["row"] = f"row-of-{name}"
    api.listing.clear()
    stop = asyncio.Event()
    async with program(api, tmp_path, monkeypatch=monkeypatch, stop=stop) as running:
        status, said = await running.ready()
        assert (status, "[-]cache failed: not listed yet: nodes" in said) == (503, True)
        api.listing.set()
        await eventually(lambda: not running.made.cache.obstacle)
        assert (await running.ready())[0] == 200
        status, said = await running.get("/metrics", port=running.health)
        assert (status, "dovetail_gateway_streams 0.0" in said) == (200, True)
        assert (await running.get("/metrics"))[0] == 404, "the metrics are on their own port alone"
        # The feed.
        await eventually(lambda: running.made.feed.seq > 0)
        seq = running.made.feed.seq
        api.put("gpujobs", make_job("new", namespace="red"))
        await eventually(lambda: running.made.feed.seq > seq)
        # The queue of dry runs that is kept ready.
        await eventually(lambda: bool(running.made.answers._prepared._kept))
        # The configuration of the release.
        data = {names.CONFIG_FILE: "topology_levels: [rack=row]\n"}
        api.put("configmaps", {"metadata": {"name": names.CONFIG, "uid": "config"}, "data": data})
        await eventually(lambda: [each.rack for each in running.made.cache.node_uses()] == ["row-of-a", "row-of-b"])
        assert not running.ended.done()
        stop.set()
        async with asyncio.timeout(20):
            await running.ended
    said = capsys.readouterr().out
    assert ("a" in said, "V100" in said) == (True, True), "the devices"


async def test_a_part_that_fails_ends_the_program(
    api: GatewayApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_cache: Any) -> None:
        raise OSError("no more files")

    monkeypatch.setattr("dovetail_gateway.cluster.cache.ClusterCache.run", fails)
    with pytest.RaisesGroup(OSError):
        async with program(api, tmp_path, monkeypatch=monkeypatch, stop=asyncio.Event()) as running:
            async with asyncio.timeout(20):
                await asyncio.wait({running.ended})
            assert running.ended.done()


@pytest.mark.parametrize(("seconds", "of_tasks"), [(0.2, 0.2), (5.0, 1.0)])
async def test_a_task_waits_no_longer_than_an_allocation(
    api: GatewayApiServer, seconds: float, of_tasks: float
) -> None:
    """v2's answers are quick; a test or a script that waits less for allocations waits less for tasks too."""
    options = Options(allocation_wait_seconds=seconds, allocation_namespace="work")
    async with gateway(api.connection, settings=Settings(), options=options) as made:
        table = routes(
            made.cache,
            clients=made.clients,
            reviews=made.reviews,
            feed=made.feed,
            answers=made.answers,
            sampler=made.sampler,
            prometheus=None,
            streams=OpenStreams(metrics=made.metrics),
            options=options,
            now=utc_now,
        )
    handlers: dict[str, Any] = {each.operation: getattr(each.handler, "__self__", None) for each in table}
    allocations, tasks = handlers["v1_allocate"], handlers["v2_start_training"]
    assert (allocations._wait_seconds, tasks._wait_seconds) == (seconds, of_tasks)
    assert {allocations._namespace, tasks._namespace} == {"work"}


async def test_the_gateway_is_called_by_the_names_that_it_is_given(api: GatewayApiServer) -> None:
    async with serving(api, options=Options(rates=None, hosts=("gpu.example.com",))) as face:
        found = {
            host: (await face.get("/api/v3/me", token="red-token", headers={"Host": host})).status
            for host in ("gpu.example.com", "GPU.example.com:8443", "localhost", "www.gpu.example.com", "example.com")
        }
    assert list(found.values()) == [200, 200, 200, 421, 421]

"""`dovetail-extender` as a process: health, a graceful end, and bad configuration in one sentence."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from dovetail.config.settings import Settings
from dovetail.engine.model.settings import Weights
from dovetail_extender.main import main, options_of, times_of
from dovetail_extender.service import Options
from tests.background import eventually, free_ports
from tests.extender.api_server import ApiServer
from tests.extender.builders import asking, binding, make_pod

PROGRAM = (sys.executable, "-c", "from dovetail_extender.main import main; raise SystemExit(main())")


def write_kubeconfig(folder: Path, server: str) -> Path:
    path = folder / "kubeconfig.yaml"
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    cluster = {"name": "x", "cluster": {"server": server}}
    document = {"clusters": [cluster], "contexts": [context], "users": [{"name": "x"}], "current-context": "x"}
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **document}))
    return path


@asynccontextmanager
async def started(*options: str, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, *options, env=os.environ | env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def until_answered(port: int, path: str, *, status: int, saying: str = "") -> str:
    async with asyncio.timeout(60):
        while True:
            try:
                found, text = await get(port, path)
            except aiohttp.ClientError:
                found, text = 0, ""
            if found == status and saying in text:
                return text
            await asyncio.sleep(0.05)


async def test_it_is_ready_with_its_caches_and_ends_its_binds_when_told_to_stop(api: ApiServer, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path, api.connection.server)
    port, metrics_port = free_ports(count=2)
    api.put("pods", make_pod())
    api.listing.clear()
    options = (f"--kubeconfig={kubeconfig}", f"--port={port}", f"--metrics-port={metrics_port}")
    # The bind has all the time that this test may take until it is let go.
    times = {"DOVETAIL_HOLD_TTL_SECONDS": "120", "DOVETAIL_BIND_DEADLINE_SECONDS": "60"}
    async with started(*options, **times) as process, aiohttp.ClientSession() as http:
        missing = "nodes, gpunodes, pods, gpujobs, gpuquotas, poddisruptionbudgets are not listed yet"
        await until_answered(port, "/readyz", status=503, saying=missing)
        api.listing.set()
        await until_answered(metrics_port, "/readyz", status=200)
        assert "dovetail_extender_devices 16.0" in (await get(metrics_port, "/metrics"))[1]
        assert (await get(metrics_port, "/filter"))[0] == 404, "the verbs are on their own port alone"

        api.answering.clear()
        asked = asyncio.create_task(http.post(f"http://127.0.0.1:{port}/bind", json=binding(make_pod(), "a")))
        await eventually(lambda: api.waiting_bindings == 1)
        process.send_signal(signal.SIGTERM)
        await until_refused(port)
        api.answering.set()
        assert (await (await asked).json()) == {"Error": ""}
        assert await asyncio.wait_for(process.wait(), 60) == 0
    assert api.objects["pods"]["default/p"]["spec"]["nodeName"] == "a"


async def test_of_two_that_run_the_one_that_is_asked_acts_and_the_other_stands_by(
    api: ApiServer, tmp_path: Path
) -> None:
    options = f"--kubeconfig={write_kubeconfig(tmp_path, api.connection.server)}"
    first_port, second_port, second_metrics_port = free_ports(count=3)
    second = (f"--port={second_port}", f"--metrics-port={second_metrics_port}")
    async with started(options, f"--port={first_port}", POD_NAME="one"):
        await until_answered(first_port, "/readyz", status=200)
        async with started(options, *second, POD_NAME="two"), aiohttp.ClientSession() as http:
            await until_answered(second_port, "/readyz", status=503, saying="is held by one")
            # Its pod is ready all the same: a budget then lets a drain evict either of the two.
            await until_answered(second_metrics_port, "/readyz", status=200, saying="[+]lease ok")
            async with http.post(f"http://127.0.0.1:{second_port}/filter", json=asking(make_pod(), "a")) as response:
                assert "is held by one" in await response.text()
            await until_answered(second_port, "/readyz", status=200)
            await until_answered(first_port, "/readyz", status=503, saying="is held by two")


async def until_refused(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await get(port, "/livez")
            except aiohttp.ClientConnectionError:
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--certificates=/x",), "--certificates needs --client-name: the CA may sign for others too"),
        (("--client-name=x",), "--client-name needs --certificates: the CA may sign for others too"),
        (("--service=x",), "--service needs --address"),
        (("--address=10.0.0.1",), "--address needs --service"),
        (("--service=x", "--address=here"), "--address is 'here', but must be an IP address"),
    ],
    ids=["no name", "no certificate", "no address", "no service", "no IP address"],
)
def test_options_that_need_each_other(
    options: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:9")
    assert main([f"--kubeconfig={kubeconfig}", *options]) == 2
    assert problem in capsys.readouterr().err


async def test_a_bad_configuration_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    config = tmp_path / "gpu_config.yaml"
    config.write_text("hold_ttl_seconds: 0\n")
    async with started(f"--config={config}") as process:
        _out, said = await process.communicate()
    assert process.returncode == 2
    assert said.decode().count("\n") == 1
    assert "hold_ttl_seconds" in said.decode()


async def test_a_port_in_use_is_one_sentence(api: ApiServer, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path, api.connection.server)
    taken = api.connection.server.rsplit(":", 1)[1]
    async with started(f"--kubeconfig={kubeconfig}", f"--port={taken}") as process:
        _out, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode != 0
    assert f"cannot listen on 127.0.0.1:{taken}" in said.decode()


def test_what_the_configuration_says_reaches_the_decisions() -> None:
    said = {"policy": "Pack", "memory_guard": "Aggressive", "tenants_per_device": 7, "score_weights": {"cpu": 0.9}}
    options = options_of(
        Settings(**said, hold_ttl_seconds=60, bind_deadline_seconds=9), environ={"POD_NAMESPACE": "gpus"}
    )
    usual = options.rules.rankings.usual
    assert (usual.policy, usual.weights) == ("Pack", Weights(cpu=0.9))
    assert options.rules.hold_ttl_seconds == 60
    limits = options.limits
    assert (limits.guard_fraction, limits.turns_per_device, options.bind_deadline_seconds) == (0.95, 7, 9)
    assert options.namespace == "gpus"


@pytest.mark.parametrize(("deadline_seconds", "duration_seconds"), [(4.0, 15), (1.0, 15), (60.0, 71)])
def test_the_lease_lasts_longer_than_a_bind_may_take(deadline_seconds: float, duration_seconds: int) -> None:
    assert times_of(Options(bind_deadline_seconds=deadline_seconds)).duration_seconds == duration_seconds

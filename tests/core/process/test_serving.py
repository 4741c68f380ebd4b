import argparse
import asyncio
import contextlib
import socket
import ssl
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from dovetail.config.errors import ConfigError
from dovetail.process import connections, serving
from dovetail.process.connections import Bounds, Connections
from tests.authority import Authority


async def fetch(path: str, *, ready: dict[str, serving.Check], registry: CollectorRegistry | None = None):
    app = web.Application()
    serving.add_health(app, ready=ready, registry=registry)
    async with (
        serving.listening(app, host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, await response.text(), response.headers["Content-Type"]


async def test_alive_means_that_it_answers() -> None:
    assert (await fetch("/livez", ready={"never": lambda: "not yet"}))[:2] == (200, "ok\n")


async def test_ready_when_every_check_is_well() -> None:
    status, text, _ = await fetch("/readyz", ready={"pods": lambda: None, "nodes": lambda: None})
    assert (status, text) == (200, "[+]pods ok\n[+]nodes ok\nok\n")


async def test_not_ready_says_which_check_fails_and_why() -> None:
    status, text, _ = await fetch("/readyz", ready={"pods": lambda: None, "nodes": lambda: "not listed yet"})
    assert (status, text) == (503, "[+]pods ok\n[-]nodes failed: not listed yet\nnot ready\n")


async def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("dovetail_test", "For this test.", registry=registry).inc(3)
    status, text, content_type = await fetch("/metrics", ready={}, registry=registry)
    assert (status, content_type.split(";")[0]) == (200, "text/plain")
    assert "dovetail_test_total 3.0" in text


async def test_metrics_over_mutual_tls_are_for_holders_of_a_certificate(tmp_path: Path) -> None:
    authority, other = Authority(), Authority()
    folder = authority.sign("127.0.0.1").write(tmp_path / "server", authority=authority.certificate)
    options = argparse.ArgumentParser()
    serving.add_metrics_options(options, port=8080)
    args = options.parse_args(["--metrics-port=0", "--metrics-host=127.0.0.1", f"--metrics-certificates={folder}"])
    app = web.Application()
    serving.add_health(app, ready={}, registry=CollectorRegistry())
    async with serving.metrics_listening(app, args=args) as port:
        for pair, status in ((authority.sign("me"), 200), (other.sign("me"), 0), (None, 0)):
            context = ssl.create_default_context(cadata=authority.certificate.decode())
            if pair is not None:
                pair.write(tmp_path / "client", authority=authority.certificate)
                context.load_cert_chain(tmp_path / "client" / "tls.crt", tmp_path / "client" / "tls.key")
            assert [await status_of(port, path, context) for path in ("/metrics", "/livez")] == [status] * 2


async def status_of(port: int, path: str, context: ssl.SSLContext) -> int:
    """The status of an answer; 0 where there is none."""
    try:
        async with aiohttp.ClientSession() as http, http.get(f"https://127.0.0.1:{port}{path}", ssl=context) as got:
            return got.status
    except aiohttp.ClientError:
        return 0


async def test_silent_clients_do_not_keep_others_from_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was a file of the process until it went."""
    monkeypatch.setattr(connections, "Connections", partial(Connections, Bounds(most=4)))
    options = argparse.ArgumentParser()
    serving.add_metrics_options(options, port=0)
    app = web.Application()
    serving.add_health(app, ready={}, registry=CollectorRegistry())
    async with serving.metrics_listening(app, args=options.parse_args(["--metrics-host=127.0.0.1"])) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        async with asyncio.timeout(120), aiohttp.ClientSession() as http:
            # Those that have waited longest.
            for reader, _ in silent[:2]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            async with http.get(f"http://127.0.0.1:{port}/livez") as answer:
                assert answer.status == 200
        for _, writer in silent:
            writer.close()


async def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: "):
            async with serving.listening(web.Application(), host="127.0.0.1", port=port):
                pass


async def endless(ended: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(name)


async def test_parts_run_until_told_to_stop() -> None:
    stop, ended = asyncio.Event(), []
    task = asyncio.create_task(serving.together(stop, endless(ended, "a"), endless(ended, "b")))
    await asyncio.sleep(0)
    stop.set()
    await task
    assert sorted(ended) == ["a", "b"]


async def test_when_one_part_fails_all_end() -> None:
    async def fail() -> None:
        raise RuntimeError("broken")

    ended: list[str] = []
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="broken")):
        await serving.together(asyncio.Event(), endless(ended, "a"), fail())
    assert ended == ["a"]


def start(body: str, *options: str) -> subprocess.Popen[str]:
    """A process that runs `body` as its program."""
    code = "import asyncio, sys\nfrom dovetail.process import serving\nasync def program(args, settings, stop):\n"
    code += textwrap.indent(textwrap.dedent(body), "    ")
    code += "\noptions = serving.parser('x', description='d')\n"
    code += "sys.exit(serving.run(program, args=options.parse_args(), grace_seconds=0.1))"
    command = [sys.executable, "-c", code, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_sigterm_ends_a_program_in_order() -> None:
    process = start("print('up', flush=True); await stop.wait(); print('down', settings.log_level)")
    assert process.stdout.readline() == "up\n"
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "down info\n")
    assert '"event": "stopping"' in err


def test_a_program_that_does_not_end_is_cancelled() -> None:
    process = start("print('up', flush=True)\ntry: await asyncio.Event().wait()\nfinally: print('cleaned up')")
    assert process.stdout.readline() == "up\n"
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "cleaned up\n")
    assert "did not end in time" in err


def test_a_program_that_fails_says_so_and_exits_with_one() -> None:
    process = start("raise RuntimeError('broken')")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "RuntimeError: broken" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("policy: Heap", 'policy is "Heap", but must be Spread, Pack or Balanced'), ("zz: 1", 'unknown key "zz"')],
)
def test_a_wrong_configuration_is_one_sentence_and_exit_code_two(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "gpu_config.yaml"
    path.write_text(text)
    process = start("print('started')", "--config", str(path))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"{path}: {sentence}")
    assert len(err.splitlines()) == 1


def test_a_wrong_kubeconfig_is_one_sentence_and_exit_code_two(tmp_path: Path) -> None:
    body = "from dovetail.kube.auth.connection import load_connection\nload_connection(args.kubeconfig)"
    process = start(body, "--kubeconfig", str(tmp_path / "missing"))
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (2, f"{tmp_path}/missing: no such kubeconfig\n")

"""Logs as kubectl reads them: those of the run that has the name now, from its first byte to its end."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from dovetail.process import serving
from dovetail_local_node import log_server
from dovetail_local_node.log_server import LogServer
from dovetail_local_node.runs import Run, Runs
from tests.authority import Authority

EARLIER = "of an earlier queue\n"


class Logs:
    """A log server, the run `u1` of the pod `default/p`, and its output."""

    def __init__(self, folder: Path) -> None:
        self.runs = Runs(folder=folder / "runs")
        self.output = folder / "42.log"
        self.names = {("default", "p"): "u1"}
        self.output.write_text(EARLIER)
        self.record("u1")
        server = LogServer(runs=self.runs, uid_of=lambda namespace, name: self.names.get((namespace, name)))
        self.client = TestClient(TestServer(server.app()))

    def record(self, uid: str) -> None:
        run = Run(uid=uid, namespace="default", name="p", boot_id="b", output=str(self.output), offset=len(EARLIER))
        self.runs.of(uid).mkdir(parents=True)
        (self.runs.of(uid) / "run.json").write_bytes(msgspec.json.encode(run))
        (self.runs.of(uid) / "started").write_text(Path(f"/proc/{os.getpid()}/stat").read_text())

    def prints(self, text: str) -> None:
        with self.output.open("a") as file:
            file.write(text)

    def ends(self) -> None:
        (self.runs.of("u1") / "ended").write_text("0\n")

    async def get(self, *, pod: str = "p", **query: str) -> str:
        async with asyncio.timeout(60), self.client.get(f"/containerLogs/default/{pod}/main", params=query) as answer:
            return await answer.text()


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[Logs]:
    made = Logs(tmp_path)
    async with made.client:
        yield made


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({}, "one\ntwo\nthree\n"),
        ({"tailLines": "2"}, "two\nthree\n"),
        ({"tailLines": "0"}, ""),
        ({"tailLines": "9"}, "one\ntwo\nthree\n"),
        ({"tailLines": "many"}, "one\ntwo\nthree\n"),
        ({"limitBytes": "5"}, "one\nt"),
        ({"limitBytes": "4", "tailLines": "1"}, "thre"),
        ({"limitBytes": "99"}, "one\ntwo\nthree\n"),
    ],
)
async def test_a_log_is_that_of_its_run_alone(logs: Logs, query: dict[str, str], said: str) -> None:
    logs.prints("one\ntwo\nthree\n")
    assert await logs.get(**query) == said


async def test_a_log_is_followed_until_its_run_has_ended(logs: Logs) -> None:
    logs.prints("one\n")
    async with asyncio.timeout(60), logs.client.get("/containerLogs/default/p/main?follow=true") as answer:
        assert await answer.content.readline() == b"one\n"
        logs.prints("two\n")
        assert await answer.content.readline() == b"two\n"
        logs.prints("last words\n")
        logs.ends()
        assert await answer.text() == "last words\n"


async def test_a_log_of_a_run_that_has_ended_is_followed_no_further(logs: Logs) -> None:
    logs.prints("one\n")
    logs.ends()
    assert await logs.get(follow="true") == "one\n"


async def test_a_log_whose_shim_was_killed_is_followed_no_further(logs: Logs) -> None:
    (logs.runs.of("u1") / "started").write_text(f"{2**22 + 1} (sh) S " + "0 " * 18 + "77 0\n")
    assert await logs.get(follow="true") == ""


async def test_a_pod_that_has_not_started_here_has_no_log_whoever_had_its_name_before(logs: Logs) -> None:
    logs.names["default", "p"] = "u2"
    assert await logs.get() == 'pod "p" has not started here, so it has no log\n'
    assert await logs.get(pod="other") == 'pod "other" has not started here, so it has no log\n'


async def test_output_that_is_gone_is_named(logs: Logs) -> None:
    logs.output.unlink()
    assert await logs.get() == f"dovetail: {logs.output}: No such file or directory\n"


@pytest.mark.parametrize("most", [0, 3, 4, 6, 8, 100])
async def test_a_limit_of_bytes_counts_over_all_parts_of_an_answer(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("dovetail_local_node.log_server._CHUNK", 4)
    logs.prints("0123456789ab")
    logs.ends()
    assert await logs.get(limitBytes=str(most)) == "0123456789ab"[:most]


async def test_what_a_run_prints_last_is_shown_also_if_it_ends_during_the_answer(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def still(_server: LogServer, uid: str) -> bool:
        asked.append(uid)
        logs.prints(f"line {len(asked)}\n")
        return len(asked) < 3

    monkeypatch.setattr(LogServer, "_runs_still", still)
    assert await logs.get(follow="true") == "line 1\nline 2\nline 3\n"


async def test_only_the_api_server_reads_logs(logs: Logs, tmp_path: Path) -> None:
    """It alone has a certificate of the sandbox's CA, and it has checked who may read which log."""
    ours, other = Authority(), Authority("another CA")
    server = ours.sign("127.0.0.1").write(tmp_path / "server", authority=ours.certificate)
    tls = log_server.tls_context(certificate=server / "tls.crt", key=server / "tls.key", authority=server / "ca.crt")
    logs.prints("one\n")
    made = LogServer(runs=logs.runs, uid_of=lambda namespace, name: logs.names.get((namespace, name)))

    async def read(name: str, signer: Authority | None) -> str:
        context = ssl.create_default_context(cadata=ours.certificate.decode())
        if signer is not None:
            folder = signer.sign("kube-apiserver").write(tmp_path / name, authority=signer.certificate)
            context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        url = f"https://127.0.0.1:{port}/containerLogs/default/p/main"
        try:
            async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
                return await answer.text()
        except aiohttp.ClientError:
            return "refused"

    async with serving.listening(made.app(), host="127.0.0.1", port=0, tls=tls) as port:
        signers = {"ours": ours, "other": other, "none": None}
        found = {name: await read(name, signer) for name, signer in signers.items()}
    assert found == {"ours": "one\n", "other": "refused", "none": "refused"}


async def test_the_last_lines_are_looked_for_in_the_last_bytes_alone(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_server, "_MOST_TAIL_BYTES", 6)
    logs.prints("0123456789\nab\n")
    assert await logs.get(tailLines="1") == "ab\n"
    assert await logs.get(tailLines="2") == "89\nab\n"


async def test_only_what_asks_to_follow_follows(logs: Logs) -> None:
    logs.prints("one\n")
    assert await logs.get(follow="false") == "one\n"
    assert await logs.get(follow="") == "one\n"


async def test_a_pod_of_the_same_name_in_another_namespace_has_a_log_of_its_own(logs: Logs) -> None:
    logs.prints("one\n")
    logs.names = {("other", "p"): "u1"}
    assert await logs.get() == 'pod "p" has not started here, so it has no log\n'

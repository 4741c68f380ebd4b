"""A sandbox and a local queue, tried by another user of the machine: every listening socket, every file.

Others run commands as the owner of a queue if one socket answers them: etcd takes writes past every policy.
"""

import http.server
import json
import os
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dovetail_sandbox import bringup, progress
from dovetail_sandbox.cluster import Cluster
from tests import other_user
from tests.local_node.machine import until
from tests.other_user import Answer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

_HEALTH: Final = ("/livez", "/readyz", "/healthz")
# Who answers without a credential: a program, the paths, and why it may.
ALLOWED: Final = {
    "kube-apiserver": ((*_HEALTH, "/version"), "Kubernetes' role system:public-info-viewer, over its own TLS"),
    "kube-controller-manager": (_HEALTH, "health, over its own TLS"),
    "default-scheduler": (_HEALTH, "health, over its own TLS"),
    "kube-scheduler": (_HEALTH, "health, over its own TLS"),
    "gateway": (("/", "/console/", "/openapi.json"), "the console's page and the API's description, for everybody"),
}


@pytest.fixture(scope="module", autouse=True)
def root() -> None:
    other_user.need_root()


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A sandbox as `dovetail sandbox up` makes it, with one simulated node."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        made = bringup.up("tried", report=progress.Lines(sys.stderr), limit_nodes=1)
        try:
            yield made
        finally:
            made.down()


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Path]]:
    """A queue of this machine and the folder of its data; a job has run in it and has printed something."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    made = bringup.up("queue", report=progress.Lines(sys.stderr), local_node=True)
    try:
        monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig))
        command = [sys.executable, "-m", "dovetail_cli", "gbatch", "echo", "a secret"]
        subprocess.run(command, check=True, cwd=tmp_path)
        log = tmp_path / "data" / "gflow-queue" / "logs" / "1.log"
        until(lambda: log.exists() and "a secret" in log.read_text())
        yield made, tmp_path / "data"
    finally:
        made.down()


def unexpected(answers: list[Answer]) -> list[Answer]:
    """The answers that nothing allows."""
    return [each for each in answers if not _is_allowed(each)]


def _is_allowed(answer: Answer) -> bool:
    paths, _why = ALLOWED.get(answer.program, ((), ""))
    return answer.asked.split()[-1] in paths


def check(tried: Cluster, *, folders: list[Path]) -> None:
    found = other_user.listeners(tried)
    assert {"etcd", "kube-apiserver", "extender", "webhook", "gateway"} <= {each.program for each in found}
    assert [each for each in found if not each.is_loopback] == []
    assert unexpected(other_user.answers(found)) == []
    assert other_user.readable(folders) == []


def test_no_socket_of_a_sandbox_answers_and_no_file_opens(simulated: Cluster) -> None:
    check(simulated, folders=[simulated.folder])


def test_no_socket_of_a_local_queue_answers_and_no_file_opens(local: tuple[Cluster, Path]) -> None:
    made, data = local
    assert "local-node" in {each.program for each in other_user.listeners(made)}
    check(made, folders=[made.folder, data])


def test_what_the_attack_on_etcd_does_is_refused(simulated: Cluster) -> None:
    """One HTTP PUT wrote a GPUJob in the owner's name, and the local node ran its command."""
    ports = [each for each in other_user.listeners(simulated) if each.program == "etcd"]
    key, job = "/registry/dovetail.dev/gpujobs/default/owned", {"kind": "GPUJob", "metadata": {"name": "owned"}}
    body = {"key": b64encode(key.encode()).decode(), "value": b64encode(json.dumps(job).encode()).decode()}
    assert len(ports) == 2, "one for clients, one for members"
    assert [other_user.posted(each, path="/v3/kv/put", body=json.dumps(body)) for each in ports] == [[0, 0], [0, 0]]


class _Open(http.server.BaseHTTPRequestHandler):
    """Answers everybody."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_an_open_socket_and_an_open_file_are_seen(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("a secret")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Open)
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        own = [each for each in other_user.listeners_of(os.getpid(), program="own") if each.port == server.server_port]
        found = other_user.answers(own)
        server.shutdown()
    assert len(own) == 1
    assert [each.asked for each in found] == [f"{method} http {path}" for method, path in other_user.ASKED]
    assert [text.rpartition("/")[2] for text in other_user.readable([tmp_path])] == ["open has mode 644"]

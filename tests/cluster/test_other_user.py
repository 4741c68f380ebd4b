"""A sandbox, tried by another user of the machine: every listening socket, every file.

Others run commands as the owner of a queue if one socket answers them: etcd takes writes past every policy.
"""

import http.server
import json
import os
import threading
from base64 import b64encode
from pathlib import Path

import pytest

from dovetail_sandbox.cluster import Cluster
from tests import other_user

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", autouse=True)
def root() -> None:
    other_user.need_root()


def test_no_socket_of_a_sandbox_answers_and_no_file_opens(sandbox: Cluster) -> None:
    other_user.check(sandbox, folders=[sandbox.folder])


def test_what_the_attack_on_etcd_does_is_refused(sandbox: Cluster) -> None:
    """One HTTP PUT wrote a GPUJob in the owner's name, and the local node ran its command."""
    ports = [each for each in other_user.listeners(sandbox) if each.program == "etcd"]
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

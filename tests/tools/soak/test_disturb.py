"""The API server's restart waits for what it needs."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.soak.disturb import wait_listening, wait_port_free


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("127.0.0.1", 0))
        made.listen()
        yield made


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def test_a_port_on_which_a_server_listens_is_not_free(listener: socket.socket) -> None:
    with pytest.raises(TimeoutError, match=f"port {port_of(listener)} is still in use after 0.1 s"):
        wait_port_free(port_of(listener), seconds=0.1)


def test_a_port_is_free_once_its_server_has_closed_it(listener: socket.socket) -> None:
    port = port_of(listener)
    waiting = threading.Thread(target=lambda: wait_port_free(port, seconds=30))
    waiting.start()
    listener.close()
    waiting.join(timeout=30)
    assert not waiting.is_alive()


def test_a_server_that_listens_is_up_and_one_that_ends_is_an_error(listener: socket.socket, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("starting\naddress already in use\n", encoding="utf-8")
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as server:
        server.wait()
        with pytest.raises(RuntimeError, match="the API server ended with code 3: address already in use"):
            wait_listening(server, port=port_of(listener), log=log)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as server:
        wait_listening(server, port=port_of(listener), log=log)
        server.kill()

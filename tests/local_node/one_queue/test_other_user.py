"""A local queue, tried by another user of the machine: every listening socket, every file."""

from pathlib import Path

import pytest

from dovetail_sandbox import cluster
from tests import other_user
from tests.local_node.machine import Machine

pytestmark = pytest.mark.cluster


def test_no_socket_of_a_local_queue_answers_and_no_file_opens(machine: Machine) -> None:
    other_user.need_root()
    machine.ended(machine.submit("echo", "a secret"))
    queue = cluster.get()
    assert "local-node" in {each.program for each in other_user.listeners(queue)}
    other_user.check(queue, folders=[queue.folder, Path(machine.environment["XDG_DATA_HOME"])])

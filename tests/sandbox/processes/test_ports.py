import socket

import pytest

from dovetail_sandbox.errors import SandboxError
from dovetail_sandbox.processes import ports


def test_every_component_gets_a_port_of_its_own() -> None:
    chosen = ports.choose(["a", "b", "c"], taken=[])

    assert len(set(chosen.values())) == 3
    assert all(port in ports.RANGE for port in chosen.values())


def test_a_port_of_another_sandbox_is_left_alone_though_nobody_listens() -> None:
    first = ports.choose(["a", "b"], taken=[])
    second = ports.choose(["a", "b"], taken=first.values())

    assert not set(first.values()) & set(second.values())


def test_a_port_on_which_somebody_listens_is_left_alone() -> None:
    (wanted,) = ports.choose(["a"], taken=[]).values()
    others = set(ports.RANGE) - {wanted}
    with socket.create_server(("127.0.0.1", wanted)), pytest.raises(SandboxError):
        ports.choose(["a"], taken=others)

    assert ports.choose(["a"], taken=others) == {"a": wanted}


def test_no_port_left_is_said() -> None:
    with pytest.raises(SandboxError, match="No 1 free ports"):
        ports.choose(["a"], taken=ports.RANGE)

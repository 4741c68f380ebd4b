import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

from dovetail_sandbox.errors import SandboxError
from dovetail_sandbox.processes import ports

FIRST = 20_500
_CHOOSE = (
    f"from dovetail_sandbox.processes import ports; print(ports.first_from({FIRST}, taken=[]), flush=True); input()"
)
# Of a few ports, so that two that start at once want the same.
_CHOOSE_TWO = (
    "from dovetail_sandbox.processes import ports; ports.RANGE = range(20_900, 20_906);"
    "print(*ports.choose(['a', 'b'], taken=[]).values(), flush=True); input()"
)


def test_every_component_gets_a_port_of_its_own() -> None:
    chosen = ports.choose(["a", "b", "c"], taken=[])

    assert len(set(chosen.values())) == 3
    assert all(port in ports.RANGE for port in chosen.values())


def test_a_port_of_another_sandbox_is_left_alone_though_nobody_listens() -> None:
    assert sorted(chosen_of(20_920, 20_924, components="ab", taken=[20_920, 20_921])) == [20_922, 20_923]


def test_a_port_that_was_chosen_and_not_yet_bound_is_chosen_by_no_other() -> None:
    chosen = [number for words in chosen_at_once(_CHOOSE_TWO) for number in words]
    assert sorted(chosen) == list(range(20_900, 20_906))


def test_a_port_on_which_somebody_listens_is_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 20_910)):
        assert chosen_of(20_910, 20_911) == []
        assert chosen_of(20_910, 20_912) == [20_911]
    assert chosen_of(20_910, 20_911) == [20_910]


def test_no_port_left_is_said() -> None:
    with pytest.raises(SandboxError, match="No 1 free ports"):
        ports.choose(["a"], taken=ports.RANGE)


def chosen_of(start: int, stop: int, *, components: str = "a", taken: Sequence[int] = ()) -> list[int]:
    """The ports that a process of its own chooses of a range in which no sandbox has any; none if too few are free."""
    code = (
        f"from dovetail_sandbox.processes import ports; ports.RANGE = range({start}, {stop});"
        f"print(*ports.choose({list(components)}, taken={list(taken)}).values())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.returncode or "SandboxError: No 1 free ports between" in done.stderr, done.stderr
    return [int(word) for word in done.stdout.split()]


def chosen_at_once(program: str) -> list[list[int]]:
    """The ports that each of three processes chooses while the others run."""
    starting = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        return [[int(word) for word in each.stdout.readline().split()] for each in starting if each.stdout]
    finally:
        for each in starting:
            each.communicate("\n")


def test_sandboxes_that_start_at_once_get_different_ports() -> None:
    assert sorted(chosen_at_once(_CHOOSE)) == [[FIRST], [FIRST + 1], [FIRST + 2]]


def test_a_port_is_free_again_once_the_program_that_chose_it_has_ended() -> None:
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", _CHOOSE], input="\n", capture_output=True, text=True, check=True)
        assert int(done.stdout) == FIRST


def test_ports_of_other_sandboxes_are_left_out() -> None:
    assert ports.first_from(FIRST + 200, taken=[FIRST + 200, FIRST + 201]) == FIRST + 202


def test_where_none_of_a_hundred_is_free_the_refusal_names_them() -> None:
    with pytest.raises(SandboxError, match=f"No free port between {FIRST} and {FIRST + 99}"):
        ports.first_from(FIRST, taken=range(FIRST, FIRST + 100))


def test_a_port_is_reserved_once() -> None:
    assert ports.reserve(FIRST + 300)
    assert not ports.reserve(FIRST + 300)

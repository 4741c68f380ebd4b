"""A local queue on a machine with two cards of a stand-in for NVIDIA's library, as fixtures of a test file."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dovetail_sandbox import cluster
from tests.agent.nvml_stub import Scenario, built
from tests.local_node.machine import Machine, new_machine, until

Play = Callable[[Scenario], None]


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of what the library plays."""
    path = tmp_path_factory.mktemp("nvml") / "scenario"
    path.write_text(Scenario().text())
    return path


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, scenario: Path) -> Iterator[Machine]:
    """The machine once its queue knows both cards."""
    variables = {"LD_LIBRARY_PATH": str(built()), "NVML_STUB_SCENARIO": str(scenario)}
    with new_machine(tmp_path_factory.mktemp("machine"), **variables) as made:
        until(lambda: "Available GPUs: 2" in made("ginfo"))
        yield made


@pytest.fixture
def play(machine: Machine, scenario: Path) -> Iterator[Play]:
    """Let the library play something else until the test ends."""

    def playing(wanted: Scenario) -> None:
        scenario.write_text(wanted.text())
        os.kill(cluster.get().pid("agent"), signal.SIGUSR1)

    yield playing
    playing(Scenario())

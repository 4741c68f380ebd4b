"""A local queue on a machine with four cards of a stand-in for NVIDIA's library, as fixtures of a test file."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dovetail_cli.cluster import audit
from dovetail_sandbox import cluster
from tests.agent.nvml_stub import LIBRARY, Scenario, built
from tests.local_node.machine import Machine, empty_machine
from tests.polling import until

Play = Callable[[Scenario], None]
CARDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The machine, the folder with the library, the file of what it plays, and what the first `gflowd up` printed."""

    machine: Machine
    library: Path
    scenario: Path
    printed: str

    @contextmanager
    def playing(self, scenario: Scenario) -> Iterator[None]:
        """An agent that begins meets this, and one that begins afterwards the four cards again."""
        self.scenario.write_text(scenario.text())
        cluster.get().restart("agent")
        try:
            yield
        finally:
            self.scenario.write_text(Scenario(cards=CARDS).text())
            cluster.get().restart("agent")
            self._shows_all_cards()

    @contextmanager
    def without_library(self) -> Iterator[None]:
        """As on a machine without a GPU."""
        try:
            with library_away(self.library):
                yield
        finally:
            self._shows_all_cards()

    def _shows_all_cards(self) -> None:
        until(lambda: f"Available GPUs: {CARDS}" in self.machine("ginfo"), what=lambda: self.machine("ginfo"))


@contextmanager
def library_away(folder: Path) -> Iterator[None]:
    """An agent that begins finds no library of a vendor, and one that begins afterwards finds it again."""
    away = folder.with_name("away")
    (folder / LIBRARY).rename(away)
    cluster.get().restart("agent")
    try:
        yield
    finally:
        away.rename(folder / LIBRARY)
        cluster.get().restart("agent")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The machine once its queue knows the cards."""
    folder = tmp_path_factory.mktemp("machine")
    library, scenario = folder / "library", folder / "scenario"
    library.mkdir()
    shutil.copy(built() / LIBRARY, library)
    scenario.write_text(Scenario(cards=CARDS).text())
    variables = {"LD_LIBRARY_PATH": str(library), "NVML_STUB_SCENARIO": str(scenario)}
    with empty_machine(folder, **variables) as machine:
        printed = machine("gflowd", "up")
        until(lambda: f"Available GPUs: {CARDS}" in machine("ginfo"), what=lambda: machine("ginfo"))
        yield Site(machine=machine, library=library, scenario=scenario, printed=printed)
        assert audit.prove(kubeconfig=str(cluster.get().kubeconfig), context=None).items == []


@pytest.fixture
def machine(site: Site) -> Iterator[Machine]:
    """The machine; no job that a test leaves behind, whatever its outcome, holds a card of the next one."""
    yield site.machine
    left = site.machine("gqueue", "-f", "JOBID").split()[1:]
    if left:
        site.machine("gcancel", *left)
        for job in left:
            site.machine.ended(job)


@pytest.fixture
def play(site: Site) -> Iterator[Play]:
    """Let the library play something else until the test ends; the agent looks at once."""

    def playing(wanted: Scenario) -> None:
        site.scenario.write_text(wanted.text())
        os.kill(cluster.get().pid("agent"), signal.SIGUSR1)

    yield playing
    playing(Scenario(cards=CARDS))

"""What is optional stands in folders that say so, and is loaded only where it is configured."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.style.packages import ROOT

# An agent with the options given, up to its features; then its modules.
AGENT = """
import sys
from dovetail.config.settings import Settings
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.features import features_of
from dovetail_agent.main import parser

args = parser().parse_args(["--metrics-port=0", "--node=n1", *sys.argv[1:]])
features_of(args, settings=Settings(), client=None, provider=SimulatedProvider())
print(*sys.modules)
"""
# The optional folders of the agent, and the options with which each is loaded. What is empty is a program of its own,
# or is loaded where a vendor's library is.
OF_THE_AGENT: dict[str, Sequence[str]] = {
    "dovetail_agent.checkpoint": ("--turns=/tmp/turns", "--suspend-to-host"),
    "dovetail_agent.devices.nvidia": (),
    "dovetail_agent.devices.other_vendors": (),
    "dovetail_agent.mps": ("--mps-state=/tmp/mps",),
    "dovetail_agent.mps.volume_driver": (),
    "dovetail_agent.reshape": ("--reshape",),
    "dovetail_agent.turns": ("--turns=/tmp/turns",),
}


def loaded(script: str, *, options: Sequence[str] = ()) -> set[str]:
    """The modules of a start."""
    done = subprocess.run(
        [sys.executable, "-c", script, *options], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_an_agent_without_options_loads_nothing_that_is_optional() -> None:
    assert {"dovetail_agent.features", "dovetail_agent.guards.memory"} <= loaded(AGENT)
    assert OF_THE_AGENT.keys() & loaded(AGENT) == set()


@pytest.mark.parametrize("folder", [folder for folder, options in OF_THE_AGENT.items() if options])
def test_an_agent_loads_what_its_options_switch_on(folder: str) -> None:
    assert folder in loaded(AGENT, options=OF_THE_AGENT[folder])


def test_an_optional_folder_says_that_it_is() -> None:
    silent = [
        folder
        for folder in OF_THE_AGENT
        if "ptional" not in next(ROOT.glob(f"*/{folder.replace('.', '/')}/__init__.py")).read_text("utf-8")
    ]
    assert silent == []

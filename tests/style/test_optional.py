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

# An operator that is built from the settings given as JSON, or only imported; then its modules.
OPERATOR = """
import asyncio, json, sys
from prometheus_client import CollectorRegistry
from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_operator import main
from dovetail_operator.app import build_operator
from dovetail_operator.leader import leadership
from dovetail_operator.options import make_options

if not sys.argv[1:]:
    print(*sys.modules)
    sys.exit()

async def start():
    client = Client(Connection(server="http://127.0.0.1:1"))
    office = leadership(client, namespace="gpu", environ={"POD_NAME": "one"})
    options = make_options(Settings(**json.loads(sys.argv[1])), environ={"POD_NAMESPACE": "gpu"})
    build_operator(client, options=options, office=office, registry=CollectorRegistry())

asyncio.run(start())
print(*sys.modules)
"""
# Its optional folders. The history has a file by default. Reshaping may be enabled at any time, and loads then.
OF_THE_OPERATOR = {"dovetail_operator.history", "dovetail_operator.notifications", "dovetail_operator.queue.reshaping"}


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


def test_an_operator_imports_nothing_that_is_optional_and_builds_what_is_configured() -> None:
    assert {*OF_THE_OPERATOR, "sqlalchemy", "smtplib"} & loaded(OPERATOR) == set()
    usual = loaded(OPERATOR, options=["{}"])
    assert OF_THE_OPERATOR & usual == {"dovetail_operator.history"}


def test_an_operator_loads_the_notifier_for_a_server() -> None:
    assert "dovetail_operator.notifications" in loaded(OPERATOR, options=['{"notify_url": "smtp://mail:25"}'])


def test_a_gateway_without_a_database_of_samples_imports_none() -> None:
    found = loaded("import sys, dovetail_gateway.main; print(*sys.modules)")
    assert {"dovetail_gateway.samples.store", "sqlalchemy"} & found == set()


def test_an_optional_folder_says_that_it_is() -> None:
    silent = [
        folder
        for folder in (*OF_THE_AGENT, *OF_THE_OPERATOR)
        if "ptional" not in next(ROOT.glob(f"*/{folder.replace('.', '/')}/__init__.py")).read_text("utf-8")
    ]
    assert silent == []

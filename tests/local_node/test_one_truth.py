"""A GPU that fails on one's own machine: every view says what the queue says, with a stand-in for NVIDIA's library."""

import json
import urllib.request
from typing import Any

import pytest

from tests.agent.nvml_stub import DRIVER_NOT_LOADED, Scenario
from tests.local_node import cards
from tests.local_node.cards import Play
from tests.local_node.machine import Machine, until

pytestmark = pytest.mark.cluster
NOT_LOADED = Scenario(answers=[("*", -1, DRIVER_NOT_LOADED)])


scenario, machine, play = cards.scenario, cards.machine, cards.play


def rest(machine: Machine, path: str, *, body: Any = None) -> Any:
    url = json.loads(machine("sandbox", "status", "-o", "json"))["gateway"]
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {machine('sandbox', 'token').strip()}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url + path, data=data, headers=headers)) as answer:
        return json.load(answer)


def free_in_views(machine: Machine) -> dict[str, int]:
    """How many GPUs are free, as each view counts them."""
    v3 = rest(machine, "/api/v3/devices")["items"]
    v1 = rest(machine, "/api/v1/gpu/status")["available_nodes"]
    top = machine("top").splitlines()[0].partition(" held, ")[2]
    return {
        "ginfo": int(machine("ginfo").partition("Available GPUs: ")[2].split()[0]),
        "ginfo -o json": json.loads(machine("ginfo", "-o", "json"))["availableGpus"],
        "top": int(top.split()[0]),
        "v1": sum(node["available_gpus"] for node in v1),
        "v2": sum(not each["message"] for each in rest(machine, "/api/v2/resources/gpu")["devices"]),
        "v3": sum(each["available"] for each in v3),
    }


def said_of_the_first(machine: Machine) -> dict[str, str]:
    """Why GPU 0 takes no work, as each view says it."""
    (node,) = rest(machine, "/api/v1/gpu/monitoring")["nodes"]
    status = next(line for line in machine("ginfo").splitlines() if "Status: " in line and "Scheduler" not in line)
    return {
        "ginfo": status.partition("Unavailable: ")[2],
        "top": machine("top").splitlines()[3].partition("Unavailable: ")[2],
        "v1": node["devices"][0]["message"],
        "v2": rest(machine, "/api/v2/resources/gpu")["devices"][0]["message"],
        "v3": rest(machine, "/api/v3/devices")["items"][0]["message"],
    }


def agree(machine: Machine, *, sentence: str, free: int) -> None:
    """Every view, the queue and `validate` say the sentence, and no view counts more GPUs than work."""
    until(lambda: sentence in machine("ginfo"), what=lambda: machine("ginfo"))
    until(lambda: set(free_in_views(machine).values()) == {free}, what=lambda: str(free_in_views(machine)))
    until(lambda: set(said_of_the_first(machine).values()) == {sentence}, what=lambda: str(said_of_the_first(machine)))
    waiting = machine.submit("--gpus", "2", "true")
    until(lambda: sentence in machine("gqueue"), what=lambda: machine("gqueue"))
    assert "NodeUnhealthy" in machine("gqueue")
    found = rest(machine, "/api/v1/gpu/validate", body={"gpu_count": 2})
    assert not found["valid"]
    assert sentence in found["message"]
    assert found["suggestion"] == (
        f"ask for at most {free} GPUs: as many are free on one node" if free else f"no GPU takes work: {sentence}"
    )
    machine("gcancel", waiting)
    machine.ended(waiting)


def test_a_driver_that_is_unloaded_at_run_time(machine: Machine, play: Play) -> None:
    play(NOT_LOADED)
    agree(machine, sentence="NVML: driver not loaded on node local", free=0)
    assert "31 C" not in machine("ginfo")
    assert not rest(machine, "/api/v2/resources/gpu")["available"]

"""The chart with suspend to host switched on: off by default, and no more rights than it takes."""

from typing import Any

import pytest

from tests.chart.conftest import Helm, Render
from tests.chart.generated import CHART
from tests.chart.test_chart import pods

ON = {"agent__checkpoint__enabled": True, "agent__turns__enabled": True, "agent__hostPID": True}


def agent(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [each for each in pods(objects)["dovetail-agent"]["containers"] if each["name"] == "agent"]
    return dict(found)


def test_nobody_is_moved_to_the_host_by_default(render: Render) -> None:
    assert "--suspend-to-host" not in agent(render())["args"]


def test_the_agent_may_trace_processes_and_nothing_else(render: Render) -> None:
    container = agent(render(**ON))
    assert "--suspend-to-host" in container["args"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE"]}
    assert {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"} in container["env"]


@pytest.mark.parametrize("missing", ["agent.turns.enabled", "agent.hostPID"])
def test_without_turns_or_the_node_s_processes_it_is_refused_with_what_it_needs(helm: Helm, missing: str) -> None:
    there = {"agent.turns.enabled", "agent.hostPID"} - {missing}
    done = helm(
        "template",
        "dovetail",
        str(CHART),
        "--set=agent.checkpoint.enabled=true",
        *(f"--set={each}=true" for each in there),
    )
    assert done.returncode != 0
    assert "needs agent.turns.enabled=true and agent.hostPID=true" in done.stderr

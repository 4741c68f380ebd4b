"""Which provider an agent has, in a process of its own: a library is found by the loader's path, once and for all."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from dovetail_agent.devices.discovery import paces_of
from dovetail_agent.devices.driver import loads
from tests.agent.nvml_stub import Scenario, built
from tests.agent.vendor_stub import VendorScenario, built_vendor

REPORT = """
import json, sys
from datetime import timedelta
from dovetail_agent.devices.model import InventoryUnreadable
from dovetail_agent.devices.discovery import has_library, opened
from tests.agent.builders import make_node
node = make_node("gpu-1", devices=None)
with opened(sys.argv[1], node=sys.argv[2] or None, look_every=timedelta(seconds=30)) as provider:
    try:
        found = [device.model for device in provider.inventory(node).devices] if provider.serves(node) else []
    except InventoryUnreadable as error:
        found = error.reason
    # Where it finds one, the agent has a process of its own on one's own machine.
    assert sys.argv[1] != "auto" or has_library() is (provider.name != "none")
    print(json.dumps([provider.name, found]))
"""
HERE = loads("libnvidia-ml.so.1")


def told(
    provider: str, *, node: str, library: Path | str | None = None, scenario: Path | None = None, **more: str
) -> tuple[list, str]:
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    if library:
        environment |= {"LD_LIBRARY_PATH": str(library)}
    if scenario:
        environment |= {"NVML_STUB_SCENARIO": str(scenario)}
    environment |= more
    ended = subprocess.run(
        [sys.executable, "-c", REPORT, provider, node], env=environment, capture_output=True, text=True, check=True
    )
    *said, answer = ended.stdout.splitlines()
    return json.loads(answer), "\n".join([*said, ended.stderr])


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "two-cards"
    path.write_text(Scenario(model="Tesla V100-SXM2-32GB").text(), encoding="utf-8")
    return path


@pytest.mark.parametrize("provider", ["auto", "nvml"])
def test_nvml_is_taken_where_its_library_is(provider: str, scenario: Path) -> None:
    answer, _ = told(provider, node="gpu-1", library=built(), scenario=scenario)
    assert answer == ["nvml", ["Tesla V100-SXM2-32GB"] * 2]


@pytest.mark.skipif(HERE, reason="this machine has NVIDIA's library")
def test_a_missing_library_is_said_once_and_the_agent_goes_on_without_devices() -> None:
    answer, said = told("auto", node="gpu-1")
    assert answer == ["none", "NoLibrary"]
    assert said.count("libnvidia-ml.so.1") == 1


@pytest.mark.parametrize(
    ("vendor", "model"),
    [("amd", "AMD Instinct MI300X"), ("intel", "Intel(R) Data Center GPU Max 1550"), ("ascend", "Ascend910B3")],
)
def test_every_vendor_is_found_by_its_library(vendor: str, model: str, tmp_path: Path) -> None:
    played = tmp_path / "played"
    played.write_text(VendorScenario(vendor=vendor, cards=1).text(), encoding="utf-8")
    library = built_vendor(vendor) / "lib"
    answer, _ = told("auto", node="gpu-1", library=library, VENDOR_STUB_SCENARIO=str(played))
    assert answer == [vendor, [model]]


def test_several_vendors_on_one_node_are_all_reported(scenario: Path, tmp_path: Path) -> None:
    played = tmp_path / "played"
    played.write_text(VendorScenario(vendor="ascend", cards=1).text(), encoding="utf-8")
    libraries = f"{built()}:{built_vendor('ascend') / 'lib'}"
    answer, said = told("auto", node="gpu-1", library=libraries, scenario=scenario, VENDOR_STUB_SCENARIO=str(played))
    assert answer == ["nvml+ascend", ["Tesla V100-SXM2-32GB"] * 2 + ["Ascend910B3"]]
    assert said.count("libamd_smi.so") == 1


@pytest.mark.parametrize(("look_every", "read_every"), [(30, 15), (5, 5)])
def test_cards_are_read_at_least_as_often_as_they_are_looked_at(look_every: int, read_every: int) -> None:
    assert paces_of(timedelta(seconds=look_every)).look == read_every


def test_a_simulated_node_is_simulated_though_the_library_is_there(scenario: Path) -> None:
    assert told("simulated", node="gpu-1", library=built(), scenario=scenario)[0] == ["simulated", []]

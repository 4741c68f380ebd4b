"""What `gflowd up` prints of this machine's devices, and the numbers by which jobs know them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.nvml_stub import DRIVER_NOT_LOADED, Scenario, built
from tests.local_node.machine import Machine, empty_machine

pytestmark = pytest.mark.cluster

# As programs read the devices that a queue has given them.
PROGRAM = """\
import os
print([int(each) for each in os.environ["CUDA_VISIBLE_DEVICES"].split(",")], os.environ["CUDA_DEVICE_ORDER"])
"""


@contextmanager
def started(folder: Path, scenario: Scenario | None) -> Iterator[tuple[Machine, list[str]]]:
    """A machine with NVIDIA's library, which plays a scenario, or without it; and what `gflowd up` printed."""
    variables = {}
    if scenario is not None:
        (folder / "scenario").write_text(scenario.text())
        variables = {"LD_LIBRARY_PATH": str(built()), "NVML_STUB_SCENARIO": str(folder / "scenario")}
    with empty_machine(folder, **variables) as machine:
        yield machine, machine("gflowd", "up").splitlines()


def test_four_cards_and_a_job_on_the_last_two(tmp_path: Path) -> None:
    with started(tmp_path, Scenario(cards=4)) as (machine, printed):
        about = printed[1]
        assert about.startswith("local (nvml, driver 580.65.06")
        assert [line for line in printed if "── " in line and "H100" in line] == [
            f"{'└' if card == 3 else '├'}── {card}: NVIDIA H100 80GB HBM3, compute capability 9.0" for card in range(4)
        ]
        (machine.work / "train.py").write_text(PROGRAM)
        first = machine.submit("--gpus", "2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 300")
        machine.printed(first, "0,1")
        second = machine.submit("--gpus", "2", "sh", "-c", f"{sys.executable} train.py; sleep 300")
        machine.printed(second, "[2, 3] PCI_BUS_ID")
        assert machine("gqueue", "-j", second, "-f", "NODELIST").split()[-1] == "2,3"
        for job in (first, second):
            machine("gcancel", job)
            machine.ended(job)


def test_a_driver_that_is_not_loaded_is_named(tmp_path: Path) -> None:
    unloaded = Scenario(answers=[("nvmlInitWithFlags", -1, DRIVER_NOT_LOADED)])
    with started(tmp_path, unloaded) as (_, printed):
        assert printed[1].startswith("local")
        assert printed[1].endswith(": its devices cannot be read: NVML: driver not loaded")


@pytest.mark.skipif(b"libnvidia-ml" in subprocess.check_output(["ldconfig", "-p"]), reason="needs a machine without")
def test_a_machine_without_gpus_says_so_and_runs_jobs(tmp_path: Path) -> None:
    with started(tmp_path, None) as (machine, printed):
        assert ": its devices cannot be read: no vendor's library can be loaded" in printed[1]
        assert "jobs that ask no GPU run" in printed[1]
        assert machine.ended(machine.submit("true"))["phase"] == "Succeeded"

from pathlib import Path

import pytest

from dovetail_agent.processes.host_load import HostLoad, HostMeter
from tests.agent.procfs import write_load


def test_cpu_load_is_that_since_the_last_look(tmp_path: Path) -> None:
    meter = HostMeter(tmp_path)
    write_load(tmp_path, busy=900, idle=100)
    meter.read()
    write_load(tmp_path, busy=925, idle=175)
    assert meter.read() == HostLoad(cpu=0.25, memory=0.75)


def test_a_cpu_that_waits_for_a_disk_is_idle(tmp_path: Path) -> None:
    meter = HostMeter(tmp_path)
    (tmp_path / "stat").write_text("cpu  10 0 0 10 0 0 0 0 0 0\n", encoding="utf-8")
    meter.read()
    (tmp_path / "stat").write_text("cpu  20 0 0 10 30 0 0 0 0 0\n", encoding="utf-8")
    assert meter.read().cpu == 0.25


def test_the_first_look_tells_no_cpu_load(tmp_path: Path) -> None:
    write_load(tmp_path, busy=1, idle=1)
    assert HostMeter(tmp_path).read() == HostLoad(cpu=None, memory=0.75)


def test_two_looks_within_one_tick_tell_none(tmp_path: Path) -> None:
    meter = HostMeter(tmp_path)
    write_load(tmp_path, busy=1, idle=1)
    meter.read()
    assert meter.read().cpu is None


@pytest.mark.parametrize(
    "meminfo", ["", "MemTotal: 5 kB\n", "MemTotal:\nMemAvailable: x\n", "MemTotal: 0 kB\nMemAvailable: 0 kB"]
)
def test_what_proc_does_not_say_is_not_available(tmp_path: Path, meminfo: str) -> None:
    (tmp_path / "stat").write_text("intr 5\n", encoding="utf-8")
    (tmp_path / "meminfo").write_text(meminfo, encoding="utf-8")
    assert HostMeter(tmp_path).read() == HostLoad()


def test_a_folder_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    assert HostMeter(tmp_path / "none").read() == HostLoad()


def test_this_machine_s_memory_can_be_told() -> None:
    memory = HostMeter().read().memory
    assert memory is not None
    assert 0 < memory < 1

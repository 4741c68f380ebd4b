"""NVIDIA's binding on our stand-in for its library, and a watch on that."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from dovetail_agent.devices.nvidia.driver import NvmlDriver
from dovetail_agent.devices.poller import Known, Paces, Watch
from dovetail_agent.devices.process_memory import sees_host_processes
from tests.agent.builders import NOON
from tests.agent.nvml_stub import Scenario, Stub
from tests.agent.procfs import make_proc
from tests.agent.vendors import Played
from tests.core.kube.conftest import api, client

__all__ = ["api", "client"]

PACES = Paces(look=3600, ending=0.02)
See = Callable[..., Known]


def use(library: Stub, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """Let the binding, which keeps one library for the whole process, speak to this one."""
    monkeypatch.setattr(pynvml, "nvmlLib", library.library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return library


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Stub:
    return use(Stub(), monkeypatch)


@pytest.fixture
def old_nvml(monkeypatch: pytest.MonkeyPatch) -> Stub:
    return use(Stub(old_driver=True), monkeypatch)


@pytest.fixture
def watch_on(tmp_path: Path) -> Iterator[Callable[..., Watch]]:
    """Starts watches, and ends them."""
    started: list[Watch] = []

    def start(
        *, proc: Path | None = None, paces: Paces = PACES, first_look: bool = True, sys: Path = tmp_path
    ) -> Watch:
        found = proc or make_proc(tmp_path / f"proc-{len(started)}", pods={})
        driver = NvmlDriver(clock=lambda: NOON, proc=found if sees_host_processes(found) else None, sys=sys)
        watch = Watch(driver, clock=lambda: NOON, paces=paces, proc=found)
        started.append(watch)
        watch.start()
        assert not first_look or watch.looked.wait(60)
        return watch

    yield start
    if started:
        pynvml.nvmlLib.stub_load(b"")  # what hangs goes on
    for watch in started:
        watch.stop(seconds=10)


@pytest.fixture
def see(nvml: Stub, watch_on: Callable[..., Watch]) -> See:
    """One look at a scenario."""

    def look(scenario: Scenario, **options: object) -> Known:
        nvml.play(scenario)
        return watch_on(**options).known

    return look


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    """Starts watches on our stand-ins for AMD's, Intel's and Ascend's libraries, and ends them."""
    play = Played(tmp_path, monkeypatch=monkeypatch)
    yield play
    play.end()

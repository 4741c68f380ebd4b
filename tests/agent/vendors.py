"""AMD's, Intel's and Ascend's drivers on our stand-ins for their libraries, watched."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from dovetail_agent.devices.other_vendors.amd import amd_driver
from dovetail_agent.devices.other_vendors.ascend import ascend_driver
from dovetail_agent.devices.other_vendors.card_driver import CardDriver
from dovetail_agent.devices.other_vendors.intel.driver import intel_driver
from dovetail_agent.devices.poller import Known, Paces, Watch
from tests.agent.builders import NOON
from tests.agent.procfs import make_proc
from tests.agent.vendor_stub import VendorStub, built_vendor, library_of

QUICK: Final = Paces(look=0.01, inventory=0.05, ending=0.01)
DRIVERS: Final[dict[str, Callable[[Path, Path], CardDriver]]] = {
    "amd": lambda proc, sys: amd_driver(proc=proc, sys=sys, libraries=[str(library_of("amd"))]),
    "intel": lambda proc, sys: intel_driver(proc=proc, sys=sys, library=str(library_of("intel"))),
    "ascend": lambda proc, sys: ascend_driver(proc=proc, sys=sys, libraries=["libno.so", str(library_of("ascend"))]),
}


class Played:
    """Call it with a vendor and what its library plays: a watch that has looked at least twice, for rates need two."""

    def __init__(self, folder: Path, *, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._watches: list[Watch] = []
        self.stub: VendorStub | None = None

    def __call__(
        self, vendor: str, *, proc: Path | None = None, then: Mapping[str, Any] | None = None, **scenario: Any
    ) -> Watch:
        if vendor == "amd":
            self._monkeypatch.setenv("ROCM_PATH", str(built_vendor("amd")))
        self.stub = VendorStub(vendor)
        self.stub.play(**scenario)
        proc = proc or make_proc(self._folder / f"host-{len(self._watches)}", pods={})
        watch = Watch(DRIVERS[vendor](proc, self._folder), clock=lambda: NOON, paces=QUICK, proc=proc)
        self._watches.append(watch)
        watch.start()
        looks_again(watch)
        if then is not None:
            self.stub.play(**{**scenario, **then})
            looks_again(watch)
        return watch

    def end(self) -> None:
        """What hangs goes on, and ends."""
        if self.stub is not None:
            self.stub.library.stub_load(b"")
        for watch in self._watches:
            watch.stop(seconds=10)


def looks_again(watch: Watch) -> Known:
    """What it knows after two more looks: the first may have begun before the scenario was played."""
    for _ in range(2):
        watch.looked.clear()
        assert watch.looked.wait(60)
    return watch.known


def eventually(watch: Watch, holds: Callable[[Known], Any]) -> Known:
    """What the watch knows as soon as that holds."""
    end = time.monotonic() + 60
    while not holds(watch.known):
        assert time.monotonic() < end, watch.known
        looks_again(watch)
    return watch.known

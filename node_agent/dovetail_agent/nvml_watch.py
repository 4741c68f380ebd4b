"""The one thread that talks to NVIDIA's library: looks at the cards again and again and leaves what it saw.

Nothing else calls the library, so a call that hangs keeps this thread alone; what was known stays there to be read,
with its age.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

import pynvml

from dovetail.api.gpunode import Enforcement
from dovetail.logs import get_logger
from dovetail_agent.hostload import HostLoad, HostMeter
from dovetail_agent.nvml_calls import Caller, CardLost, LibraryGone, NvmlError
from dovetail_agent.nvml_events import Events
from dovetail_agent.nvml_find import SYS, Found, Part, find
from dovetail_agent.nvml_health import Signs, verdict
from dovetail_agent.nvml_read import load_of, processes_of, signs_of
from dovetail_agent.processes import PROC, owned, sees_host_processes, used_by_pod
from dovetail_agent.provider import DeviceSample, Inventory

log = get_logger(__name__)

# Errors come in storms: one look for all of them.
_STORM_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the thread saw last: the devices' samples by UUID, and when. `problem`: why nothing can be read now."""

    inventory: Inventory | None = None
    samples: Mapping[str, DeviceSample] = field(default_factory=dict)
    host: HostLoad = field(default_factory=HostLoad)
    measured_at: datetime | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """How often the devices are read, and which there are, in seconds; `ending` is the most that an end waits.

    All figures of a device are read together: what a device uses and what its processes use belong to one moment, else
    a pod that grows would look like a stranger for a while.
    """

    look: float = 15.0
    inventory: float = 600.0
    ending: float = 1.0


class Watch:
    """Call `start`, then read `known`; `stop` ends it, unless a call hangs: then it ends with the process."""

    def __init__(self, *, clock: Callable[[], datetime], paces: Paces, proc: Path = PROC, sys: Path = SYS) -> None:
        self.known = Known(problem="the devices have not been read yet")
        self.looked = threading.Event()
        self.paces = paces
        self._ask = Caller()
        self._clock = clock
        self._proc = proc
        self._sys = sys
        self._host = HostMeter(proc)
        self._tells_pods = sees_host_processes(proc)
        self._events = Events(self._ask)
        self._open = False
        self._found_at = 0.0
        self._inventory = Inventory(devices=())
        self._parts: tuple[Part, ...] = ()
        self._lost: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)

    @property
    def waiting_for(self) -> str:
        """The library's call that has not answered yet; empty between calls."""
        return self._ask.waiting_for

    def start(self) -> None:
        """Begin to look."""
        if not self._tells_pods:
            log.warning("the node's processes cannot be seen (hostPID): what each pod uses of a device is not told")
        self._thread.start()

    def stop(self, *, seconds: float = 2.0) -> None:
        """End it, and wait for that for so long."""
        self._stopping.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._look()
            self.looked.set()
            self._rest()
        self._close()

    def _look(self) -> None:
        try:
            self._find()
            samples = {part.info.uuid: self._sample(part) for part in self._parts}
        except LibraryGone as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - a thread that ends would be silence for ever
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self.known = Known(
                inventory=self._inventory, samples=samples, host=self._host.look(), measured_at=self._clock()
            )

    def _fail(self, problem: str) -> None:
        if self.known.problem != problem:
            log.warning("the devices cannot be read", problem=problem)
        self.known = replace(self.known, problem=problem)
        self._close()

    def _find(self) -> None:
        """Take the handles, again now and then: cards are split, joined and reset while we run."""
        if self._open and time.monotonic() - self._found_at < self.paces.inventory:
            return
        if self._open and self._lost:
            self._close()  # what was reset answers to new handles only
        if not self._open:
            self._ask.surely(pynvml.nvmlInit)
            self._open = True
        found = find(self._ask, sys=self._sys)
        self._keep(found)
        self._events.subscribe(self._parts)
        self._inventory = self._described()
        self._found_at = time.monotonic()

    def _keep(self, found: Found) -> None:
        """The parts that were found; a card that does not answer any more stays, for its pods' sake."""
        taken = {part.info.index for part in found.parts}
        gone = [part for part in self._parts if part.card_uuid not in found.cards and part.info.index not in taken]
        self._lost = {part.card_uuid for part in gone}
        self._parts = tuple(sorted([*found.parts, *gone], key=lambda part: part.info.index))

    def _described(self) -> Inventory:
        cuda = self._ask(pynvml.nvmlSystemGetCudaDriverVersion)
        return Inventory(
            devices=tuple(part.info for part in self._parts),
            driver_version=self._ask(pynvml.nvmlSystemGetDriverVersion) or "",
            runtime_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
            enforcement=Enforcement(mig=any(part.info.mig_profile for part in self._parts)),
        )

    def _sample(self, part: Part) -> DeviceSample:
        counts = self._events.counts(part.card_uuid)
        if part.card_uuid not in self._lost:
            try:
                return self._read(part, xids=counts)
            except CardLost as error:
                log.warning("a card is lost", device=part.card_uuid, problem=str(error))
                self._lost.add(part.card_uuid)
        return DeviceSample(xids=dict(counts), unhealthy_reason=verdict(Signs(lost=True)))

    def _read(self, part: Part, *, xids: Mapping[int, int]) -> DeviceSample:
        load = load_of(part, ask=self._ask)
        used = processes_of(part, ask=self._ask) if self._tells_pods else None
        processes = None if used is None else owned(used, proc=self._proc)
        signs = signs_of(part, xids=tuple(xids), ask=self._ask)
        ecc = {"corrected": signs.ecc_corrected, "uncorrected": signs.ecc_uncorrected}
        return replace(
            load,
            used_by_tenant_mib=None if processes is None else used_by_pod(processes),
            processes=processes,
            ecc_errors={kind: count for kind, count in ecc.items() if count is not None},
            remapped_rows=signs.remapped_rows,
            xids=dict(xids),
            unhealthy_reason=verdict(signs),
        )

    def _rest(self) -> None:
        """Until the next look, which comes early when a card tells of an error."""
        until = time.monotonic() + self.paces.look
        while not self._stopping.is_set() and (left := until - time.monotonic()) > 0:
            if self._hear(seconds=min(left, self.paces.ending)):
                until = min(until, time.monotonic() + _STORM_SECONDS)

    def _hear(self, *, seconds: float) -> bool:
        try:
            heard = self._events.wait(seconds=seconds) if self._open else None
        except NvmlError as error:
            log.warning("an error of a card cannot be told", problem=str(error))
            heard = None
        if heard is None:
            self._stopping.wait(seconds)
        return bool(heard)

    def _close(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            self._events.close()
            self._ask(pynvml.nvmlShutdown)
        except NvmlError as error:
            log.debug("the library did not close well", problem=str(error))

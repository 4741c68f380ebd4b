"""The driver of NVIDIA's devices through NVML, and which processes compute by its recent samples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pynvml

from dovetail.api.gpunode import LOST, Enforcement
from dovetail.logs import get_logger
from dovetail_agent.devices.driver import CallRefused, CardLost
from dovetail_agent.devices.health import verdict
from dovetail_agent.devices.library_calls import Caller, Meaning
from dovetail_agent.devices.model import DeviceSample, Inventory, Process, SplitCard
from dovetail_agent.devices.nvidia.events import Events
from dovetail_agent.devices.nvidia.inventory import Found, Part, find
from dovetail_agent.devices.nvidia.partitioning import profiles_of, repartition
from dovetail_agent.devices.nvidia.sample import load_of, processes_of, signs_of
from dovetail_agent.devices.pci import SYS
from dovetail_agent.devices.process_memory import owned, used_by_pod

_MEANINGS: Final = {
    pynvml.NVML_ERROR_GPU_IS_LOST: Meaning.LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: Meaning.LOST,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: Meaning.LOST,
    pynvml.NVML_ERROR_UNINITIALIZED: Meaning.GONE,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Meaning.GONE,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Meaning.GONE,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Meaning.UNLOADED,
}


def nvml_caller() -> Caller:
    """Return a caller for NVIDIA's binding."""
    return Caller(pynvml.NVMLError, meaning=_meaning)


def _meaning(error: Any) -> Meaning:
    return _MEANINGS.get(error.value, Meaning.ABSENT)


# A device without compute work has no samples: that is an answer, not an absence.
_NO_SAMPLES: Final = frozenset({pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND})


class Busyness:
    """Remembers which samples it has seen, by device."""

    def __init__(self, ask: Caller) -> None:
        self._ask = ask
        self._seen: dict[str, int] = {}

    def read(self, part: Part) -> dict[int, float] | None:
        """Return each computing process's highest utilization (0 to 1) since the last call, by PID.

        None if the driver does not report it. Raises `CardLost` and `LibraryGone`.
        """
        if part.info.mig_profile:
            return None
        since = self._seen.get(part.card_uuid, 0)
        samples = self._ask(process_samples, args=(part.card, since))
        if samples is None:
            return None
        self._seen[part.card_uuid] = max([since, *(sample.timeStamp for sample in samples)])
        busy: dict[int, float] = {}
        for sample in samples:
            busy[sample.pid] = max(busy.get(sample.pid, 0.0), min(1.0, sample.smUtil / 100))
        return busy


def process_samples(card: Any, since: int) -> list[Any]:
    """Call the binding, which raises an error where there is no sample."""
    try:
        samples: list[Any] = pynvml.nvmlDeviceGetProcessUtilization(card, since)
    except pynvml.NVMLError as error:
        if error.value in _NO_SAMPLES:
            return []
        raise
    return samples


log = get_logger(__name__)


class NvmlDriver:
    """NVIDIA's devices and MIG devices.

    `proc` is the node's own `/proc`. If it is None, the node's processes are invisible and no pod's use is reported.
    """

    label = "NVML"

    def __init__(self, *, clock: Callable[[], datetime], proc: Path | None, sys: Path = SYS) -> None:
        self._ask = nvml_caller()
        self._events = Events(self._ask, clock=clock)
        self._busyness = Busyness(self._ask)
        self._proc = proc
        self._sys = sys
        self._open = False
        self._parts: tuple[Part, ...] = ()
        self._split: tuple[Part, ...] = ()
        self._lost: set[str] = set()

    @property
    def waiting_for(self) -> str:
        """The call that has not returned yet; empty between calls."""
        return self._ask.waiting_for

    def find(self) -> Inventory:
        """Return the devices and MIG devices. Raises `LibraryGone`."""
        if self._open and self._lost:
            self.close()  # a device that was reset answers to new handles only
        if not self._open:
            self._ask.require(pynvml.nvmlInit)
            self._open = True
        self._keep(find(self._ask, sys=self._sys))
        self._events.subscribe(self._parts)
        return self._described()

    def read(self) -> Mapping[str, DeviceSample]:
        """Sample each device once, by UUID. Raises `LibraryGone`."""
        return {part.info.uuid: self._sample(part) for part in self._parts}

    def hear(self, *, seconds: float) -> bool | None:
        """Wait for an XID or double-bit error event."""
        return self._events.wait(seconds=seconds)

    def reshape(self, card: str, *, profiles: Sequence[str]) -> None:
        """Partition an idle GPU in MIG mode. Raises `LibraryError` with the reason."""
        split = next((part for part in self._split if part.card_uuid == card), None)
        if split is None:
            raise CallRefused("nvmlDeviceGetMigMode", said=f"GPU {card} is not in MIG mode")
        for part in (split, *(part for part in self._parts if part.card_uuid == card)):
            for pid in processes_of(part, ask=self._ask) or ():
                raise CallRefused("nvmlDeviceGetComputeRunningProcesses", said=f"process {pid} uses {part.info.uuid}")
        repartition(split.handle, wanted=profiles, ask=self._ask)

    def close(self) -> None:
        """Shut the library down if it is open."""
        if not self._open:
            return
        self._open = False
        self._events.close()
        self._ask(pynvml.nvmlShutdown)

    def _keep(self, found: Found) -> None:
        """Keep the parts that were found.

        A device that no longer answers stays, because its pods are still there.
        """
        taken = {part.info.index for part in found.parts}
        gone = [part for part in self._parts if part.card_uuid not in found.cards and part.info.index not in taken]
        self._lost = {part.card_uuid for part in gone}
        self._parts = tuple(sorted([*found.parts, *gone], key=lambda part: part.info.index))
        self._split = found.split

    def _described(self) -> Inventory:
        cuda = self._ask(pynvml.nvmlSystemGetCudaDriverVersion)
        return Inventory(
            devices=tuple(part.info for part in self._parts),
            driver_version=self._ask(pynvml.nvmlSystemGetDriverVersion) or "",
            runtime_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
            enforcement=Enforcement(mig=any(part.info.mig_profile for part in self._parts)),
            split=tuple(self._split_card(part) for part in self._split),
        )

    def _split_card(self, part: Part) -> SplitCard:
        try:
            slots = tuple(profile.slot for profile in profiles_of(part.handle, ask=self._ask))
        except CardLost as error:
            log.warning("a card's MIG profiles cannot be read", device=part.card_uuid, problem=str(error))
            slots = ()
        return SplitCard(index=part.info.index, uuid=part.card_uuid, model=part.info.model, slots=slots)

    def _sample(self, part: Part) -> DeviceSample:
        events = DeviceSample(xids=self._events.counts(part.card_uuid), faults=self._events.faults(part.card_uuid))
        if part.card_uuid not in self._lost:
            try:
                return self._read(part, events=events)
            except CardLost as error:
                log.warning("a card is lost", device=part.card_uuid, problem=str(error))
                self._lost.add(part.card_uuid)
        return replace(events, unhealthy_reason=LOST)

    def _read(self, part: Part, *, events: DeviceSample) -> DeviceSample:
        load = load_of(part, ask=self._ask)
        used = processes_of(part, ask=self._ask) if self._proc else None
        processes = None if used is None or self._proc is None else self._owned(part, used=used, proc=self._proc)
        signs = signs_of(part, ask=self._ask)
        return replace(
            load,
            used_by_tenant_mib=None if processes is None else used_by_pod(processes),
            processes=processes,
            ecc_errors=signs.ecc_errors,
            remapped_rows=signs.remapped_rows,
            xids=events.xids,
            faults=events.faults,
            unhealthy_reason=verdict(signs),
        )

    def _owned(self, part: Part, *, used: Mapping[int, int | None], proc: Path) -> tuple[Process, ...]:
        """The processes with their pods and their utilization."""
        busy = self._busyness.read(part) if used else None
        processes = owned(used, proc=proc)
        if busy is None:
            return processes
        return tuple(replace(process, utilization=busy.get(process.pid, 0.0)) for process in processes)

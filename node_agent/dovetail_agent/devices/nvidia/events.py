"""Error events of NVIDIA devices: XIDs and double-bit memory errors, counted by device."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import pynvml

from dovetail.logs import get_logger
from dovetail_agent.devices.driver import CardLost, LibraryError
from dovetail_agent.devices.library_calls import Caller
from dovetail_agent.devices.model import Fault
from dovetail_agent.devices.nvidia.inventory import Part

# XIDs after which a device takes no work until a reset or repair, from NVIDIA's catalogue of XID errors. All others are
# only counted: most are an application's own (13, 31, 43, 45) or were contained (94).
BAD_XIDS: Final = {
    48: "DoubleBitEcc",
    62: "MicrocontrollerHalt",
    64: "RowRemapFailure",
    74: "NvLinkError",
    79: "FellOffTheBus",
    95: "UncontainedEcc",
    119: "GspTimeout",
    120: "GspError",
    140: "UnrecoveredEcc",
    143: "InitFailed",
}


def fault_of(xid: int) -> str:
    """Return why a device with this XID takes no work until repaired; empty if it may go on."""
    return f"Xid{xid}{BAD_XIDS[xid]}" if xid in BAD_XIDS else ""


log = get_logger(__name__)

_WANTED: Final = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
_DOUBLE_BIT_XID: Final = 48
_QUIET: Final = pynvml.NVML_ERROR_TIMEOUT


class Events:
    """Subscribes to the events of all devices.

    Recorded errors stay until this process ends. The module `devices.faults` decides whether they still count.
    """

    def __init__(self, ask: Caller, *, clock: Callable[[], datetime]) -> None:
        self._ask = ask
        self._clock = clock
        self._set: Any = None
        self._counts: dict[str, Counter[int]] = {}
        self._last: dict[str, dict[int, datetime]] = {}

    def counts(self, card_uuid: str) -> Mapping[int, int]:
        """How often each XID came from a device."""
        return dict(self._counts.get(card_uuid, {}))

    def faults(self, card_uuid: str) -> tuple[Fault, ...]:
        """The errors of a device that outlast their moment, each with its last time."""
        return tuple(
            Fault(reason=reason, at=at)
            for xid, at in self._last.get(card_uuid, {}).items()
            if (reason := fault_of(xid))
        )

    def subscribe(self, parts: Iterable[Part]) -> None:
        """Subscribe to the events of these devices, as far as the driver supports them.

        Raises `LibraryGone`.
        """
        self.close()
        self._set = self._ask(pynvml.nvmlEventSetCreate)
        if self._set is None:
            return
        for card in {part.card_uuid: part.card for part in parts}.values():
            try:
                supported = self._ask(pynvml.nvmlDeviceGetSupportedEventTypes, args=(card,)) or 0
                if wanted := supported & _WANTED:
                    self._ask(pynvml.nvmlDeviceRegisterEvents, args=(card, wanted, self._set))
            except CardLost as error:
                log.warning("a card tells of no errors", problem=str(error))

    def wait(self, *, seconds: float) -> bool | None:
        """Wait for one error and count it. False: none came.

        None, at once: no device reports events. Raises `CardLost` and `LibraryGone`.
        """
        if self._set is None:
            return None
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, int(seconds * 1000))
        except pynvml.NVMLError as error:
            if error.value == _QUIET:
                return False
            # A lost device returns this error at once and for ever. Reading the devices shows which one it is.
            self._set = None
            log.warning("the driver tells of no more errors", problem=str(error))
            return None
        self._count(event)
        return True

    def close(self) -> None:
        """Cancel the subscription."""
        events, self._set = self._set, None
        if events is None:
            return
        try:
            self._ask(pynvml.nvmlEventSetFree, args=(events,))
        except LibraryError as error:
            log.debug("the driver keeps an old set of events", problem=str(error))

    def _count(self, event: Any) -> None:
        card_uuid = self._ask(pynvml.nvmlDeviceGetUUID, args=(event.device,)) or ""
        critical = event.eventType == pynvml.nvmlEventTypeXidCriticalError
        xid = int(event.eventData) if critical else _DOUBLE_BIT_XID
        self._counts.setdefault(card_uuid, Counter())[xid] += 1
        self._last.setdefault(card_uuid, {})[xid] = self._clock()
        log.warning("a card tells of an error", device=card_uuid, xid=xid)

"""The one thread that calls a vendor's library: polls devices and keeps the last figures.

Nothing else calls the library, so a call that hangs blocks only this thread. The last figures stay readable, with their
age.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue

from dovetail.logs import get_logger
from dovetail_agent.devices.driver import Driver, LibraryError, LibraryGone
from dovetail_agent.devices.model import DeviceSample, Inventory
from dovetail_agent.processes.host_load import HostLoad, HostMeter
from dovetail_agent.processes.identity import PROC

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the thread read last: samples by UUID, and their time.

    `problem` is why reads fail now.
    """

    inventory: Inventory | None = None
    samples: Mapping[str, DeviceSample] = field(default_factory=dict)
    host: HostLoad = field(default_factory=HostLoad)
    measured_at: datetime | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """Intervals in seconds: samples, inventory.

    `ending` is the longest delay of a stop, and `burst` that of a sample after a device's error.

    All figures of a device are read together: the memory of a device and of its processes belong to one moment.
    Otherwise a growing pod would look like a stranger for a while.
    """

    look: float = 15.0
    inventory: float = 600.0
    ending: float = 1.0
    # Errors come in bursts: one sample serves all of them.
    burst: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    card: str
    profiles: tuple[str, ...]
    result: "Future[str]"


def _no_listener() -> None:
    pass


class Watch:
    """Polls in a thread: call `start`, then read `known`. `stop` ends the thread.

    A thread in a call that hangs ends only with the process.
    """

    def __init__(self, driver: Driver, *, clock: Callable[[], datetime], paces: Paces, proc: Path = PROC) -> None:
        self.known = Known(problem="the devices have not been read yet")
        self.looked = threading.Event()
        self.news: Callable[[], None] = _no_listener
        self.paces = paces
        self._driver = driver
        self._clock = clock
        self._host = HostMeter(proc)
        self._inventory: Inventory | None = None
        self._found_at = 0.0
        self._unloaded = False
        self._loaded_at: datetime | None = None
        self._stopping = threading.Event()
        self._orders: SimpleQueue[_Order] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=driver.label, daemon=True)

    @property
    def label(self) -> str:
        """The common name of the library."""
        return self._driver.label

    @property
    def waiting_for(self) -> str:
        """The library call that has not returned yet; empty between calls."""
        return self._driver.waiting_for

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def reshape(self, card: str, *, profiles: Sequence[str]) -> "Future[str]":
        """Have the thread partition an idle GPU in MIG mode, by UUID.

        The result is why that failed, empty if it did not; `known` has the devices as they are afterwards.
        """
        result: Future[str] = Future()
        self._orders.put(_Order(card=card, profiles=tuple(profiles), result=result))
        return result

    def stop(self, *, seconds: float = 2.0) -> None:
        """Stop the thread, and wait up to `seconds` for its end."""
        self._stopping.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._look()
            self.looked.set()
            self.news()
            self._rest()
            self._carry_out_orders()
        self._close()

    def _carry_out_orders(self) -> None:
        while not self._orders.empty():
            order = self._orders.get_nowait()
            problem = self._reshaped(order)
            # Whatever was changed, only what the driver says from now on counts.
            self._inventory = None
            self._look()
            order.result.set_result(problem or self.known.problem)

    def _reshaped(self, order: "_Order") -> str:
        if self._inventory is None:
            return self.known.problem
        try:
            self._driver.reshape(order.card, profiles=order.profiles)
        except Exception as error:  # noqa: BLE001 - as in `_look`
            log.warning("a GPU was not partitioned", library=self.label, device=order.card, problem=str(error))
            return str(error)
        return ""

    def _look(self) -> None:
        try:
            inventory = self._found()
            samples = self._driver.read()
        except LibraryGone as error:
            self._unloaded |= error.unloaded
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - a thread that ends would be silence for ever
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self.known = Known(inventory=inventory, samples=samples, host=self._host.read(), measured_at=self._clock())

    def _found(self) -> Inventory:
        """Return the inventory, and renew it after `Paces.inventory` seconds.

        Devices can be split, joined and reset meanwhile. Raises `LibraryGone`.
        """
        if self._inventory is not None and time.monotonic() - self._found_at < self.paces.inventory:
            return self._inventory
        inventory = self._driver.find()
        if self._unloaded:
            self._unloaded, self._loaded_at = False, self._clock()
        if self._loaded_at:
            devices = tuple(replace(device, loaded_at=self._loaded_at) for device in inventory.devices)
            inventory = replace(inventory, devices=devices)
        self._inventory, self._found_at = inventory, time.monotonic()
        return inventory

    def _fail(self, problem: str) -> None:
        if self.known.problem != problem:
            log.warning("the devices cannot be read", library=self.label, problem=problem)
        self.known = replace(self.known, problem=problem)
        self._inventory = None
        self._close()

    def _rest(self) -> None:
        """Wait until the next sample, which is due early after a device's error."""
        until = time.monotonic() + self.paces.look
        while not self._stopping.is_set() and self._orders.empty() and (left := until - time.monotonic()) > 0:
            if self._hear(seconds=min(left, self.paces.ending)):
                until = min(until, time.monotonic() + self.paces.burst)

    def _hear(self, *, seconds: float) -> bool:
        try:
            heard = self._driver.hear(seconds=seconds) if self._inventory is not None else None
        except LibraryError as error:
            log.warning("a device's errors cannot be read", library=self.label, problem=str(error))
            heard = None
        if heard is None:
            self._stopping.wait(seconds)
        return bool(heard)

    def _close(self) -> None:
        try:
            self._driver.close()
        except LibraryError as error:
            log.debug("the library did not close well", library=self.label, problem=str(error))

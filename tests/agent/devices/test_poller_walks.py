"""The thread that polls devices, over hours of virtual time, compared with what happened to the driver.

Drivers are unloaded, hang up, break and come back, devices report errors alone and without a pause, inventories change,
and GPUs are partitioned again. What the thread knows after each look is what a plain count of these events says.
"""

import heapq
import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Final, Literal
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail_agent.devices import poller
from dovetail_agent.devices.driver import LibraryError, LibraryGone
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory
from dovetail_agent.devices.poller import Known, Paces, Watch
from tests.agent.builders import NOON

What = Literal["error", "unload", "hang up", "break", "work", "deaf", "split", "reshape"]
PACES: Final = Paces(look=15.0, inventory=600.0, ending=1.0, burst=2.0)
# Of a clock that adds fractions of seconds.
_EPSILON: Final = 1e-6


class Time:
    """Stands for the module `time` and for the event that stops the thread: whoever waits moves the clock."""

    def __init__(self, *, until: float) -> None:
        self.now = 0.0
        self.until = until

    def monotonic(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return self.now >= self.until

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.is_set()

    def clock(self) -> datetime:
        return NOON + timedelta(seconds=self.now)


class World:
    """A driver to which things happen, and what a thread that polls it has to know."""

    label = "Made up"
    waiting_for = ""

    def __init__(self, events: Sequence[tuple[float, What]], *, until: float) -> None:
        self.time = Time(until=until)
        self._coming = [(at, number, what) for number, (at, what) in enumerate(events)]
        heapq.heapify(self._coming)
        self._state: What = "work"
        self._is_deaf = False
        self._instances = 1
        self._is_open = False
        self.watch = Watch(self, clock=self.time.clock, paces=PACES)
        # What has to be known.
        self._was_unloaded = False
        self._loaded_at: datetime | None = None
        self._found_at = 0.0
        self._found: int | None = None
        self._measured_at: datetime | None = None
        self._reads = 0
        self._errors: list[float] = []
        self._looked_at: float | None = None
        self._orders: list[Future[str]] = []
        self._is_ordered = False

    def run(self) -> None:
        """Run the thread's work here, until the time is over."""
        self.watch.news = self._compare
        stopping: object = self.time
        self.watch._stopping = stopping  # type: ignore[assignment] - the clock waits in its place
        with patch.object(poller, "time", self.time):
            self.watch._run()
        assert not self._is_open, "the library stays open"
        assert all(result.done() for result in self._orders), "an order has no answer"

    # --- the driver ---------------------------------------------------------------------------------------------

    def find(self) -> Inventory:
        self._happen()
        self._fail_unless_it_works()
        self._is_open = True
        if self._was_unloaded:
            self._was_unloaded, self._loaded_at = False, self.time.clock()
        self._found_at, self._found = self.time.now, self._instances
        devices = [
            DeviceInfo(index=at, uuid=f"GPU-{at}", vendor="nvidia", model="H100", memory_mib=80)
            for at in range(self._instances)
        ]
        return Inventory(devices=tuple(devices), driver_version="580")

    def read(self) -> Mapping[str, DeviceSample]:
        self._happen()
        self._fail_unless_it_works()
        self._reads += 1
        self._measured_at = self.time.clock()
        return {f"GPU-{at}": DeviceSample(used_mib=self._reads) for at in range(self._found or 0)}

    def hear(self, *, seconds: float) -> bool | None:
        self._happen()
        if self._is_deaf:
            return None
        until = self.time.now + seconds
        while self._coming and self._coming[0][0] <= until:
            self.time.now = max(self.time.now, self._coming[0][0])
            is_heard = self._coming[0][2] == "error" and self._state == "work" and not self._is_deaf
            self._happen(most=1)
            if is_heard:
                self._errors.append(self.time.now)
                return True
            if self._state == "unload":
                raise LibraryError("hear", said="no driver")
        self.time.now = until
        return False

    def reshape(self, card: str, *, profiles: Sequence[str]) -> None:
        self._fail_unless_it_works()
        self._instances = len(profiles)

    def close(self) -> None:
        self._is_open = False

    def _happen(self, *, most: int | None = None) -> None:
        """Let happen what is due."""
        for _ in itertools.count() if most is None else range(most):
            if not self._coming or self._coming[0][0] > self.time.now:
                return
            self._take(heapq.heappop(self._coming)[2])

    def _take(self, what: What) -> None:
        match what:
            case "unload" | "hang up" | "break" | "work":
                self._state = what
            case "deaf":
                self._is_deaf = not self._is_deaf
            case "split":
                self._instances = self._instances % 7 + 1
            case "reshape":
                wanted = self._instances % 7 + 1
                result = self.watch.reshape("GPU-0", profiles=["1g.10gb"] * wanted)
                result.add_done_callback(lambda done: self._reshaped(done, wanted=wanted))
                self._orders.append(result)
                self._is_ordered = True

    def _fail_unless_it_works(self) -> None:
        if self._state in {"unload", "hang up"}:
            self._was_unloaded |= self._state == "unload"
            raise LibraryGone("read", said="gone", unloaded=self._state == "unload")
        if self._state == "break":
            raise ValueError("what nobody thought of")

    # --- what has to be known -----------------------------------------------------------------------------------

    def _compare(self) -> None:
        """After each look."""
        known, now = self.watch.known, self.time.now
        self._compare_times(now)
        assert bool(known.problem) == (self._state != "work" or self._measured_at is None)
        assert known.measured_at == self._measured_at
        assert known.samples == ({} if not self._reads else self._samples(known))
        if known.problem:
            return
        assert now - self._found_at < PACES.inventory, "the devices were not looked for again"
        assert known.inventory is not None
        assert len(known.inventory.devices) == self._found
        assert {each.loaded_at for each in known.inventory.devices} == {self._loaded_at}
        assert known.measured_at == self.time.clock()

    def _samples(self, known: Known) -> dict[str, DeviceSample]:
        assert known.inventory is not None
        return {each.uuid: DeviceSample(used_mib=self._reads) for each in known.inventory.devices}

    def _compare_times(self, now: float) -> None:
        before, self._looked_at = self._looked_at, now
        errors, self._errors = self._errors, []
        # A driver that cannot be heard is waited for, so that a look may be late by as much.
        late = PACES.ending + _EPSILON
        assert not errors or now <= errors[0] + PACES.burst + late, f"errors at {errors} are read at {now}"
        is_ordered, self._is_ordered = self._is_ordered, False
        if before is not None and not is_ordered:
            assert now - before <= PACES.look + late
            assert now - before >= (PACES.burst if errors else PACES.look) - _EPSILON, "one sample serves a burst"

    def _reshaped(self, done: "Future[str]", *, wanted: int) -> None:
        # The next look follows at once.
        self._is_ordered = True
        assert done.result() or not self.watch.known.problem
        if not done.result():
            assert self.watch.known.inventory is not None
            assert len(self.watch.known.inventory.devices) == wanted


KINDS: Final[Sequence[What]] = ["unload", "hang up", "break", "work", "work", "deaf", "split", "reshape"]
SPANS: Final = st.sampled_from([0.0, 0.3, 1.0, 4.0, 14.5, 40.0, 300.0])
SINGLE: Final = st.tuples(SPANS, st.sampled_from(KINDS), st.just(1))
ERRORS: Final = st.tuples(SPANS, st.just("error"), st.sampled_from([1, 1, 3, 60]))


@settings(max_examples=200, deadline=None)
@given(st.lists(SINGLE | ERRORS, max_size=14))
@example([(1.0, "unload", 1), (20.0, "hang up", 1), (20.0, "work", 1)])
@example([(1.0, "error", 60)])
def test_what_is_known_is_what_happened_to_the_driver(steps: list[tuple[float, What, int]]) -> None:
    """An error that comes many times comes twice in each second."""
    events, at = list[tuple[float, What]](), 0.0
    for span, what, times in steps:
        at += span
        for _ in range(times):
            events.append((at, what))
            at += 0.5 if times > 1 else 0.0
    World(events, until=at + 700).run()

"""Where advance reservations and reserves are kept, counted again device by device."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from random import Random

from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.backfill.advance_reservation import Window, placed
from dovetail.queue.backfill.reservation import Lending, Reservation
from dovetail.queue.model.candidates import Leaving
from tests.core.engine.builders import hold_devices, make_ledger
from tests.core.queue.backfill.test_backfill import HOUR
from tests.seeds import seeds

NODES = {"a": 4, "b": 4, "c": 3, "d": 2}
POOLS = (None, None, ["a"], ["a", "b"], ["c", "d"])
TIMES = (-HOUR, 0.0, 0.0, HOUR, 2 * HOUR)
ENDS = (30.0, 60.0, 600.0, HOUR, 2 * HOUR, None)


@dataclass
class Calendar:
    """Nodes on which jobs run whose ends are known, assumed or unknown, and what is to be kept."""

    random: Random
    ledger: Ledger = field(default_factory=lambda: make_ledger(**NODES))
    leaving: list[Leaving] = field(default_factory=list)
    # The devices of each running job.
    held: dict[str, set[str]] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)

    def __post_init__(self) -> None:
        for node, gpus in NODES.items():
            for index in range(gpus):
                if self.random.random() < 0.6:
                    self._run(node, index)
        self.windows = [self._window(number) for number in range(self.random.randint(1, 4))]
        if self.random.random() < 0.7:
            self.windows.append(self._reserve())

    def _run(self, node: str, index: int) -> None:
        key, end = f"job-{node}{index}", self.random.choice(ENDS)
        hold_devices(self.ledger, node, index, key=key)
        self.held[key] = {f"{node}-{index}"}
        if end is not None:
            assumed = self.random.random() < 0.3
            self.leaving.append(Leaving(at_seconds=end, key=key, job=key, assumed=assumed))

    def _window(self, number: int) -> Window:
        start, gpus = self.random.choice(TIMES), self.random.randint(1, 4)
        return Window(
            name=f"w{number}", quota=f"q{number % 2}", at_seconds=start,
            until_seconds=max(start, 0.0) + self.random.choice([HOUR, 2 * HOUR]), until="then", gpus=gpus,
            nodes=self.random.choice(POOLS), gpus_each=self.random.choice([1, gpus]),
        )  # fmt: skip

    def _reserve(self) -> Window:
        claims = frozenset(key for key in self.held if self.random.random() < 0.4)
        lending = Lending(within_seconds=self.random.choice([0.0, 60.0, 600.0]), claims=claims)
        return Window(
            name="", quota="service", at_seconds=0.0, until="", gpus=self.random.randint(1, 6),
            nodes=self.random.choice(POOLS), lending=lending,
        )  # fmt: skip

    def in_order(self) -> Iterator[Window]:
        """Those of pools first, then by their beginning."""
        yield from sorted(self.windows, key=lambda each: (each.nodes is None, each.at_seconds, each.key))

    def gone(self, window: Window) -> set[str]:
        """The jobs that are known to have ended by themselves when it begins, or is to be ready."""
        lending = window.lending
        at = window.at_seconds if lending is None else max(60.0, lending.within_seconds)
        return {each.key for each in self.leaving if each.at_seconds <= at and not each.assumed}

    def lent(self, window: Window) -> set[str]:
        """The jobs that run until others need what is kept."""
        return set() if window.lending is None else set(window.lending.claims) - self.gone(window)

    def free_for(self, window: Window, *, before: Collection[Reservation]) -> set[str]:
        """The devices that are known to be free when it begins, beside what was placed `before`."""
        gone = self.gone(window) | self.lent(window)
        free = {f"{node}-{index}" for node, gpus in NODES.items() for index in range(gpus)}
        free -= {uuid for key, devices in self.held.items() if key not in gone for uuid in devices}
        for other in before:
            if window.at_seconds < other.until_seconds and other.at_seconds < window.until_seconds:
                free -= devices_of(other)
        return {uuid for uuid in free if window.nodes is None or uuid[0] in window.nodes}


def devices_of(reservation: Reservation) -> set[str]:
    return {device.uuid for claim in reservation.claims for device in claim.devices}


def parts_in(devices: Collection[str], *, each: int) -> int:
    """How many parts of `each` GPUs on one node there are."""
    return sum(count // each for count in Counter(uuid[0] for uuid in devices).values())


@seeds(200)
def test_as_much_is_kept_as_is_free_in_time_and_first_where_it_is_lent(seed: int) -> None:
    scene = Calendar(Random(seed))
    content = scene.ledger.content()
    found = placed(scene.windows, ledger=scene.ledger, leaving=scene.leaving)
    assert scene.ledger.content() == content
    of_windows = {each.job.key: each for kept in found.values() for each in kept}
    before: list[Reservation] = []
    for window in scene.in_order():
        free, each = scene.free_for(window, before=before), window.gpus_each
        wanted = window.gpus // each
        kept = of_windows.pop(window.key, None)
        assert (0 if kept is None else len(kept.claims)) == min(wanted, parts_in(free, each=each)), window
        if kept is None:
            continue
        assert kept in found[window.quota]
        assert devices_of(kept) <= free
        assert len(devices_of(kept)) == each * len(kept.claims), "each device is kept once"
        for claim in kept.claims:
            assert [device.uuid[0] for device in claim.devices] == [claim.node] * each
            assert all(device.share_milli == 1000 for device in claim.devices)
        lent = {uuid[0] for key in scene.lent(window) for uuid in scene.held[key]}
        on_lent = sum(claim.node in lent for claim in kept.claims)
        assert on_lent >= min(wanted, parts_in([uuid for uuid in free if uuid[0] in lent], each=each)), window
        assert (kept.at_seconds, kept.until_seconds) == (max(0.0, window.at_seconds), window.until_seconds)
        before.append(kept)
    assert not of_windows

"""A fragmentation term by an appraisal of the free capacity of one ledger."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from dovetail.engine.filter.device_choice import FreeDevices
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.node_table import NOTHING_READ
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import MODE_CODES, NO_MODE, Floats
from dovetail.engine.model.inventory import FOREIGN_LIMIT
from dovetail.engine.model.node_row import NodeRow
from dovetail.engine.score.fragmentation_term import BestFit, CachedTerm, FragmentationTerm
from dovetail.engine.score.priced_rows import PricedRows, device_values, value_of
from dovetail.fragmentation.appraisal import Appraisal, FGDAppraisal
from dovetail.fragmentation.capacity import Columns, Room
from dovetail.fragmentation.ph_terms import PHAppraisal
from dovetail.fragmentation.prices import PHSettings
from dovetail.fragmentation.workload_mix import Mix
from dovetail.gpu.request import WHOLE_MILLI

# Spare rows, so that a new node does not force a rebuild.
_SPARE_ROWS: Final = 64
_LONGEST_LOG: Final = 1 << 20
_NOTHING: Final = Room(
    model="", cpu_milli=0, memory_mib=0, left=(), gpus=0, cpu_capacity_milli=0, memory_capacity_mib=0
)
_CLOSED: Final = (MODE_CODES["Exclusive"], MODE_CODES["TimeShared"])


class CapacityMirror:
    """The ledger's free capacity as columns of the fragmentation mathematics: CPU, memory, milli of each device.

    A device's milli are what is left of its share, or of its memory where that is less. A device has none left if it
    takes no more pods or only time-shared ones, or if its node takes no pods. The columns follow the ledger row by row;
    `generation` counts the rebuilds.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._position = NOTHING_READ
        self.generation = 0
        self._rooms: dict[int, Room] = {}
        self.columns = _blank(rows=0, width=1, models=())

    def follow(self) -> None:
        """Apply what changed in the ledger since the last call."""
        ledger = self._ledger
        if self._position == ledger.changes:
            return
        self._read(sorted(ledger.touched_since(self._position)))

    def over(self, copy: Ledger, *, changed: Iterable[int]) -> "CapacityMirror":
        """The mirror of a copy of the ledger. `changed` are the rows in which the copy may differ.

        Its `generation` is another if it had to be rebuilt.
        """
        other = CapacityMirror(copy)
        other.generation, other.columns, other._rooms = self.generation, self.columns.copy(), dict(self._rooms)
        # The ledger may have got nodes after the copy was made.
        for row in range(copy.size, self._ledger.size):
            other._become(row, room=_NOTHING)
        other._read(sorted(row for row in changed if row < copy.size))
        return other

    def _read(self, rows: list[int]) -> None:
        """Read these rows of the ledger; all others are up to date."""
        ledger = self._ledger
        rooms = self._rooms_of(rows)
        if not self._has_place(rooms):
            self._rebuild(rooms)
            if len(rows) < ledger.size:
                rows = list(range(ledger.size))
                rooms = self._rooms_of(rows)
        for row, room in zip(rows, rooms, strict=True):
            if self._rooms.get(row) != room:
                self._become(row, room=room)
        self._position = ledger.changes

    def has_seen(self, node: str) -> bool:
        """Whether a node's row is up to date; other rows may be behind."""
        return self._position != NOTHING_READ and self._ledger.changed_at(node) <= self._position

    @contextmanager
    def without(self, key: str) -> Iterator[None]:
        """The columns without the claim `key`, inside the `with` block."""
        claim = self._ledger.claim(key)
        row = -1 if claim is None else int(self._ledger.rows([claim.node])[0])
        if row < 0:
            yield
            return
        with_it, without_it = (self._rooms_of([row], without=without)[0] for without in ("", key))
        self._become(row, room=without_it)
        try:
            yield
        finally:
            self._become(row, room=with_it)

    def _become(self, row: int, *, room: Room) -> None:
        self._rooms[row] = room
        self.columns.become(row, room=room)

    def _rooms_of(self, rows: Iterable[int], *, without: str = "") -> list[Room]:
        """What each node has free and in total, if the claim `without` did not exist."""
        ledger = self._ledger
        models, fraction = ledger.model_names(), ledger.limits.guard_fraction
        nodes = (ledger.node_row(ledger.name(row), without=without) for row in rows)
        return [_room(node, models=models, guard_fraction=fraction) for node in nodes]

    def _has_place(self, rooms: Sequence[Room]) -> bool:
        columns = self.columns
        width = columns.left.shape[1]
        return (
            self._ledger.size <= len(columns)
            and columns.changes < _LONGEST_LOG
            and all(room.model in columns.model_names and len(room.left) <= width for room in rooms)
        )

    def _rebuild(self, rooms: Sequence[Room]) -> None:
        size = self._ledger.size
        models = {*self.columns.model_names, *(room.model for room in rooms)}
        width = max([self.columns.left.shape[1], *(len(room.left) for room in rooms)])
        self.columns = _blank(rows=size + max(_SPARE_ROWS, size // 8), width=width, models=tuple(sorted(models)))
        self._rooms.clear()
        self.generation += 1


def _blank(*, rows: int, width: int, models: Sequence[str]) -> Columns:
    zeros = [0] * rows
    return Columns(
        cpu_milli=zeros, memory_mib=zeros, gpus=zeros, models=[""] * rows, width=width, more_models=("", *models)
    )


def _room(node: NodeRow, *, models: Sequence[str], guard_fraction: float) -> Room:
    """What a node has free and in total."""
    model = models[node.model[0]] if node.present[:1] == [True] else ""
    if not node.known or node.blocked or node.node_cordoned:
        return replace(_NOTHING, model=model, left=(0,) * len(node.present))
    usable = [
        present and healthy and not cordoned
        for present, healthy, cordoned in zip(node.present, node.healthy, node.cordoned, strict=True)
    ]
    return Room(
        model=model,
        cpu_milli=max(0, node.cpu_free),
        memory_mib=max(0, node.memory_free),
        left=tuple(
            _left_milli(node, slot=slot, guard_fraction=guard_fraction) if usable[slot] else 0
            for slot in range(len(usable))
        ),
        gpus=sum(usable),
        cpu_capacity_milli=max(0, node.cpu_milli),
        memory_capacity_mib=max(0, node.memory_mib),
    )


def _left_milli(node: NodeRow, *, slot: int, guard_fraction: float) -> int:
    """Milli left of a device: by share or by memory, whichever is less."""
    mode, total, foreign = node.mode[slot], node.total[slot], node.foreign[slot]
    if mode in _CLOSED:
        return 0
    left = node.share_left[slot]
    if mode != NO_MODE or foreign > total * FOREIGN_LIMIT:
        usable = int(total * min(node.guard[slot], guard_fraction))
        free_mib = max(0, usable - node.promised[slot] - foreign)
        if free_mib < usable * left // WHOLE_MILLI:
            left = free_mib * WHOLE_MILLI // max(1, usable)
    return min(WHOLE_MILLI, max(0, left))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """How placements are priced: by PH with these settings, or by FGD without."""

    name: str
    settings: PHSettings | None = None

    def appraise(self, columns: Columns, *, mix: Mix) -> Appraisal:
        """The appraisal of placements on these columns, for this mix."""
        if self.settings is None:
            return FGDAppraisal(columns, mix=mix)
        return PHAppraisal(columns, mix=mix, settings=self.settings)


class PricedTerm:
    """A `FragmentationTerm` over a ledger, for a mix and a policy that stay the same.

    `appraisal` is that of `pricing` for the mirror's columns and `mix`. Call the methods from one thread.
    """

    def __init__(
        self, ledger: Ledger, *, mirror: CapacityMirror, pricing: Pricing, mix: Mix, appraisal: Appraisal
    ) -> None:
        self._ledger = ledger
        self._mirror = mirror
        self._pricing = pricing
        self._mix = mix
        self._appraisal = appraisal
        self._seen_mirror = mirror.generation
        self._plain = BestFit()
        self.generation = 0
        # Over a copy of a ledger: the term of the original, its position when this was made, and the rows in which the
        # two ledgers differed by then.
        self._original: tuple[PricedTerm, int, frozenset[int]] | None = None
        self._of_profiles: dict[str, PricedTerm] = {}

    @property
    def appraisal(self) -> Appraisal:
        """The current appraisal of placements; up to date after `follow`."""
        return self._appraisal

    @property
    def columns(self) -> Columns:
        """The free capacity that the appraisal is of."""
        return self._mirror.columns

    def follow(self) -> None:
        """Apply the changes of the ledger."""
        self._mirror.follow()
        if self._seen_mirror != self._mirror.generation:
            self._seen_mirror = self._mirror.generation
            self._rebuild()
        self._appraisal.refresh()

    def of_profile(self, profile: str) -> FragmentationTerm:
        """The term of requests for MIG instances of a profile: best fit where nothing prices these."""
        return self.priced_profile(profile) or self._plain

    def priced_profile(self, profile: str) -> "PricedTerm | None":
        """The priced term of a profile's instances; None where there is none."""
        seen = self._ledger.of_profile(profile)
        if seen.profile != profile or self._original is None:
            return None
        if profile not in self._of_profiles:
            original, position, changed = self._original
            term = original.priced_profile(profile)
            if term is None:
                return None
            # A node has the same row in the ledger of a profile as in the ledger itself.
            since = original.touched_since(position)
            self._of_profiles[profile] = term.over(seen, changed={*changed, *since, *self._ledger.touched_since(0)})
        return self._of_profiles[profile]

    def touched_since(self, position: int) -> Collection[int]:
        """The rows of the ledger that changed since it was at `position`."""
        return self._ledger.touched_since(position)

    def keep(self, ask: Ask) -> CachedTerm:
        """An empty cache for the term of an ask."""
        return PricedRows(self, ask=ask)

    def alone(self, judged: Judgement, *, key: str) -> Floats:
        """The term of nodes that fit, [n], without the claim `key`."""
        self.follow()
        with self._mirror.without(key):
            self._appraisal.refresh()
            return value_of(self, judged=judged, rows=self._ledger.rows(judged.nodes))

    def device_values(self, free: FreeDevices, *, key: str) -> Sequence[float]:
        """How good each free device of a node is, without the claim `key`; one value for each of `free.slots`."""
        ask = free.ask
        if ask.policy == "Spread" or ask.mode != "Fractional":
            return self._plain.device_values(free, key=key)
        # Only this node matters here. Changes elsewhere are applied later, many nodes at once.
        if not self._mirror.has_seen(free.node):
            self.follow()
        own = int(self._ledger.rows([free.node])[0])
        with self._mirror.without(key):
            self._appraisal.refresh()
            return device_values(self, free=free, row=own)

    def over(self, copy: Ledger, *, changed: set[int]) -> "PricedTerm":
        """The term of a copy of the ledger. `changed` are the rows in which the two may differ by now."""
        self.follow()
        mirror = self._mirror.over(copy, changed=changed)
        if mirror.generation == self._mirror.generation:
            appraisal = self._appraisal.over(mirror.columns)
        else:
            appraisal = self._pricing.appraise(mirror.columns, mix=self._mix)
        term = PricedTerm(copy, mirror=mirror, pricing=self._pricing, mix=self._mix, appraisal=appraisal)
        term._original = self, self._ledger.changes, frozenset(changed)
        return term

    def _rebuild(self) -> None:
        """Appraise the nodes again, whose columns the mirror has replaced."""
        self._use(self._pricing.appraise(self.columns, mix=self._mix))

    def _use(self, appraisal: Appraisal) -> None:
        self._appraisal = appraisal
        self.generation += 1

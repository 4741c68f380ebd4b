"""The ledger: columns over nodes x devices, and the claims on them. The engine's one mutable state.

What is promised is always derived from the claims: after each change of a node its columns are computed anew from the
claims that name it, so that no path of updates can drift. Claims outlive their node's report: a node that vanishes and
returns, with the same devices or others, meets the claims that still stand.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.engine.ledger.node_totals import Sums
from dovetail.engine.ledger.unnamed_devices import stand_ins, withdrawn
from dovetail.engine.ledger.utilization import Loads
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.columns import OF_DEVICES, Bools, Columns, Floats, Ints, Table
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts, Totals
from dovetail.engine.model.settings import DEFAULT_WEIGHTS, Limits, Weights
from dovetail.gpu.models import Model, normalise
from dovetail.gpu.request import WHOLE_MILLI

# Changes that the log remembers; whoever is further behind reads everything anew.
LOG_LENGTH: Final = 100_000
# The position in the log of one who has read nothing yet.
NOTHING_READ: Final = -1


@dataclass(frozen=True, slots=True)
class _Entry:
    claim: Claim
    hold_until: float | None

    @property
    def is_hold(self) -> bool:
        return self.hold_until is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What decides whether there is room: of two that are equal, of one ledger or its copies, the same asks fit."""

    claims: Mapping[str, Claim]
    columns: bytes
    limits: Limits


class Ledger:
    """Who holds what. Reported utilization is smoothed over `smoothing_seconds`; by `weights` its nodes are ranked."""

    def __init__(
        self, *, limits: Limits | None = None, smoothing_seconds: float = 120.0, weights: Weights = DEFAULT_WEIGHTS
    ) -> None:
        self.limits = limits or Limits()
        self.weights = weights
        self._loads = Loads(seconds=smoothing_seconds)
        self._notes: dict[str, str] = {}
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._obstacles: dict[str, str] = {}
        self._devices: dict[str, tuple[DeviceFacts, ...]] = {}
        self._entries: dict[str, _Entry] = {}
        self._on_node: dict[str, set[str]] = {}
        self._models: dict[Model, int] = {}
        self._vendors: dict[str, int] = {}
        self._resources: dict[str, int] = {"": 0}
        self._columns = Table(rows=0, devices=0)
        self._touched: list[int] = []
        self._changed_at: dict[int, int] = {}
        self._forgotten = 0
        self._grow(rows=64, devices=8)

    # --- what is there -----------------------------------------------------------------------------------------

    def set_node(self, facts: NodeFacts) -> None:
        """Take over what the Node object says now."""
        row = self._row(facts.name)
        columns = self._columns
        columns["known"][row] = True
        columns["managed"][row] = facts.managed
        columns["blocked"][row] = bool(facts.obstacle)
        columns["node_cordoned"][row] = facts.cordoned
        columns["cpu_milli"][row] = facts.cpu_milli
        columns["memory_mib"][row] = facts.memory_mib
        columns["pods"][row] = facts.pods
        columns["resource"][row] = self._resources.setdefault(facts.resource, len(self._resources))
        columns["offered"][row] = facts.offered
        self._obstacles[facts.name] = facts.obstacle
        self._recount(facts.name)

    def drop_node(self, name: str) -> None:
        """The Node is gone. Claims on it stay until their pods go."""
        if name in self._rows:
            self._columns["known"][self._rows[name]] = False
            self._touch(self._rows[name])

    def set_devices(
        self, name: str, devices: Iterable[DeviceFacts], *, now: float | None = None, note: str = ""
    ) -> None:
        """Take over what the agent reports now; an empty report means no devices.

        `now` is the time of a monotonic clock by which utilization is smoothed; without it the report counts in full.
        A `note` says why what was measured does not count.
        """
        before = [device.uuid for device in self.devices(name)]
        self._devices[name] = tuple(sorted(devices, key=lambda device: device.index))
        row = self._row(name, devices=len(self._devices[name]))
        columns = self._columns
        for column in OF_DEVICES:
            columns[column][row] = 0
        loads = [device.utilization for device in self._devices[name]]
        others = before != [device.uuid for device in self._devices[name]]
        self._loads.report(row, loads, at=now, anew=others or bool(self.note(name)))
        for slot, device in enumerate(self._devices[name]):
            columns["present"][row, slot] = True
            columns["healthy"][row, slot] = device.healthy
            columns["cordoned"][row, slot] = device.cordoned or device.strangers
            columns["movable"][row, slot] = device.movable
            columns["index"][row, slot] = device.index
            columns["model"][row, slot] = self._model_code(device)
            columns["vendor"][row, slot] = self._vendors.setdefault(device.vendor, len(self._vendors))
            columns["total"][row, slot] = max(0, device.memory_mib - device.reserved_mib)
            columns["foreign"][row, slot] = device.foreign_mib
            columns["training_limit"][row, slot] = _or_else(device.training_limit, self.limits.training_per_device)
            columns["inference_limit"][row, slot] = _or_else(device.inference_limit, self.limits.inference_per_device)
        self._note(name, note)
        self._recount(name)

    def distrust(self, name: str, *, note: str) -> None:
        """What was measured on the node does not count until it is reported anew; `note` says why."""
        if name in self._rows:
            self._note(name, note)
            self._recount(name)

    def settle_loads(self, now: float) -> None:
        """Let the smoothed utilization follow the time; to be called every few seconds."""
        columns = self._columns
        for row in self._loads.settle(now):
            if not columns["unmeasured"][row]:
                columns["utilization"][row] = self._loads.shown[row]
                self._touch(row)

    # --- what is promised --------------------------------------------------------------------------------------

    def commit(self, claim: Claim, *, hold_until: float | None = None) -> None:
        """Promise what `claim` says; it never refuses, so `check` first. Replaces a claim of the same key.

        With `hold_until` the promise is a hold, dropped by `expire_holds` once the clock passes that time. What is
        promised already touches nothing: a bound pod's every change of status comes here.
        """
        if self._enter(_Entry(claim, hold_until)):
            self._recount(claim.node)

    def commit_all(self, claims: Iterable[Claim]) -> None:
        """Promise what all of `claims` say, as `commit` does for one, and sum up each of their nodes once."""
        for node in dict.fromkeys(claim.node for claim in claims if self._enter(_Entry(claim, None))):
            self._recount(node)

    def release(self, key: str) -> Claim | None:
        """Take back what is promised under `key`; None when there is nothing."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        node = entry.claim.node
        self._on_node[node].discard(key)
        if not self._on_node[node]:
            del self._on_node[node]
        self._recount(node)
        return entry.claim

    @contextmanager
    def aside(self, keys: Iterable[str]) -> Iterator[None]:
        """The ledger as if nothing were promised under these keys, for as long as this lasts."""
        entries = [self._entries[key] for key in keys if key in self._entries]
        for entry in entries:
            self.release(entry.claim.key)
        try:
            yield
        finally:
            for entry in entries:
                self.commit(entry.claim, hold_until=entry.hold_until)

    def claim(self, key: str) -> Claim | None:
        """What is promised under `key`."""
        entry = self._entries.get(key)
        return entry.claim if entry else None

    def is_hold(self, key: str) -> bool:
        """Whether `key` is promised for a time only."""
        entry = self._entries.get(key)
        return entry is not None and entry.hold_until is not None

    def expire_holds(self, now: float) -> list[Claim]:
        """Drop the holds whose time has come, and return them."""
        due = [key for key, entry in self._entries.items() if entry.hold_until is not None and entry.hold_until <= now]
        return [claim for key in due if (claim := self.release(key)) is not None]

    # --- reading -----------------------------------------------------------------------------------------------

    def nodes(self) -> list[str]:
        """Names of the nodes that exist now, in the order in which they came."""
        known = self._columns["known"]
        return [name for name in self._names if known[self._rows[name]]]

    def name(self, row: int) -> str:
        """The node that has this row; a node keeps its row for ever."""
        return self._names[row]

    def rows(self, nodes: Sequence[str]) -> npt.NDArray[np.intp]:
        """Rows of nodes, -1 for names that were never seen."""
        known = self._rows
        return np.fromiter(map(known.get, nodes, repeat(-1)), dtype=np.intp, count=len(nodes))

    @property
    def size(self) -> int:
        """Number of rows in use."""
        return len(self._names)

    @property
    def changes(self) -> int:
        """Number of changes so far: the position in the log that `touched_since` takes."""
        return self._forgotten + len(self._touched)

    def changed_at(self, name: str) -> int:
        """What `changes` was right after the last change of a node; 0 for one that was never seen."""
        return self._changed_at.get(self._rows.get(name, -1), 0)

    def touched_since(self, position: int) -> Collection[int]:
        """Rows that changed after `changes` was `position`; all for `NOTHING_READ` and for one too far behind."""
        if position < self._forgotten:
            return range(len(self._names))
        return set(self._touched[position - self._forgotten :])

    def devices(self, name: str) -> tuple[DeviceFacts, ...]:
        """The devices of a node by index, as last reported."""
        return self._devices.get(name, ())

    def claims(self) -> list[Claim]:
        """Every claim, holds among them."""
        return [entry.claim for entry in self._entries.values()]

    def claims_on(self, name: str) -> list[Claim]:
        """The claims on one node."""
        return [self._entries[key].claim for key in self._on_node.get(name, ())]

    def note(self, name: str) -> str:
        """Why what was measured on the node does not count; empty when it does."""
        return self._notes.get(name, "")

    def obstacle(self, name: str) -> str:
        """Why the node takes no pods at all; empty when it does."""
        row = self._rows.get(name)
        if row is None or not self._columns["known"][row]:
            return "node is not known yet"
        return self._obstacles[name]

    def content(self) -> Content:
        """All that there is now and that is promised. How busy devices are ranks them and decides on no room."""
        return Content(
            claims={key: entry.claim for key, entry in self._entries.items()},
            columns=self._columns.digest(without=("utilization",)),
            limits=self.limits,
        )

    def columns(self, nodes: Sequence[str], *, without: str = "") -> Columns:
        """A copy of the columns of `nodes`, as if the claim `without` did not stand. Unknown names get empty rows."""
        copied = self._columns.at(self.rows(nodes))
        own = self.claim(without)
        if own is not None and own.node in nodes:
            at = nodes.index(own.node)
            for name, value in self._promised(own.node, without=without).items():
                copied[name][at] = value
        return Columns(**copied)

    def model_codes(self, wanted: Sequence[Model]) -> Ints:
        """Codes of the models that a request for `wanted` takes; the codes stand in the column `model`."""
        codes = [code for model, code in self._models.items() if any(want.admits(model) for want in wanted)]
        return np.array(codes, dtype=np.int64)

    def model_names(self) -> list[str]:
        """The models by their code in the column `model`, in words that `normalise` reads."""
        return [f"{model.family} {model.memory_gb}GB" for model in self._models]

    def vendor_code(self, vendor: str) -> int:
        """Code of a vendor in the column `vendor`; -1 when no device has it."""
        return self._vendors.get(vendor, -1)

    def resource_code(self, resource: str) -> int:
        """Code of a vendor's resource in the column `resource`; -1 when no node has it, 0 for none."""
        return self._resources.get(resource, -1)

    @property
    def largest_mib(self) -> int:
        """Memory of the largest device beside what its driver keeps; 0 without devices."""
        return int(self._columns["total"].max())

    def serves(self, resource: str, *, nodes: Sequence[str] | None = None) -> bool:
        """Whether one of `nodes` (all by default) has devices to be asked by a vendor's `resource`; empty: managed
        ones."""
        columns = self._columns
        kind = columns["resource"] == self.resource_code(resource) if resource else columns["managed"]
        there = columns["known"] & kind & columns["present"].any(axis=1)
        if nodes is None:
            return bool(there.any())
        rows = self.rows(nodes)
        return bool(there[rows[rows >= 0]].any())

    def totals(self) -> Totals:
        """Sums over the nodes that exist and their healthy devices."""
        columns = self._columns
        counted = columns["present"] & columns["healthy"] & columns["known"][:, np.newaxis]
        devices = int(counted.sum())
        promised = WHOLE_MILLI * devices - int(columns["share_left"][counted].sum())
        return Totals(
            devices=devices,
            milli=WHOLE_MILLI * devices,
            promised_milli=promised,
            memory_mib=int(columns["total"][counted].sum()),
            promised_mib=int(columns["promised"][counted].sum()),
            holds=sum(entry.hold_until is not None for entry in self._entries.values()),
        )

    def copy(self) -> "Ledger":
        """An independent ledger with the same content."""
        other = Ledger(limits=self.limits, weights=self.weights)
        other._loads = self._loads.copy()
        other._notes = dict(self._notes)
        other._rows = dict(self._rows)
        other._names = list(self._names)
        other._obstacles = dict(self._obstacles)
        other._devices = dict(self._devices)
        other._entries = dict(self._entries)
        other._on_node = {node: set(keys) for node, keys in self._on_node.items()}
        other._models = dict(self._models)
        other._vendors = dict(self._vendors)
        other._resources = dict(self._resources)
        other._columns = self._columns.copy()
        return other

    # --- inside ------------------------------------------------------------------------------------------------

    def _enter(self, entry: _Entry) -> bool:
        """Take an entry over; whether its node has to be summed up anew."""
        claim, known = entry.claim, self._entries.get(entry.claim.key)
        if known is not None and known.claim == claim and known.is_hold == entry.is_hold:
            self._entries[claim.key] = entry
            return False
        if known is not None and known.claim.node != claim.node:
            self.release(claim.key)
        self._entries[claim.key] = entry
        self._on_node.setdefault(claim.node, set()).add(claim.key)
        return True

    def _touch(self, row: int) -> None:
        self._touched.append(row)
        self._changed_at[row] = self.changes
        if len(self._touched) > LOG_LENGTH:
            self._forgotten += len(self._touched)
            self._touched.clear()

    def _note(self, name: str, note: str) -> None:
        row = self._rows[name]
        self._columns["unmeasured"][row] = bool(note)
        if note:
            self._notes[name] = note
            self._columns["foreign"][row] = 0
            self._columns["movable"][row] = False
        else:
            self._notes.pop(name, None)

    def _recount(self, name: str) -> None:
        row = self._rows.get(name)
        if row is None:
            return
        for column, value in self._promised(name).items():
            self._columns[column][row] = value
        self._touch(row)

    def _promised(self, name: str, *, without: str = "") -> dict[str, list[int] | list[float] | Floats | int]:
        """The columns that follow from the claims on a node."""
        row, columns = self._rows[name], self._columns
        slots = {device.uuid: slot for slot, device in enumerate(self._devices.get(name, ()))}
        sums = Sums(columns["movable"][row].tolist())
        entries = [self._entries[key] for key in self._on_node.get(name, ()) if key != without]
        for entry in entries:
            fraction = self._fraction(entry.claim)
            sums.add(entry.claim, slots=slots, fraction=fraction, is_hold=entry.is_hold)
        for entry in entries:
            if entry.claim.unnamed:
                taken = self._unnamed_slots(row, taken=sums.taken, count=entry.claim.unnamed)
                memory = columns["total"][row, taken]
                memory_of = dict(zip(taken.tolist(), memory.tolist(), strict=True))
                sums.add_unnamed(memory_mib=memory_of, is_hold=entry.is_hold)
        if columns["resource"][row]:
            by_vendor = sum(len(entry.claim.devices) + entry.claim.unnamed for entry in entries if entry.claim.resource)
            sums.withdraw(self._withdrawn_slots(row, taken=sums.taken, promised=by_vendor))
        measured = name not in self._notes
        return {
            "cpu_free": int(columns["cpu_milli"][row]) - sum(entry.claim.cpu_milli for entry in entries),
            "memory_free": int(columns["memory_mib"][row]) - sum(entry.claim.memory_mib for entry in entries),
            "pods_free": int(columns["pods"][row]) - len(entries),
            "share_left": [WHOLE_MILLI - share for share in sums.share],
            "promised": sums.promised,
            "aside": sums.aside,
            "tenants": sums.tenants,
            "mode": sums.mode,
            "held": sums.held,
            "guard": sums.guard,
            "training": sums.of_workload["Training"],
            "inference": sums.of_workload["Inference"],
            "utilization": self._loads.shown[row]
            if measured
            else [min(1.0, max(0.0, share / WHOLE_MILLI)) for share in sums.share],
        }

    def _unnamed_slots(self, row: int, *, taken: Bools, count: int) -> Ints:
        columns = self._columns
        present = columns["present"][row]
        good = present & columns["healthy"][row] & ~columns["cordoned"][row]
        return stand_ins(present=present, good=good, taken=taken, count=count)

    def _withdrawn_slots(self, row: int, *, taken: Bools, promised: int) -> Ints:
        columns = self._columns
        good = columns["present"][row] & columns["healthy"][row]
        return withdrawn(good=good, taken=taken, offered=int(columns["offered"][row]), promised=promised)

    def _fraction(self, claim: Claim) -> float:
        if claim.mode == "Exclusive":
            return 1.0
        return self.limits.guard_fraction if claim.guard_fraction is None else claim.guard_fraction

    def _model_code(self, device: DeviceFacts) -> int:
        # The name may leave the memory out; what the card has tells a V100 of 32 GB from one of 16.
        model = normalise(device.model)
        if model.memory_gb is None:
            model = replace(model, memory_gb=round(device.memory_mib / 1024))
        return self._models.setdefault(model, len(self._models))

    def _row(self, name: str, *, devices: int = 0) -> int:
        row = self._rows.get(name)
        height, width = self._columns["present"].shape
        if row is None:
            row = len(self._names)
            self._rows[name] = row
            self._names.append(name)
        if row >= height or devices > width:
            self._grow(rows=height if row < height else 2 * height, devices=max(width, devices))
        return row

    def _grow(self, *, rows: int, devices: int) -> None:
        self._loads.grow(rows=rows, devices=devices)
        self._columns = self._columns.grown(rows=rows, devices=devices)


def _or_else(limit: int | None, otherwise: int) -> int:
    return otherwise if limit is None else limit

"""The ledger's rows: nodes and devices as they were reported, in columns. Knows no claims.

A node keeps its row for ever, so that claims outlive its report.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.api.reasons.refusals import NODE_UNKNOWN
from dovetail.engine.ledger.node_labels import NodeLabels
from dovetail.engine.model.columns import OF_DEVICES, Bools, Ints, Table, count_devices
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.engine.model.settings import Limits
from dovetail.gpu.models import Model, model_of

_FIRST_ROWS = 64
_FIRST_DEVICES = 8


Floats = npt.NDArray[np.float64]

# The visible value moves in steps: finer steps would invalidate the cached judgements of a node for no gain.
UTILIZATION_STEP: Final = 0.05
_CLOSE: Final = 0.01


# Changes that the log remembers. A reader that is further behind reads all rows.
LOG_LENGTH: Final = 32_768
# The position of a reader that has read nothing yet.
NOTHING_READ: Final = -1
# Fewer names than this are looked up each time.
MANY_NODES: Final = 256


class ChangeLog:
    """A log of row numbers. A position is the number of changes at some time."""

    def __init__(self, *, length: int = LOG_LENGTH) -> None:
        self._length = length
        self._touched = array("q")
        self._changed_at: dict[int, int] = {}
        self._forgotten = 0

    @property
    def position(self) -> int:
        """The number of changes so far."""
        return self._forgotten + len(self._touched)

    def touch(self, row: int) -> None:
        """Record a change of a row."""
        self._touched.append(row)
        self._changed_at[row] = self.position
        if len(self._touched) > self._length:
            self._forgotten += len(self._touched)
            del self._touched[:]

    def changed_at(self, row: int) -> int:
        """The position right after the row's last change; 0 for a row without changes."""
        return self._changed_at.get(row, 0)

    def since(self, position: int) -> Collection[int] | None:
        """The rows that changed after `position`; None if the log does not reach back so far."""
        if position < self._forgotten:
            return None
        return set(self._touched[position - self._forgotten :])


def stand_ins(*, present: Bools, good: Bools, taken: Bools, count: int) -> Ints:
    """The numbers of up to `count` slots that are not `taken`, [n], good ones first: kubelet offers no others.

    Kubelet picks the devices, and until the node's report names them only the number of free ones matters: any slots
    stand in for them, so that whatever counts slots stays correct.

    `present`, `good` and `taken` are masks of the slots, [d].
    """
    free = np.flatnonzero(present & ~taken)
    return np.concatenate([free[good[free]], free[~good[free]]])[:count]


def withdrawn(*, good: Bools, taken: Bools, offered: int, promised: int) -> Ints:
    """The numbers of free good slots beyond what kubelet still offers, [n]. `good` and `taken` are masks, [d].

    Kubelet knows of a fault that the report does not show.
    kube-scheduler counts in the same way: what the node offers minus everything that is promised there.
    """
    free = np.flatnonzero(good & ~taken)
    return free[max(0, offered - promised) :]


class SmoothedUtilization:
    """Utilization of devices by row and slot, 0 to 1: a short spike changes little, a lasting load does.

    Agents publish on a change, so a report holds until the next one. Between two reports the smoothed value approaches
    the last one: `s(t) = u + (s - u) * exp(-t / T)`, where `seconds` is T: after it, 63 % of a change are visible. A
    new report has no weight at the moment of its arrival. Times are seconds of one monotonic clock.
    """

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        self.now: Floats = np.zeros((0, 0))
        self.shown: Floats = np.zeros((0, 0))
        self._smooth: Floats = np.zeros((0, 0))
        self._at: Floats = np.zeros(0)

    def grow(self, *, rows: int, devices: int) -> None:
        """Extend the arrays and keep their content."""
        height, width = self.now.shape
        more = ((0, rows - height), (0, devices - width))
        self.now, self.shown, self._smooth = (np.pad(each, more) for each in (self.now, self.shown, self._smooth))
        self._at = np.pad(self._at, (0, rows - height))

    def report(
        self, row: int, *, values: Sequence[float], at: float | None, restart: bool, tenants: npt.NDArray[np.int64]
    ) -> None:
        """Apply the report of a row. With `restart`, or without a time, it counts in full at once.

        So does a lower load of a device without `tenants`, [d]: what pods that have left used says nothing.
        """
        reported = np.zeros(self.now.shape[1])
        reported[: len(values)] = values
        self._smooth[row] = reported if restart or at is None else self._smoothed(row, at=at)
        self._smooth[row] = np.where(tenants > 0, self._smooth[row], np.minimum(self._smooth[row], reported))
        self._at[row] = 0.0 if at is None else at
        self.now[row] = reported
        self.shown[row] = self._smooth[row]

    def settle(self, at: float) -> list[int]:
        """Move the visible values to the time `at`; the rows where they changed."""
        rows = np.flatnonzero((self.now != self.shown).any(axis=1))
        smooth = self._smoothed(rows, at=at)
        smooth = np.where(np.abs(smooth - self.now[rows]) < _CLOSE, self.now[rows], smooth)
        arrived = smooth == self.now[rows]
        moved = (np.abs(smooth - self.shown[rows]) >= UTILIZATION_STEP) | (arrived & (smooth != self.shown[rows]))
        self.shown[rows] = np.where(moved, smooth, self.shown[rows])
        changed: list[int] = rows[moved.any(axis=1)].tolist()
        return changed

    def counted(self, row: int, *, tenants: npt.NDArray[np.int64]) -> Floats:
        """The visible utilization of each device of a row, [d], which has this number of `tenants`, [d].

        It is at most the last report of a device that its tenants have left since.
        """
        return np.where(tenants > 0, self.shown[row], np.minimum(self.shown[row], self.now[row]))

    def copy(self) -> "SmoothedUtilization":
        """An independent copy."""
        other: SmoothedUtilization = copy(self)
        other.now, other.shown, other._smooth = self.now.copy(), self.shown.copy(), self._smooth.copy()
        other._at = self._at.copy()
        return other

    def _smoothed(self, rows: int | npt.NDArray[np.intp], *, at: float) -> Floats:
        elapsed = np.maximum(0.0, at - self._at[rows])
        weight = np.exp(-elapsed / self.seconds)[..., np.newaxis]
        return np.asarray(self.now[rows] + (self._smooth[rows] - self.now[rows]) * weight, dtype=np.float64)


class NodeTable:
    """Nodes and devices by row and slot. `columns` also has the columns that the ledger derives from claims."""

    def __init__(self, *, limits: Limits, smoothing_seconds: float) -> None:
        self._limits = limits
        self.utilization = SmoothedUtilization(seconds=smoothing_seconds)
        self._cpu_load = SmoothedUtilization(seconds=smoothing_seconds)
        self._notes: dict[str, str] = {}
        self._rows: dict[str, int] = {}
        self.names: list[str] = []
        self._facts: dict[str, NodeFacts] = {}
        self._devices: dict[str, tuple[DeviceFacts, ...]] = {}
        # MIG instances are in no column: the ledgers of their profiles have them.
        self._instances: dict[str, tuple[DeviceFacts, ...]] = {}
        self._models: dict[Model, int] = {}
        self._vendors: dict[str, int] = {}
        self._resources: dict[str, int] = {"": 0}
        self.labels = NodeLabels()
        # The last question about many nodes, and its answer.
        self._last_rows: tuple[list[str], npt.NDArray[np.intp]] = ([], np.zeros(0, dtype=np.intp))
        self.columns = Table(rows=0, devices=0)
        self._grow(rows=_FIRST_ROWS, devices=_FIRST_DEVICES)

    # --- Writing -----------------------------------------------------------------------------------------------

    def set_node(self, facts: NodeFacts) -> None:
        """Apply what the Node object says."""
        row = self._row_for(facts.name)
        columns = self.columns
        columns["known"][row] = True
        columns["managed"][row] = facts.managed
        columns["blocked"][row] = bool(facts.obstacle)
        columns["node_cordoned"][row] = facts.cordoned
        columns["cpu_milli"][row] = facts.cpu_milli
        columns["memory_mib"][row] = facts.memory_mib
        columns["pods"][row] = facts.pods
        columns["resource"][row] = self._resources.setdefault(facts.resource, len(self._resources))
        columns["offered"][row] = facts.offered
        self._facts[facts.name] = facts
        self.labels.set(row, name=facts.name, labels=facts.labels)

    def drop_node(self, row: int) -> None:
        """Mark a node as deleted."""
        self.columns["known"][row] = False

    def set_devices(
        self, name: str, *, devices: Iterable[DeviceFacts], cpu_load: float, now: float | None, note: str
    ) -> None:
        """Apply what the agent reports; `Ledger.set_devices` describes the arguments."""
        before = [device.uuid for device in self._devices[name]] if name in self._devices else None
        self._devices[name] = tuple(sorted(devices, key=lambda device: device.index))
        reported = self._devices[name]
        row = self._row_for(name, devices=len(reported))
        tenants = self.columns["tenants"][row].copy()
        for column in OF_DEVICES:
            self.columns[column][row] = 0
        others = before != [device.uuid for device in reported]
        restart = others or bool(self.unmeasured_reason(name))
        loads = [device.utilization for device in reported]
        self.utilization.report(row, values=loads, at=now, restart=restart, tenants=tenants)
        self._cpu_load.report(row, values=[cpu_load], at=now, restart=restart, tenants=np.ones(1, dtype=np.int64))
        for slot, device in enumerate(reported):
            self._set_device(row, slot=slot, device=device)
        self.set_note(name, note=note)

    def _set_device(self, row: int, *, slot: int, device: DeviceFacts) -> None:
        columns = self.columns
        columns["present"][row, slot] = True
        columns["healthy"][row, slot] = device.healthy
        columns["cordoned"][row, slot] = device.cordoned
        columns["movable"][row, slot] = device.movable
        columns["index"][row, slot] = device.index
        columns["model"][row, slot] = self._model_code(device)
        columns["vendor"][row, slot] = self._vendors.setdefault(device.vendor, len(self._vendors))
        columns["total"][row, slot] = max(0, device.memory_mib - device.reserved_mib)
        columns["foreign"][row, slot] = device.foreign_mib
        self._set_tenant_limits(row, slot=slot, device=device)

    def _set_tenant_limits(self, row: int, *, slot: int, device: DeviceFacts) -> None:
        columns, limits = self.columns, self._limits
        columns["training_limit"][row, slot] = _or_default(device.training_limit, default=limits.training_per_device)
        columns["inference_limit"][row, slot] = _or_default(device.inference_limit, default=limits.inference_per_device)

    def set_limits(self, limits: Limits) -> list[str]:
        """Apply other tenant limits to devices that have none of their own. Returns the names of the nodes."""
        self._limits = limits
        for name, devices in self._devices.items():
            for slot, device in enumerate(devices):
                self._set_tenant_limits(self._rows[name], slot=slot, device=device)
        return list(self._devices)

    def set_note(self, name: str, *, note: str) -> None:
        """Set or clear why measurements of a known node do not count. While set, no memory there is foreign."""
        row = self._rows[name]
        self.columns["unmeasured"][row] = bool(note)
        self.columns["cpu_load"][row] = 0.0 if note else self._cpu_load.shown[row, 0]
        if note:
            self._notes[name] = note
            self.columns["foreign"][row] = 0
            self.columns["movable"][row] = False
        else:
            self._notes.pop(name, None)

    def settle_utilization(self, now: float) -> list[int]:
        """Move the smoothed utilization of devices and CPUs to the time `now`; the rows where it changed."""
        columns, moved = self.columns, {*self.utilization.settle(now), *self._cpu_load.settle(now)}
        changed = [row for row in sorted(moved) if not columns["unmeasured"][row]]
        for row in changed:
            columns["utilization"][row] = self.utilization.counted(row, tenants=columns["tenants"][row])
            columns["cpu_load"][row] = self._cpu_load.shown[row, 0]
        return changed

    # --- Reading -----------------------------------------------------------------------------------------------

    def row(self, name: str) -> int | None:
        """The row of a node; None for an unknown name."""
        return self._rows.get(name)

    def rows(self, names: Sequence[str]) -> npt.NDArray[np.intp]:
        """The rows of nodes, [names]; -1 for unknown names. Only to read.

        Most questions about many nodes are about the same list, and comparing lists is cheaper than a lookup for each
        name. A list with unknown names is looked up each time, because they may be known by now.
        """
        if len(names) < MANY_NODES:
            return self._rows_of(names)
        asked, rows = self._last_rows
        if asked != names or (rows < 0).any():
            rows = self._rows_of(names)
            self._last_rows = (list(names), rows)
        return rows

    def _rows_of(self, names: Sequence[str]) -> npt.NDArray[np.intp]:
        return np.fromiter(map(self._rows.get, names, repeat(-1)), dtype=np.intp, count=len(names))

    def devices(self, name: str) -> tuple[DeviceFacts, ...]:
        """The devices of a node by index, as last reported."""
        return self._devices.get(name, ())

    def facts(self, name: str) -> NodeFacts | None:
        """What the Node object said last; None for a node that was only reported."""
        return self._facts.get(name)

    def set_instances(self, name: str, *, instances: tuple[DeviceFacts, ...]) -> None:
        """Store the MIG instances of a node."""
        if instances:
            self._instances[name] = instances
        else:
            self._instances.pop(name, None)

    def instances(self, name: str) -> tuple[DeviceFacts, ...]:
        """The MIG instances of a node by index, as last reported."""
        return self._instances.get(name, ())

    @property
    def partitioned(self) -> list[str]:
        """The nodes with MIG instances."""
        return list(self._instances)

    def unmeasured_reason(self, name: str) -> str:
        """Why measurements of the node do not count; empty when they do."""
        return self._notes.get(name, "")

    def obstacle(self, name: str) -> str:
        """Why the node takes no pods; empty when it does."""
        row = self._rows.get(name)
        if row is None or not self.columns["known"][row]:
            return NODE_UNKNOWN().message
        return self._facts[name].obstacle

    def model_codes(self, admits: Callable[[Model], bool]) -> Ints:
        """Codes of the models for which `admits` is true, [codes]."""
        return np.array([code for model, code in self._models.items() if admits(model)], dtype=np.int64)

    def nominal_gb(self, code: int) -> int:
        """The nominal size of the model with this code, in GB."""
        return list(self._models)[code].memory_gb or 0

    def models(self, codes: Iterable[int]) -> frozenset[Model]:
        """The models with these codes."""
        known = list(self._models)
        return frozenset(known[code] for code in codes)

    def model_names(self) -> list[str]:
        """The models by code, in a form that `normalise` reads."""
        return [f"{model.family} {model.memory_gb}GB" for model in self._models]

    def vendor_code(self, vendor: str) -> int:
        """The code of a vendor; -1 when no device has it."""
        return self._vendors.get(vendor, -1)

    def resource_code(self, resource: str) -> int:
        """The code of a device plugin's resource; -1 when no node has it, 0 for none."""
        return self._resources.get(resource, -1)

    def devices_with(self, share_milli: int, *, rows: npt.NDArray[np.intp]) -> Ints:
        """How many devices of each of `rows` [n] have that share left, [n]; 0 for row -1."""
        enough = self.columns["present"][rows] & (self.columns["share_left"][rows] >= share_milli)
        return np.where(rows < 0, 0, count_devices(enough))

    def unnamed_slots(self, row: int, *, taken: Bools, count: int) -> Ints:
        """Slots that stand in for devices that kubelet picks and no report names yet: slot numbers, [n], n <= `count`.

        `taken` [d] marks the slots in use.
        """
        present, good = self._present_and_good(row)
        return stand_ins(present=present, good=good & ~self.columns["cordoned"][row], taken=taken, count=count)

    def withdrawn_slots(self, row: int, *, taken: Bools, promised: int) -> Ints:
        """Slots that kubelet does not offer, though the report shows them healthy: slot numbers, [n].

        `taken` [d] marks the slots in use.
        """
        _, good = self._present_and_good(row)
        return withdrawn(good=good, taken=taken, offered=int(self.columns["offered"][row]), promised=promised)

    def copy(self) -> "NodeTable":
        """An independent copy."""
        other: NodeTable = copy(self)
        other.utilization = self.utilization.copy()
        other._cpu_load = self._cpu_load.copy()
        other._notes = dict(self._notes)
        other._rows = dict(self._rows)
        other.names = list(self.names)
        other._facts = dict(self._facts)
        other._devices = dict(self._devices)
        other._instances = dict(self._instances)
        other._models = dict(self._models)
        other._vendors = dict(self._vendors)
        other._resources = dict(self._resources)
        other.labels = self.labels.copy()
        other.columns = self.columns.copy()
        return other

    def _present_and_good(self, row: int) -> tuple[Bools, Bools]:
        present = self.columns["present"][row]
        return present, present & self.columns["healthy"][row]

    def _model_code(self, device: DeviceFacts) -> int:
        # The reported name may lack the memory size; the total tells a V100 with 32 GB from one with 16 GB.
        model = model_of(device.model, memory_mib=device.memory_mib, specs=self._limits.memory_specs)
        return self._models.setdefault(model, len(self._models))

    def _row_for(self, name: str, *, devices: int = 0) -> int:
        row = self._rows.get(name)
        height, width = self.columns["present"].shape
        if row is None:
            row = len(self.names)
            self._rows[name] = row
            self.names.append(name)
        if row >= height or devices > width:
            self._grow(rows=height if row < height else 2 * height, devices=max(width, devices))
        return row

    def _grow(self, *, rows: int, devices: int) -> None:
        self.utilization.grow(rows=rows, devices=devices)
        self._cpu_load.grow(rows=rows, devices=1)
        self.columns = self.columns.grown(rows=rows, devices=devices)


def _or_default(limit: int | None, *, default: int) -> int:
    return default if limit is None else limit

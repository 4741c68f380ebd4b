"""The free capacity of all nodes in columns: the one mutable state of this package.

Rows are nodes in their static order, which breaks ties. Every change appends its node to a log, so that a reader that
derives something per node recomputes only the nodes touched since its last read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape
from dovetail.gpu.models import normalise

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


State: TypeAlias = tuple[int, ...]


class Kinds:
    """A number for each node, below the number of nodes, that nodes share which are equal to placement.

    Most room is on few kinds of nodes. Free numbers are reused.
    """

    def __init__(self, states: Iterable[State]) -> None:
        self._states = list(states)
        self._numbers: dict[State, int] = {}
        self._members = [0] * len(self._states)
        self._unused = list(range(len(self._states)))
        self.of: npt.NDArray[np.int64] = np.zeros(len(self._states), dtype=np.int64)
        for node, state in enumerate(self._states):
            self._enter(node, state=state)

    def move(self, node: int, *, state: State) -> None:
        """Change the state of the node."""
        before = self._states[node]
        number = self._numbers[before]
        self._members[number] -= 1
        if not self._members[number]:
            del self._numbers[before]
            self._unused.append(number)
        self._enter(node, state=state)

    def copy(self) -> "Kinds":
        """An independent copy of the numbers."""
        other: Kinds = object.__new__(Kinds)
        other._states = self._states.copy()
        other._numbers = self._numbers.copy()
        other._members = self._members.copy()
        other._unused = self._unused.copy()
        other.of = self.of.copy()
        return other

    def _enter(self, node: int, *, state: State) -> None:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = self._unused.pop()
        self._members[number] += 1
        self._states[node] = state
        self.of[node] = number


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Everything about a node that placement looks at: what is free, and what it has when empty."""

    model: str
    cpu_milli: int
    memory_mib: int
    left: tuple[int, ...]
    gpus: int
    cpu_capacity_milli: int
    memory_capacity_mib: int


CPU: Final = 0
MEMORY: Final = 1
MOST_LEFT: Final = 2
FREE_DEVICES: Final = 3
# The first columns of `spare` and `capacity` are of the host: CPU and memory.
HOST: Final = 2
_FIRST_LOG: Final = 1024


class Columns:
    """Free CPU, memory and device milli of N nodes with up to D devices.

    - `left` [N, D]: free milli of each device; 0 for a device that does not exist
    - `spare` [N, 4]: free CPU milli, free memory MiB, the most free milli on one device, number of wholly free devices;
      one
      comparison tells whether a pod fits
    - `capacity` [N, 4]: the same when the node is empty
    - `distinct` [N, D]: marks the first device of each residual on its node, so that equal devices are scored once

    `width` is the least D. `more_models` are models that nodes may have later.
    """

    def __init__(
        self,
        *,
        cpu_milli: Sequence[int],
        memory_mib: Sequence[int],
        gpus: Sequence[int],
        models: Sequence[str],
        width: int = 1,
        more_models: Sequence[str] = (),
    ) -> None:
        count, width = len(cpu_milli), max([width, *gpus])
        self.model_names: tuple[str, ...] = tuple(sorted({*models, *more_models}))
        codes = {name: code for code, name in enumerate(self.model_names)}
        self.model: Ints = np.array([codes[name] for name in models], dtype=np.int64)
        self.gpus: Ints = np.array(gpus, dtype=np.int64)
        self.left: Ints = np.where(np.arange(width) < self.gpus[:, None], WHOLE_MILLI, 0).astype(np.int64)
        self.distinct: Bools = np.zeros((count, width), dtype=np.bool_)
        self.distinct[:, 0:1] = True
        self.distinct[np.arange(count)[self.gpus < width], self.gpus[self.gpus < width]] = True
        self.spare: Ints = np.zeros((count, 4), dtype=np.int64)
        self.spare[:, CPU] = cpu_milli
        self.spare[:, MEMORY] = memory_mib
        self.spare[:, MOST_LEFT] = np.where(self.gpus > 0, WHOLE_MILLI, 0)
        self.spare[:, FREE_DEVICES] = self.gpus
        self.capacity: Ints = self.spare.copy()
        self.capacity_milli = int(self.gpus.sum()) * WHOLE_MILLI
        self.capacity_cpu_milli = int(sum(cpu_milli))
        self.idle_milli = self.capacity_milli
        self.idle_cpu_milli = self.capacity_cpu_milli
        self.kinds = Kinds(_state(self, node=node) for node in range(count))
        self._log: Ints = np.zeros(_FIRST_LOG, dtype=np.int64)
        # The changes before the log begins: a copy does not have those of its original.
        self._before_log = 0
        self.changes = 0

    def __len__(self) -> int:
        return len(self.model)

    def allowed(self, shape: Shape) -> Bools:
        """Which nodes have a model that the shape allows, [N]. A shape without models allows all."""
        if not shape.models:
            return np.ones(len(self), dtype=np.bool_)
        return self.allowed_models(shape)[self.model]

    def allowed_models(self, shape: Shape) -> Bools:
        """Which of `model_names` the shape allows, [models]."""
        asked = [normalise(name) for name in shape.models]
        taken = [not asked or any(one.admits(normalise(name)) for one in asked) for name in self.model_names]
        return np.array(taken, dtype=np.bool_)

    def touched_since(self, change: int) -> Ints:
        """The rows that were touched after the first `change` changes, each once, ascending, [n].

        All rows, if the log does not reach back so far.
        """
        if change < self._before_log:
            return np.arange(len(self))
        rows = self._log[change - self._before_log : self.changes - self._before_log]
        if len(rows) <= 1:
            return rows
        mark = np.zeros(len(self), dtype=np.bool_)
        mark[rows] = True
        return mark.nonzero()[0]

    def alike(self, rows: Ints) -> tuple[Ints, Ints]:
        """One of each set of equal rows, and for each of `rows` the position of its equal, [n]."""
        kind = self.kinds.of.take(rows)
        row_of, position = np.full((2, len(self)), -1)
        row_of[kind] = rows
        present = (row_of >= 0).nonzero()[0]
        position[present] = np.arange(len(present))
        return row_of[present], position[kind]

    def place(self, choice: Choice) -> None:
        """Subtract what the choice takes. The caller has checked that it fits."""
        self._move(choice, sign=-1)

    def release(self, choice: Choice) -> None:
        """Add back what the choice took."""
        self._move(choice, sign=1)

    def become(self, node: int, *, room: Room) -> None:
        """Set the state of a node; its model is one of `model_names`.

        An unchanged node is not touched.
        """
        model = self.model_names.index(room.model)
        free, capacity = [room.cpu_milli, room.memory_mib], [room.cpu_capacity_milli, room.memory_capacity_mib]
        before, left = self.left[node].tolist(), [*room.left, *[0] * (self.left.shape[1] - len(room.left))]
        spare, known = self.spare[node].tolist(), self.capacity[node].tolist()
        gpus = int(self.gpus[node])
        if (
            left == before
            and spare[:HOST] == free
            and gpus == room.gpus
            and known[:HOST] == capacity
            and int(self.model[node]) == model
        ):
            return
        self.idle_milli += sum(left) - sum(before)
        self.idle_cpu_milli += room.cpu_milli - spare[CPU]
        self.capacity_milli += (room.gpus - gpus) * WHOLE_MILLI
        self.capacity_cpu_milli += room.cpu_capacity_milli - known[CPU]
        self.model[node], self.gpus[node], self.left[node] = model, room.gpus, left
        self.spare[node, :HOST] = free
        self.capacity[node] = (*capacity, WHOLE_MILLI if room.gpus else 0, room.gpus)
        self._derive(node)

    def copy(self) -> "Columns":
        """A copy of the capacity. Its changes are counted on, and its log begins here."""
        other: Columns = object.__new__(Columns)
        fields: dict[str, Any] = {**self.__dict__, "_log": np.zeros(_FIRST_LOG, dtype=np.int64)}
        fields["_before_log"] = self.changes
        other.__dict__.update(
            {name: value.copy() if isinstance(value, np.ndarray | Kinds) else value for name, value in fields.items()}
        )
        return other

    def subset(self, rows: Ints) -> "Columns":
        """A copy of some nodes, in the order of `rows` [n]."""
        other: Columns = self.copy()
        for name in ("model", "gpus", "left", "distinct", "spare", "capacity"):
            setattr(other, name, getattr(self, name)[rows])
        other.capacity_milli = int(other.gpus.sum()) * WHOLE_MILLI
        other.capacity_cpu_milli = int(other.capacity[:, CPU].sum())
        other.idle_milli = int(other.left.sum())
        other.idle_cpu_milli = int(other.spare[:, CPU].sum())
        other.kinds = Kinds(_state(other, node=node) for node in range(len(rows)))
        other.changes = other._before_log = 0
        return other

    def _move(self, choice: Choice, *, sign: int) -> None:
        shape, node = choice.shape, choice.node
        spare = self.spare[node]
        spare[CPU] += sign * shape.cpu_milli
        spare[MEMORY] += sign * shape.memory_mib
        if choice.devices:
            row = self.left[node]
            for device in choice.devices:
                row[device] += sign * shape.share_milli
        self.idle_milli += sign * shape.gpu_milli
        self.idle_cpu_milli += sign * shape.cpu_milli
        self._derive(node, devices=bool(choice.devices))

    def _derive(self, node: int, *, devices: bool = True) -> None:
        """Recompute what follows from a node's free capacity.

        `devices` says whether its devices may have changed.
        """
        if devices:
            values = self.left[node].tolist()
            self.spare[node, MOST_LEFT] = max(values)
            self.spare[node, FREE_DEVICES] = values.count(WHOLE_MILLI)
            first = {left: device for device, left in reversed(list(enumerate(values)))}
            distinct = self.distinct[node]
            distinct[:] = False
            distinct[list(first.values())] = True
        self.kinds.move(node, state=_state(self, node=node))
        self._touch(node)

    def _touch(self, node: int) -> None:
        at = self.changes - self._before_log
        if at == len(self._log):
            self._log = np.concatenate([self._log, np.zeros_like(self._log)])
        self._log[at] = node
        self.changes += 1


def _state(columns: Columns, *, node: int) -> State:
    """Everything about a node that placement looks at, as a key."""
    host = columns.spare[node]
    return (int(columns.model[node]), int(host[CPU]), int(host[MEMORY]), *columns.left[node].tolist())


def needs(shape: Shape) -> Ints:
    """The values that a node's `spare` must reach for the shape to fit, [4]."""
    if shape.is_share:
        return np.array([shape.cpu_milli, shape.memory_mib, shape.share_milli, 0], dtype=np.int64)
    return np.array([shape.cpu_milli, shape.memory_mib, 0, shape.gpus], dtype=np.int64)


def free_devices(columns: Columns, *, node: int, count: int) -> tuple[int, ...]:
    """The first `count` wholly free devices of a node."""
    if count == 0:
        return ()
    values = columns.left[node].tolist()
    found = [device for device, left in enumerate(values) if left == WHOLE_MILLI]
    return tuple(found[:count])


def choice_of(columns: Columns, *, shape: Shape, node: int, device: int) -> Choice:
    """The choice of a node: `device` for a share, the first free devices for whole ones."""
    if shape.is_share:
        return Choice(shape=shape, node=node, devices=(device,))
    return Choice(shape=shape, node=node, devices=free_devices(columns, node=node, count=shape.gpus))

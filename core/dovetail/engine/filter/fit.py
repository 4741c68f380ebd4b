"""What fits: `check` for one node with its devices, `screen` for many. Neither ever mutates the ledger.

One pass of array operations judges all nodes that are asked about; a node that does not fit gets the first cause that
explains it, from what can never change (no GPU, another model) to what a departure would mend (busy, short of memory).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from dovetail.engine.filter import multi_container
from dovetail.engine.filter.device_choice import best_fit_values, chosen
from dovetail.engine.filter.messages import ask_text, node_text, refusal
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import GUARD_FRACTIONS, Ask, Claim, DeviceClaim
from dovetail.engine.model.columns import MODE_CODES, NO_MODE, Bools, Columns, Floats, Ints
from dovetail.engine.model.refusals import Refusal, RefusalKind
from dovetail.gpu.memory import CARD_MARGIN_MIB
from dovetail.gpu.models import normalise
from dovetail.gpu.request import WHOLE_MILLI, GPURequest

# How good each device of a node is, by its row in a judgement, [d].
DeviceValues = Callable[["Judgement", int], Floats]
# A whole card on which others keep more than this part of its memory is not whole.
FOREIGN_LIMIT: Final = 0.05
# The causes that come first are of the node itself: it is away or not ready, or it is cordoned.
NODE_CAUSES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A node that fits, and the claim that takes it. A `note` says that what was measured there does not count."""

    claim: Claim
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """The nodes that fit, in the order asked, and why each other one does not."""

    fits: list[str]
    refusals: dict[str, Refusal]


def check(
    ledger: Ledger, ask: Ask, *, node: str, key: str, device_values: DeviceValues = best_fit_values
) -> Fit | Refusal:
    """Whether `ask` fits on `node`, with the devices it would get; a claim that stands under `key` is not counted.

    `device_values` tells how good each device of the node is for the ask.
    """
    judged = Judgement(ledger, ask, nodes=[node], key=key)
    found = judged.refusal(0)
    if found is not None:
        return found
    return Fit(
        claim=Claim(
            key=key,
            node=node,
            mode=ask.mode,
            devices=judged.devices(0, values=device_values),
            cpu_milli=ask.cpu_milli,
            memory_mib=ask.memory_mib,
            guard_fraction=None if ask.mode == "Exclusive" or ask.gpu is None else judged.guard_fraction,
            workload=ask.workload,
            movable=bool(judged.movable[0]),
            unnamed=ask.gpu.count if ask.gpu is not None and ask.resource else 0,
            resource=ask.resource,
        ),
        note=ledger.note(node),
    )


def screen(ledger: Ledger, ask: Ask, *, nodes: Sequence[str], key: str) -> Screening:
    """Which of `nodes` fit, and why the others do not; a claim that stands under `key` is not counted."""
    judged = Judgement(ledger, ask, nodes=nodes, key=key)
    fits = judged.fits.tolist()
    refusals = {name: found for row, name in enumerate(nodes) if (found := judged.refusal(row)) is not None}
    return Screening(fits=[name for name, fit in zip(nodes, fits, strict=True) if fit], refusals=refusals)


@dataclass(slots=True)
class _Cause:
    kind: RefusalKind
    nodes: Bools
    # How many devices of each node remain after this cause has taken its own, for the sentence.
    left: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # The judgement that it is of, where the pod has several parts.
    of: "Judgement | None" = None
    # Said in place of the kind's own words.
    text: str = ""


class Judgement:
    """One ask against the columns of some nodes, judged once. Rows are positions in `nodes`."""

    def __init__(
        self, ledger: Ledger, ask: Ask, *, nodes: Sequence[str], key: str, columns: Columns | None = None
    ) -> None:
        self.ledger = ledger
        self.ask = ask
        self.nodes = nodes
        self.key = key
        self.columns = ledger.columns(nodes, without=key) if columns is None else columns

    def part(self, ask: Ask, *, nodes: Sequence[str], columns: Columns) -> "Judgement":
        """Another ask against columns that are given, where a pod has several parts."""
        return Judgement(self.ledger, ask, nodes=nodes, key=self.key, columns=columns)

    @cached_property
    def first_cause(self) -> Ints:
        """For each node which cause keeps the ask off it, as an index that `outline` takes; -1 where it fits."""
        if not self.ask.more and self.fits.all():
            # Most that is judged after a change fits still: it needs no causes.
            return np.full(len(self.nodes), -1, dtype=np.int64)
        stacked = np.stack([cause.nodes for cause in self._causes])
        return np.where(stacked.any(axis=0), stacked.argmax(axis=0), -1)

    @cached_property
    def fits(self) -> Bools:
        """Which nodes fit, shape [n]: those that no cause keeps the ask off, found without going through the causes."""
        columns, ask = self.columns, self.ask
        if ask.more:
            return self.first_cause < 0
        takes = columns.known & ~columns.blocked & ~columns.node_cordoned
        fits = takes & self.host_fits
        if ask.gpu is not None:
            fits &= self.free_devices.sum(axis=1) >= ask.gpu.count
        if ask.resource:
            fits &= ~self._cordoned_within_reach
        return fits

    def outline(self, cause: int, *, node: str) -> Refusal:
        """A cause in the words that all its nodes share, without a node's numbers."""
        found = self._causes[cause]
        text = found.text or ask_text(found.kind, (found.of or self).ask)
        if cause < NODE_CAUSES:
            text = node_text(self.ledger, node)
        return Refusal(kind=found.kind, text=text, message=text)

    @cached_property
    def candidates(self) -> Bools:
        """Devices of nodes of the right kind, of the right vendor and model, whatever stands on them, shape [n, d]."""
        if not self._gpu.models:
            return self._of_vendor
        codes = self.ledger.model_codes([normalise(name) for name in self._gpu.models])
        return self._all_of_a_node(self._of_vendor & np.isin(self.columns.model, codes))

    @cached_property
    def sized_devices(self) -> Bools:
        """Candidates that are large enough for the memory that is asked, shape [n, d]."""
        return self._all_of_a_node(self.candidates & self._large_enough)

    @cached_property
    def indexed_devices(self) -> Bools:
        """The same, of the index that is asked if one is, shape [n, d]."""
        if self._gpu.device_index is None:
            return self.sized_devices
        return self.sized_devices & (self.columns.index == self._gpu.device_index)

    @cached_property
    def usable_mib(self) -> Ints:
        """Memory of each device that could ever be promised to this ask, shape [n, d]: all to a whole taker, else the
        fraction of its guard."""
        if self.ask.mode == "Exclusive":
            return self.columns.total
        return np.floor(self.columns.total * self.guard_fraction).astype(np.int64)

    @cached_property
    def allowed_mib(self) -> Ints:
        """Memory of each device that may be promised to all its tenants together if this ask joins them, shape [n, d].

        The strictest of them decides, so that what any tenant's guard leaves free stays free while it is there.
        """
        if self.ask.mode == "Exclusive":
            return self.columns.total
        return np.floor(self.columns.total * np.minimum(self.columns.guard, self.guard_fraction)).astype(np.int64)

    @cached_property
    def needed_mib(self) -> Ints:
        """Memory that the ask takes of each device, shape [n, d]."""
        gpu = self._gpu
        if gpu.memory_mib is not None and self.ask.mode != "Exclusive":
            return np.full_like(self.columns.total, gpu.memory_mib)
        return self.allowed_mib * gpu.share_milli // WHOLE_MILLI

    @cached_property
    def free_mib(self) -> Ints:
        """Memory of each device that is neither promised nor taken by strangers, shape [n, d].

        Whoever is moved to the host by turns needs no room beside others that are moved: each must fit for itself.
        """
        free = self.allowed_mib - self.columns.promised - self.columns.foreign
        if not self.movable.any():
            return free
        return free + np.where(self.movable[:, np.newaxis] & (free >= 0), self.columns.aside, 0)

    @cached_property
    def movable(self) -> Bools:
        """Nodes where the ask's device memory can be moved to the host for another's turn, [n]: whichever devices it
        gets, its container has the memory, and the guard leaves the driver room on them to bring it back."""
        columns, ask = self.columns, self.ask
        if ask.mode != "TimeShared" or not ask.host_room_mib:
            return np.zeros(len(self.nodes), dtype=np.bool_)
        able = columns.movable & (columns.total - self.usable_mib >= CARD_MARGIN_MIB) | ~columns.present
        return np.asarray(able.all(axis=1) & (ask.host_room_mib >= self.host_needed_mib), dtype=np.bool_)

    @cached_property
    def host_needed_mib(self) -> Ints:
        """Device memory that the ask takes of each node at the most, [n]."""
        return np.asarray(self._gpu.count * np.where(self.columns.present, self.needed_mib, 0).max(axis=1))

    @cached_property
    def free_devices(self) -> Bools:
        """Devices that could take the ask now, shape [n, d]."""
        columns = self.columns
        return (
            self._takers & self._mode_free & self._share_free & self._tenants_free & self._memory_free & columns.present
        )

    def refusal(self, row: int) -> Refusal | None:
        """The first cause that keeps the ask off this node, with the node's numbers; None when it fits."""
        at = int(self.first_cause[row])
        if at < 0:
            return None
        cause = self._causes[at]
        if at < NODE_CAUSES:
            text = node_text(self.ledger, self.nodes[row])
            return Refusal(kind=cause.kind, text=text, message=f"{self.nodes[row]}: {text}")
        if cause.text:
            return Refusal(kind=cause.kind, text=cause.text, message=f"{self.nodes[row]}: {cause.text}")
        left = int(cause.left[row]) if cause.left.size else 0
        return refusal(cause.kind, judged=cause.of or self, row=row, left=left)

    def devices(self, row: int, *, values: DeviceValues = best_fit_values) -> tuple[DeviceClaim, ...]:
        """The devices that the ask would get on a node that fits: the best connected, and the best by their values."""
        if self.ask.gpu is None or self.ask.resource:
            return ()
        if self.ask.more:
            return multi_container.devices(self, row, values=values)
        facts = self.ledger.devices(self.nodes[row])
        slots = np.flatnonzero(self.free_devices[row])
        return self.claims(row, chosen(slots, count=self._gpu.count, values=values(self, row)[slots], facts=facts))

    def claims(self, row: int, slots: Iterable[int]) -> tuple[DeviceClaim, ...]:
        """The ask's part of these devices of a node."""
        facts = self.ledger.devices(self.nodes[row])
        return tuple(
            DeviceClaim(
                index=facts[slot].index,
                uuid=facts[slot].uuid,
                share_milli=self._gpu.share_milli,
                memory_mib=int(self.given_mib[row, slot]),
            )
            for slot in slots
        )

    @cached_property
    def given_mib(self) -> Ints:
        """Memory that the ask would be promised of each device, shape [n, d]: of a whole device, what the few MiB that
        strangers may keep there leave."""
        return np.minimum(self.needed_mib, self.free_mib)

    @cached_property
    def guard_fraction(self) -> float:
        """The part of a shared device's memory that the ask's guard lets promise."""
        guard = self.ask.guard
        return self.ledger.limits.guard_fraction if guard is None else GUARD_FRACTIONS[guard]

    @cached_property
    def right_kind(self) -> Bools:
        """Nodes whose devices are to be had as asked: from us where we manage, or from the vendor's plugin, [n]."""
        if self.ask.resource:
            return np.asarray(self.columns.resource == self.ledger.resource_code(self.ask.resource), dtype=np.bool_)
        return self.columns.managed

    def _all_of_a_node(self, devices: Bools) -> Bools:
        """The devices; where kubelet picks, only of nodes of which every device will do."""
        if not self.ask.resource:
            return devices
        every = np.all(devices | ~self.columns.present, axis=1, keepdims=True)
        return np.asarray(devices & every, dtype=np.bool_)

    @property
    def _gpu(self) -> GPURequest:
        assert self.ask.gpu is not None, "only asked where a device is wanted"
        return self.ask.gpu

    @cached_property
    def _of_vendor(self) -> Bools:
        present = self.columns.present & self.right_kind[:, np.newaxis]
        if self._gpu.vendor is None:
            return present
        return present & (self.columns.vendor == self.ledger.vendor_code(self._gpu.vendor))

    @cached_property
    def _takers(self) -> Bools:
        columns = self.columns
        return self.indexed_devices & columns.healthy & ~columns.cordoned

    @cached_property
    def _large_enough(self) -> Bools:
        if self._gpu.memory_mib is None:
            return self.columns.present
        return self.usable_mib >= self._gpu.memory_mib

    @cached_property
    def _mode_free(self) -> Bools:
        mode = self.columns.mode
        if self.ask.mode == "Exclusive":
            return mode == NO_MODE
        return (mode == NO_MODE) | (mode == MODE_CODES[self.ask.mode])

    @cached_property
    def _share_free(self) -> Bools:
        if self.ask.mode == "TimeShared":
            return self.columns.tenants < self.ledger.limits.turns_per_device
        return self.columns.share_left >= self._gpu.share_milli

    @cached_property
    def _tenants_free(self) -> Bools:
        """Devices that may take one more tenant of the ask's workload, shape [n, d]. Whole ones have no others."""
        columns = self.columns
        if self.ask.workload is None or self.ask.mode == "Exclusive":
            return columns.present
        if self.ask.workload == "Training":
            return columns.training < columns.training_limit
        return columns.inference < columns.inference_limit

    @cached_property
    def _memory_free(self) -> Bools:
        if self.ask.mode != "Exclusive":
            return self.free_mib >= self.needed_mib
        columns = self.columns
        quiet = columns.foreign <= columns.total * FOREIGN_LIMIT
        return quiet if self._gpu.memory_mib is None else quiet & (self.free_mib >= self._gpu.memory_mib)

    @property
    def _cordoned_within_reach(self) -> Bools:
        """Nodes where kubelet could pick a device that is cordoned, [n]."""
        columns = self.columns
        return _some(columns.present & columns.cordoned & (columns.mode == NO_MODE))

    @cached_property
    def _causes(self) -> list[_Cause]:
        """The causes in the order in which they are told, each with the nodes that it keeps off."""
        columns, ask = self.columns, self.ask
        causes = [
            _Cause("Unhealthy", ~columns.known | columns.blocked),
            _Cause("Cordoned", columns.node_cordoned),
        ]
        if ask.gpu is not None:
            causes += self.gpu_causes()
            causes += self._causes_of_parts() if ask.more else ()
        return [*causes, _Cause("CPUOrMemoryShort", ~self.host_fits)]

    @cached_property
    def host_fits(self) -> Bools:
        """Which nodes have the CPU and memory, and take one more pod, shape [n]."""
        columns, ask = self.columns, self.ask
        enough = (columns.cpu_free >= ask.cpu_milli) & (columns.memory_free >= ask.memory_mib)
        return enough & (columns.pods_free > 0)

    def gpu_causes(self) -> list[_Cause]:
        """What of the devices keeps the ask off."""
        return [*self._kind_causes(), *self._capacity_causes()]

    def _kind_causes(self) -> list[_Cause]:
        """What no departure mends: no devices, of another kind, too few, too small, or bad ones."""
        columns = self.columns
        causes = [
            _Cause("NoGPU", ~_some(columns.present)),
            _Cause("NotManaged", ~self.right_kind),
            _Cause("WrongVendor", ~_some(self._of_vendor)),
            _Cause("WrongModel", ~_some(self.candidates)),
            self._short_of("TooFewDevices", self.sized_devices),
            _Cause("DeviceIndex", ~_some(self.indexed_devices)),
        ]
        healthy = self.indexed_devices & columns.healthy
        causes += [self._short_of("Unhealthy", healthy), self._short_of("Cordoned", healthy & ~columns.cordoned)]
        if self.ask.resource:
            # kubelet knows of no cordon: as long as it could pick such a device it must not be asked for any.
            causes.append(_Cause("Cordoned", self._cordoned_within_reach))
        return causes

    def _capacity_causes(self) -> list[_Cause]:
        """What a departure would mend, each counted over the devices that the causes before it left."""
        columns = self.columns
        exclusive = self.ask.mode == "Exclusive"
        conditions: list[tuple[RefusalKind, Bools]] = [
            ("DevicesBusy", columns.mode == NO_MODE if exclusive else columns.mode != MODE_CODES["Exclusive"]),
            ("ModeConflict", self._mode_free),
            ("TenantLimit" if self.ask.mode == "TimeShared" else "ShareShort", self._share_free),
            ("TenantLimit", self._tenants_free),
            ("MemoryGuard", self._memory_free),
        ]
        causes = []
        left = self._takers
        for kind, condition in conditions:
            left = left & condition
            causes.append(self._short_of(kind, left))
        return [self._held(), *causes]

    def _causes_of_parts(self) -> list[_Cause]:
        """What keeps the pod's further containers off, each for itself, and then all of them together."""
        asks = [replace(self.ask, gpu=gpu, more=()) for gpu in self.ask.more]
        others = [self.part(ask, nodes=self.nodes, columns=self.columns) for ask in asks]
        causes = [replace(cause, of=part) for part in others for cause in part.gpu_causes()]
        never, now = multi_container.without_room(self)
        text = f"the GPUs of the pod's {1 + len(others)} containers do not fit together"
        kind: RefusalKind = "DevicesBusy" if self.ask.mode == "Exclusive" else "ShareShort"
        return [*causes, _Cause("TooFewDevices", never, text=f"{text}, ever"), _Cause(kind, now, text=f"{text} now")]

    def _held(self) -> _Cause:
        """Nodes that would fit but for holds: on a device that only holds keep, a hold's end frees all."""
        columns = self.columns
        only_held = self._takers & (columns.held > 0) & (columns.held == columns.tenants)
        free = self.free_devices.sum(axis=1)
        with_held = (self.free_devices | only_held).sum(axis=1)
        count = self._gpu.count
        return _Cause("Held", (free < count) & (with_held >= count), free)

    def _short_of(self, kind: RefusalKind, ok: Bools) -> _Cause:
        left = ok.sum(axis=1)
        return _Cause(kind, left < self._gpu.count, left)


def _some(devices: Bools) -> Bools:
    """Which nodes have at least one of the devices, shape [n]."""
    return np.asarray(devices.any(axis=1), dtype=np.bool_)

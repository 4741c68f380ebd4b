"""Totals of the claims on one node, device by device. Pure."""

from collections.abc import Mapping

import numpy as np

from dovetail.engine.model.claims import Claim
from dovetail.engine.model.columns import MODE_CODES, NO_MODE, Bools, Ints
from dovetail.gpu.request import WHOLE_MILLI


class NodeTotals:
    """Totals by slot. Plain lists: for a few devices, updated one by one, they are faster than arrays."""

    def __init__(self, movable: list[bool]) -> None:
        width = len(movable)
        self._movable = movable
        self.share, self._stays, self.aside, self.tenants, self.mode, self.held = ([0] * width for _ in range(6))
        self.of_workload = {workload: [0] * width for workload in (None, "Training", "Inference")}
        self.guard = [1.0] * width

    @property
    def promised(self) -> list[int]:
        """Memory in use at one time, in MiB: what stays on the device, and the largest tenant that moves in turns."""
        return [stays + aside for stays, aside in zip(self._stays, self.aside, strict=True)]

    @property
    def taken(self) -> Bools:
        """The slots with a tenant, [d]."""
        return np.array(self.tenants, dtype=np.int64) > 0

    def add(self, claim: Claim, *, slots: Mapping[str, int], fraction: float, is_hold: bool) -> None:
        """Add a claim's named devices by the slots of their UUIDs. Devices that the node does not report are skipped.

        `fraction` is the part of a device's memory that the claim's guard allows to promise.
        """
        # Time-shared tenants overlap in compute: together they take one device at most.
        overlap = claim.mode == "TimeShared"
        for device in claim.devices:
            slot = slots.get(device.uuid)
            if slot is None:
                continue
            self.share[slot] = (
                max(self.share[slot], device.share_milli) if overlap else (self.share[slot] + device.share_milli)
            )
            if claim.movable and self._movable[slot]:
                self.aside[slot] = max(self.aside[slot], device.memory_mib)
            else:
                self._stays[slot] += device.memory_mib
            self.tenants[slot] += 1
            self.guard[slot] = min(self.guard[slot], fraction)
            self.of_workload[claim.workload][slot] += 1
            self.mode[slot] = self._mode_with(claim, mode=self.mode[slot])
            self.held[slot] += is_hold

    def _mode_with(self, claim: Claim, *, mode: int) -> int:
        """The mode of a device with one more tenant. One whose tenants have several modes takes no other tenant.

        A hold can be older than what the ledger knows of the pods on its device, such as in an extender that has just
        started. Without this, the order of the claims would decide which mode the device seems to have.
        """
        code = MODE_CODES[claim.mode]
        return code if mode in {NO_MODE, code} else MODE_CODES["Exclusive"]

    def add_unnamed(self, *, memory_mib: Mapping[int, int], is_hold: bool) -> None:
        """Add whole devices whose ids are unknown, on the slots that stand in for them, with their memory in MiB."""
        for slot, mib in memory_mib.items():
            self.share[slot] = WHOLE_MILLI
            self._stays[slot] = mib
            self.tenants[slot] += 1
            self.mode[slot] = MODE_CODES["Exclusive"]
            self.held[slot] += is_hold

    def withdraw(self, slots: Ints) -> None:
        """Mark devices that the device plugin does not offer now. `slots` [n] are slot numbers."""
        for slot in slots.tolist():
            self.mode[slot] = MODE_CODES["Exclusive"]

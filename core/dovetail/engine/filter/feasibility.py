"""Array masks of one ask over the columns of some nodes: which devices, and which nodes, meet each condition.

Shapes: [n] is one value a node, [n, d] one value a device. Memory is in MiB, shares are in milli (1000 is a device).
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dovetail.engine.filter.device_choice import FreeDevices
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.partitions import profiles
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import MODE_CODES, NO_MODE, Bools, Columns, Ints, count_devices
from dovetail.engine.model.inventory import FOREIGN_LIMIT
from dovetail.gpu.memory import CARD_MARGIN_MIB, percent_of
from dovetail.gpu.request import WHOLE_MILLI, GPURequest


class Feasibility:
    """The masks of one ask, each computed at most once. Rows are positions in `nodes`. Never changes the ledger.

    The columns leave out the claim `key`, so that a claim does not compete with itself. Without `columns` they are
    read from the ledger; the devices are MIG instances if the ask is for some. All masks look at the ask's first
    container alone; `multi_container` has the others.
    """

    def __init__(
        self, ledger: Ledger, *, ask: Ask, nodes: Sequence[str], key: str, columns: Columns | None = None
    ) -> None:
        self._original = ledger
        self.ledger = ledger = ledger.of_profile(ask.profile)
        self.ask = ask
        self.nodes = nodes
        self.key = key
        self.columns = ledger.columns(nodes, without=key) if columns is None else columns

    def for_container(self, ask: Ask, *, nodes: Sequence[str], columns: Columns) -> "Feasibility":
        """The masks of one container's ask, on columns that the caller has."""
        return Feasibility(self.ledger, ask=ask, nodes=nodes, key=self.key, columns=columns)

    @property
    def gpu(self) -> GPURequest:
        """The GPU request. Only for an ask that has one."""
        assert self.ask.gpu is not None, "only for an ask with a GPU request"
        return self.ask.gpu

    @property
    def profiles(self) -> list[str]:
        """The profiles of the MIG instances that the cluster has."""
        return profiles(self._original)

    # --- Nodes -------------------------------------------------------------------------------------------------

    @cached_property
    def schedulable(self) -> Bools:
        """Nodes that exist, take pods, and are not cordoned, [n]."""
        columns = self.columns
        return columns.known & ~columns.blocked & ~columns.node_cordoned

    @cached_property
    def right_kind(self) -> Bools:
        """Nodes that serve devices in the way that the ask needs: managed, or by the device plugin's resource, [n]."""
        if self.ask.resource:
            return np.asarray(self.columns.resource == self.ledger.resource_code(self.ask.resource), dtype=np.bool_)
        return self.columns.managed

    @cached_property
    def host_fits(self) -> Bools:
        """Nodes with enough CPU and memory, and room for one more pod, [n]."""
        columns, ask = self.columns, self.ask
        enough = (columns.cpu_free >= ask.cpu_milli) & (columns.memory_free >= ask.memory_mib)
        return enough & (columns.pods_free > 0)

    @cached_property
    def fits_first(self) -> Bools:
        """Nodes that fit the first container and the pod's CPU and memory, [n]."""
        fits = self.schedulable & self.host_fits
        if self.ask.gpu is not None:
            fits &= count_devices(self.free_devices) >= self.ask.gpu.count
        if self.ask.resource:
            fits &= ~self.offers_cordoned
        return fits

    @cached_property
    def offers_cordoned(self) -> Bools:
        """Nodes where kubelet could pick a cordoned device, [n]: kubelet does not know about cordoned devices."""
        columns = self.columns
        return some(columns.present & columns.cordoned & (columns.mode == NO_MODE))

    # --- Devices that could ever serve the ask -----------------------------------------------------------------

    @cached_property
    def of_vendor(self) -> Bools:
        """Devices of nodes of the right kind and of the vendor, [n, d]."""
        present = self.columns.present & self.right_kind[:, np.newaxis]
        if self.gpu.vendor is None:
            return present
        return present & (self.columns.vendor == self.ledger.vendor_code(self.gpu.vendor))

    @cached_property
    def candidates(self) -> Bools:
        """Devices of the right kind, vendor, model and nominal size, busy or not, [n, d]."""
        if not self.gpu.names_models:
            return self.of_vendor
        codes = self.ledger.model_codes(self.gpu.admits)
        return self._if_all_of_node(self.of_vendor & np.isin(self.columns.model, codes))

    @cached_property
    def sized_devices(self) -> Bools:
        """Candidates with as much memory as the ask needs, [n, d]."""
        return self._if_all_of_node(self.candidates & self._large_enough)

    @cached_property
    def indexed_devices(self) -> Bools:
        """Sized devices with the index, and of the node, that the ask names, if it names one, [n, d]."""
        if self.gpu.device_index is None:
            return self.sized_devices
        return self.devices_of_named_node & (self.columns.index == self.gpu.device_index)

    @cached_property
    def devices_of_named_node(self) -> Bools:
        """Sized devices of the node that the ask names; of all nodes, if it names none, [n, d]."""
        if self.gpu.device_node is None:
            return self.sized_devices
        named = np.fromiter((node == self.gpu.device_node for node in self.nodes), dtype=np.bool_)
        return self.sized_devices & named[:, np.newaxis]

    @cached_property
    def in_service(self) -> Bools:
        """Indexed devices that are healthy and not cordoned, [n, d]."""
        columns = self.columns
        return self.indexed_devices & columns.healthy & ~columns.cordoned

    @cached_property
    def _large_enough(self) -> Bools:
        return self.columns.present if self.asked_mib is None else self.usable_mib >= self.asked_mib

    def _if_all_of_node(self, devices: Bools) -> Bools:
        """The devices; where kubelet picks them, only on nodes where all devices qualify."""
        if not self.ask.resource:
            return devices
        every = np.all(devices | ~self.columns.present, axis=1, keepdims=True)
        return np.asarray(devices & every, dtype=np.bool_)

    # --- Memory ------------------------------------------------------------------------------------------------

    @cached_property
    def guard_fraction(self) -> float:
        """The part of a shared device's memory that the ask's memory guard allows to promise."""
        fraction = self.ask.guard_fraction
        return self.ledger.limits.guard_fraction if fraction is None else fraction

    @cached_property
    def usable_mib(self) -> Ints:
        """Memory of each device that could ever be promised to this ask, [n, d].

        An exclusive ask can get all of it, any other ask the fraction of its guard.
        """
        if self.ask.mode == "Exclusive":
            return self.columns.total
        return np.floor(self.columns.total * self.guard_fraction).astype(np.int64)

    @cached_property
    def allowed_mib(self) -> Ints:
        """Memory of each device that may be promised to all its tenants together once this ask joins them, [n, d].

        The strictest guard among the tenants counts: what it keeps free stays free as long as that tenant is there.
        """
        if self.ask.mode == "Exclusive":
            return self.columns.total
        return np.floor(self.columns.total * np.minimum(self.columns.guard, self.guard_fraction)).astype(np.int64)

    @cached_property
    def asked_mib(self) -> Ints | None:
        """Memory that the request says it takes of each device, [n, d]; None where it says nothing."""
        gpu, total = self.gpu, self.columns.total
        if gpu.memory_percent is not None:
            return percent_of(total, percent=gpu.memory_percent)
        return None if gpu.memory_mib is None else np.full_like(total, gpu.memory_mib)

    @cached_property
    def needed_mib(self) -> Ints:
        """Memory that the ask takes of each device, [n, d]."""
        if self.asked_mib is not None and self.ask.mode != "Exclusive":
            return self.asked_mib
        return self.allowed_mib * self.gpu.share_milli // WHOLE_MILLI

    @cached_property
    def free_mib(self) -> Ints:
        """Memory of each device that is neither promised nor used by foreign processes, [n, d].

        Tenants that move to the host in turns do not add up: each of them has to fit alone.
        """
        free = self.allowed_mib - self.columns.promised - self.columns.foreign
        if not self.movable.any():
            return free
        return free + np.where(self.movable[:, np.newaxis] & (free >= 0), self.columns.aside, 0)

    @cached_property
    def given_mib(self) -> Ints:
        """Memory that the ask would be promised of each device, [n, d].

        Less than needed only for a whole device, where foreign processes may use a little (`FOREIGN_LIMIT`).
        """
        return np.minimum(self.needed_mib, self.free_mib)

    @cached_property
    def movable(self) -> Bools:
        """Nodes where the ask's device memory can move to the host for another tenant's turn, [n].

        This must hold for every device of the node: the container requests enough host memory, and the guard leaves
        the driver the room that it needs to restore.
        """
        columns, ask = self.columns, self.ask
        if ask.mode != "TimeShared" or not ask.host_room_mib:
            return np.zeros(len(self.nodes), dtype=np.bool_)
        able = columns.movable & (columns.total - self.usable_mib >= CARD_MARGIN_MIB) | ~columns.present
        return np.asarray(able.all(axis=1) & (ask.host_room_mib >= self.host_needed_mib), dtype=np.bool_)

    @cached_property
    def host_needed_mib(self) -> Ints:
        """Upper bound of the device memory that the ask takes of each node, [n]."""
        return np.asarray(self.gpu.count * np.where(self.columns.present, self.needed_mib, 0).max(axis=1))

    # --- Devices that are free for the ask now -----------------------------------------------------------------

    @cached_property
    def free_devices(self) -> Bools:
        """Devices that could take the ask now, [n, d]."""
        free = self.mode_free & self.share_free & self.tenants_free & self.memory_free
        return self.in_service & free & self.columns.present

    @cached_property
    def mode_free(self) -> Bools:
        """Devices without tenants, or with tenants of the ask's mode where that mode shares, [n, d]."""
        mode = self.columns.mode
        if self.ask.mode == "Exclusive":
            return mode == NO_MODE
        return (mode == NO_MODE) | (mode == MODE_CODES[self.ask.mode])

    @cached_property
    def share_free(self) -> Bools:
        """Devices with enough share left, or with a free turn, [n, d]."""
        if self.ask.mode == "TimeShared":
            return self.columns.tenants < self.ledger.limits.turns_per_device
        return self.columns.share_left >= self.gpu.share_milli

    @cached_property
    def tenants_free(self) -> Bools:
        """Devices that may take one more tenant of the ask's workload, [n, d]; an exclusive tenant is alone anyway."""
        columns = self.columns
        if self.ask.workload is None or self.ask.mode == "Exclusive":
            return columns.present
        if self.ask.workload == "Training":
            return columns.training < columns.training_limit
        return columns.inference < columns.inference_limit

    @cached_property
    def memory_free(self) -> Bools:
        """Devices with enough free memory, [n, d]."""
        if self.ask.mode != "Exclusive":
            return self.free_mib >= self.needed_mib
        columns = self.columns
        quiet = columns.foreign <= columns.total * FOREIGN_LIMIT
        return quiet if self.asked_mib is None else quiet & (self.free_mib >= self.asked_mib)

    def free_of(self, row: int) -> FreeDevices:
        """The devices of one node that could take the ask now, to choose from."""
        name, columns = self.nodes[row], self.columns
        return FreeDevices(
            node=name,
            ask=self.ask,
            facts=self.ledger.devices(name),
            slots=np.flatnonzero(self.free_devices[row]).tolist(),
            share_left=columns.share_left[row].tolist(),
            allowed_mib=self.allowed_mib[row].tolist(),
            free_mib=self.free_mib[row].tolist(),
            total_mib=columns.total[row].tolist(),
            tenants=columns.tenants[row].tolist(),
            utilization=columns.utilization[row].tolist(),
        )


def some(devices: Bools) -> Bools:
    """Which nodes have at least one of the devices [n, d], as [n]."""
    return np.asarray(count_devices(devices) > 0, dtype=np.bool_)

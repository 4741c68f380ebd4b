"""One ask on one node, in plain numbers: the usual question after a change, at a fraction of the cost of small arrays.

The rules are those of `feasibility`, which judges many nodes at once and finds the causes of refusals; a property test
compares both on everything that `covers` accepts.
"""

from collections.abc import Callable, Collection

from dovetail.api.gpujob import Workload
from dovetail.engine.filter.device_choice import FreeDevices, needed_mib
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import MODE_CODES, NO_MODE
from dovetail.engine.model.inventory import FOREIGN_LIMIT
from dovetail.engine.model.node_row import NodeRow
from dovetail.gpu.request import GPURequest

Condition = Callable[[int], bool]


def covers(ask: Ask) -> bool:
    """Whether `judge` knows all rules for the ask: one container, devices that we choose, memory that stays there."""
    return not ask.more and not ask.resource and not (ask.mode == "TimeShared" and ask.host_room_mib)


class SingleNode:
    """The judgement of an ask on a node that exists. Never changes the ledger.

    - `node`: the node's columns, without the claim of the question
    - `slots`: the slots of the devices that are free for the ask, in rising order
    - `fits`: whether the ask fits
    - `allowed_mib`, `free_mib`: as of `FreeDevices`; 0 for devices that are not free for other reasons
    """

    def __init__(self, ledger: Ledger, *, ask: Ask, name: str, node: NodeRow) -> None:
        self.ask = ask
        self.name = name
        self.node = node
        self.ledger = ledger
        # The part of a shared device's memory that the ask's memory guard allows to promise.
        guard = ask.guard_fraction
        self.guard_fraction = ledger.limits.guard_fraction if guard is None else guard
        width = len(node.present)
        self.allowed_mib = [0] * width
        self.free_mib = [0] * width
        self.slots = [] if ask.gpu is None else self._free_slots(ask.gpu)
        self.fits = (
            node.known
            and not node.blocked
            and not node.node_cordoned
            and node.cpu_free >= ask.cpu_milli
            and node.memory_free >= ask.memory_mib
            and node.pods_free > 0
            and (ask.gpu is None or len(self.slots) >= ask.gpu.count)
        )

    def devices(self) -> FreeDevices:
        """The free devices, to choose from."""
        node = self.node
        return FreeDevices(
            node=self.name,
            ask=self.ask,
            facts=self.ledger.devices(self.name),
            slots=self.slots,
            share_left=node.share_left,
            allowed_mib=self.allowed_mib,
            free_mib=self.free_mib,
            total_mib=node.total,
            tenants=node.tenants,
            utilization=node.utilization,
        )

    def _free_slots(self, gpu: GPURequest) -> list[int]:
        node = self.node
        if not node.managed or (gpu.device_index is not None and gpu.device_node not in {None, self.name}):
            return []
        vendor = None if gpu.vendor is None else self.ledger.vendor_code(gpu.vendor)
        models = self._models(gpu)
        takes = self._takes_all_of if self.ask.mode == "Exclusive" else self._takes_part_of
        return [
            slot
            for slot, present in enumerate(node.present)
            if present
            and node.healthy[slot]
            and not node.cordoned[slot]
            and (vendor is None or node.vendor[slot] == vendor)
            and (models is None or node.model[slot] in models)
            and (gpu.device_index is None or node.index[slot] == gpu.device_index)
            and takes(slot, gpu=gpu)
        ]

    def _models(self, gpu: GPURequest) -> Collection[int] | None:
        """The codes of the models that the request accepts; None for all."""
        if not gpu.names_models:
            return None
        codes: list[int] = self.ledger.model_codes(gpu.admits).tolist()
        return codes

    def _takes_all_of(self, slot: int, *, gpu: GPURequest) -> bool:
        node = self.node
        total = node.total[slot]
        self.allowed_mib[slot] = total
        self.free_mib[slot] = free = total - node.promised[slot] - node.foreign[slot]
        return (
            node.mode[slot] == NO_MODE
            and node.share_left[slot] >= gpu.share_milli
            and node.foreign[slot] <= total * FOREIGN_LIMIT
            and ((asked := gpu.memory_on(total)) is None or min(total, free) >= asked)
        )

    def _takes_part_of(self, slot: int, *, gpu: GPURequest) -> bool:
        node, ask, fraction = self.node, self.ask, self.guard_fraction
        total = node.total[slot]
        self.allowed_mib[slot] = allowed = int(total * min(node.guard[slot], fraction))
        self.free_mib[slot] = free = allowed - node.promised[slot] - node.foreign[slot]
        return (
            node.mode[slot] in {NO_MODE, MODE_CODES[ask.mode]}
            and self._has_a_turn(slot, gpu=gpu)
            and (ask.workload is None or self._takes_one_more(slot, workload=ask.workload))
            and ((asked := gpu.memory_on(total)) is None or int(total * fraction) >= asked)
            and free >= needed_mib(ask, allowed_mib=allowed, total_mib=total)
        )

    def _has_a_turn(self, slot: int, *, gpu: GPURequest) -> bool:
        if self.ask.mode == "TimeShared":
            return self.node.tenants[slot] < self.ledger.limits.turns_per_device
        return self.node.share_left[slot] >= gpu.share_milli

    def _takes_one_more(self, slot: int, *, workload: Workload) -> bool:
        node = self.node
        if workload == "Training":
            return node.training[slot] < node.training_limit[slot]
        return node.inference[slot] < node.inference_limit[slot]


def judge(ledger: Ledger, *, ask: Ask, node: str, key: str = "") -> SingleNode:
    """The ask on a node of the ledger, without the claim `key`. Only for asks that `covers` accepts."""
    return SingleNode(ledger, ask=ask, name=node, node=ledger.node_row(node, without=key))

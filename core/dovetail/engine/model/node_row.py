"""The ledger's columns of one node in plain numbers, which are faster than arrays of a few elements. Values only."""

from dataclasses import dataclass


@dataclass(slots=True)
class NodeRow:
    """One row of `Columns`, under the same names and in the order of `Table`'s blocks.

    A node column is one value here, and a device column a list of one value for each slot.
    """

    known: bool
    managed: bool
    blocked: bool
    node_cordoned: bool
    unmeasured: bool
    cpu_milli: int
    cpu_free: int
    memory_mib: int
    memory_free: int
    pods: int
    pods_free: int
    resource: int
    offered: int
    cpu_load: float
    present: list[bool]
    healthy: list[bool]
    cordoned: list[bool]
    movable: list[bool]
    index: list[int]
    model: list[int]
    vendor: list[int]
    total: list[int]
    foreign: list[int]
    share_left: list[int]
    promised: list[int]
    tenants: list[int]
    mode: list[int]
    held: list[int]
    training: list[int]
    training_limit: list[int]
    inference: list[int]
    inference_limit: list[int]
    aside: list[int]
    utilization: list[float]
    guard: list[float]

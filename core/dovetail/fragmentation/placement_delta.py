"""What a pod would take of each of some nodes. Values only."""

from dataclasses import dataclass

from dovetail.fragmentation.capacity import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """A pod on each of `rows` [n], one at a time, with its CPU milli and memory MiB.

    `before` and `after` [n, k] are the milli left on each device that it takes there. `whole` says that it takes no
    parts of devices.
    """

    rows: Ints
    before: Ints
    after: Ints
    cpu_milli: int = 0
    memory_mib: int = 0
    whole: bool = False

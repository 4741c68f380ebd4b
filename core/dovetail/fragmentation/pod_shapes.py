"""What a pod requests, and where it could go. Values only."""

from dataclasses import dataclass
from typing import Final

WHOLE_MILLI: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Shape:
    """What a pod requests of one node.

    `share_milli` is requested of each of `gpus` devices; below 1000 it is a share, and of one device. `models` are the
    allowed ones; empty allows all.
    """

    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    share_milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def is_share(self) -> bool:
        """Whether it takes a part of one device."""
        return self.gpus == 1 and self.share_milli < WHOLE_MILLI

    @property
    def gpu_milli(self) -> int:
        """The milli of all its devices."""
        return self.gpus * self.share_milli


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A place for a shape: the row of a node, and the devices there."""

    shape: Shape
    node: int
    devices: tuple[int, ...] = ()

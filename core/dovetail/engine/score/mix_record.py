"""A learned mix as text: what a program continues with after a restart, and what others judge by meanwhile.

Pure.

The queue's mix and the extender's are two records, because each has one writer.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from dovetail.decoding import Decoder
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape
from dovetail.fragmentation.workload_mix import Mix

QUEUE_CONFIGMAP: Final = "dovetail-mix-of-jobs"
EXTENDER_CONFIGMAP: Final = "dovetail-mix-of-pods"
# The key of the text in the data of either ConfigMap.
KEY: Final = "mix"
# The heaviest shapes that are kept; they need some 200 kB, and a ConfigMap may have 1 MiB.
MOST_SHAPES: Final = 2_000
# The same of the requests for MIG instances of each profile, of which a cluster has a handful.
MOST_OF_PROFILE: Final = 250

_Amount = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
_Milli = Annotated[int, msgspec.Meta(ge=0, le=WHOLE_MILLI)]
_Devices = Annotated[int, msgspec.Meta(ge=0, le=1 << 12)]
_Weight = Annotated[float, msgspec.Meta(gt=0, le=1e15)]


class WeighedShape(msgspec.Struct, frozen=True, array_like=True):
    """A shape and its weight: `[cpu_milli, memory_mib, gpus, share_milli, [model, ...], weight]`."""

    cpu_milli: _Amount
    memory_mib: _Amount
    gpus: _Devices
    share_milli: _Milli
    models: tuple[str, ...]
    weight: _Weight

    @property
    def shape(self) -> Shape:
        """The shape."""
        return Shape(
            cpu_milli=self.cpu_milli,
            memory_mib=self.memory_mib,
            gpus=self.gpus,
            share_milli=self.share_milli,
            models=self.models,
        )


class MixRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a fragmentation term has learned.

    - `policy`: the term in use, as `LiveFragmentation.live` says it
    - `arrivals`: how many arrivals were counted so far
    - `in_use`: the classes that the term in use judges by
    - `counted`: what was counted by shape, recent arrivals with more weight
    - `instances`: the same of requests for MIG instances, by profile
    """

    policy: str
    arrivals: _Amount
    in_use: tuple[WeighedShape, ...]
    counted: tuple[WeighedShape, ...]
    instances: dict[str, "MixRecord"] = {}

    @property
    def mix(self) -> Mix:
        """The mix in use."""
        return Mix(
            classes=tuple(each.shape for each in self.in_use),
            weights=tuple(max(1, round(each.weight)) for each in self.in_use),
        )


_DECODER: Final = Decoder(MixRecord)


def text_of(record: MixRecord) -> str:
    """The record as the data of a ConfigMap has it."""
    return msgspec.json.encode(record).decode()


def record_in(data: Mapping[str, str]) -> MixRecord | None:
    """The record in the data of a ConfigMap; None without one. Raises `UnreadableError`."""
    text = data.get(KEY)
    return None if text is None else _DECODER.decode(text)


def weighed(shapes: Iterable[tuple[Shape, float]]) -> tuple[WeighedShape, ...]:
    """The shapes with their weights, in the same order."""
    return tuple(
        WeighedShape(one.cpu_milli, one.memory_mib, one.gpus, one.share_milli, one.models, weight)
        for one, weight in shapes
    )

"""Builders of shapes, clusters and mixes: a test names only what matters to it. And the plain truth to compare with."""

from collections.abc import Sequence

from dovetail.fragmentation.capacity import CPU, MEMORY, Columns, free_devices
from dovetail.fragmentation.pod_shapes import Choice, Shape
from dovetail.fragmentation.workload_mix import Mix


def share(milli: int, *, cpu_milli: int = 1000, memory_mib: int = 0, models: tuple[str, ...] = ()) -> Shape:
    return Shape(cpu_milli=cpu_milli, memory_mib=memory_mib, gpus=1, share_milli=milli, models=models)


def whole(gpus: int, *, cpu_milli: int = 1000, memory_mib: int = 0, models: tuple[str, ...] = ()) -> Shape:
    return Shape(cpu_milli=cpu_milli, memory_mib=memory_mib, gpus=gpus, share_milli=1000, models=models)


def host(cpu_milli: int, *, memory_mib: int = 0) -> Shape:
    return Shape(cpu_milli=cpu_milli, memory_mib=memory_mib)


def cluster(*gpus: int, cpu_milli: int = 16000, memory_mib: int = 65536, models: Sequence[str] = ()) -> Columns:
    """Nodes with so many GPUs each: `cluster(2, 4)`."""
    return Columns(
        cpu_milli=[cpu_milli] * len(gpus),
        memory_mib=[memory_mib] * len(gpus),
        gpus=list(gpus),
        models=list(models) or ["V100"] * len(gpus),
    )


def mix_of(*weighted: tuple[Shape, int]) -> Mix:
    return Mix(classes=tuple(shape for shape, _ in weighted), weights=tuple(weight for _, weight in weighted))


def put(columns: Columns, shape: Shape, *, node: int = 0, device: int | None = None) -> Choice:
    """Place a shape; whole devices go to the first free ones."""
    devices = (device,) if device is not None else free_devices(columns, node=node, count=shape.gpus)
    choice = Choice(shape=shape, node=node, devices=devices)
    columns.place(choice)
    return choice


def fits(columns: Columns, shape: Shape, *, node: int) -> bool:
    """The rule of placement.md in plain words."""
    left = columns.left[node].tolist()
    return (
        columns.spare[node, CPU] >= shape.cpu_milli
        and columns.spare[node, MEMORY] >= shape.memory_mib
        and bool(columns.allowed(shape)[node])
        and (max(left) >= shape.share_milli if shape.is_share else left.count(1000) >= shape.gpus)
    )


def plain_fragmentation(columns: Columns, expected: Mix, *, node: int) -> float:
    """F of a node straight from its definition."""
    left = columns.left[node].tolist()
    total = 0
    for one, weight in zip(expected.classes, expected.weights, strict=True):
        can = (
            one.gpus > 0
            and bool(columns.allowed(one)[node])
            and columns.spare[node, CPU] >= one.cpu_milli
            and sum(value >= one.share_milli for value in left) >= one.gpus
        )
        total += weight * (sum(value for value in left if value < one.share_milli) if can else sum(left))
    return total / expected.total


def plain_headroom(columns: Columns, one: Shape, *, node: int) -> int:
    """H of a node for a class straight from its definition."""
    if not columns.allowed(one)[node]:
        return 0
    left = columns.left[node].tolist()
    limits = [columns.spare[node, CPU] // max(1, one.cpu_milli), columns.spare[node, MEMORY] // max(1, one.memory_mib)]
    if one.is_share:
        limits.append(sum(value // one.share_milli for value in left))
    elif one.gpus:
        limits.append(left.count(1000) // one.gpus)
    return int(min(limits))

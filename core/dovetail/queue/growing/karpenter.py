"""Karpenter's NodePools as growing pools: their labels, taints and limits, and shapes as far as known. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from dovetail import names
from dovetail.api.karpenter import NodePool, NodePoolTemplate
from dovetail.formats.quantities import Quantity, QuantityError, mebibytes, milli, whole
from dovetail.queue.growing.pools import MOST_NODES, GrowingPool, GrowingRules

POOL_LABEL: Final = "karpenter.sh/nodepool"
# The labels by which an instance type's devices are known: those of Karpenter's provider for AWS.
_GPUS: Final = "karpenter.k8s.aws/instance-gpu-count"
_MODEL: Final = "karpenter.k8s.aws/instance-gpu-name"
_GPU_MIB: Final = "karpenter.k8s.aws/instance-gpu-memory"
_CPU: Final = "karpenter.k8s.aws/instance-cpu"
_MIB: Final = "karpenter.k8s.aws/instance-memory"
# Of an instance's CPU and memory, what is left for jobs: the labels count what kubelet and DaemonSets take too.
_LEFT: Final = 0.9
_NVIDIA: Final = "nvidia.com/gpu"


def with_node_pools(rules: GrowingRules, *, found: Iterable[NodePool]) -> GrowingRules:
    """The rules with the NodePools that were found.

    A declared pool of the same name has the shape of the nodes, and the NodePool adds its labels and taints and bounds
    their number. Other NodePools count if their requirements tell the shape; they follow the declared ones by weight.
    """
    by_name = {pool.metadata.name: pool for pool in found}
    declared = [_bounded(pool, by=by_name[pool.name]) if pool.name in by_name else pool for pool in rules.pools]
    known = {pool.name for pool in rules.pools}
    others = sorted(by_name.keys() - known, key=lambda name: (-by_name[name].spec.weight, name))
    shapes = [(shape, by_name[name]) for name in others if (shape := shape_of(by_name[name])) is not None]
    return replace(rules, pools=(*declared, *(_bounded(shape, by=pool) for shape, pool in shapes)))


def shape_of(pool: NodePool) -> GrowingPool | None:
    """The shape of the nodes by the labels of their instance type; None if these do not tell it."""
    said = _known_labels(pool.spec.template)
    numbers = {key: _number(said.get(key, "")) for key in (_GPUS, _CPU, _MIB, _GPU_MIB)}
    if not said.get(_MODEL) or not all(numbers[key] for key in (_GPUS, _CPU, _MIB)):
        return None
    is_managed = pool.spec.template.metadata.labels.get(names.LABEL_MANAGED) == "true"
    return GrowingPool(
        name=pool.metadata.name,
        labels={},
        max_nodes=MOST_NODES,
        gpus=numbers[_GPUS],
        model=said[_MODEL],
        gpu_memory_mib=numbers[_GPU_MIB],
        cpu_milli=int(1000 * numbers[_CPU] * _LEFT),
        memory_mib=int(numbers[_MIB] * _LEFT),
        resource="" if is_managed else _NVIDIA,
    )


def _bounded(shape: GrowingPool, *, by: NodePool) -> GrowingPool:
    template = by.spec.template
    taints = dict.fromkeys([*shape.taints, *template.spec.taints])
    return replace(
        shape,
        node_labels=_known_labels(template),
        labels={**shape.labels, **template.metadata.labels, POOL_LABEL: by.metadata.name},
        taints=tuple(taints),
        max_nodes=min([shape.max_nodes, *_most_nodes(shape, limits=by.spec.limits)]),
    )


def _known_labels(template: NodePoolTemplate) -> dict[str, str]:
    """The labels of every node of a template: its own, and those of which its requirements allow one value."""
    single = {
        each.key: each.values[0]
        for each in template.spec.requirements
        if each.operator == "In" and each.values and len(each.values) == 1
    }
    return {**template.metadata.labels, **single}


def _most_nodes(shape: GrowingPool, *, limits: Mapping[str, Quantity]) -> Iterable[int]:
    """How many nodes of the shape each of the limits allows; unreadable and unknown limits allow any number."""
    each_takes = {
        "nodes": (1, whole),
        "cpu": (shape.cpu_milli, milli),
        "memory": (shape.memory_mib, mebibytes),
        names.GPU_MILLI: (1000 * shape.gpus, whole),
        (shape.resource or _NVIDIA): (shape.gpus, whole),
    }
    for name, (amount, read) in each_takes.items():
        if name in limits:
            try:
                yield max(0, read(limits[name], rounding="down") // amount)
            except QuantityError:
                continue


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0

"""Ranks nodes that fit, by policy: 0 to 1, higher is better. Never changes the ledger.

The score is a weighted sum (design §6): 0.4 device utilization + 0.3 memory + 0.2 CPU + 0.1 fragmentation by default.
All terms have one unit, a share of the node with equal weight for each device, so that their differences compare:
pods that take a quarter of a node move each term by a quarter at most.

- SPREAD prefers the node with the least promised or measured load. Fragmentation decides between equally loaded nodes.
- BALANCED places as PACK does, but avoids nodes with load that no pod requests: devices, device memory and CPU in use
  beyond what is promised.
- PACK uses the fragmentation term alone (contracts §3.10), which `fragmentation_term` defines.

Under each policy, a pod that names warm nodes prefers these to nodes that are a little better: see `WARM_WEIGHT`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dovetail.api.gpujob import Policy
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.filter.single_node import SingleNode
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Columns, Floats, count_devices
from dovetail.engine.model.node_row import NodeRow
from dovetail.engine.model.settings import Weights
from dovetail.engine.score.fragmentation_term import compactness
from dovetail.gpu.request import WHOLE_MILLI

# The fragmentation of SPREAD weighs as much as the smallest share of one device. A larger stake would let a pod of
# several GPUs join a small pod on its node while others are idle.
_SMALLEST_MILLI: Final = 1
# The weight of warm nodes, where those of the other terms sum to one. Loading a model takes minutes; a node
# that is better by more than this has a quarter of its load less, or leaves room that a warm start is not worth.
WARM_WEIGHT: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of the score for some nodes, [n]; higher is better in each.

    utilization     1 less the load of the devices that counts, 0 to 1
    memory          1 less the device memory that counts, 0 to 1
    cpu             1 less the CPU that counts, 0 to 1
    stake           the share of the node that the fragmentation term decides about, 0 to 1
    fragmentation   how little the placement fragments the cluster, on a scale of its own; `relative` gives it the unit
                    of the others

    For SPREAD, promised and measured load both count; for the others, only what is measured beyond the promises.
    """

    utilization: Floats
    memory: Floats
    cpu: Floats
    stake: Floats
    fragmentation: Floats


def terms(judged: Judgement, *, fragmentation: Floats | None = None) -> Terms:
    """The terms of nodes for an ask, as its policy prefers them, each [n]. Higher is better.

    Without `fragmentation` [n], best fit is used.
    """
    fragmentation = compactness(judged) if fragmentation is None else fragmentation
    columns, ask = judged.columns, judged.ask
    cpu = _cpu(columns, policy=ask.policy)
    if ask.gpu is None:
        idle = np.zeros_like(cpu)
        stake = np.where(columns.cpu_milli > 0, _stake_milli(ask) / np.maximum(1, columns.cpu_milli), 0.0).clip(0, 1)
        return Terms(utilization=idle, memory=idle, cpu=cpu, stake=stake, fragmentation=fragmentation)
    counted = columns.promised + columns.foreign if ask.policy == "Spread" else columns.foreign
    return Terms(
        utilization=1 - _mean_over_devices(columns, values=_load(columns, policy=ask.policy)),
        memory=1 - _mean_over_devices(columns, values=_ratio(counted, whole=columns.total)),
        cpu=cpu,
        stake=(_stake_milli(ask) / (WHOLE_MILLI * np.maximum(1, count_devices(columns.present)))).clip(0, 1),
        fragmentation=fragmentation,
    )


def terms_of_node(judged: SingleNode) -> tuple[float, float, float, float]:
    """The terms utilization, memory, cpu and stake of one node, each the same number as from `terms`."""
    node, ask = judged.node, judged.ask
    cpu = _cpu_of_node(node, policy=ask.policy)
    if ask.gpu is None:
        stake = _within_one(_stake_milli(ask) / node.cpu_milli) if node.cpu_milli > 0 else 0.0
        return 0.0, 0.0, cpu, stake
    spread = ask.policy == "Spread"
    busy = taken = 0.0
    count = 0
    for slot, present in enumerate(node.present):
        if present:
            count += 1
            load, total = node.utilization[slot], node.total[slot]
            promise = 1 - node.share_left[slot] / WHOLE_MILLI
            busy += max(load, promise) if spread else max(0.0, load - promise)
            counted = node.promised[slot] + node.foreign[slot] if spread else node.foreign[slot]
            taken += counted / total if total > 0 else 0.0
    count = max(1, count)
    stake = _within_one(_stake_milli(ask) / (WHOLE_MILLI * count))
    return 1 - _within_one(busy / count), 1 - _within_one(taken / count), cpu, stake


def _stake_milli(ask: Ask) -> int:
    """What the fragmentation term may outweigh, in milli of a GPU, or of a CPU for a pod without GPUs."""
    if ask.policy == "Spread":
        return _SMALLEST_MILLI
    return ask.cpu_milli if ask.gpu is None else ask.gpu.count * ask.gpu.share_milli


def _cpu_of_node(node: NodeRow, *, policy: Policy) -> float:
    cpu_milli = node.cpu_milli
    requested = _within_one((cpu_milli - node.cpu_free) / cpu_milli if cpu_milli > 0 else 0.0)
    counted = max(requested, node.cpu_load) if policy == "Spread" else max(0.0, node.cpu_load - requested)
    return 1 - _within_one(counted)


def _within_one(value: float) -> float:
    return min(1.0, max(0.0, value))


def relative(parts: Terms, *, policy: Policy) -> Terms:
    """The terms with the fragmentation term compared over exactly these nodes, which all fit: 1 for the best.

    The worst node has 1 less its stake: a placement costs at most what it takes. Under PACK it has 0.
    """
    compared = scaled(parts.fragmentation)
    return replace(parts, fragmentation=compared if policy == "Pack" else 1 - parts.stake * (1 - compared))


def weigh(parts: Terms, *, policy: Policy, weights: Weights) -> Floats:
    """The score, 0 to 1, [n], of terms that are `relative`."""
    if policy == "Pack":
        return parts.fragmentation
    total = weights.utilization + weights.memory + weights.cpu + weights.fragmentation
    score = (
        weights.utilization * parts.utilization
        + weights.memory * parts.memory
        + weights.cpu * parts.cpu
        + weights.fragmentation * parts.fragmentation
    )
    return score / total if total else score


def combine(parts: Terms, *, policy: Policy, weights: Weights) -> Floats:
    """The score of nodes that all fit, 0 to 1, [n]."""
    return weigh(relative(parts, policy=policy), policy=policy, weights=weights)


def warmed(scores: Floats, *, ask: Ask, nodes: Sequence[str]) -> Floats:
    """The scores [n] of these nodes with the term of warm nodes, 0 to 1; as they are for a pod that names none."""
    if not ask.warm:
        return scores
    return (scores + WARM_WEIGHT * warmth(ask, nodes=nodes)) / (1 + WARM_WEIGHT)


def warmth(ask: Ask, *, nodes: Sequence[str]) -> Floats:
    """The term of warm nodes, [n]: 1 for those that the pod names, 0 for others."""
    warm = frozenset(ask.warm)
    return np.array([float(node in warm) for node in nodes])


def rank(
    ledger: Ledger,
    *,
    ask: Ask,
    nodes: Sequence[str],
    key: str,
) -> list[float]:
    """The score of each of `nodes` for `ask`, 0 to 1, in their order, with best fit as the fragmentation term.

    The caller makes sure that the nodes fit.
    """
    judged = Judgement(ledger, ask=ask, nodes=nodes, key=key)
    scores = combine(terms(judged), policy=ask.policy, weights=ask.weights)
    return list(warmed(scores, ask=ask, nodes=nodes).tolist())


def _cpu(columns: Columns, *, policy: Policy) -> Floats:
    """The term of the nodes' CPU, 0 to 1, [n]: SPREAD counts the higher of request and load, others load beyond it."""
    requested = _ratio(columns.cpu_milli - columns.cpu_free, whole=columns.cpu_milli).clip(0, 1)
    counted = np.maximum(requested, columns.cpu_load) if policy == "Spread" else columns.cpu_load - requested
    return np.asarray(1 - counted.clip(0, 1), dtype=np.float64)


def _load(columns: Columns, *, policy: Policy) -> Floats:
    """The load of each device that counts, 0 to 1, [n, d].

    For SPREAD a promise counts as load before it is measured. Otherwise a burst of pods would go to one idle node.
    """
    promised = 1 - columns.share_left / WHOLE_MILLI
    if policy == "Spread":
        return np.maximum(columns.utilization, promised)
    return np.maximum(0.0, columns.utilization - promised)


def _mean_over_devices(columns: Columns, *, values: Floats) -> Floats:
    count = np.maximum(1, count_devices(columns.present))
    total = np.zeros(len(values))
    # Device by device, as `terms_of_node` adds up: in another order, equal nodes would differ in the last digit.
    for device in np.where(columns.present, values, 0.0).T:
        total += device
    return np.asarray(total / count, dtype=np.float64).clip(0, 1)


def _ratio(part: np.typing.NDArray[np.int64], *, whole: np.typing.NDArray[np.int64]) -> Floats:
    return np.asarray(np.where(whole > 0, part / np.maximum(1, whole), 0.0), dtype=np.float64)


def scaled(values: Floats) -> Floats:
    """Values [n] scaled to 0 for the lowest and 1 for the highest, [n]; 1 if all are equal."""
    low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
    return (values - low) / (high - low) if high > low else np.ones_like(values)

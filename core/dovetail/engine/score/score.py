"""Ranks nodes that fit, by policy: 0 to 1, higher is better. Never changes the ledger.

The score is a weighted sum (design §6): 0.4 device utilization + 0.3 memory + 0.2 CPU + 0.1 fragmentation by default.
SPREAD prefers idle nodes. BALANCED packs promises, but avoids devices that are measured busy. PACK uses the
fragmentation term alone (contracts §3.10), which `fragmentation_term` defines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.api.gpujob import Policy
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.filter.single_node import SingleNode
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Columns, Floats
from dovetail.engine.model.node_row import NodeRow
from dovetail.engine.model.settings import Weights
from dovetail.engine.score.fragmentation_term import compactness
from dovetail.gpu.request import WHOLE_MILLI


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of the score for some nodes, [n]; higher is better in each.

    utilization     how idle the devices are, 0 to 1
    memory          how much device memory is promised (for SPREAD: free), 0 to 1
    cpu             how much of the node's CPU is requested (for SPREAD: free), less the load beyond it, 0 to 1
    fragmentation   how little the placement fragments the cluster, on a scale of its own
    """

    utilization: Floats
    memory: Floats
    cpu: Floats
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
        return Terms(utilization=idle, memory=idle, cpu=cpu, fragmentation=fragmentation)
    memory = _mean_over_devices(columns, values=_ratio(columns.promised + columns.foreign, whole=columns.total))
    return Terms(
        utilization=1 - _mean_over_devices(columns, values=_load(columns, policy=ask.policy)),
        memory=1 - memory if ask.policy == "Spread" else memory,
        cpu=cpu,
        fragmentation=fragmentation,
    )


def terms_of_node(judged: SingleNode) -> tuple[float, float, float]:
    """The terms utilization, memory and cpu of one node, each the same number as from `terms`."""
    node, ask = judged.node, judged.ask
    cpu = _cpu_of_node(node, policy=ask.policy)
    if ask.gpu is None:
        return 0.0, 0.0, cpu
    spread = ask.policy == "Spread"
    busy = promised = 0.0
    count = 0
    for slot, present in enumerate(node.present):
        if present:
            count += 1
            load, total = node.utilization[slot], node.total[slot]
            busy += max(load, 1 - node.share_left[slot] / WHOLE_MILLI) if spread else load
            promised += (node.promised[slot] + node.foreign[slot]) / total if total > 0 else 0.0
    memory = _within_one(promised / max(1, count))
    return 1 - _within_one(busy / max(1, count)), 1 - memory if spread else memory, cpu


def _cpu_of_node(node: NodeRow, *, policy: Policy) -> float:
    cpu_milli = node.cpu_milli
    requested = _within_one((cpu_milli - node.cpu_free) / cpu_milli if cpu_milli > 0 else 0.0)
    beyond = max(0.0, node.cpu_load - requested)
    return _within_one((1 - requested if policy == "Spread" else requested) - beyond)


def _within_one(value: float) -> float:
    return min(1.0, max(0.0, value))


def combine(parts: Terms, *, policy: Policy, weights: Weights) -> Floats:
    """The score of nodes that all fit, 0 to 1, [n]. The fragmentation term is scaled over exactly these nodes."""
    if policy == "Pack":
        return scaled(parts.fragmentation)
    total = weights.utilization + weights.memory + weights.cpu + weights.fragmentation
    score = (
        weights.utilization * parts.utilization
        + weights.memory * parts.memory
        + weights.cpu * parts.cpu
        + weights.fragmentation * scaled(parts.fragmentation)
    )
    return score / total if total else score


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
    return list(combine(terms(judged), policy=ask.policy, weights=ask.weights).tolist())


def _cpu(columns: Columns, *, policy: Policy) -> Floats:
    """The term of the nodes' CPU, 0 to 1, [n].

    A request counts whether it is used or not, for or against a node as the policy wants. Load beyond the requests,
    as of daemons and of pods without requests, counts against the node in either case.
    """
    requested = _ratio(columns.cpu_milli - columns.cpu_free, whole=columns.cpu_milli).clip(0, 1)
    beyond = np.maximum(0.0, columns.cpu_load - requested)
    return ((1 - requested if policy == "Spread" else requested) - beyond).clip(0, 1)


def _load(columns: Columns, *, policy: Policy) -> Floats:
    """Load of each device, 0 to 1, [n, d].

    For SPREAD a promise counts as load before it is measured. Otherwise a burst of pods would go to one idle node.
    """
    if policy != "Spread":
        return columns.utilization
    return np.maximum(columns.utilization, 1 - columns.share_left / WHOLE_MILLI)


def _mean_over_devices(columns: Columns, *, values: Floats) -> Floats:
    count = np.maximum(1, columns.present.sum(axis=1))
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

"""How well a node that fits would do, by policy: `rank` gives 0 to 1, higher is better. Never mutates the ledger.

The score is a weighted sum (design §6): 0.4 device utilization + 0.3 memory + 0.2 CPU + 0.1 fragmentation by default.
SPREAD prefers what is idle, BALANCED packs what is promised but keeps away from what is measured hot, and PACK looks at
the fragmentation term alone (contracts §3.10).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.api.gpujob import Policy
from dovetail.engine.claims import Ask
from dovetail.engine.fit import Judgement
from dovetail.engine.ledger import Columns, Floats, Ledger
from dovetail.requests import WHOLE_MILLI, GPURequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of the terms; they need not sum to one."""

    utilization: float = 0.4
    memory: float = 0.3
    cpu: float = 0.2
    fragmentation: float = 0.1


DEFAULT_WEIGHTS = Weights()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the score is made of, for some nodes, each 0 to 1 and of shape [n]; higher is better in all of them."""

    calm: Floats
    memory: Floats
    cpu: Floats
    tidy: Floats


def terms(judged: Judgement) -> Terms:
    """The terms of nodes for an ask, in the sense of its policy."""
    columns, ask = judged.columns, judged.ask
    cpu = _ratio(columns.cpu_milli - columns.cpu_free, columns.cpu_milli).clip(0, 1)
    if ask.gpu is None:
        idle = np.zeros_like(cpu)
        return Terms(calm=idle, memory=idle, cpu=1 - cpu if ask.policy == "Spread" else cpu, tidy=idle)
    memory = _mean_over_devices(columns, _ratio(columns.promised + columns.foreign, columns.total))
    if ask.policy == "Spread":
        memory, cpu = 1 - memory, 1 - cpu
    return Terms(
        calm=1 - _mean_over_devices(columns, _load(columns, policy=ask.policy)),
        memory=memory,
        cpu=cpu,
        tidy=1 - _fragmentation(judged, ask.gpu),
    )


def combine(parts: Terms, *, policy: Policy, weights: Weights) -> Floats:
    """The score of nodes that all fit, 0 to 1, shape [n]: the fragmentation term is scaled over just these."""
    if policy == "Pack":
        return parts.tidy
    total = weights.utilization + weights.memory + weights.cpu + weights.fragmentation
    score = (
        weights.utilization * parts.calm
        + weights.memory * parts.memory
        + weights.cpu * parts.cpu
        + weights.fragmentation * _scaled(parts.tidy)
    )
    return score / total if total else score


def rank(
    ledger: Ledger, ask: Ask, *, nodes: Sequence[str], key: str, weights: Weights = DEFAULT_WEIGHTS
) -> list[float]:
    """How well each of `nodes` would do for `ask`, 0 to 1. Nodes are taken to fit; the order is that of `nodes`."""
    judged = Judgement(ledger, ask, nodes=nodes, key=key)
    return list(combine(terms(judged), policy=ask.policy, weights=weights).tolist())


def _fragmentation(judged: Judgement, gpu: GPURequest) -> Floats:
    """What the placement costs the future, 0 to 1: how much of the node's idle capacity it leaves in pieces.

    For a share: what is left on the device that it would get, and a whole device that it would break counts most. For
    whole devices: the free ones that remain, so that the node with the fewest goes first (best fit).
    """
    columns = judged.columns
    free = judged.free_devices
    width = max(1, free.shape[1])
    whole_left = (free & (columns.tenants == 0)).sum(axis=1)
    if gpu.whole:
        return np.asarray((whole_left - gpu.count) / width, dtype=np.float64).clip(0, 1)
    left_after = np.where(free, columns.share_left - gpu.share_milli, WHOLE_MILLI)
    started = np.where(columns.tenants > 0, left_after, WHOLE_MILLI).min(axis=1, initial=WHOLE_MILLI)
    # A started device beats any untouched one; among untouched ones the node with the fewest goes first.
    untouched = 0.5 + whole_left / (2 * width)
    breaks = whole_left > 0 if judged.ask.policy == "Spread" else started == WHOLE_MILLI
    return np.where(breaks, untouched, started / (2 * WHOLE_MILLI)).clip(0, 1)


def _load(columns: Columns, *, policy: Policy) -> Floats:
    """Load of each device, 0 to 1, shape [n, d]. What SPREAD placed a moment ago is not measured yet: there a promise
    counts as load, or a burst of pods would all go to one idle node."""
    if policy != "Spread":
        return columns.utilization
    return np.maximum(columns.utilization, 1 - columns.share_left / WHOLE_MILLI)


def _mean_over_devices(columns: Columns, values: Floats) -> Floats:
    count = np.maximum(1, columns.present.sum(axis=1))
    return np.asarray(np.where(columns.present, values, 0.0).sum(axis=1) / count, dtype=np.float64).clip(0, 1)


def _ratio(part: np.typing.NDArray[np.int64], whole: np.typing.NDArray[np.int64]) -> Floats:
    return np.asarray(np.where(whole > 0, part / np.maximum(1, whole), 0.0), dtype=np.float64)


def _scaled(values: Floats) -> Floats:
    low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
    return (values - low) / (high - low) if high > low else np.ones_like(values)

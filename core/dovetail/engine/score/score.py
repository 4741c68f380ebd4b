"""How well a node that fits would do, by policy: `rank` gives 0 to 1, higher is better. Never mutates the ledger.

The score is a weighted sum (design §6): 0.4 device utilization + 0.3 memory + 0.2 CPU + 0.1 fragmentation by default.
SPREAD prefers what is idle, BALANCED packs what is promised but keeps away from what is measured hot, and PACK looks at
the fragmentation term alone (contracts §3.10). What that term is, and how it is kept, is in `tidy`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.api.gpujob import Policy
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Columns, Floats
from dovetail.engine.model.settings import Weights
from dovetail.engine.score.fragmentation_term import tidiness
from dovetail.gpu.request import WHOLE_MILLI


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the score is made of, for some nodes, each of shape [n]; higher is better in all of them. `tidy`, the
    fragmentation term, is on a scale of its own, the others are 0 to 1."""

    calm: Floats
    memory: Floats
    cpu: Floats
    tidy: Floats


def terms(judged: Judgement, *, tidy: Floats | None = None) -> Terms:
    """The terms of nodes for an ask, in the sense of its policy. Fragmentation is best fit's when none is given."""
    tidy = tidiness(judged) if tidy is None else tidy
    columns, ask = judged.columns, judged.ask
    cpu = _ratio(columns.cpu_milli - columns.cpu_free, columns.cpu_milli).clip(0, 1)
    if ask.gpu is None:
        idle = np.zeros_like(cpu)
        return Terms(calm=idle, memory=idle, cpu=1 - cpu if ask.policy == "Spread" else cpu, tidy=tidy)
    memory = _mean_over_devices(columns, _ratio(columns.promised + columns.foreign, columns.total))
    if ask.policy == "Spread":
        memory, cpu = 1 - memory, 1 - cpu
    return Terms(
        calm=1 - _mean_over_devices(columns, _load(columns, policy=ask.policy)),
        memory=memory,
        cpu=cpu,
        tidy=tidy,
    )


def combine(parts: Terms, *, policy: Policy, weights: Weights) -> Floats:
    """The score of nodes that all fit, 0 to 1, shape [n]: the fragmentation term is scaled over just these."""
    if policy == "Pack":
        return scaled(parts.tidy)
    total = weights.utilization + weights.memory + weights.cpu + weights.fragmentation
    score = (
        weights.utilization * parts.calm
        + weights.memory * parts.memory
        + weights.cpu * parts.cpu
        + weights.fragmentation * scaled(parts.tidy)
    )
    return score / total if total else score


def rank(
    ledger: Ledger,
    ask: Ask,
    *,
    nodes: Sequence[str],
    key: str,
) -> list[float]:
    """How well each of `nodes` would do for `ask`, 0 to 1, by the ledger's weights and with best fit as the
    fragmentation term. Nodes are taken to fit; the order is that of `nodes`."""
    judged = Judgement(ledger, ask, nodes=nodes, key=key)
    return list(combine(terms(judged), policy=ask.policy, weights=ledger.weights).tolist())


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


def scaled(values: Floats) -> Floats:
    """Values from 0 for the lowest to 1 for the highest; 1 where all are equal."""
    low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
    return (values - low) / (high - low) if high > low else np.ones_like(values)

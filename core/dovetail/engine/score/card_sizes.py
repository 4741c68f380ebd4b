"""Large requests prefer large cards among nodes of equal scores: small jobs find room elsewhere. Pure."""

import numpy as np

from dovetail.engine.filter.fit import Judgement
from dovetail.engine.filter.single_node import SingleNode
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Ints


def wants_large_cards(ask: Ask) -> bool:
    """Whether the request is large: several whole devices for one worker."""
    return ask.gpu is not None and ask.gpu.whole and ask.gpu.count > 1


def card_gb(judged: Judgement) -> Ints:
    """The nominal size in GB of the largest device of each node, [n]; 0 for a node without devices."""
    columns = judged.columns
    codes = np.where(columns.present, columns.model, -1)
    # The last entry is that of the code -1.
    sizes = np.zeros(int(codes.max(initial=-1)) + 2, dtype=np.int64)
    for code in np.unique(codes[codes >= 0]).tolist():
        sizes[code] = judged.ledger.nominal_gb(code)
    return np.asarray(sizes[codes].max(axis=1, initial=0), dtype=np.int64)


def card_gb_of_node(judged: SingleNode) -> int:
    """The same number for one node."""
    models = {model for model, present in zip(judged.node.model, judged.node.present, strict=True) if present}
    return max((judged.ledger.nominal_gb(code) for code in models), default=0)

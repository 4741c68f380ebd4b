"""How many workers of a gang each node could take now. Pure."""

import numpy as np

from dovetail.engine.filter.fit import Judgement
from dovetail.engine.model.columns import Ints
from dovetail.gpu.request import WHOLE_MILLI


def seats(judged: Judgement) -> Ints:
    """How many workers each node could take, [n]: exact for whole devices of one container, else an upper bound."""
    columns, ask = judged.columns, judged.ask
    assert ask.gpu is not None, "only gangs with devices have seats"
    each = ask.gpu.count + sum(part.count for part in ask.more) if ask.mode == "Exclusive" else ask.gpu.count
    places = np.where(judged.free_devices, _places(judged), 0)
    most = places.sum(axis=1) // each
    while True:
        # A device serves a worker once.
        fewer = np.minimum(places, most[:, np.newaxis]).sum(axis=1) // each
        if (fewer >= most).all():
            break
        most = fewer
    for amount, free in ((ask.cpu_milli, columns.cpu_free), (ask.memory_mib, columns.memory_free)):
        if amount:
            most = np.minimum(most, free // amount)
    most = np.minimum(most, 1 if ask.apart else columns.pods_free)
    return np.where(judged.fits, np.maximum(0, most), 0)


def _places(judged: Judgement) -> Ints:
    """How many more such tenants each free device takes, [n, d]."""
    ask, columns = judged.ask, judged.columns
    if ask.mode == "Exclusive":
        return np.ones_like(columns.total)
    if ask.mode == "TimeShared":
        places = judged.ledger.limits.turns_per_device - columns.tenants
    else:
        places = columns.share_left // max(1, min(WHOLE_MILLI, judged.gpu.share_milli))
    by_memory = judged.free_mib // np.maximum(1, judged.needed_mib)
    # Tenants that move to the host in turns do not add up.
    places = np.where(judged.movable[:, np.newaxis], places, np.minimum(places, by_memory))
    if ask.workload == "Training":
        places = np.minimum(places, columns.training_limit - columns.training)
    elif ask.workload == "Inference":
        places = np.minimum(places, columns.inference_limit - columns.inference)
    return np.maximum(0, places)

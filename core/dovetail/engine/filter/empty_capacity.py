"""How many workers an empty cluster could run at the same time. Pure.

An upper bound: a job that exceeds it can never run, so it must not be too low.
"""

import numpy as np

from dovetail.engine.filter.fit import Judgement
from dovetail.engine.model.columns import Ints
from dovetail.gpu.request import WHOLE_MILLI, GPURequest


def devices_on_empty(judged: Judgement) -> Ints:
    """How many matching devices each node has, if the node is large enough for one worker, [n]."""
    columns, ask = judged.columns, judged.ask
    host_ok = (columns.cpu_milli >= ask.cpu_milli) & (columns.memory_mib >= ask.memory_mib)
    return np.where(host_ok & columns.known, judged.indexed_devices.sum(axis=1), 0)


def workers_on_empty(judged: Judgement, *, gpu: GPURequest) -> Ints:
    """How many workers each node could run, [n]."""
    columns, ask = judged.columns, judged.ask
    workers = workers_without_host(judged, gpu=gpu)
    for each, in_all in ((ask.cpu_milli, columns.cpu_milli), (ask.memory_mib, columns.memory_mib)):
        if each:
            workers = np.minimum(workers, in_all // each)
    return workers


def workers_without_host(judged: Judgement, *, gpu: GPURequest) -> Ints:
    """The same if CPU and memory did not matter, [n]. A device can serve several workers, each of them once."""
    columns = judged.columns
    places = np.where(judged.indexed_devices, _places(judged, gpu=gpu), 0)
    most = places.sum(axis=1) // gpu.count
    while True:
        fewer = np.minimum(places, most[:, np.newaxis]).sum(axis=1) // gpu.count
        if (fewer >= most).all():
            break
        most = fewer
    return np.where(columns.known, np.minimum(most, 1 if judged.ask.apart else columns.pods), 0)


def _places(judged: Judgement, *, gpu: GPURequest) -> Ints:
    """How many such tenants an empty device takes, [n, d]."""
    ask, columns = judged.ask, judged.columns
    if ask.mode == "Exclusive":
        return np.ones_like(columns.total)
    most = judged.ledger.limits.turns_per_device if ask.mode == "TimeShared" else WHOLE_MILLI // gpu.share_milli
    of_share = judged.usable_mib * gpu.share_milli // WHOLE_MILLI
    needed = of_share if judged.asked_mib is None else judged.asked_mib
    # Tenants that move to the host in turns do not add up.
    by_memory = np.where(judged.movable[:, np.newaxis], most, judged.usable_mib // np.maximum(1, needed))
    places = np.minimum(most, by_memory)
    if ask.workload is not None:
        limit = columns.training_limit if ask.workload == "Training" else columns.inference_limit
        # An administrator may set a limit to 0 for a time, as with a cordon.
        places = np.minimum(places, np.maximum(1, limit))
    return np.asarray(places)

"""How many workers an empty cluster could ever run together. Pure.

Never fewer than there could be: who is told that it exceeds the cluster waits for nothing that departs.
"""

import numpy as np

from dovetail.engine.filter.fit import Judgement
from dovetail.engine.model.columns import Ints
from dovetail.gpu.request import WHOLE_MILLI, GPURequest


def devices_on_empty(judged: Judgement) -> Ints:
    """How many devices of this kind each node has that is large enough for one worker, [n]."""
    columns, ask = judged.columns, judged.ask
    host_ok = (columns.cpu_milli >= ask.cpu_milli) & (columns.memory_mib >= ask.memory_mib)
    return np.where(host_ok & columns.known, judged.indexed_devices.sum(axis=1), 0)


def workers_on_empty(judged: Judgement, gpu: GPURequest) -> Ints:
    """How many workers each node could run, [n]."""
    columns, ask = judged.columns, judged.ask
    workers = workers_without_host(judged, gpu)
    for each, in_all in ((ask.cpu_milli, columns.cpu_milli), (ask.memory_mib, columns.memory_mib)):
        if each:
            workers = np.minimum(workers, in_all // each)
    return workers


def workers_without_host(judged: Judgement, gpu: GPURequest) -> Ints:
    """The same if each node had CPU and memory for all, [n]. A device may serve several workers, but each once."""
    columns = judged.columns
    places = np.where(judged.indexed_devices, _places(judged, gpu), 0)
    most = places.sum(axis=1) // gpu.count
    while True:
        fewer = np.minimum(places, most[:, np.newaxis]).sum(axis=1) // gpu.count
        if (fewer >= most).all():
            break
        most = fewer
    return np.where(columns.known, np.minimum(most, 1 if judged.ask.apart else columns.pods), 0)


def _places(judged: Judgement, gpu: GPURequest) -> Ints:
    """How many tenants such as this each device takes where nobody else is, [n, d]."""
    ask, columns = judged.ask, judged.columns
    if ask.mode == "Exclusive":
        return np.ones_like(columns.total)
    most = judged.ledger.limits.turns_per_device if ask.mode == "TimeShared" else WHOLE_MILLI // gpu.share_milli
    needed = gpu.memory_mib or judged.usable_mib * gpu.share_milli // WHOLE_MILLI
    # Who is moved to the host by turns needs no room beside others.
    by_memory = np.where(judged.movable[:, np.newaxis], most, judged.usable_mib // np.maximum(1, needed))
    places = np.minimum(most, by_memory)
    if ask.workload is not None:
        limit = columns.training_limit if ask.workload == "Training" else columns.inference_limit
        # People may set one to 0 for a time, as they cordon.
        places = np.minimum(places, np.maximum(1, limit))
    return np.asarray(places)

"""Where a job runs, or why it does not, in one text. Pure."""

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from dovetail.api.gpujob import AssignedDevice, GPUJob
from dovetail.query.jobs.states import phase_of


def place_or_reason(job: GPUJob, *, one_node: bool = False) -> str:
    """`node-3:0,1` for a job that has a place, `(Resources: Need 4 GPUs, only 1 available)` for one that has none.

    On simulated nodes, where nothing really runs: `node-3:0,1 (simulated)`. Without the GPUs that the job requests:
    `node-3 (CPU)`.
    """
    status = job.status
    if status.reason and phase_of(job) != "Running":
        return f"({status.reason}: {status.message})" if status.message else f"({status.reason})"
    if status.phase is None:
        return "(Evaluating: no operator has seen it yet)"
    place = devices_text(status.devices, one_node=one_node) or ",".join(status.nodes)
    if place and status.device == "cpu" and status.request not in {"", "cpu"}:
        place = f"{place} (CPU)"
    return f"{place} (simulated)" if place and status.simulated else place


def devices_text(devices: Iterable[AssignedDevice], *, one_node: bool = False) -> str:
    """Device indexes by node: `node-3:0,1 node-4:0`; only `0,1` with `one_node`, if the cluster has one GPU node."""
    return places_text(((device.node, device.index) for device in devices), one_node=one_node)


def places_text(places: Iterable[tuple[str, int]], *, one_node: bool = False) -> str:
    """The same for devices by node and index."""
    in_order = sorted(set(places))
    by_node = {node: ",".join(str(index) for _, index in group) for node, group in groupby(in_order, key=itemgetter(0))}
    if one_node and len(by_node) == 1:
        return next(iter(by_node.values()))
    return " ".join(f"{node}:{indices}" for node, indices in by_node.items())

"""What the webhook adds to a guest when it is created, so that nothing of it starts before its turn. Pure."""

from typing import Any

from dovetail import names
from dovetail.jobs.guests.kind import Guest, Kind, Path, PodSet, value_at

Patch = list[dict[str, Any]]


def patch_of_guest(guest: Guest, *, kind: Kind, run: str, user: str) -> Patch:
    """The changes to a new object that names our queue; empty for one that Kueue admits, or that another guest owns.

    `run` is a text of which no other guest has the same. Raises `GuestError`.
    """
    labels, annotations = guest.metadata.labels, guest.metadata.annotations
    if names.LABEL_QUEUE not in labels or names.KUEUE_QUEUE in labels:
        return []
    sets = kind.pod_sets(guest.spec)
    if names.RUN not in annotations and any(names.RUN in each.template.labels for each in sets):
        # A guest's controller copies its template: the guest waits, and this object is a part of it.
        return []
    said = {**annotations, names.RUN: run, names.USER: user}
    patch: Patch = [{"op": "add", "path": "/metadata/annotations", "value": said}]
    patch += _held(guest, kind=kind)
    for each in sets:
        patch += _gated(each, run=run)
    return patch


def _held(guest: Guest, *, kind: Kind) -> Patch:
    *way, last = kind.suspend_path
    parents: Patch = [
        {"op": "add", "path": _pointer(tuple(way[:depth])), "value": {}}
        for depth in range(1, len(way) + 1)
        if value_at(guest.spec, path=tuple(way[:depth])) is None
    ]
    return [*parents, {"op": "add", "path": _pointer((*way, last)), "value": True}]


def _gated(pods: PodSet, *, run: str) -> Patch:
    template, where = pods.template, _pointer(pods.path)
    gates = [gate for gate in template.spec.get("schedulingGates") or () if gate != {"name": names.QUEUE_GATE}]
    labels = {**template.labels, names.RUN: run}
    metadata: Patch = [] if template.metadata is not None else [{"op": "add", "path": f"{where}/metadata", "value": {}}]
    return [
        *metadata,
        {"op": "add", "path": f"{where}/metadata/labels", "value": labels},
        {"op": "add", "path": f"{where}/spec/schedulingGates", "value": [*gates, {"name": names.QUEUE_GATE}]},
    ]


def _pointer(path: Path) -> str:
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return "".join(f"/{step}" for step in ("spec", *steps))

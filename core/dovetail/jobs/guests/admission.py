"""What the webhook adds to a guest when it is created, so that nothing of it starts before its turn. Pure."""

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dovetail import names
from dovetail.jobs.guests.kind import Guest, Kind, Path, PodSet, refuse_no_pods, value_at

Patch = list[dict[str, Any]]


def patch_of_guest(guest: Guest, *, kind: Kind, run: str, user: str, makers: Container[tuple[str, str]]) -> Patch:
    """The changes to a new object that names our queue; empty for one that Kueue admits.

    `run` is a text of which no other guest has the same. An object that another guest's controller made of that guest
    waits with it, and leaves the queue itself. `makers` are the groups and kinds of guests. Raises `GuestError`.
    """
    annotations = guest.metadata.annotations
    if not is_in_queue(guest):
        return []
    sets = kind.pod_sets(guest.spec)
    refuse_no_pods(sets)
    if _is_part(guest, sets=sets, user=user, makers=makers):
        return _left_out(guest)
    said = {**annotations, names.RUN: run, names.USER: user}
    patch: Patch = [{"op": "add", "path": "/metadata/annotations", "value": said}]
    patch += held(guest, kind=kind)
    for each in sets:
        patch += gated(each, run=run)
    return patch


def is_in_queue(guest: Guest) -> bool:
    """Whether the object names our queue, and is not Kueue's."""
    labels = guest.metadata.labels
    return names.LABEL_QUEUE in labels and names.KUEUE_QUEUE not in labels


def _is_part(guest: Guest, *, sets: Sequence[PodSet], user: str, makers: Container[tuple[str, str]]) -> bool:
    """Whether a guest's controller made the object of the guest's templates, as KubeRay does a RayCluster.

    A user's copy of a guest has such templates too, and waits for a turn of its own.
    """
    if not any(names.RUN in each.template.labels for each in sets):
        return False
    owners = guest.metadata.owner_references
    if not any(each.controller and (each.api_version.partition("/")[0], each.kind) in makers for each in owners):
        return False
    annotations = guest.metadata.annotations
    # KubeRay copies the annotations too. In a second look at a guest, the user is still the same.
    return names.RUN not in annotations or annotations.get(names.USER) != user


def _left_out(guest: Guest) -> Patch:
    """Take what the guest's controller has copied: with it, the part would wait for a turn of its own."""
    labels = {key: value for key, value in guest.metadata.labels.items() if key != names.LABEL_QUEUE}
    ours = {names.RUN, names.USER}
    annotations = {key: value for key, value in guest.metadata.annotations.items() if key not in ours}
    return [
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
    ]


def held(guest: Guest, *, kind: Kind) -> Patch:
    """Set the field that holds the guest."""
    *way, last = kind.suspend_path
    parents: Patch = [
        {"op": "add", "path": pointer(tuple(way[:depth])), "value": {}}
        for depth in range(1, len(way) + 1)
        if value_at(guest.spec, path=tuple(way[:depth])) is None
    ]
    return [*parents, {"op": "add", "path": pointer((*way, last)), "value": True}]


def gated(pods: PodSet, *, run: str, annotations: Mapping[str, str] = MappingProxyType({})) -> Patch:
    """Gate the pods of a template, and give them the guest's run and these annotations."""
    template, where = pods.template, pointer(pods.path)
    gates = [gate for gate in template.spec.get("schedulingGates") or () if gate != {"name": names.QUEUE_GATE}]
    labels = {**template.labels, names.RUN: run}
    metadata: Patch = [] if template.metadata is not None else [{"op": "add", "path": f"{where}/metadata", "value": {}}]
    more = {**template.annotations, **annotations}
    annotated: Patch = [{"op": "add", "path": f"{where}/metadata/annotations", "value": more}] if annotations else []
    return [
        *metadata,
        *annotated,
        {"op": "add", "path": f"{where}/metadata/labels", "value": labels},
        {"op": "add", "path": f"{where}/spec/schedulingGates", "value": [*gates, {"name": names.QUEUE_GATE}]},
    ]


def pointer(path: Path) -> str:
    """The JSON pointer of a place below `spec`."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return "".join(f"/{step}" for step in ("spec", *steps))

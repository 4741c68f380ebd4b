"""What the webhook adds to a pod that names our queue: the gate, its user, and the run of its group. Pure."""

from msgspec.structs import replace

from dovetail import names
from dovetail.api.reasons import start as says
from dovetail.jobs.guests.admission import Patch
from dovetail.jobs.guests.gangs import gang_named_by
from dovetail.jobs.guests.kind import Guest, GuestError
from dovetail.jobs.guests.pod_group import is_run_of_pods, run_of_pod, size_of
from dovetail.jobs.guests.replicas import group_in


def patch_of_queued_pod(pod: Guest, *, review: str, user: str) -> Patch:
    """The changes to a new pod; empty for one that is not in the queue, or waits with the object that made it.

    `review` is the UID of the review. What a pod says of its user and run counts for nothing: limits by user depend on
    both. Raises `GuestError`.
    """
    meta = pod.metadata
    labels, annotations = meta.labels, meta.annotations
    if names.LABEL_QUEUE not in labels or names.KUEUE_QUEUE in labels or names.LABEL_JOB in labels:
        return []
    if names.RUN in labels and not is_run_of_pods(labels[names.RUN]):
        # An object of another kind made it. A pod with a run of pods is forged, or this is a second look at it.
        return []
    if pod.spec.get("nodeName"):
        raise GuestError(says.NODE_NAMED(path="spec"))
    annotations = {key: value for key, value in annotations.items() if key != names.GANG}
    if names.POD_GROUP not in labels and (gang := gang_named_by(pod)):
        annotations = {**annotations, names.GANG: gang}
    elif names.POD_GROUP not in labels and (group := group_in(meta)):
        labels = {**labels, names.POD_GROUP: group[names.POD_GROUP]}
        annotations = {**annotations, names.POD_GROUP_SIZE: group[names.POD_GROUP_SIZE]}
    meta = replace(meta, labels=labels, annotations=annotations)
    size_of(meta)
    gates = [gate for gate in pod.spec.get("schedulingGates") or () if gate != {"name": names.QUEUE_GATE}]
    values = {
        "/metadata/labels": {**labels, names.RUN: run_of_pod(meta, review=review)},
        "/metadata/annotations": {**annotations, names.USER: user},
        "/spec/schedulingGates": [*gates, {"name": names.QUEUE_GATE}],
    }
    return [{"op": "add", "path": path, "value": value} for path, value in values.items()]

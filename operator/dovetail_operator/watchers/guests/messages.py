"""Sentences about guests that do not start. Pure."""

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.jobs.guests.pod_group import PodGroup
from dovetail_operator.watchers.guests.directory import Known


def unseen(found: Known) -> str:
    """Why a guest that no webhook saw when it was created does not wait in the queue."""
    return (
        f"Is not queued: label {names.LABEL_QUEUE} counts only on a {found.kind.resource.kind} that has it from its "
        "creation, when Dovetail's webhook holds it back"
    )


def left_over(group: PodGroup, *, record: GPUJob) -> str:
    """What to do with the gated pods of a group whose record has ended."""
    return (
        f"GPUJob {record.metadata.name} has ended ({record.status.phase}), and pod {group.going[0].name} does not "
        "start: delete the pod, and create it again"
    )


def beyond(found: Known) -> str:
    """Why a pod with the run of a guest gets neither a seat nor a turn of its own."""
    return (
        f"Stays gated: {found.resource.kind} {found.guest.metadata.name} asks for no more pods, and others have "
        "their seats"
    )


def misfit(why: str) -> str:
    """Why a pod of a guest stays gated."""
    return (
        f"Stays gated: {why}. Delete the pod, or suspend its object: when the object waits again, the queue plans what "
        "its templates say then"
    )

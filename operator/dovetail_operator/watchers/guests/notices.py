"""What is wrong with a guest or a pod of it: the sentences, and an event on the object, each once. No I/O.

A module of its own: it remembers what was said last of each object, so `keeper` says what is wrong at each look.
"""

from collections.abc import Callable

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import ObjectMeta
from dovetail.api.reasons.events import GUEST_PROBLEM
from dovetail.api.resources import PODS, Resource
from dovetail.jobs.guests.pod_group import PodGroup
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.watchers.guests.directory import Known


class Notices:
    """Posts the event `NotQueued`, and again only after another sentence or after `forget`."""

    def __init__(self, post: Callable[[Announcement], None]) -> None:
        self._post = post
        # The last sentence about each object, by UID.
        self._said: dict[str, str] = {}

    def say(self, found: Known, *, message: str) -> None:
        """Say it of a guest."""
        self._say_once(found.guest.metadata.uid, about=found.about, of=found.resource, message=message)

    def say_of_pod(self, pod: Pod, *, message: str) -> None:
        """Say it of a pod of a guest."""
        self._say_once(pod.metadata.uid, about=pod.metadata, of=PODS, message=message)

    def forget(self, uid: str) -> None:
        """Drop an object that has gone, or of which nothing is wrong any more."""
        self._said.pop(uid, None)

    def _say_once(self, uid: str, *, about: ObjectMeta, of: Resource, message: str) -> None:
        if self._said.get(uid) == message:
            return
        self._said[uid] = message
        self._post(Announcement(about=about, severity="Warning", why=GUEST_PROBLEM(problem=message)).on(of))


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

"""What is wrong with a guest or a pod of it, said as an event on the object: each sentence once. No I/O."""

from collections.abc import Callable

from dovetail.api.builtin import Pod
from dovetail.api.meta import ObjectMeta
from dovetail.api.reasons.events import GUEST_PROBLEM
from dovetail.api.resources import PODS, Resource
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

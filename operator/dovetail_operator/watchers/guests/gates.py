"""The scheduling gates of guests' pods: opened in the order of the pods' names, with a seat for each worker."""

from collections.abc import Mapping, Sequence

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType, key_of
from dovetail.jobs.guests.pod_group import PodGroup
from dovetail.jobs.guests.run import free_seats, is_gated
from dovetail.jobs.seat import Seat, seat_of
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound
from dovetail_operator.state.state import State
from dovetail_operator.watchers.guests import writes
from dovetail_operator.watchers.guests.directory import Known


class Gates:
    """The gated pods of each guest. `pods` are all pods by `namespace/name`."""

    def __init__(self, client: Client, *, state: State, pods: Mapping[str, Pod]) -> None:
        self._client = client
        self._state = state
        self._pods = pods
        # By the key of their record: the keys of gated pods, and the seats that were given and not seen yet.
        self._gated: dict[str, set[str]] = {}
        self._given: dict[str, dict[str, int]] = {}

    def pod_event(self, type_: EventType, pod: Pod, *, key: str) -> None:
        """Take an event of a pod of the guest whose record has this key."""
        gated, given = self._gated.setdefault(key, set()), self._given.setdefault(key, {})
        if type_ != "DELETED" and is_gated(pod):
            gated.add(key_of(pod.metadata))
        else:
            gated.discard(key_of(pod.metadata))
        if type_ == "DELETED" or seat_of(pod) is not None:
            given.pop(pod.metadata.uid, None)

    def forget(self, key: str) -> None:
        """Drop the pods of a guest that has gone."""
        self._gated.pop(key, None)
        self._given.pop(key, None)

    async def open(self, found: Known, *, record: GPUJob) -> str:
        """Open the gates of the guest's pods: those of its workers one for each free seat, and all others.

        Returns the version of the pod that was written last; empty without one.
        """
        gated, written = self._gated.get(found.key, set()), ""
        waiting = [
            pod for key in sorted(gated) if (pod := self._pods.get(key)) is not None and _may_open(pod, of=found)
        ]
        given = self._given.setdefault(found.key, {})
        seats = self._seats(found, record=record, waiting=waiting)
        for pod in waiting:
            seat = seats.get(pod.metadata.uid)
            if seat is None and _is_worker(pod, record=record):
                # It replaces a pod that has not ended.
                continue
            if seat is not None:
                given[pod.metadata.uid] = seat.worker
            try:
                after = await writes.open_gate(self._client, pod=pod, record=record, seat=seat)
            except (Conflict, NotFound):
                # The watch brings the newer pod.
                given.pop(pod.metadata.uid, None)
                continue
            written = after.metadata.resource_version
            gated.discard(key_of(pod.metadata))
        return written

    def _seats(self, found: Known, *, record: GPUJob, waiting: Sequence[Pod]) -> dict[str, Seat]:
        """A free seat for each waiting worker as far as they go, by the pod's UID."""
        given = set(self._given.get(found.key, {}).values())
        free = free_seats(
            self._state.store.pods.named(found.key),
            workers=record.spec.workers,
            keeps_succeeded=isinstance(found.guest, PodGroup),
        )
        open_seats = [index for index in free if index not in given]
        workers = [pod for pod in waiting if _is_worker(pod, record=record)]
        uid = record.metadata.uid
        return {
            pod.metadata.uid: Seat(job_uid=uid, worker=index) for pod, index in zip(workers, open_seats, strict=False)
        }


def _may_open(pod: Pod, *, of: Known) -> bool:
    """Whether the pod is gated, and in a group one of its own, not a surplus one."""
    return is_gated(pod) and (not isinstance(of.guest, PodGroup) or pod.metadata.uid in of.guest.uids)


def _is_worker(pod: Pod, *, record: GPUJob) -> bool:
    """Whether the pod has a seat: it has GPUs, or the record has none.

    The guest's spec is not asked: it may have changed since the record was made, and be wrong now.
    """
    return names.REQUEST in pod.metadata.annotations or record.spec.gpu is None

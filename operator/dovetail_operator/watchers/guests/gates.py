"""The scheduling gates of guests' pods: opened in the order of the pods' names, with a seat for each worker.

A seat is for a pod of the record's own request: the queue has planned that, and quotas count it.
"""

from collections.abc import Mapping

from dovetail import names
from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType, key_of
from dovetail.jobs.batch_job import taken_workers
from dovetail.jobs.guests.pod_group import PodGroup
from dovetail.jobs.guests.run import is_gated
from dovetail.jobs.seat import Seat, seat_of
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound
from dovetail.pods.seats import misfit
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
        # The UIDs of pods whose gates are being opened: the reconciler and the keeper may both open those of a guest.
        self._opening: set[str] = set()
        # The keys of all its pods that have not ended.
        self._living: dict[str, set[str]] = {}

    def pod_event(self, type_: EventType, pod: Pod, *, key: str) -> None:
        """Take an event of a pod of the guest whose record has this key."""
        gated, given = self._gated.setdefault(key, set()), self._given.setdefault(key, {})
        if type_ != "DELETED" and is_gated(pod):
            gated.add(key_of(pod.metadata))
        else:
            gated.discard(key_of(pod.metadata))
        if type_ == "DELETED" or seat_of(pod) is not None:
            given.pop(pod.metadata.uid, None)
        living = self._living.setdefault(key, set())
        if type_ == "DELETED" or is_terminated(pod):
            living.discard(key_of(pod.metadata))
        else:
            living.add(key_of(pod.metadata))

    def forget(self, key: str) -> None:
        """Drop the pods of a guest that has gone."""
        self._gated.pop(key, None)
        self._given.pop(key, None)
        self._living.pop(key, None)

    def misfits(self, found: Known, *, record: GPUJob) -> list[tuple[Pod, str]]:
        """The gated pods of the guest that have another request than the record, and why each gets no seat."""
        said = [(pod, misfit(pod.metadata.annotations, record=record)) for pod in self._waiting(found)]
        return [(pod, why) for pod, why in said if why]

    def unseated(self, found: Known, *, record: GPUJob) -> list[Pod]:
        """The gated pods of the guest that need a seat, have the size of one, and get none now."""
        given = self._given.get(found.key, {})
        return [
            pod
            for pod in [*self._waiting(found), *self._more(found)]
            if _is_worker(pod, record=record)
            and pod.metadata.uid not in given
            and not misfit(pod.metadata.annotations, record=record)
        ]

    def is_idle(self, found: Known) -> bool:
        """Whether all pods of the guest are gated."""
        return self._living.get(found.key, set()) <= self._gated.get(found.key, set())

    def has_no_worker(self, found: Known, *, record: GPUJob) -> bool:
        """Whether all pods of the guest that need a seat are gated. A head without GPUs may run."""
        open_ = self._living.get(found.key, set()) - self._gated.get(found.key, set())
        return not any(_is_worker(pod, record=record) for key in open_ if (pod := self._pods.get(key)) is not None)

    def _waiting(self, found: Known) -> list[Pod]:
        """The gated pods that get seats: of a group its own and no surplus ones, of a gang in the order of ranks."""
        waiting = list(filter(is_gated, self._all_gated(found)))
        if not isinstance(found.guest, PodGroup):
            return waiting
        # A group may have thousands of surplus pods.
        own, ranks = found.guest.member_uids, {uid: at for at, uid in enumerate(found.guest.order)}
        waiting = [pod for pod in waiting if pod.metadata.uid in own]
        return sorted(waiting, key=lambda pod: ranks.get(pod.metadata.uid, 0))

    def _more(self, found: Known) -> list[Pod]:
        """The gated pods of a gang beyond those that start together."""
        more = set(found.guest.more) if isinstance(found.guest, PodGroup) else set()
        return [pod for pod in self._all_gated(found) if pod.metadata.uid in more and is_gated(pod)]

    def _all_gated(self, found: Known) -> list[Pod]:
        return [pod for key in sorted(self._gated.get(found.key, ())) if (pod := self._pods.get(key)) is not None]

    async def open(self, found: Known, *, record: GPUJob, workers: int) -> str:
        """Open the gates of the guest's pods: those of its workers one for each free seat, and all without GPUs.

        No more than `workers` of them get a seat. Returns the version of the pod that was written last; empty without
        one.
        """
        gated, written = self._gated.get(found.key, set()), ""
        for pod in self._waiting(found):
            uid, given = pod.metadata.uid, self._given.setdefault(found.key, {})
            if uid in self._opening or misfit(pod.metadata.annotations, record=record):
                continue
            # Chosen here and not for all pods at once: another call may have given a seat during the last write.
            seat = self._seat(found, pod=pod, record=record, workers=workers)
            if seat is None and _is_worker(pod, record=record):
                # It replaces a pod that has not ended.
                continue
            if seat is not None:
                given[uid] = seat.worker
            self._opening.add(uid)
            try:
                after = await writes.open_gate(self._client, pod=pod, record=record, seat=seat)
            except (Conflict, NotFound):
                # The watch brings the newer pod.
                given.pop(uid, None)
                continue
            finally:
                self._opening.discard(uid)
            written = after.metadata.resource_version
            gated.discard(key_of(pod.metadata))
        return written

    def _seat(self, found: Known, *, pod: Pod, record: GPUJob, workers: int) -> Seat | None:
        """The seat of a waiting pod: the one that a write without an answer gave it, or the first free one."""
        uid, placement = record.metadata.uid, record.status.placement
        if not _is_worker(pod, record=record) or (placement is None and record.spec.gpu is not None):
            # The watch of records may be late: without its plan, the pod would be placed like any other.
            return None
        given = self._given.setdefault(found.key, {})
        if (worker := given.get(pod.metadata.uid)) is not None:
            return Seat(job_uid=uid, worker=worker)
        taken = taken_workers(self._state.store.pods.of_run(uid)) | set(given.values())
        if len(taken) >= workers:
            return None
        released = set(() if placement is None else placement.released)
        free = (index for index in range(record.spec.workers) if index not in taken | released)
        return next((Seat(job_uid=uid, worker=index) for index in free), None)


def _is_worker(pod: Pod, *, record: GPUJob) -> bool:
    """Whether the pod has a seat: it has GPUs, or the record has none.

    The guest's spec is not asked: it may have changed since the record was made, and be wrong now.
    """
    return names.REQUEST in pod.metadata.annotations or record.spec.gpu is None

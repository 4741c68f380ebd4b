"""Keeps the record of each guest, shows the record its guest as a batch Job, and opens the gates of its pods.

What is wanted follows from guests, records and pods alone: a new operator continues where the one before it ended.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, GPUJobStatus, is_finished
from dovetail.api.meta import EventType, key_of
from dovetail.jobs.batch_job import is_going, is_guests
from dovetail.jobs.guests.kind import Guest, GuestError, Kind, has_ended, is_suspended
from dovetail.jobs.guests.record import Manifest, guest_reference, is_record_of, record_of
from dovetail.jobs.guests.run import as_batch_job, free_seats, is_gated
from dovetail.jobs.obstacle import Obstacle
from dovetail.jobs.seat import Seat, seat_of
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound
from dovetail.kube.retry import Backoff
from dovetail.kube.retry_log import log_failure
from dovetail.kube.workqueue import WorkQueue
from dovetail_operator.events.announcement import Announcement, announcement
from dovetail_operator.state.state import State
from dovetail_operator.watchers.guests import writes
from dovetail_operator.watchers.guests.directory import Directory, Known
from dovetail_operator.watchers.guests.watch import KindWatch, KindWatches
from dovetail_operator.writes import jobs

_HANDS: Final = 8
_BACKOFF: Final = Backoff(first_seconds=0.5, longest_seconds=30.0)
# A guest whose record was refused is tried again after this time: a quota of the namespace may have room then.
_REFUSED_SECONDS: Final = 60.0
# Of a record, what may follow the guest as long as it exists, and what only another record can follow.
_FOLLOWED: Final = ("priority", "preemptible")
_FIXED: Final = ("gpu", "workers", "mode")


class GuestKeeper:
    """Keeps the records of all guests. It is a follower of the store; pass it every event of a pod.

    `pods` are all pods by `namespace/name`. Connect `show` before `run`: it receives each guest as the batch Job of its
    record. Run `watches` first.
    """

    def __init__(
        self,
        client: Client,
        *,
        state: State,
        kinds: Sequence[Kind],
        post: Callable[[Announcement], None],
        pods: Mapping[str, Pod],
        rng: random.Random,
    ) -> None:
        self.watches = KindWatches([KindWatch(client, kind=kind, on_event=self._on_guest) for kind in kinds])
        self._client = client
        self._state = state
        self._show: Callable[[EventType, Job], None] = lambda _type, _job: None
        self._post = post
        self._pods = pods
        self._rng = rng
        self._guests = Directory()
        # The keys of records.
        self._queue = WorkQueue()
        # By the key of their record: the keys of gated pods, and the seats that were given and not seen yet.
        self._gated: dict[str, set[str]] = {}
        self._given: dict[str, dict[str, int]] = {}
        # The last sentence about each guest that cannot wait in the queue, by UID.
        self._told: dict[str, str] = {}
        # The status of each record that its guest's events have shown, by UID.
        self._announced: dict[str, GPUJobStatus] = {}
        state.store.follow(self)

    def connect(self, show: Callable[[EventType, Job], None]) -> None:
        """Pass each guest to `show` as a batch Job."""
        self._show = show

    async def run(self) -> None:
        """Keep records and open gates until cancelled. All caches must be complete."""
        for key in self._guests:
            self._queue.add(key)
        await self._queue.serve(self._keep, hands=_HANDS, failed=_tried_again, rng=self._rng, backoff=_BACKOFF)

    async def hold(self, record: GPUJob, *, suspend: bool) -> Job | None:
        """Hold the guest of a record or let it go. Returns it as a batch Job, None if it is so already or has gone.

        Raises `Conflict` if the guest has changed since it was read.
        """
        found = self._guests.of_record(record)
        if found is None or is_suspended(found.guest, kind=found.kind) == suspend:
            return None
        guest = await writes.hold(self._client, found=found, suspend=suspend)
        return self._as_job(Known(guest=guest, kind=found.kind), record=record)

    # --- events ------------------------------------------------------------------------------------------------

    def observe(self, job: GPUJob) -> None:
        """Take a new version of a GPUJob: a record's guest is shown to it, and its gates may open."""
        if not is_guests(job):
            return
        self._queue.add(key_of(job.metadata))
        before = self._announced.get(job.metadata.uid)
        self._announced[job.metadata.uid] = job.status
        found = self._guests.of_record(job)
        if before is None or found is None:
            return
        earlier = GPUJob(metadata=found.guest.metadata, spec=job.spec, status=before)
        if (news := announcement(earlier, status=job.status)) is not None:
            self._post(news.on(found.kind.resource))

    def drop(self, job: GPUJob) -> None:
        """Take the deletion of a GPUJob: a guest that still exists gets another record."""
        if is_guests(job):
            self._announced.pop(job.metadata.uid, None)
            self._queue.add(key_of(job.metadata))

    def pod_event(self, type_: EventType, pod: Pod) -> None:
        """Take an event of any pod: its gate may have to open, or its seat be free."""
        run = pod.metadata.labels.get(names.RUN)
        if run is None:
            return
        meta, key = pod.metadata, self._guests.of_run(run, namespace=pod.metadata.namespace)
        if key is None:
            return
        gated, given = self._gated.setdefault(key, set()), self._given.setdefault(key, {})
        if type_ != "DELETED" and is_gated(pod):
            gated.add(key_of(meta))
        else:
            gated.discard(key_of(meta))
        if type_ == "DELETED" or seat_of(pod) is not None:
            given.pop(meta.uid, None)
        self._queue.add(key)

    def _on_guest(self, type_: EventType, guest: Guest, kind: Kind) -> None:
        if names.KUEUE_QUEUE in guest.metadata.labels:
            return
        found = Known(guest=guest, kind=kind)
        if type_ != "DELETED":
            is_new = self._guests.at(found.key) is None
            self._guests.put(found)
            self._queue.add(found.key)
            if is_new:
                self._find_pods(found)
            return
        self._guests.drop(found)
        self._told.pop(guest.metadata.uid, None)
        for known in (self._gated, self._given):
            known.pop(found.key, None)
        record = self._state.store.jobs.get(found.key)
        if record is not None and is_record_of(record, guest=guest):
            self._show("DELETED", self._as_job(found, record=record))

    def _find_pods(self, found: Known) -> None:
        """Take the pods that were seen before their guest."""
        for pod in self._pods.values():
            if found.run and pod.metadata.labels.get(names.RUN) == found.run:
                self.pod_event("MODIFIED", pod)

    # --- work --------------------------------------------------------------------------------------------------

    async def _keep(self, key: str) -> None:
        found = self._guests.at(key)
        if found is None or found.guest.metadata.deletion_timestamp is not None:
            return
        if not found.run:
            self._say(found, message=_unseen(found))
            return
        record = self._state.store.jobs.get(key)
        try:
            wanted = record_of(found.guest, kind=found.kind, vendors=self._state.store.view.vendors)
        except GuestError as error:
            if record is None or not is_record_of(record, guest=found.guest):
                self._say(found, message=f"Is not queued: {error}")
            else:
                # It was queued before it was changed: what it holds is still followed until it ends.
                self._say(found, message=f"GPUJob {record.metadata.name} stays as it was: {error}")
                await self._follow(found, record=record, wanted=None)
            return
        if record is None:
            await self._create(found, wanted=wanted)
        elif not is_record_of(record, guest=found.guest):
            # The garbage collector deletes the record of a guest that has gone; any other GPUJob is in the way.
            if guest_reference(record) is None:
                self._say(found, message=f"Is not queued: GPUJob {record.metadata.name} has the name of its record")
            self._queue.add_later(key, seconds=_REFUSED_SECONDS)
        else:
            await self._follow(found, record=record, wanted=wanted)

    async def _create(self, found: Known, *, wanted: Manifest) -> None:
        if has_ended(found.guest, kind=found.kind):
            return
        if not is_suspended(found.guest, kind=found.kind):
            # Its record was deleted, and its pods have seats of that one: it waits for its turn once more.
            await writes.hold(self._client, found=found, suspend=True)
        made = await writes.create_record(self._client, found=found, manifest=wanted)
        if isinstance(made, Obstacle):
            self._say(found, message=f"Is not queued: {made.message}")
            self._queue.add_later(found.key, seconds=_REFUSED_SECONDS)

    async def _follow(self, found: Known, *, record: GPUJob, wanted: Manifest | None) -> None:
        """Show the guest to its record, and change the record to what is wanted; None leaves it as it is."""
        shown = self._as_job(found, record=record)
        known = self._state.store.child_named(found.key)
        if known is not None and known.metadata.uid != record.metadata.uid:
            self._show("DELETED", known)
            known = None
        if known is None or known.metadata.resource_version != shown.metadata.resource_version:
            self._show("MODIFIED", shown)
        if is_finished(record) or is_going(record):
            return
        if wanted is not None:
            self._told.pop(found.guest.metadata.uid, None)
            now = values_of(record.spec)
            if shown.spec.suspend and any(now.get(field, 1) != wanted["spec"].get(field, 1) for field in _FIXED):
                # These cannot change in a GPUJob.
                await jobs.delete_gpujob(self._client, job=record)
                return
            if change := _changes(now, wanted=wanted["spec"]):
                await writes.change_record(self._client, record=record, spec=change)
        if not shown.spec.suspend:
            await self._open_gates(found, record=record)

    async def _open_gates(self, found: Known, *, record: GPUJob) -> None:
        """Open the gates of the guest's pods: those of its workers one for each free seat, and all others."""
        gated = self._gated.get(found.key, set())
        waiting = [pod for key in sorted(gated) if (pod := self._pods.get(key)) is not None and is_gated(pod)]
        given = self._given.setdefault(found.key, {})
        seats = self._seats(found, record=record, waiting=waiting)
        for pod in waiting:
            seat = seats.get(pod.metadata.uid)
            if seat is None and self._is_worker(pod, found=found):
                # It replaces a pod that has not ended.
                continue
            if seat is not None:
                given[pod.metadata.uid] = seat.worker
            try:
                await writes.open_gate(self._client, pod=pod, record=record, seat=seat)
            except (Conflict, NotFound):
                # The watch brings the newer pod.
                given.pop(pod.metadata.uid, None)
                continue
            gated.discard(key_of(pod.metadata))

    def _seats(self, found: Known, *, record: GPUJob, waiting: Sequence[Pod]) -> dict[str, Seat]:
        """A free seat for each waiting worker as far as they go, by the pod's UID."""
        given = set(self._given.get(found.key, {}).values())
        free = free_seats(self._state.store.pods.named(found.key), workers=record.spec.workers)
        open_seats = [index for index in free if index not in given]
        workers = [pod for pod in waiting if self._is_worker(pod, found=found)]
        uid = record.metadata.uid
        return {
            pod.metadata.uid: Seat(job_uid=uid, worker=index) for pod, index in zip(workers, open_seats, strict=False)
        }

    def _is_worker(self, pod: Pod, *, found: Known) -> bool:
        sets = found.kind.pod_sets(found.guest.spec)
        return names.REQUEST in pod.metadata.annotations or not any(each.asks_for_gpus for each in sets)

    def _as_job(self, found: Known, *, record: GPUJob) -> Job:
        asks = self._state.requests.read(record).asks
        resource = asks[0].resource if asks else ""
        return as_batch_job(found.guest, kind=found.kind, record=record, resource=resource)

    def _say(self, found: Known, *, message: str) -> None:
        """Post an event on the guest, once for each message."""
        about = found.guest.metadata
        if self._told.get(about.uid) == message:
            return
        self._told[about.uid] = message
        news = Announcement(about=about, severity="Warning", reason="NotQueued", message=message)
        self._post(news.on(found.kind.resource))


def _unseen(found: Known) -> str:
    return (
        f"Is not queued: label {names.LABEL_QUEUE} counts only on a {found.kind.resource.kind} that has it from its "
        "creation, when Dovetail's webhook holds it back"
    )


def _changes(now: Mapping[str, Any], *, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record's spec that follow the guest and differ from it."""
    defaults = {"priority": 10, "preemptible": True}
    return {field: wanted[field] for field in _FOLLOWED if now.get(field, defaults[field]) != wanted[field]}


def _tried_again(key: str, error: Exception, wait: float) -> None:
    log_failure("a guest is tried again", error=error, wait=wait, job=key)

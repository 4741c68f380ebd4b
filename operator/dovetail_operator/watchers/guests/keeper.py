"""Keeps the record of each guest, shows the record its guest as a batch Job, and opens the gates of its pods.

What is wanted follows from guests, records and pods alone: a new operator continues where the one before it ended.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from dovetail import names
from dovetail.api.builtin import Job, Pod, is_terminated
from dovetail.api.gpujob import GPUJob, GPUJobStatus, is_finished
from dovetail.api.meta import EventType, key_of
from dovetail.jobs.batch_job import is_going, is_guests
from dovetail.jobs.guests.gangs import levels_of
from dovetail.jobs.guests.kind import Guest, GuestError, Kind, NoPodsError, has_ended, is_suspended
from dovetail.jobs.guests.pod_group import SINGLE_PODS, PodGroup, added_pod, guest_of, is_run_of_pods, refuse_unready
from dovetail.jobs.guests.record import Manifest, is_record_of, record_of
from dovetail.jobs.guests.run import as_batch_job
from dovetail.jobs.obstacle import Obstacle
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, Status
from dovetail.kube.retry import Backoff
from dovetail.kube.retry_log import log_failure
from dovetail.kube.workqueue import WorkQueue
from dovetail.pods.seats import can_come
from dovetail_operator.events.announcement import Announcement, announcement, first_estimate
from dovetail_operator.state.state import State
from dovetail_operator.state.store import is_newer
from dovetail_operator.watchers.guests import changes, notices, writes
from dovetail_operator.watchers.guests.directory import GONE, Directory, Known, key_of_pod
from dovetail_operator.watchers.guests.gates import Gates
from dovetail_operator.watchers.guests.notices import Notices
from dovetail_operator.watchers.guests.pod_groups import PodGroupWatch
from dovetail_operator.watchers.guests.seat_counts import SeatCounts
from dovetail_operator.watchers.guests.train_jobs import watch_of
from dovetail_operator.watchers.guests.watch import KindWatches
from dovetail_operator.writes import jobs

_HANDS: Final = 8
_BACKOFF: Final = Backoff(first_seconds=0.5, longest_seconds=30.0)
# A guest whose record was refused is tried again after this time: a quota of the namespace may have room then.
_REFUSED_SECONDS: Final = 60.0
# The pods of a group are created one after the other, and the JobSet of a TrainJob after it: only after this time are
# missing ones worth a message.
_PATIENCE_SECONDS: Final = 20.0


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
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._groups = PodGroupWatch(client, on_event=self._on_guest)
        followed = [watch_of(each, client=client, on_event=self._on_guest) for each in kinds]
        self.watches = KindWatches([*followed, self._groups])
        self._client = client
        self._state = state
        self._show: Callable[[EventType, Job], None] = lambda _type, _job: None
        self._post = post
        self._pods = pods
        self._rng = rng
        self._now = now
        self._clock = clock
        self._guests = Directory()
        # The keys of records.
        self._queue = WorkQueue()
        self._gates = Gates(client, state=state, pods=pods)
        self._counts = SeatCounts(
            state,
            guests=self._guests,
            look_again=lambda key, seconds: self._queue.add_later(key, seconds=seconds),
            clock=clock,
        )
        # Since when a group of pods is incomplete, by the key of its record.
        self._incomplete: dict[str, float] = {}
        # Since when a pod is more than its guest asks for, by UID.
        self._beyond: dict[str, float] = {}
        self._notices = Notices(post)
        # The status of each record that its guest's events have shown, by UID.
        self._announced: dict[str, GPUJobStatus] = {}
        state.store.follow(self)

    def connect(self, show: Callable[[EventType, Job], None]) -> None:
        """Pass each guest to `show` as a batch Job."""
        self._show = show

    async def run(self) -> None:
        """Keep records and open gates until cancelled. All caches must be complete."""
        for key in [*self._guests, *(key for key, job in self._state.store.jobs.items() if is_guests(job))]:
            self._queue.add(key)
        for pod in self._pods.values():
            # Those by which a guest has grown have records, which may have been listed after them.
            self.pod_event("MODIFIED", pod)
        await self._queue.serve(self._keep, hands=_HANDS, failed=_tried_again, rng=self._rng, backoff=_BACKOFF)

    async def hold(self, record: GPUJob, *, suspend: bool) -> Job | None:
        """Hold the guest of a record or let it go. Returns it as a batch Job, None if it is so already or has gone.

        Raises `Conflict` if the guest has changed since it was read.
        """
        found = self._guests.of_record(record)
        if found is None or is_suspended(found.guest, kind=found.kind) == suspend:
            return None
        if isinstance(found.guest, PodGroup):
            return await self._hold_pods(found, record=record, group=found.guest, suspend=suspend)
        guest = await writes.hold(self._client, found=found, suspend=suspend)
        return self._as_job(Known(guest=guest, kind=found.kind), record=record)

    async def _hold_pods(self, found: Known, *, record: GPUJob, group: PodGroup, suspend: bool) -> Job | None:
        """Open the gates of a group, or end its pods: a pod cannot be suspended."""
        if suspend:
            await writes.evict(self._client, group=group)
            # The next version is that of a pod that ends.
            version = str(int(group.metadata.resource_version) + 1)
        else:
            # The store may not have the plan yet that was just written, and the pods name it.
            newest = await writes.newest(self._client, record=record)
            workers = self._counts.seats(found, record=newest)
            if not (version := await self._gates.open(found, record=newest, workers=workers)):
                if self._gates.misfits(found, record=newest):
                    return None
                # No event of the record would bring another attempt when the watch brings its gated pods.
                raise Conflict(Status(code=409, reason="Conflict", message=f"no gated pod of {found.key} is seen yet"))
        meta, spec = replace(group.metadata, resource_version=version), {**group.spec, "suspend": suspend}
        return self._as_job(Known(guest=replace(group, metadata=meta, spec=spec), kind=found.kind), record=record)

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
        earlier = GPUJob(metadata=found.about, spec=job.spec, status=before)
        # Its own kind's status may say nothing of the queue.
        changed = announcement(earlier, status=job.status, shows_status=False)
        for news in (changed, first_estimate(earlier, status=job.status)):
            if news is not None:
                self._post(news.on(found.resource))

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
        if type_ == "DELETED":
            self._notices.forget(pod.metadata.uid)
            self._beyond.pop(pod.metadata.uid, None)
        key = self._guests.of_run(run, namespace=pod.metadata.namespace)
        if key is not None:
            self._queue.add(key)
        if self._waits_by_itself(pod, run=run, of=key):
            self._take_added(pod, type_=type_, of=key)
        elif key is not None:
            self._gates.pod_event(type_, pod, key=key)

    def _waits_by_itself(self, pod: Pod, *, run: str, of: str | None) -> bool:
        """Whether a guest has grown by the pod: this operator has decided it, or one before it has made the record."""
        if self._guests.added_pod(pod.metadata) is not None:
            return True
        own = key_of_pod(pod.metadata)
        record = self._state.store.jobs.get(own)
        if record is None or not is_guests(record) or own == of or (of is None and is_run_of_pods(run)):
            return False
        return any(owner.uid == pod.metadata.uid for owner in record.metadata.owner_references)

    def _take_added(self, pod: Pod, *, type_: EventType, of: str | None) -> None:
        """Take an event of a pod by which the guest whose record has the key `of` has grown; None if that has gone."""
        known, own = self._guests.added_pod(pod.metadata), key_of_pod(pod.metadata)
        if of is not None:
            self._gates.pod_event("DELETED", pod, key=of)
        if type_ == "DELETED" or pod.metadata.deletion_timestamp is not None:
            if known is not None:
                self._lose(known)
            return
        whole = None if of is None else self._guests.at(of)
        record = self._state.store.jobs.get(of or own) or self._state.store.jobs.get(own)
        if record is None:
            return
        group = added_pod(pod, to=guest_of(record) if whole is None else whole.guest, record=record)
        if group is not None:
            self._gates.pod_event(type_, pod, key=own)
            self._take(Known(guest=group, kind=SINGLE_PODS, of=of or GONE))

    def _on_guest(self, type_: EventType, guest: Guest, kind: Kind) -> None:
        if names.KUEUE_QUEUE in guest.metadata.labels:
            return
        found = Known(guest=guest, kind=kind)
        if type_ == "DELETED":
            self._lose(found)
        else:
            self._take(found)

    def _take(self, found: Known) -> None:
        before = self._guests.at(found.key)
        is_new = before is None or before.run != found.run
        self._guests.put(found)
        self._queue.add(found.key)
        if is_new and not found.of:
            self._find_pods(found)

    def _lose(self, found: Known) -> None:
        guest = found.guest
        self._guests.drop(found)
        self._notices.forget(guest.metadata.uid)
        self._incomplete.pop(found.key, None)
        self._counts.forget(found.key)
        self._gates.forget(found.key)
        self._queue.add(found.key)
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
        found, record = self._guests.at(key), self._state.store.jobs.get(key)
        if found is None:
            await self._end_without_owner(record)
            return
        if found.guest.metadata.deletion_timestamp is not None:
            if record is not None and is_record_of(record, guest=found.guest):
                self._present(found, record=record)
            return
        if not found.run:
            self._notices.say(found, message=notices.unseen(found))
            return
        if found.of and await self._returns(found, record=record):
            return
        try:
            wanted = self._wanted(found)
        except GuestError as error:
            await self._refuse(found, record=record, error=error)
            return
        self._incomplete.pop(key, None)
        if record is None:
            await self._create(found, wanted=wanted)
        elif not is_record_of(record, guest=found.guest):
            if not is_guests(record):
                self._notices.say(
                    found, message=f"Is not queued: GPUJob {record.metadata.name} has the name of its record"
                )
                self._queue.add_later(key, seconds=_REFUSED_SECONDS)
            else:
                await self._end_without_owner(record)
        else:
            await self._follow(found, record=record, wanted=wanted)

    async def _end_without_owner(self, record: GPUJob | None) -> None:
        """End the record of a guest that has gone, with what it holds. Its pods may go on: they count as plain pods.

        The garbage collector deletes the record too, unless the guest was deleted with `--cascade=orphan`.
        """
        if record is None or not is_guests(record) or is_going(record):
            return
        if await writes.has_owner(self._client, record=record):
            self._queue.add_later(key_of(record.metadata), seconds=_REFUSED_SECONDS)
        else:
            await jobs.delete_gpujob(self._client, job=record)

    def _wanted(self, found: Known) -> Manifest:
        """The record that the guest should have. Raises `GuestError`."""
        gang = None
        if isinstance(found.guest, PodGroup):
            refuse_unready(found.guest)
            gang = found.guest.gang
        made = record_of(found.guest, kind=found.kind, vendors=self._state.store.view.vendors)
        if gang is not None and (topology := levels_of(gang, named=self._state.requests.levels)):
            made["spec"]["topology"] = topology
        return made

    async def _refuse(self, found: Known, *, record: GPUJob | None, error: GuestError) -> None:
        """Say why a guest cannot wait in the queue. A record that it has already is followed until it ends."""
        if record is None or not is_record_of(record, guest=found.guest):
            await self._end_without_owner(record)
            if self._is_growing(found):
                self._queue.add_later(found.key, seconds=_PATIENCE_SECONDS)
            else:
                self._notices.say(found, message=f"Is not queued: {error}")
        elif self._waits_for_nothing(found, record=record):
            await jobs.delete_gpujob(self._client, job=record)
        else:
            # The JobSet of a TrainJob may have been deleted since it ended.
            is_over = found.guest.is_growing and has_ended(found.guest, kind=found.kind)
            if not (is_over or isinstance(error, NoPodsError)):
                self._notices.say(found, message=f"GPUJob {record.metadata.name} stays as it was: {error}")
            await self._follow(found, record=record, wanted=None)

    def _waits_for_nothing(self, found: Known, *, record: GPUJob) -> bool:
        """Whether the record of a held guest would get GPUs for which no pod comes."""
        if is_finished(record) or not is_suspended(found.guest, kind=found.kind):
            return False
        # A pod of a group was deleted while it waited: the queue would give GPUs to a part of the group.
        return isinstance(found.guest, PodGroup) or not can_come(found.guest, kind=found.kind, record=record)

    def _is_growing(self, found: Known) -> bool:
        """Whether a part of the guest is missing that is probably about to be created."""
        if not found.guest.is_growing:
            return False
        since = self._incomplete.setdefault(found.key, self._clock())
        return self._clock() - since < _PATIENCE_SECONDS

    async def _create(self, found: Known, *, wanted: Manifest) -> None:
        if has_ended(found.guest, kind=found.kind):
            return
        if not is_suspended(found.guest, kind=found.kind):
            # Its record was deleted, and its pods have seats of that one: it waits for its turn once more.
            if isinstance(found.guest, PodGroup):
                await writes.evict(self._client, group=found.guest)
                return
            await writes.hold(self._client, found=found, suspend=True)
        if isinstance(found.guest, PodGroup) and (warm := self._groups.warm_nodes(found.guest)):
            metadata = wanted["spec"]["template"].setdefault("metadata", {})
            metadata["annotations"] = {names.WARM_NODES: ",".join(warm)}
        made = await writes.create_record(self._client, found=found, manifest=wanted)
        if isinstance(made, Obstacle):
            self._notices.say(found, message=f"Is not queued: {made.message}")
            self._queue.add_later(found.key, seconds=_REFUSED_SECONDS)

    async def _follow(self, found: Known, *, record: GPUJob, wanted: Manifest | None) -> None:
        """Show the guest to its record, and change the record to what is wanted; None leaves it as it is."""
        shown = self._present(found, record=record)
        group = found.guest if isinstance(found.guest, PodGroup) else None
        if is_finished(record):
            if group is not None and group.going:
                self._notices.say(found, message=notices.left_over(group, record=record))
            return
        if is_going(record):
            return
        is_held = bool(shown.spec.suspend)
        if wanted is not None:
            if is_held and changes.fixed(record.spec, wanted=wanted["spec"]):
                # These cannot change in a GPUJob.
                await jobs.delete_gpujob(self._client, job=record)
                return
            change = changes.followed(record.spec, wanted=wanted["spec"], is_held=is_held)
            await self._change(found, record=record, change=change)
        if group is not None:
            await self._follow_group(group, found=found, record=record)
        if not is_held and await self._has_no_plan(found, record=record):
            # It was resumed for a record that has gone meanwhile, or by its owner: it waits for its turn once more.
            await writes.hold(self._client, found=found, suspend=True)
            return
        if not is_held:
            for pod, why in self._gates.misfits(found, record=record):
                self._notices.say_of_pod(pod, message=notices.misfit(why))
            await self._gates.open(found, record=record, workers=self._counts.seats(found, record=record))
            await self._grow(found, record=record)
        if group is not None:
            await self._say_scheduled(group, record=record)

    async def _has_no_plan(self, found: Known, *, record: GPUJob) -> bool:
        """Whether a resumed guest, of which no worker runs, has pods and no plan by which they could start."""
        if isinstance(found.guest, PodGroup) or record.spec.gpu is None or record.status.placement is not None:
            return False
        if not self._gates.has_no_worker(found, record=record) or not self._gates.unseated(found, record=record):
            return False
        # The store may not have the plan yet that was just written.
        return (await writes.newest(self._client, record=record)).status.placement is None

    async def _grow(self, found: Known, *, record: GPUJob) -> None:
        """Let the pods wait by themselves by which a running guest has grown: it keeps no seats for them.

        A guest of which nothing runs returns to the queue as a whole.
        """
        if found.of or not (left := self._gates.unseated(found, record=record)):
            return
        coming, added = self._counts.coming(found, record=record), self._counts.added(found)
        seats = self._counts.seats(found, record=record)
        if not seats and not added and coming and self._gates.is_idle(found) and not isinstance(found.guest, PodGroup):
            await writes.hold(self._client, found=found, suspend=True)
            return
        more = max(0, coming - added - seats)
        for pod in left[:more]:
            self._take_added(pod, type_="MODIFIED", of=found.key)
        seated = self._state.store.pods.of_run(record.metadata.uid)
        living = sum(not is_terminated(pod) and pod.metadata.deletion_timestamp is None for pod in seated)
        for pod in left[more:] if living + added + more >= coming else ():
            since = self._beyond.setdefault(pod.metadata.uid, self._clock())
            if self._clock() - since >= _PATIENCE_SECONDS:
                self._notices.say_of_pod(pod, message=notices.beyond(found))
            else:
                self._queue.add_later(found.key, seconds=_PATIENCE_SECONDS)

    async def _returns(self, found: Known, *, record: GPUJob | None) -> bool:
        """Whether a pod that waits by itself waits with its guest again, which returned to the queue as a whole."""
        whole, pod = self._guests.at(found.of), self._pods.get(key_of(found.guest.metadata))
        if whole is None or not is_suspended(whole.guest, kind=whole.kind):
            return False
        if pod is None or not is_suspended(found.guest, kind=found.kind):
            return False
        if record is not None and is_record_of(record, guest=found.guest):
            await jobs.delete_gpujob(self._client, job=record)
        else:
            self._lose(found)
            self._gates.pod_event("MODIFIED", pod, key=found.of)
        return True

    def _present(self, found: Known, *, record: GPUJob) -> Job:
        """Show the guest to its record if that has not seen it so."""
        shown = self._as_job(found, record=record)
        known = self._state.store.child_named(found.key)
        if known is not None and known.metadata.uid != record.metadata.uid:
            self._show("DELETED", known)
            known = None
        if known is None or (shown != known and not is_newer(known.metadata, known=shown.metadata)):
            self._show("MODIFIED", shown)
        return shown

    async def _change(self, found: Known, *, record: GPUJob, change: Manifest) -> None:
        """Change these fields of the record, or say on the guest why they cannot change."""
        obstacle = await writes.change_record(self._client, record=record, spec=change) if change else None
        if obstacle is not None:
            self._notices.say(found, message=f"GPUJob {record.metadata.name} stays as it was: {obstacle.message}")
            self._queue.add_later(found.key, seconds=_REFUSED_SECONDS)
        elif not isinstance(found.guest, PodGroup) or not found.guest.surplus:
            self._notices.forget(found.guest.metadata.uid)

    async def _follow_group(self, group: PodGroup, *, found: Known, record: GPUJob) -> None:
        """Give the record new pods of its group as owners, and say what is wrong with surplus ones."""
        if not group.member_uids <= {owner.uid for owner in record.metadata.owner_references}:
            await writes.change_owners(self._client, record=record, owners=group.members)
        if group.surplus:
            self._notices.say(found, message=f"GPUJob {record.metadata.name} goes on, but {group.surplus}")

    async def _say_scheduled(self, group: PodGroup, *, record: GPUJob) -> None:
        """Say on the object of a gang whether its pods are scheduled, and what they wait for."""
        status = record.status
        waits = bool(status.message) and status.placement is None
        if group.gang is not None and (group.is_bound or waits):
            await writes.say_scheduled(
                self._client, gang=group.gang, is_scheduled=group.is_bound, message=status.message, at=self._now()
            )

    def _as_job(self, found: Known, *, record: GPUJob) -> Job:
        asks = self._state.requests.read(record).asks
        resource, workers = asks[0].resource if asks else "", self._counts.seats(found, record=record)
        return as_batch_job(found.guest, kind=found.kind, record=record, workers=workers, resource=resource)


def _tried_again(key: str, error: Exception, wait: float) -> None:
    log_failure("a guest is tried again", error=error, wait=wait, job=key)

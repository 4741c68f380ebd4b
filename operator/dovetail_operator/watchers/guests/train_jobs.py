"""Follows TrainJobs, and passes each on together with the JobSet that the Trainer makes of it.

A module of its own: the informers of a kind that takes two, as `pod_groups` is for pods; `watch` serves all other
kinds.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from dovetail import names
from dovetail.api.meta import EventType
from dovetail.jobs.guests.kind import Guest, Kind
from dovetail.jobs.guests.trainjob import JOB_SETS, TrainJobs, composed, is_made_of
from dovetail.kube.client import Client
from dovetail_operator.watchers.guests.watch import KindWatch, Watch

# The JobSets of queued TrainJobs: one in the queue itself has the other label.
_MADE: Final = f"{names.RUN},!{names.LABEL_QUEUE}"
_Key = tuple[str, str]


class TrainJobWatch:
    """The informers of TrainJobs in the queue and of their JobSets. `settled` is set once both are listed."""

    def __init__(self, client: Client, *, kind: TrainJobs, on_event: Callable[[EventType, Guest, Kind], None]) -> None:
        self.settled = asyncio.Event()
        self._kind = kind
        self._on_event = on_event
        # By namespace and name, which both have in common.
        self._train_jobs: dict[_Key, Guest] = {}
        self._job_sets: dict[_Key, Guest] = {}
        self._watches = (
            KindWatch(client, kind=kind, on_event=lambda type_, guest, _: self.train_job_event(type_, guest)),
            KindWatch(
                client,
                kind=JOB_SETS,
                on_event=lambda type_, guest, _: self.job_set_event(type_, guest),
                label_selector=_MADE,
            ),
        )

    def train_job_event(self, type_: EventType, found: Guest) -> None:
        """Take an event of a TrainJob in the queue."""
        key = _key_of(found)
        made = self._job_sets.get(key)
        if type_ == "DELETED":
            self._train_jobs.pop(key, None)
            self._job_sets.pop(key, None)
        else:
            self._train_jobs[key] = found
        own = made if made is not None and is_made_of(made, of=found) else None
        self._on_event(type_, composed(found, job_set=own), self._kind)

    def job_set_event(self, type_: EventType, job_set: Guest) -> None:
        """Take an event of a JobSet that the Trainer has made.

        One that is deleted says what it said until its TrainJob goes: the Trainer deletes it some time after the end.
        """
        key = _key_of(job_set)
        found = self._train_jobs.get(key)
        if type_ == "DELETED":
            if found is None:
                self._job_sets.pop(key, None)
            return
        before = self._job_sets.get(key)
        self._job_sets[key] = job_set
        if found is None or not is_made_of(job_set, of=found):
            return
        if before is None or not is_made_of(before, of=found) or before.spec != job_set.spec:
            self._on_event("MODIFIED", composed(found, job_set=job_set), self._kind)

    async def run(self) -> None:
        """Follow both until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches:
                tasks.create_task(watch.run())
            for watch in self._watches:
                await watch.settled.wait()
            self.settled.set()


def watch_of(kind: Kind, *, client: Client, on_event: Callable[[EventType, Guest, Kind], None]) -> Watch:
    """The informer of a kind's guests."""
    if isinstance(kind, TrainJobs):
        return TrainJobWatch(client, kind=kind, on_event=on_event)
    return KindWatch(client, kind=kind, on_event=on_event)


def _key_of(found: Guest) -> _Key:
    return found.metadata.namespace, found.metadata.name

"""Which jobs have a record to be written to the history, in memory. No I/O."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from dovetail import names
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.jobs.batch_job import is_parent
from dovetail.jobs.records import has_begun, is_worth_keeping

_BATCH: Final = 200
# The garbage collector deletes the tasks of an array soon after it.
_MOST_REFUSED: Final = 1024


class Due(NamedTuple):
    """A job whose record is to be written. `gone`: its object is deleted."""

    job: GPUJob
    gone: bool


class Dues:
    """Jobs that have begun, ended or been deleted since their record was written."""

    def __init__(self) -> None:
        self._on_change: Callable[[], None] = _ignore
        self._due: dict[str, Due] = {}
        self._begun: set[str] = set()
        self._kept: set[str] = set()
        # The latest arrays and sweeps whose submission was refused, oldest first: their tasks are deleted after them.
        # Nothing says which task is the last, and anyone may write the annotation.
        self._refused: dict[str, None] = {}

    def call_on_change(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` each time a job is added. Replaces the previous callback."""
        self._on_change = on_change

    def __len__(self) -> int:
        return len(self._due)

    def observe(self, job: GPUJob) -> None:
        """Add an observed job if it has begun or ended since its record was written."""
        uid = job.metadata.uid
        if uid in self._kept or is_parent(job) or not is_worth_keeping(job):
            return
        if is_finished(job) or uid not in self._begun:
            self._add(Due(job, gone=False))

    def drop(self, job: GPUJob) -> None:
        """Add a deleted job unless its final record is written: the deletion is its end.

        A submission that was refused has never been in the queue, so there is nothing to keep.
        """
        uid = job.metadata.uid
        self._begun.discard(uid)
        if uid in self._kept:
            self._kept.discard(uid)
        elif self._is_refused(job):
            self._due.pop(uid, None)
            if is_parent(job):
                self._refused[uid] = None
                if len(self._refused) > _MOST_REFUSED:
                    del self._refused[next(iter(self._refused))]
        elif not is_parent(job):
            self._add(Due(job, gone=True))

    def _is_refused(self, job: GPUJob) -> bool:
        """Whether the submission of the job, or of its array, was refused. A job that has run is never one of them."""
        if has_begun(job):
            return False
        owners = job.metadata.owner_references
        return names.REFUSED in job.metadata.annotations or any(owner.uid in self._refused for owner in owners)

    def is_kept(self, job: GPUJob) -> bool:
        """Whether the job's final record is written.

        True for arrays and sweeps: their tasks have records.
        """
        return job.metadata.uid in self._kept or is_parent(job)

    def take(self) -> list[Due]:
        """Remove and return the next jobs in order of arrival.

        Call `done` once their records are written.
        """
        uids = list(self._due)[:_BATCH]
        return [self._due.pop(uid) for uid in uids]

    def done(self, dues: Iterable[Due]) -> None:
        """Note that these records are written."""
        for due in dues:
            uid = due.job.metadata.uid
            if due.gone or (uid in self._due and self._due[uid].gone):
                continue
            (self._kept if is_finished(due.job) else self._begun).add(uid)

    def _add(self, due: Due) -> None:
        self._due[due.job.metadata.uid] = due
        self._on_change()


def _ignore() -> None:
    """Ignore the change: the history has not started."""

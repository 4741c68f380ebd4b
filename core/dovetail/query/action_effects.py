"""What else a change to a job would do: other starts, jobs that are cancelled with it, jobs that stop waiting. Pure.

Both futures are the likeliest one: with the change, and without it. A start that moves by less than `SAME_SECONDS`
counts as unchanged.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Final

from msgspec.structs import replace as with_fields

from dovetail import names
from dovetail.answers.effects import CancelledJob, Effects, ShiftedJob
from dovetail.answers.jobs import JobReference, job_reference
from dovetail.answers.questions import DryRun
from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.api.meta import key_of
from dovetail.jobs.start_times import too_early
from dovetail.query.checkpoints import checkpoint
from dovetail.query.dry_run import PreparedQueue, dry_run_on
from dovetail.query.jobs.dependents import ended, falling
from dovetail.query.queue_view import QueueView
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.dependencies import states_of, unmet
from dovetail.queue.estimates.simulation import FORESEEN_JOBS, play
from dovetail.queue.verdicts import Admitted

SAME_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A waiting job that would start at another time, in seconds from now.

    None where no known end makes room for it, within the time that is simulated.
    """

    job: GPUJob
    before: float | None
    after: float | None


# How many jobs of each kind are named; the counts have all of them.
_MOST_NAMED: Final = 50
_NONE: Final = Effects(
    own=None,
    sooner=0,
    later=0,
    others_sooner=0,
    others_later=0,
    shifted=[],
    tasks=0,
    cancelled=[],
    released=[],
    held_up=[],
    simulated_seconds=None,
)


def effects_of(
    prepared: PreparedQueue,
    *,
    job: GPUJob,
    changed: GPUJob,
    most_cycles: int | None = None,
    reader: Reader = EVERYTHING,
) -> Effects:
    """The effects of replacing the unfinished `job` by `changed`: cancelled, held, released or of another priority.

    `most_cycles` limits each simulation as in `dry_run_on`. What `reader` may not read is counted and not named. Raises
    `RequestError` for a request that cannot be read.
    """
    if is_finished(job):
        return _NONE
    return Change(prepared, job=job, changed=changed, most_cycles=most_cycles, reader=reader).effects()


@dataclass(frozen=True, slots=True, kw_only=True)
class Future:
    """The starts in seconds by key; `judged` are the keys of all jobs that were simulated, until that time."""

    starts: Mapping[str, float]
    judged: frozenset[str]
    until: float

    def start_of(self, key: str, *, within: float) -> float | None:
        found = self.starts.get(key)
        return None if found is None or found > within else found


class Change:
    """One change, and the queue in which it happens."""

    def __init__(
        self,
        prepared: PreparedQueue,
        *,
        job: GPUJob,
        changed: GPUJob,
        most_cycles: int | None,
        reader: Reader = EVERYTHING,
    ) -> None:
        self._reader = reader
        self._prepared = prepared
        self._job = job
        self._changed = changed
        self._most_cycles = most_cycles
        # A prepared queue may be some seconds older than the job.
        others = (each for each in prepared.jobs.values() if each.metadata.uid != job.metadata.uid)
        self._namespace = [job, *(each for each in others if each.metadata.namespace == job.metadata.namespace)]
        self._tasks = [] if job.spec.array is None else list(self._tasks_of(job))
        self._affected = self._tasks or [job]
        self._ends = changed.spec.cancel
        self._leaves = changed.spec.cancel or changed.spec.suspend

    def effects(self) -> Effects:
        released = self._released()
        before = future_of(self._prepared.queue, most_cycles=self._most_cycles)
        after = self.after(released)
        until = min(before.until, after.until)
        shifts = self._shifts(before, after=after, until=until)
        seen = [each for each in shifts if self._reader.sees(each.job.metadata.namespace)]
        sooner, seen_sooner = (sum(map(_is_sooner, each)) for each in (shifts, seen))
        return Effects(
            own=self._own(),
            sooner=sooner,
            later=len(shifts) - sooner,
            others_sooner=sooner - seen_sooner,
            others_later=len(shifts) - len(seen) - (sooner - seen_sooner),
            shifted=[
                ShiftedJob(job=job_reference(each.job), before_seconds=each.before, after_seconds=each.after)
                for each in seen[:_MOST_NAMED]
            ],
            tasks=len(self._tasks),
            cancelled=self._cancelled(),
            released=_named(released),
            held_up=[] if self._ends or not self._leaves else _named(self._waiting_for_it()),
            simulated_seconds=None if until == inf else until,
        )

    def after(self, released: Sequence[GPUJob] = ()) -> Future:
        """The future after the change, in which the `released` jobs wait too."""
        freed = self._claims() if self._leaves else ()
        return future_of(self._queue_after(released), freed=freed, most_cycles=self._most_cycles)

    def _claims(self) -> set[str]:
        """The keys of what it holds: its pods, and its workers without a node."""
        own = {each.metadata.uid for each in self._affected}
        pods = (uid for each in self._affected for uid in self._prepared.pods.get(key_of(each.metadata), ()))
        return {*pods, *(each.key for each in self._prepared.queue.leaving if each.job in own)}

    def _own(self) -> DryRun | None:
        if self._leaves or self._tasks or _runs(self._job):
            return None
        uid = self._job.metadata.uid
        return dry_run_on(
            self._prepared,
            job=self._changed,
            most_cycles=self._most_cycles,
            in_place_of=uid,
            submitted=True,
            reader=self._reader,
        )

    def _queue_after(self, released: Sequence[GPUJob]) -> QueueView:
        """The queue after the change."""
        queue = self._prepared.queue
        replaced = [each for each in self._affected if self._leaves or not _runs(each)]
        for each in replaced:
            queue = queue.without(each.metadata.uid)
        if self._leaves:
            return _with(queue, jobs=released)
        spec = self._changed.spec
        # How many tasks an array releases is the operator's decision: they stay as they are.
        changes = {"priority": spec.priority} | ({} if self._tasks else {"suspend": spec.suspend})
        changed = [with_fields(each, spec=with_fields(each.spec, **changes)) for each in replaced]
        return _with(queue, jobs=[each for each in changed if self._may_start(each)])

    def _may_start(self, job: GPUJob) -> bool:
        """Whether the job is neither held, nor kept out of the queue by its begin time or dependencies."""
        if job.spec.suspend or too_early(job, now=self._prepared.queue.now):
            return False
        return not job.spec.dependencies or not self._is_blocked(job, named=self._named())

    def _named(self) -> dict[str, GPUJob]:
        return {each.metadata.name: each for each in self._namespace}

    def _is_blocked(self, job: GPUJob, *, named: Mapping[str, GPUJob]) -> bool:
        states = states_of(job.spec.dependencies, job_named=named.get, before=job.status.dependencies)
        return unmet(states, spec=job.spec) is not None

    def _shifts(self, before: Future, *, after: Future, until: float) -> tuple[Shift, ...]:
        own = {each.metadata.uid for each in self._affected}
        found = []
        for key in (before.judged & after.judged) - own:
            then, now = (each.start_of(key, within=until) for each in (before, after))
            if then != now and (then is None or now is None or abs(then - now) > SAME_SECONDS):
                found.append(Shift(job=self._prepared.others.jobs[key], before=then, after=now))
        return tuple(sorted(found, key=_by_gain))

    def _cancelled(self) -> list[CancelledJob]:
        if not self._ends:
            return []
        named = self._named()
        ending = [each.metadata.name for each in (self._job, *self._tasks)]
        fallen = islice(falling(self._namespace, cancelled=ending).items(), _MOST_NAMED)
        return [CancelledJob(job=job_reference(named[name]), after=why) for name, why in fallen]

    def _released(self) -> list[GPUJob]:
        """The jobs whose dependencies the end of this one meets."""
        if not self._ends:
            return []
        now = self._named()
        then = now | {each.metadata.name: ended(each) for each in (self._job, *self._tasks)}
        return [
            each
            for each in self._waiting_for_it()
            if self._is_blocked(each, named=now)
            and not self._is_blocked(each, named=then)
            and not each.spec.suspend
            and not too_early(each, now=self._prepared.queue.now)
        ]

    def _waiting_for_it(self) -> Iterator[GPUJob]:
        own = {each.metadata.name for each in (self._job, *self._tasks)}
        for each in self._namespace:
            if not is_finished(each) and any(other.name in own for other in each.spec.dependencies):
                yield each

    def _tasks_of(self, array: GPUJob) -> Iterator[GPUJob]:
        for each in self._namespace:
            if each.metadata.labels.get(names.LABEL_ARRAY) == array.metadata.name and not is_finished(each):
                yield each


def _runs(job: GPUJob) -> bool:
    return job.status.phase in {"Running", "Starting"}


def _is_sooner(shift: Shift) -> bool:
    return (inf if shift.after is None else shift.after) < (inf if shift.before is None else shift.before)


def _named(jobs: Iterable[GPUJob]) -> list[JobReference]:
    return list(map(job_reference, islice(jobs, _MOST_NAMED)))


def _by_gain(shift: Shift) -> tuple[float, str]:
    gain = (inf if shift.before is None else shift.before) - (inf if shift.after is None else shift.after)
    return -gain, shift.job.metadata.uid


def _with(queue: QueueView, *, jobs: Iterable[GPUJob]) -> QueueView:
    """The queue with further waiting jobs. Raises `RequestError`."""
    asked = [queue.asked_as(job, submitted=True) for job in jobs]
    return replace(
        queue,
        waiting=[*queue.waiting, *(candidate for candidate, _ in asked)],
        counted=[*queue.counted, *(counted for _, counted in asked)],
    )


def future_of(queue: QueueView, *, most_cycles: int | None, freed: Iterable[str] = ()) -> Future:
    """The likeliest future without the claims `freed`: cycle by cycle until no end is known or the limit is reached."""
    ledger = queue.view.ledger.copy()
    for key in freed:
        ledger.release(key)
    gate = queue.gate(None)
    windows = queue.windows(ledger=ledger, leaving=queue.expected, gate=gate)
    look = SchedulingCycle(ledger, sites=queue.sites, leaving=queue.expected, gate=gate, windows=windows)
    starts, pending = dict[str, float](), []
    for job in look.in_order(queue.waiting):
        checkpoint()
        if isinstance(look.at(job), Admitted):
            starts[job.key] = 0.0
        else:
            pending.append(job)
        if len(pending) == FORESEEN_JOBS:
            break
    judged, cycles, until = frozenset({*starts, *(each.key for each in pending)}), 0, inf
    for start in play(pending, look=look):
        checkpoint()
        if start is not None:
            starts[start.key] = start.in_seconds
            continue
        cycles += 1
        if most_cycles is not None and cycles > most_cycles:
            until = look.now
            break
    return Future(starts=starts, judged=judged, until=until)

"""v3: what else a change to a job would do, without the names of other tenants."""

from collections.abc import Iterable
from math import inf
from typing import Final

from msgspec.structs import replace as with_fields

from dovetail.answers import effects
from dovetail.answers.effects import CancelledJob, PlannedJob, ShiftedJob
from dovetail.api.gpujob import GPUJob
from dovetail.gpu.request import RequestError
from dovetail.query.action_effects import Effects as Found
from dovetail.query.action_effects import Shift
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.answers import Answers
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Strictly
from dovetail_gateway.v3.jobs import Jobs
from dovetail_gateway.v3.questions import dry_run_answer
from dovetail_gateway.v3.types.effects import PlannedChange
from dovetail_gateway.v3.types.jobs import JobPath

# How many jobs of each kind are named; the counts have all of them.
_MOST_NAMED: Final = 50


class Effects:
    """The handler of `/api/v3/jobs/{namespace}/{name}/effects`."""

    def __init__(self, answers: Answers, *, jobs: Jobs) -> None:
        self._answers = answers
        self._jobs = jobs

    async def get_effects(self, call: Call[JobPath, Strictly, PlannedChange]) -> Answer:
        """What a change to a job would do to it and to others; nothing is changed."""
        job = self._jobs.find(call.path, sees=call.sees)
        changed = _changed(job, by=call.body)
        try:
            found = await self._answers.effects(job, changed=changed, who=call.who, sees=call.sees)
        except RequestError as error:
            raise RequestFailedError(422, reason="Invalid", message=f"spec cannot be used: {error}") from error
        return Answer(value=_answer(found, sees=call.sees))


def _changed(job: GPUJob, *, by: PlannedChange) -> GPUJob:
    spec = job.spec
    return with_fields(
        job,
        spec=with_fields(
            spec,
            cancel=spec.cancel or by.cancel,
            suspend=spec.suspend if by.held is None else by.held,
            priority=spec.priority if by.priority is None else by.priority,
        ),
    )


def _answer(found: Found, *, sees: Visibility) -> effects.Effects:
    preempting = None if found.own is None else found.own.preempting
    victims = () if preempting is None else preempting.victims
    seen, hidden = _parted(found.shifts, sees=sees)
    preempted = [job for job in victims if sees.sees(job.metadata.namespace)]
    return effects.Effects(
        own=None if found.own is None else dry_run_answer(found.own),
        sooner=sum(map(_is_sooner, found.shifts)),
        later=sum(not _is_sooner(shift) for shift in found.shifts),
        others_sooner=sum(map(_is_sooner, hidden)),
        others_later=sum(not _is_sooner(shift) for shift in hidden),
        shifted=[
            ShiftedJob(job=_named(shift.job), before_seconds=shift.before, after_seconds=shift.after)
            for shift in seen[:_MOST_NAMED]
        ],
        tasks=len(found.with_it),
        cancelled=[CancelledJob(job=_named(job), after=after) for job, after in found.cancelled[:_MOST_NAMED]],
        released=_all_named(found.released),
        held_up=_all_named(found.held_up),
        preempted=_all_named(preempted),
        others_preempted=len(victims) - len(preempted),
        simulated_seconds=found.simulated_seconds,
    )


def _parted(shifts: Iterable[Shift], *, sees: Visibility) -> tuple[list[Shift], list[Shift]]:
    """The shifts of jobs that the caller sees, and those of other tenants."""
    parts: tuple[list[Shift], list[Shift]] = ([], [])
    for shift in shifts:
        parts[not sees.sees(shift.job.metadata.namespace)].append(shift)
    return parts


def _is_sooner(shift: Shift) -> bool:
    return (inf if shift.after is None else shift.after) < (inf if shift.before is None else shift.before)


def _all_named(jobs: Iterable[GPUJob]) -> list[PlannedJob]:
    return [_named(job) for job in list(jobs)[:_MOST_NAMED]]


def _named(job: GPUJob) -> PlannedJob:
    meta = job.metadata
    return PlannedJob(namespace=meta.namespace, name=meta.name, number=job.status.number)

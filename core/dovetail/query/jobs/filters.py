"""Which jobs a list has, and in which order. Pure."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import msgspec

from dovetail.answers.owners import project_of, user_of
from dovetail.api.gpujob import GPUJob
from dovetail.formats.timestamps import moment
from dovetail.jobs.display_name import display_name
from dovetail.query.errors import NotFoundError
from dovetail.query.jobs.columns import View, sort_jobs
from dovetail.query.jobs.selection import Wanted, none_such, select
from dovetail.query.jobs.states import is_unfinished, short_state


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query of a list. Without any field it means all jobs that wait or run.

    ids         only these numbers, ranges and names; each single one must exist
    names       only jobs of these names
    users       only jobs of these users; empty for all
    projects    only jobs of these projects; empty for all
    since       no jobs that ended before this time (RFC 3339)
    states      only jobs in these states, as Slurm's letters; empty for all
    everything  ended jobs too
    completed   only ended jobs
    sort        the columns to sort by, with `-` for the largest first
    limit       this many jobs from the start, or from the end if negative; None for all
    """

    ids: Sequence[Wanted] = ()
    names: frozenset[str] = frozenset()
    users: Collection[str] = frozenset()
    projects: Collection[str] = frozenset()
    since: str | None = None
    states: Collection[str] = frozenset()
    everything: bool = False
    completed: bool = False
    sort: Sequence[str] = ()
    limit: int | None = None


def choose(jobs: Iterable[GPUJob], *, query: JobQuery, view: View) -> list[GPUJob]:
    """The jobs that the query means, in its order. Raises `NotFoundError` for a named job that does not exist."""
    chosen = [job for job in _by_id(jobs, ids=query.ids) if _matches(job, query=query) and _in_state(job, query=query)]
    return _limited(sort_jobs(chosen, fields=query.sort, view=view), limit=query.limit)


def _by_id(jobs: Iterable[GPUJob], *, ids: Sequence[Wanted]) -> Iterable[GPUJob]:
    if not ids:
        return jobs
    chosen, missing = select(list(jobs), wanted=ids)
    if missing:
        raise NotFoundError(none_such(missing))
    return chosen


def _matches(job: GPUJob, *, query: JobQuery) -> bool:
    return (
        (not query.names or not query.names.isdisjoint({job.metadata.name, display_name(job.metadata)}))
        and (not query.users or user_of(job) in query.users)
        and (not query.projects or project_of(job) in query.projects)
        and (query.since is None or not _has_ended_before(job, time=moment(query.since)))
    )


def _has_ended_before(job: GPUJob, *, time: datetime) -> bool:
    ended = job.status.completion_time
    return ended is not None and moment(ended) < time


def _in_state(job: GPUJob, *, query: JobQuery) -> bool:
    """Ended jobs are in a list only if the query asks for them in some way."""
    if query.states:
        return short_state(job) in query.states
    if query.completed:
        return not is_unfinished(job)
    return bool(query.everything or query.ids or query.names or query.since) or is_unfinished(job)


def _limited(jobs: list[GPUJob], *, limit: int | None) -> list[GPUJob]:
    if limit is None:
        return jobs
    return jobs[:limit] if limit > 0 else jobs[limit:]

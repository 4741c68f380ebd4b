"""The jobs that are cancelled after others, because their dependencies can then never be met. Pure."""

from collections.abc import Collection, Sequence

import msgspec

from dovetail.api.gpujob import GPUJob
from dovetail.query.jobs.states import phase_of
from dovetail.queue.dependencies import states_of, unmet


def falling(jobs: Sequence[GPUJob], *, cancelled: Collection[str]) -> dict[str, str]:
    """The names of the jobs that the operator cancels in turn, each with the name of a job that it waits for.

    `jobs` are those of one namespace, and `cancelled` are names.
    """
    named = {job.metadata.name: job for job in jobs}
    named |= {name: ended(named[name]) for name in cancelled}
    found: dict[str, str] = {}
    while more := {job.metadata.name: why for job in named.values() if (why := _hangs_on(job, named=named))}:
        found |= more
        named |= {name: ended(named[name]) for name in more}
    return found


def _hangs_on(job: GPUJob, *, named: dict[str, GPUJob]) -> str:
    """The ended job because of which this one is cancelled; empty if it may start, or keeps waiting."""
    waits = phase_of(job) in {"Queued", "Held"} and not job.spec.cancel
    if not waits or not job.spec.dependencies or job.spec.on_dependency_failure != "Cancel":
        return ""
    states = states_of(job.spec.dependencies, job_named=named.get, before=job.status.dependencies)
    lacking = unmet(states, spec=job.spec)
    if lacking is None or lacking.reason != "DependencyFailed":
        return ""
    return next(each.name for each in states if each.state == "Failed")


def ended(job: GPUJob) -> GPUJob:
    """The job as it is after a cancellation."""
    return msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, phase="Cancelled"))

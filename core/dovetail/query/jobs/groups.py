"""Jobs by number, by state, and below those that they wait for. Pure."""

from collections.abc import Iterator, Sequence

from dovetail.api.gpujob import GPUJob
from dovetail.query.jobs.states import SHORT, short_state


def in_order(jobs: Sequence[GPUJob]) -> list[GPUJob]:
    """The jobs by number; those without a number come last, by name."""
    return sorted(jobs, key=lambda job: (job.status.number is None, job.status.number, job.metadata.name))


def by_state(jobs: Sequence[GPUJob]) -> dict[str, list[GPUJob]]:
    """The jobs by Slurm's letters, in the order in which jobs pass through the states.

    States without jobs are left out.
    """
    found = {short: [job for job in jobs if short_state(job) == short] for short in dict.fromkeys(SHORT.values())}
    return {short: chosen for short, chosen in found.items() if chosen}


def dependency_tree(jobs: Sequence[GPUJob]) -> Iterator[tuple[GPUJob, int]]:
    """Each job with its depth, from 0, after the job that it waits for: the last one of several."""
    below = _below(jobs)
    seen: set[str] = set()
    # Jobs that wait for each other in a circle have no root: they come last.
    left = [(job, 0) for job in (*below.get("", ()), *jobs)][::-1]
    while left:
        job, depth = left.pop()
        if job.metadata.name not in seen:
            seen.add(job.metadata.name)
            yield job, depth
            left += [(each, depth + 1) for each in reversed(below.get(job.metadata.name, []))]


def _below(jobs: Sequence[GPUJob]) -> dict[str, list[GPUJob]]:
    """The jobs by the name of the job above them; by an empty name those without one."""
    names = {job.metadata.name for job in jobs}
    found: dict[str, list[GPUJob]] = {}
    for job in jobs:
        above = [each.name for each in job.spec.dependencies if each.name in names and each.name != job.metadata.name]
        found.setdefault(above[-1] if above else "", []).append(job)
    return found

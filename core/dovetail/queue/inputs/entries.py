"""What the queue sees of each job: it waits for room, is on its way to nodes, or is at work. Pure.

The operator's cycle and queries about the queue both take it from here. They differ in where facts come from, which is
their `Source`: the operator's store with caches, or objects that were read once.
"""

from dataclasses import replace
from datetime import datetime
from typing import NamedTuple, Protocol

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.jobs.plan import nodes_of_workers, planned_nodes
from dovetail.queue.inputs.at_work import AtWork
from dovetail.queue.inputs.candidates import sized, timed
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.verdicts import Admitted


class Entry(NamedTuple):
    """A job as the queue sees it.

    candidate   the job, or its workers that have no node yet; None if all have one
    waits       whether it waits for room; otherwise its workers are on their way to their nodes
    work        what its batch Job does; None without a running one
    """

    candidate: Candidate | None
    waits: bool = False
    work: AtWork | None = None


class Source(Protocol):
    """Where the facts about a job come from."""

    def work_of(self, job: GPUJob) -> AtWork | None:
        """Return the job at work, or None if no batch Job of it runs."""

    def is_due(self, job: GPUJob) -> bool:
        """Whether the queue decides on a job that is not at work, or has admitted it."""

    def child_of(self, job: GPUJob) -> Job | None:
        """Return the job's own batch Job."""

    def admission_of(self, job: GPUJob) -> Admitted | None:
        """Return the verdict that admitted the job; None if it waits."""

    def candidate(
        self, job: GPUJob, *, workers: int, nodes: tuple[str, ...] = (), waits: bool = False
    ) -> Candidate | None:
        """Return the job as a candidate; None for an unreadable request."""


def entry_of(job: GPUJob, *, source: Source, now: datetime) -> Entry | None:
    """What the queue sees of the job; None if it has nothing to decide about it."""
    # 1. A job at work: room is kept for its workers that have no node yet.
    if (work := source.work_of(job)) is not None:
        missing = source.candidate(job, workers=work.workers, nodes=work.nodes) if work.workers else None
        return Entry(missing, work=work)
    # 2. A job that something else holds back.
    if not source.is_due(job):
        return None
    # 3. A job that waits, with as many workers as it was admitted with, if it was.
    admitted = source.admission_of(job)
    workers = sized(job, child=source.child_of(job), verdict=admitted).spec.workers
    candidate = source.candidate(job, workers=workers, waits=True)
    if candidate is None:
        return None
    candidate = timed(candidate, job=job, now=now)
    if admitted is None:
        return Entry(candidate, waits=True)
    # 4. A job that was admitted and has no batch Job yet: its plan says where it goes. On the CPU it has none.
    nodes = () if admitted.ask is None else nodes_of_workers(planned_nodes(admitted.claims))
    return Entry(replace(candidate, nodes=nodes))

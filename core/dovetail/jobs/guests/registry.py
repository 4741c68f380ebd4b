"""The kinds whose objects can wait in the queue. A new kind is one module of this package, and one line here."""

from typing import Final

from dovetail.jobs.guests.batch_job import BatchJobs
from dovetail.jobs.guests.jobset import JobSets
from dovetail.jobs.guests.kind import Kind
from dovetail.jobs.guests.mpijob import MPIJobs
from dovetail.jobs.guests.raycluster import RayClusters
from dovetail.jobs.guests.rayjob import RayJobs

KINDS: Final[tuple[Kind, ...]] = (BatchJobs(), JobSets(), RayJobs(), RayClusters(), MPIJobs())


def kind_of(*, group: str, kind: str) -> Kind | None:
    """The adapter of a kind; None for a kind without one."""
    return next((each for each in KINDS if (each.resource.group, each.resource.kind) == (group, kind)), None)

"""The kinds whose objects can wait in the queue. A new kind is one module of this package, and one line here."""

from typing import Final

from dovetail.jobs.guests.admission import Patch, is_in_queue, patch_of_guest
from dovetail.jobs.guests.batch_job import BatchJobs
from dovetail.jobs.guests.jobset import JobSets
from dovetail.jobs.guests.kind import Guest, Kind, PodSet
from dovetail.jobs.guests.mpijob import MPIJobs
from dovetail.jobs.guests.raycluster import RayClusters
from dovetail.jobs.guests.rayjob import RayJobs
from dovetail.jobs.guests.trainjob import (
    TrainJobs,
    is_job_set_of_train_job,
    patch_of_job_set,
    patch_of_train_job,
    pods_of_job_set,
)

KINDS: Final[tuple[Kind, ...]] = (BatchJobs(), JobSets(), RayJobs(), RayClusters(), MPIJobs(), TrainJobs())
_MAKERS: Final = frozenset((each.resource.group, each.resource.kind) for each in KINDS)


def kind_of(*, group: str, kind: str) -> Kind | None:
    """The adapter of a kind; None for a kind without one."""
    return next((each for each in KINDS if (each.resource.group, each.resource.kind) == (group, kind)), None)


def admission_patch(guest: Guest, *, kind: Kind, run: str, user: str) -> Patch:
    """The changes to a new object of a kind; `run` is a text of which no other guest has the same.

    Raises `GuestError`.
    """
    if isinstance(kind, TrainJobs):
        return patch_of_train_job(guest, kind=kind, run=run, user=user)
    if isinstance(kind, JobSets) and is_job_set_of_train_job(guest):
        return patch_of_job_set(guest)
    return patch_of_guest(guest, kind=kind, run=run, user=user, makers=_MAKERS)


def pods_in_queue(guest: Guest, *, kind: Kind) -> list[PodSet]:
    """The pods of a new object as far as they wait in the queue, with the annotations that they get.

    Raises `GuestError`.
    """
    if isinstance(kind, TrainJobs):
        # Its pods are those of its JobSet.
        return []
    if isinstance(kind, JobSets) and is_job_set_of_train_job(guest):
        return pods_of_job_set(guest)
    return kind.pod_sets(guest.spec) if is_in_queue(guest) else []

"""A guest as the batch Job that the life of its record follows. Pure."""

from typing import Final

from dovetail import names
from dovetail.api.builtin import Job, JobSpec, Pod, is_terminated
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import JOBS
from dovetail.jobs.batch_job import owner_reference
from dovetail.jobs.guests.jobset import JobSets, stems_of_jobs
from dovetail.jobs.guests.kind import Guest, Kind, is_suspended, text
from dovetail.jobs.guests.raycluster import RayClusters
from dovetail.jobs.guests.rayjob import RayJobs
from dovetail.jobs.guests.trainjob import TrainJobs, job_set_in

# On a guest in the form of a batch Job, which exists only in memory: the objects of which its pods are made, each as
# KIND/NAME, separated by commas. An index follows a name that ends with a dash.
POD_MAKERS: Final = f"{names.GROUP}/pod-makers"


def as_batch_job(guest: Guest, *, kind: Kind, record: GPUJob, workers: int, resource: str = "") -> Job:
    """The guest in the shape of the record's batch Job.

    Its UID is the record's, by which the pods' seats name it. `workers` is the number of the record's workers that
    exist or can still come. `resource` is the vendor's that the pods request.
    """
    meta, is_held = guest.metadata, is_suspended(guest, kind=kind)
    makers = ",".join(_pod_makers(guest, kind=kind))
    annotations = {names.ATTEMPT: str(record.status.attempt)}
    annotations |= {names.GPU_RESOURCE: resource} if resource else {}
    annotations |= {POD_MAKERS: makers} if makers else {}
    return Job(
        metadata=ObjectMeta(
            name=record.metadata.name,
            namespace=record.metadata.namespace,
            uid=record.metadata.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
            # The queue leaves out a batch Job that is being deleted. The pods of a guest go on meanwhile.
            deletion_timestamp=meta.deletion_timestamp if is_held else None,
            annotations=annotations,
            owner_references=(owner_reference(record),),
        ),
        spec=JobSpec(suspend=is_held, parallelism=workers),
        status=kind.progress(guest),
    )


def is_gated(pod: Pod) -> bool:
    """Whether the pod waits for the operator to open its gate."""
    gates = {gate.name for gate in pod.spec.scheduling_gates}
    return names.QUEUE_GATE in gates and pod.metadata.deletion_timestamp is None and not is_terminated(pod)


def _pod_makers(guest: Guest, *, kind: Kind) -> list[str]:
    """The objects that the guest's controller makes, and of which others make its pods; none where it makes the pods.

    As in the annotation `POD_MAKERS`.
    """
    name = guest.metadata.name
    if isinstance(kind, RayJobs):
        cluster = text(guest.status.get("rayClusterName"))
        return [f"{RayClusters.resource.kind}/{cluster}"] if cluster else []
    job_set = job_set_in(guest.spec) or {} if isinstance(kind, TrainJobs) else guest.spec
    stems = stems_of_jobs(job_set, name=name) if isinstance(kind, JobSets | TrainJobs) else []
    return [f"{JOBS.kind}/{stem}-" for stem in stems]

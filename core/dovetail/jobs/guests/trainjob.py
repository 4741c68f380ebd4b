"""The adapter of Kubeflow Trainer's TrainJobs. Pure.

A TrainJob has no pod templates: the Trainer makes a JobSet from it and from the runtime that it names. The webhook has
the Trainer label that JobSet, and gates its templates when it is created. The queue plans what the JobSet says.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from dovetail import names
from dovetail.api.builtin import JobStatus
from dovetail.api.reasons import start as says
from dovetail.api.resources import Resource
from dovetail.jobs.guests.admission import Patch, gated, held, is_in_queue
from dovetail.jobs.guests.jobset import JobSets
from dovetail.jobs.guests.kind import Guest, GuestError, Path, PodSet, TemplateMeta, conditions_in

JOB_SETS: Final = JobSets()
_CONDITIONS: Final = {"Complete": "Complete", "Failed": "Failed", "Suspended": "Suspended"}
# The key below the spec of a composed TrainJob; the API server keeps no such field.
_MADE: Final = "jobSet"
# Our entry in spec.runtimePatches, which has one for each manager.
_MANAGER: Final = "dovetail.dev/queue"
# The Trainer's name for the container of each training node.
_NODE: Final = "node"
_REQUEST: Final = (names.REQUEST, names.MODE, names.POLICY, names.WORKLOAD, names.MEMORY_STRATEGY)


class TrainJob(Guest, frozen=True, kw_only=True):
    """A TrainJob with the spec of its JobSet, as far as the Trainer has made it."""

    @property
    def is_growing(self) -> bool:
        """Whether its JobSet does not exist yet."""
        return _MADE not in self.spec


class TrainJobs:
    """A TrainJob is held by its own field: the Trainer suspends the JobSet with it."""

    resource: Resource = Resource(group="trainer.kubeflow.org", version="v1alpha1", plural="trainjobs", kind="TrainJob")
    prefix: str = "trainjob"
    suspend_path: Path = ("suspend",)
    name_labels: tuple[str, ...] = JOB_SETS.name_labels

    def pod_sets(self, spec: Mapping[str, Any]) -> list[PodSet]:
        """The pods of its JobSet. Raises `GuestError`."""
        made = job_set_in(spec)
        if made is None:
            raise GuestError(says.NO_JOB_SET(label=names.RUN))
        return JOB_SETS.pod_sets(made)

    def progress(self, guest: Guest) -> JobStatus:
        """Its conditions; its pods say the rest."""
        return JobStatus(conditions=conditions_in(guest.status, renamed=_CONDITIONS))


def composed(found: Guest, *, job_set: Guest | None) -> TrainJob:
    """The TrainJob with what its JobSet says, None for one without."""
    spec = {key: value for key, value in found.spec.items() if key != _MADE}
    made = {_MADE: job_set.spec} if job_set is not None else {}
    return TrainJob(metadata=found.metadata, spec={**spec, **made}, status=found.status)


def job_set_in(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The spec of the JobSet of a composed TrainJob; None for one without."""
    made = spec.get(_MADE)
    return made if isinstance(made, Mapping) else None


def is_made_of(job_set: Guest, *, of: Guest) -> bool:
    """Whether the Trainer made the JobSet of this very TrainJob."""
    return any(owner.controller and owner.uid == of.metadata.uid for owner in job_set.metadata.owner_references)


def patch_of_train_job(guest: Guest, *, kind: TrainJobs, run: str, user: str) -> Patch:
    """The changes to a new TrainJob that names our queue: it is held, and its JobSet gets its run and its request."""
    annotations = guest.metadata.annotations
    if not is_in_queue(guest):
        return []
    passed = {key: annotations[key] for key in _REQUEST if key in annotations}
    metadata = {"labels": {names.RUN: run}} | ({"annotations": passed} if passed else {})
    ours = {"manager": _MANAGER, "trainingRuntimeSpec": {"template": {"metadata": metadata}}}
    found = guest.spec.get("runtimePatches")
    others = [each for each in found if not _is_ours(each)] if isinstance(found, list) else []
    return [
        {"op": "add", "path": "/metadata/annotations", "value": {**annotations, names.RUN: run, names.USER: user}},
        *held(guest, kind=kind),
        {"op": "add", "path": "/spec/runtimePatches", "value": [*others, ours]},
    ]


def is_job_set_of_train_job(found: Guest) -> bool:
    """Whether a JobSet waits with the TrainJob that it was made of."""
    labels = found.metadata.labels
    return names.RUN in labels and names.LABEL_QUEUE not in labels


def patch_of_job_set(found: Guest) -> Patch:
    """The changes to a new JobSet of a queued TrainJob: its pods are gated, and training nodes get the request.

    Raises `GuestError`.
    """
    patch: Patch = []
    for each in JOB_SETS.pod_sets(found.spec):
        patch += gated(each, run=found.metadata.labels[names.RUN], annotations=_added(each, found=found))
    return patch


def pods_of_job_set(found: Guest) -> list[PodSet]:
    """The pods of a new JobSet of a queued TrainJob, with the annotations that they get. Raises `GuestError`."""
    return [_annotated(each, more=_added(each, found=found)) for each in JOB_SETS.pod_sets(found.spec)]


def _added(pods: PodSet, *, found: Guest) -> dict[str, str]:
    """The annotations of the request that the pods of a JobSet get from it."""
    if not _is_node(pods) or pods.asks_for_gpus:
        return {}
    return {key: found.metadata.annotations[key] for key in _REQUEST if key in found.metadata.annotations}


def _annotated(pods: PodSet, *, more: Mapping[str, str]) -> PodSet:
    template = pods.template
    metadata = TemplateMeta(labels=template.labels, annotations={**template.annotations, **more})
    return dataclasses.replace(pods, template=replace(template, metadata=metadata))


def _is_ours(patch: Any) -> bool:
    return isinstance(patch, Mapping) and patch.get("manager") == _MANAGER


def _is_node(pods: PodSet) -> bool:
    containers = pods.template.spec.get("containers")
    found = containers if isinstance(containers, list) else []
    return any(isinstance(each, Mapping) and each.get("name") == _NODE for each in found)

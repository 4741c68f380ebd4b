"""Whose what is: the owner reference of what the operator makes for a GPUJob. Pure."""

from dovetail import names
from dovetail.api.gpujob import KIND, GPUJob
from dovetail.api.meta import ObjectMeta, OwnerReference


def owner_reference(job: GPUJob) -> OwnerReference:
    """The reference by which what belongs to `job` goes when it goes."""
    return OwnerReference(
        api_version=names.API_VERSION,
        kind=KIND,
        name=job.metadata.name,
        uid=job.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def is_owned(meta: ObjectMeta, *, by: GPUJob) -> bool:
    """Whether an object belongs to this very GPUJob."""
    return any(owner.controller and owner.uid == by.metadata.uid for owner in meta.owner_references)


def is_of_an_earlier_one(meta: ObjectMeta, *, than: GPUJob) -> bool:
    """Whether an object belongs to another GPUJob of the same name: it is about to go."""
    return any(owner.kind == KIND and owner.name == than.metadata.name for owner in meta.owner_references)

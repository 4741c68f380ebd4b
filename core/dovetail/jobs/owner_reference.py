"""Ownership: the owner references of what the operator creates for a GPUJob. Pure."""

from dovetail import names
from dovetail.api.gpujob import KIND, GPUJob
from dovetail.api.meta import ObjectMeta, OwnerReference


def owner_reference(job: GPUJob) -> OwnerReference:
    """The reference that deletes an object together with `job`."""
    return OwnerReference(
        api_version=names.API_VERSION,
        kind=KIND,
        name=job.metadata.name,
        uid=job.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def is_owned(meta: ObjectMeta, *, by: GPUJob) -> bool:
    """Whether an object of its namespace belongs to this very GPUJob."""
    owner = controlling_gpujob(meta)
    return owner is not None and (owner.name, owner.uid) == (by.metadata.name, by.metadata.uid)


def is_of_an_earlier_one(meta: ObjectMeta, *, than: GPUJob) -> bool:
    """Whether an object belongs to an earlier GPUJob of the same name.

    The garbage collector is about to delete it.
    """
    owner = controlling_gpujob(meta)
    return owner is not None and owner.name == than.metadata.name and owner.uid != than.metadata.uid


def controlling_gpujob(meta: ObjectMeta) -> OwnerReference | None:
    """The GPUJob that controls an object, according to its owner references."""
    owner = next((owner for owner in meta.owner_references if owner.controller), None)
    is_one = owner is not None and owner.kind == KIND and owner.api_version.partition("/")[0] == names.GROUP
    return owner if is_one else None

"""Who requests GPUs, and which GPUQuotas apply to whom. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from dovetail.api.gpuquota import GPUQuota, GPUQuotaSpec
from dovetail.queue.quota_tree.parents import acts_as_parent_alone, ancestors_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The requester.

    `user` is empty where the user of a job is unknown, None for a pod outside GPUJobs. `project` is the value of the
    label dovetail.dev/project; empty without it.
    """

    namespace: str
    user: str | None = None
    project: str = ""


def binding(quotas: Iterable[GPUQuota], *, subject: Subject) -> list[GPUQuota]:
    """The quotas that apply to the subject: those that name it, and all above them in the tree.

    A quota that is a parent and names no one applies to what is below it alone.
    """
    known = {quota.metadata.name: quota for quota in quotas}
    parents = {quota.spec.parent for quota in known.values()} - {None}
    found = {
        name: quota
        for name, quota in known.items()
        if binds(quota.spec, subject=subject) and not acts_as_parent_alone(quota, parents=parents)
    }
    if parents:
        for name in list(found):
            found |= {above: known[above] for above in ancestors_of(name, quotas=known)}
    return [quota for name, quota in known.items() if name in found]


def specificity(quota: GPUQuota) -> tuple[bool, bool, bool]:
    """Sorts quotas by how specifically they name a subject: by user, then by project, then by namespace."""
    return not quota.spec.users, not quota.spec.projects, not quota.spec.namespaces


def binds(spec: GPUQuotaSpec, *, subject: Subject) -> bool:
    """Whether a quota names this subject, or no one in particular."""
    if spec.projects and subject.project not in spec.projects:
        return False
    if spec.namespaces and subject.namespace not in spec.namespaces:
        return False
    return not spec.users or subject.user in spec.users


def subject_name(spec: GPUQuotaSpec, *, subject: Subject) -> str | None:
    """The name that the quota counts the subject as.

    None where it does not count it: a pod without a user, by user.
    """
    if spec.per == "Namespace":
        return subject.namespace
    return "" if spec.per == "Together" else subject.user

"""Whether a pod may run on the local node. Pure.

A pod runs with all rights of the user who started the node, so it runs only if that user submitted it: it must belong
to a GPUJob (its label and its controlling Job prove it, by the policy `dovetail-pods`), and admission must have
recorded that user in the GPUJob, or one of the accounts that act for this user by REST.
"""

from collections.abc import Collection
from dataclasses import dataclass

from dovetail import names
from dovetail_local_node import volumes
from dovetail_local_node.pod_object import LocalPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a pod does not run: a word for programs and a sentence for people."""

    reason: str
    message: str


def job_name(pod: LocalPod) -> str:
    """The name of the GPUJob that the pod proves to belong to; empty if it proves none."""
    name = pod.metadata.labels.get(names.LABEL_JOB, "")
    owners = [each for each in pod.metadata.owner_references if each.controller]
    is_its = any(each.kind == "Job" and each.api_version == "batch/v1" and each.name == name for each in owners)
    return name if is_its else ""


def check(pod: LocalPod, *, submitter: str | None, user: str, accounts: Collection[str] = ()) -> Refusal | None:
    """Check a pod; None if it may run as `user`'s processes. `submitter` is None for a pod without a GPUJob.

    `accounts` are the service accounts that act for the user.
    """
    if submitter is None:
        return Refusal(reason="NotAJob", message="The local node runs the pods of GPUJobs only: submit it with gbatch.")
    if submitter not in {user, *accounts} or not submitter:
        return Refusal(
            reason="ForeignUser",
            message=f"The local node runs jobs of {user} only; {submitter or 'an unknown user'} submitted this one.",
        )
    return _check_shape(pod)


def _check_shape(pod: LocalPod) -> Refusal | None:
    count = len(pod.spec.containers) + len(pod.spec.init_containers)
    if count != 1:
        message = f"The local node runs pods of 1 container; this one has {count}."
        return Refusal(reason="SeveralContainers", message=message)
    container = pod.spec.containers[0]
    if not container.command and not container.args and not is_reservation(pod):
        return Refusal(
            reason="NoCommand", message=f"Container {container.name} has no command, and the local node uses no images."
        )
    if problem := volumes.problem(pod):
        return Refusal(reason="UnknownVolume", message=problem)
    return _check_variables(pod)


def _check_variables(pod: LocalPod) -> Refusal | None:
    container = pod.spec.containers[0]
    sources = [each.name for each in container.env if each.value_from and not each.value_from.field_ref]
    if sources or container.env_from:
        what = sources[0] if sources else "envFrom"
        message = f"{what} reads a ConfigMap, a Secret or an amount, which the local node cannot resolve."
        return Refusal(reason="UnknownVariable", message=message)
    return None


def is_reservation(pod: LocalPod) -> bool:
    """Whether the pod only holds devices and runs nothing."""
    return pod.metadata.labels.get(names.LABEL_RESERVATION) == "true"

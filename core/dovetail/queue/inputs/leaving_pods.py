"""The pods that are leaving, and the pods of each batch Job. Pure."""

from collections.abc import Container, Iterable, Mapping

from dovetail.api.builtin import Pod
from dovetail.pods.tenancy import job_it_was_of, run_of


def pods_of_batch_jobs(pods: Iterable[Pod]) -> Mapping[str, list[Pod]]:
    """The verified pods of GPUJobs, by the UID of the batch Job that controls them."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        owner = run_of(pod)
        if owner and job_it_was_of(pod):
            found.setdefault(owner, []).append(pod)
    return found


def leaving_pods(pods: Iterable[Pod], *, running: Container[str]) -> list[Pod]:
    """Pods that are being deleted, and pods of batch Jobs whose UIDs are not in `running`.

    A pod that its deleted owner has left behind goes on.
    """
    known = list(pods)
    going = [pod for pod in known if pod.metadata.deletion_timestamp]
    left = [pod for owner, each in pods_of_batch_jobs(known).items() if owner not in running for pod in each]
    return [*going, *(pod for pod in left if not pod.metadata.deletion_timestamp and pod.metadata.owner_references)]

"""Writes to the pods of jobs: the time when they are preempted."""

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound


async def announce_preemption(client: Client, *, pod: Pod, at: str | None) -> None:
    """Annotate the pod with the time when it ends, or remove it (None).

    A deleted pod is no error.
    """
    meta = pod.metadata
    patch = {"metadata": {"uid": meta.uid, "annotations": {names.PREEMPTING_AT: at}}}
    try:
        # Through the status subresource: the right to patch a pod itself includes the right to change its image.
        await client.patch(
            PODS, name=meta.name, patch=patch, as_type=Pod, namespace=meta.namespace, subresource="status"
        )
    except (NotFound, Conflict):
        return

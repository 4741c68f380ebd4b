"""Jobs that failed because their namespace was deleted: records and mails say so.

When a namespace is deleted, pods are deleted before Jobs, so a batch Job reports the end of its workers as a failure.
"""

from collections.abc import Iterable

import msgspec

from dovetail.api.builtin import Namespace
from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons.end import NAMESPACE_DELETED
from dovetail.api.resources import NAMESPACES
from dovetail.formats.timestamps import moment
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, NotFound
from dovetail.logs import get_logger

log = get_logger("dovetail.operator.history")


async def lost_with_namespace(client: Client, *, jobs: Iterable[GPUJob]) -> frozenset[str]:
    """The UIDs of the jobs that failed while their namespace was being deleted."""
    failed = [job for job in jobs if job.status.phase == "Failed" and job.status.completion_time is not None]
    going = {
        namespace: await _going_since(client, namespace=namespace)
        for namespace in {job.metadata.namespace for job in failed}
    }
    return frozenset(
        job.metadata.uid
        for job in failed
        if (since := going[job.metadata.namespace]) is not None
        and moment(job.status.completion_time or "") >= moment(since)
    )


def cancelled(job: GPUJob) -> GPUJob:
    """The job as records and notifications show it: cancelled."""
    why = NAMESPACE_DELETED()
    status = msgspec.structs.replace(
        job.status, phase="Cancelled", reason=why.reason, message=why.message, details=why.listed
    )
    return msgspec.structs.replace(job, status=status)


async def _going_since(client: Client, *, namespace: str) -> str | None:
    """Since when the namespace is being deleted; 1970 if it is gone.

    None if it is not being deleted, or if the operator cannot find out.
    """
    try:
        found = await client.get(NAMESPACES, name=namespace, as_type=Namespace)
    except NotFound:
        return "1970-01-01T00:00:00Z"
    except KubeError as error:
        log.warning("cannot tell whether a namespace is being deleted", namespace=namespace, error=str(error))
        return None
    return found.metadata.deletion_timestamp

"""Jobs that seem to have failed because their namespace was deleted under them: records and mails say so.

Of a namespace that goes pods are deleted before jobs, so that a batch Job tells the end of its workers as a failure.
"""

from collections.abc import Iterable

import msgspec

from dovetail.api.builtin import Namespace
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import NAMESPACES
from dovetail.formats.timestamps import moment
from dovetail.jobs.records import DELETED
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, NotFound
from dovetail.logs import get_logger

log = get_logger("dovetail.operator.history")

_MESSAGE = "Its namespace was deleted before it had ended"


async def lost_with_namespace(client: Client, jobs: Iterable[GPUJob]) -> frozenset[str]:
    """The UIDs of those of the jobs that failed while their namespace was going."""
    failed = [job for job in jobs if job.status.phase == "Failed" and job.status.completion_time is not None]
    going = {
        namespace: await _going_since(client, namespace) for namespace in {job.metadata.namespace for job in failed}
    }
    return frozenset(
        job.metadata.uid
        for job in failed
        if (since := going[job.metadata.namespace]) is not None
        and moment(job.status.completion_time or "") >= moment(since)
    )


def cancelled(job: GPUJob) -> GPUJob:
    """Such a job as it is told of."""
    status = msgspec.structs.replace(job.status, phase="Cancelled", reason=DELETED, message=_MESSAGE)
    return msgspec.structs.replace(job, status=status)


async def _going_since(client: Client, namespace: str) -> str | None:
    """Since when the namespace is being deleted, long ago where it is gone; None where it stays, or nobody may know."""
    try:
        found = await client.get(NAMESPACES, namespace, as_type=Namespace)
    except NotFound:
        return "1970-01-01T00:00:00Z"
    except KubeError as error:
        log.warning("cannot tell whether a namespace is being deleted", namespace=namespace, error=str(error))
        return None
    return found.metadata.deletion_timestamp

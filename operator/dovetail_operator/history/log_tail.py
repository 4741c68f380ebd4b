"""The last lines of a job's logs, which kubelet still has when the job has ended.

A module of its own: it asks kubelet, where `recorder` writes to the store; without it a record lacks only its log.
"""

from collections.abc import Sequence
from typing import Final

from dovetail.api.builtin import Pod, is_terminated
from dovetail.jobs.batch_job import worker_of
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError

LIMIT_BYTES: Final = 32 * 1024
# kubelet counts lines from the end and bytes from there on. Of long lines fewer are read, so that the end is included.
LINES: Final = (100, 10, 1)
READ_BYTES: Final = 256 * 1024
_SECONDS: Final = 3.0


async def last_lines(client: Client, *, pods: Sequence[Pod]) -> str:
    """The log of the worker that failed last, else of the first worker.

    Empty if kubelet has none.

    Simulated nodes have no logs.
    """
    pod = _most_telling(pods)
    if pod is None:
        return ""
    try:
        return (await _tail(client, pod=pod))[-LIMIT_BYTES:].decode(errors="replace")
    except KubeError:
        # The log is optional: the record must not wait for it.
        return ""


async def _tail(client: Client, *, pod: Pod) -> bytes:
    """As many last lines as fit in `READ_BYTES`. Of a longer line its beginning."""
    found = b""
    for lines in LINES:
        found = await client.log(
            pod.metadata.name,
            namespace=pod.metadata.namespace,
            container=pod.spec.containers[0].name if pod.spec.containers else None,
            tail_lines=lines,
            limit_bytes=READ_BYTES,
            deadline_seconds=_SECONDS,
        )
        if len(found) < READ_BYTES:
            break
    return found


def _most_telling(pods: Sequence[Pod]) -> Pod | None:
    ended = [pod for pod in pods if is_terminated(pod) and pod.spec.node_name]
    failed = [pod for pod in ended if pod.status.phase == "Failed"]
    if failed:
        return max(failed, key=lambda pod: pod.metadata.creation_timestamp)
    return min(ended, key=worker_of, default=None)

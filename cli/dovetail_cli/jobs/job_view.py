"""One job and its pods as they are now, kept up to date by watches."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from dovetail import names
from dovetail.api.builtin import ContainerStatus, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, PODS
from dovetail.jobs.runs import is_of_earlier_job
from dovetail.kube.errors import KubeError
from dovetail.kube.reflector import Reflector
from dovetail_cli.cluster.connection import Cluster

_INDEX: Final = "batch.kubernetes.io/job-completion-index"


def worker_of(pod: Pod) -> int:
    """The index of the worker that this pod is; 0 for a pod without one."""
    text = pod.metadata.annotations.get(_INDEX, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def main_container(pod: Pod) -> ContainerStatus | None:
    """The status of the first container; None before kubelet reports it."""
    name = pod.spec.containers[0].name
    return next((each for each in pod.status.container_statuses if each.name == name), None)


class JobView:
    """A job and its pods, by two informers that run within `watching()`."""

    def __init__(self, cluster: Cluster, *, job: GPUJob) -> None:
        self._job = job
        self._is_deleted = False
        self._changed = asyncio.Event()
        self._jobs = Reflector(
            cluster.client,
            resource=GPUJOBS,
            as_type=GPUJob,
            on_event=self._on_job,
            namespace=cluster.namespace,
            field_selector=f"metadata.name={job.metadata.name}",
        )
        self._pods = Reflector(
            cluster.client,
            resource=PODS,
            as_type=Pod,
            on_event=self._on_pod,
            namespace=cluster.namespace,
            label_selector=f"{names.LABEL_JOB}={job.metadata.name}",
        )

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Keep the view up to date."""
        # Failures reach the reader by `trouble`, not as lines of a log.
        logging.getLogger("dovetail.kube").addHandler(logging.NullHandler())
        running = [asyncio.create_task(each.run()) for each in (self._jobs, self._pods)]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    @property
    def is_complete(self) -> bool:
        """Whether both lists were read."""
        return self._jobs.synced.is_set() and self._pods.synced.is_set()

    @property
    def job(self) -> GPUJob:
        """The job as it was last seen."""
        return self._job

    @property
    def is_deleted(self) -> bool:
        """Whether the job's object is gone."""
        return self._is_deleted

    @property
    def pods(self) -> list[Pod]:
        """The job's pods, oldest first."""
        own = (pod for pod in self._pods.store.values() if not is_of_earlier_job(pod, number=self._job.status.number))
        return sorted(own, key=lambda pod: pod.metadata.creation_timestamp or "")

    def pod(self, uid: str) -> Pod | None:
        """The pod of that UID; None once it is deleted."""
        return next((pod for pod in self._pods.store.values() if pod.metadata.uid == uid), None)

    @property
    def trouble(self) -> KubeError | None:
        """Why the view is not up to date now; None if it is."""
        return self._jobs.last_error or self._pods.last_error

    async def change(self, *, most_seconds: float) -> None:
        """Wait until something changes, at most `most_seconds`."""
        try:
            async with asyncio.timeout(most_seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def _on_job(self, event: EventType, found: GPUJob) -> None:
        if found.metadata.uid == self._job.metadata.uid:
            self._job, self._is_deleted = found, event == "DELETED"
            self._wake()

    def _on_pod(self, _event: EventType, _found: Pod) -> None:
        self._wake()

    def _wake(self) -> None:
        # Every waiting task wakes up; a later call waits for the next change.
        self._changed.set()
        self._changed = asyncio.Event()

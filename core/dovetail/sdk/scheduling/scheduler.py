"""`GPUScheduler`: GPUs for pods by name. Each pod's GPUs are a reservation in the one queue of the cluster."""

import heapq
import itertools
import logging
import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from dovetail.gpu.request import GPURequest
from dovetail.sdk import specs
from dovetail.sdk.blocking.client import Client
from dovetail.sdk.errors import InvalidError, NotFoundError, WaitTimeoutError
from dovetail.sdk.scheduling.memory_guard import GPUMemoryGuard
from dovetail.sdk.scheduling.parser import GPUResourceParser, read

# As long as v1's allocate waits for a place.
WAIT_SECONDS: Final = 5.0
LEASE_SECONDS: Final = 24 * 3600
_LOG: Final = logging.getLogger("gpu_scheduler")


class SchedulingPolicy(Enum):
    """Which nodes and devices come first; the value is `spec.policy` of a GPUJob."""

    SPREAD = "Spread"
    PACK = "Pack"
    BALANCED = "Balanced"


@dataclass(frozen=True, slots=True)
class SchedulingRequest:
    """GPUs for a pod; `memory_requirement` is GB of each GPU, `priority` 0 to 255, the highest first."""

    pod_name: str
    namespace: str
    gpu_requirement: str
    memory_requirement: float | None = None
    priority: int = 10


class GPUScheduler:
    """Finds nodes for pods and reserves their GPUs.

    `client` is a `Client`; with anything else, such as a Kubernetes client, the gateway of DOVETAIL_GATEWAY is used.
    """

    def __init__(
        self,
        client: Any = None,
        gpu_parser: GPUResourceParser | None = None,
        memory_guard: GPUMemoryGuard | None = None,
        *,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.scheduling_policy = SchedulingPolicy.BALANCED
        self._client = client if isinstance(client, Client) else Client()
        self._parser = gpu_parser or GPUResourceParser()
        self._guard = memory_guard or GPUMemoryGuard()
        self._wait_seconds = wait_seconds
        self._pending: list[tuple[int, int, SchedulingRequest]] = []
        self._order = itertools.count()

    @property
    def pending(self) -> list[SchedulingRequest]:
        """The requests that have no node yet, in the order in which they get one."""
        return [request for _, _, request in sorted(self._pending)]

    def add_scheduling_request(self, request: SchedulingRequest) -> None:
        """Keep a request for `process_pending_requests`. Raises `InvalidError`."""
        self._parser.parse_gpu_resource(request.gpu_requirement)
        specs.checked_name(request.pod_name)
        heapq.heappush(self._pending, (-request.priority, next(self._order), request))

    def process_pending_requests(self) -> list[tuple[SchedulingRequest, str]]:
        """Reserve GPUs for the pending requests, the highest priority first; those without room stay pending.

        Returns each request that got its GPUs, with its node. Raises `DovetailError`.
        """
        placed, left = list[tuple[SchedulingRequest, str]](), list[tuple[int, int, SchedulingRequest]]()
        while self._pending:
            entry = heapq.heappop(self._pending)
            try:
                node = self.schedule_pod(entry[2])
            except BaseException:
                self._pending += [entry, *left]
                heapq.heapify(self._pending)
                raise
            if node is None:
                left.append(entry)
            else:
                placed.append((entry[2], node))
        self._pending = left
        return placed

    def schedule_pod(self, request: SchedulingRequest) -> str | None:
        """Reserve a pod's GPUs for a day, and return their node; None, and a line in the log, without room.

        The reservation has the pod's name; the same request twice is one reservation. Raises `DovetailError`.
        """
        wanted = read(request.gpu_requirement)
        if request.memory_requirement is not None:
            fits = self._guard.validate_memory_requirement(request.gpu_requirement, request.memory_requirement)
            if not fits:
                _LOG.warning("no node for pod %s/%s: %s", request.namespace, request.pod_name, fits.message)
                return None
            wanted = self._with_memory(wanted, memory_gb=request.memory_requirement)
        spec = specs.reservation(str(wanted), lease_seconds=LEASE_SECONDS, priority=request.priority, workers=1)
        spec["policy"] = self.scheduling_policy.value
        job = self._client.submit(spec=spec, name=request.pod_name, namespace=request.namespace, key=str(request))
        placed = False
        try:
            placed = job.wait("Running", timeout_seconds=self._wait_seconds, progress=False) == "Running"
        except WaitTimeoutError:
            pass
        finally:
            if not placed:
                job.delete()
        if placed:
            return job.row.nodes[0]
        _LOG.warning("no node for pod %s/%s: %s", request.namespace, request.pod_name, job.row.message or job.phase)
        return None

    def release(self, pod_name: str, *, namespace: str) -> bool:
        """Release a pod's GPUs; false if it has none. Raises `DovetailError`."""
        try:
            job = self._client.job(pod_name, namespace=namespace)
        except NotFoundError:
            return False
        if not job.row.reservation:
            raise InvalidError(f"{namespace}/{pod_name} is a job and no reservation of a pod", status=409)
        job.delete()
        return True

    def _with_memory(self, wanted: GPURequest, *, memory_gb: float) -> GPURequest:
        """The request with the pod's memory: of a share as it is, of whole GPUs as their least nominal size."""
        if not wanted.whole:
            return wanted if wanted.memory_mib is not None else replace(wanted, memory_mib=math.ceil(memory_gb * 1024))
        least = math.ceil(memory_gb / self._guard.fraction)
        return replace(wanted, min_nominal_gb=max(least, wanted.min_nominal_gb or 0))

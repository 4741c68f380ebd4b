"""`GPUScheduler`: GPUs for pods by name. Each pod's GPUs are a reservation in the one queue of the cluster."""

import itertools
import logging
import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from dovetail.api.gpujob import GPUJobSpec
from dovetail.gpu.request import GPURequest
from dovetail.sdk import specs
from dovetail.sdk.errors import InvalidError
from dovetail.sdk.scheduling.memory_guard import GPUMemoryGuard
from dovetail.sdk.scheduling.parser import GPUResourceParser, read
from dovetail.sdk.scheduling.reservations import reservations

# As long as v1's allocate waits for a place.
WAIT_SECONDS: Final = 5.0
LEASE_SECONDS: Final = 24 * 3600
# That of a job that sets none, and how far a request may be from it.
USUAL_PRIORITY: Final = GPUJobSpec().priority
LOWEST_PRIORITY: Final = -USUAL_PRIORITY
HIGHEST_PRIORITY: Final = 255 - USUAL_PRIORITY
_LOG: Final = logging.getLogger("gpu_scheduler")


class SchedulingPolicy(Enum):
    """Which nodes and devices come first; the value is `spec.policy` of a GPUJob."""

    SPREAD = "Spread"
    PACK = "Pack"
    BALANCED = "Balanced"


@dataclass(frozen=True, slots=True)
class SchedulingRequest:
    """GPUs for a pod; `memory_requirement` is GB of each GPU.

    `priority` counts from that of a job that sets none: 2 comes before such jobs, -2 after them. -10 to 245.
    """

    pod_name: str
    namespace: str
    gpu_requirement: str
    memory_requirement: float | None = None
    priority: int = 0


class GPUScheduler:
    """Finds nodes for pods and reserves their GPUs.

    `client` is a `Client` of a gateway, or an API of the official Kubernetes client: then the reservations are made at
    its server, with its authority and credentials. Without either, the gateway of DOVETAIL_GATEWAY is used.
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
        self._reservations = reservations(client)
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
        _checked_priority(request)
        self._pending.append((-request.priority, next(self._order), request))

    def process_pending_requests(self) -> list[tuple[SchedulingRequest, str]]:
        """Reserve GPUs for the pending requests, the highest priority first; those without room stay pending.

        Returns each request that got its GPUs, with its node. Raises `DovetailError`: then all of them are pending, and
        the next call returns those that got their GPUs already, because the same request is one reservation.
        """
        waiting, self._pending = sorted(self._pending), []
        nodes = list[str | None]()
        try:
            for _, _, request in waiting:
                nodes.append(self.schedule_pod(request))
        except BaseException:
            self._pending += waiting
            raise
        self._pending += [entry for entry, node in zip(waiting, nodes, strict=True) if node is None]
        return [(entry[2], node) for entry, node in zip(waiting, nodes, strict=True) if node is not None]

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
        priority = _checked_priority(request)
        spec = specs.reservation(str(wanted), lease_seconds=LEASE_SECONDS, priority=priority, workers=1)
        spec["policy"] = self.scheduling_policy.value
        found = self._reservations.reserve(
            spec,
            name=specs.checked_name(request.pod_name),
            namespace=request.namespace,
            key=str(request),
            wait_seconds=self._wait_seconds,
        )
        if found.node is None:
            _LOG.warning("no node for pod %s/%s: %s", request.namespace, request.pod_name, found.why)
        return found.node

    def release(self, pod_name: str, *, namespace: str) -> bool:
        """Release a pod's GPUs; false if it has none. Raises `DovetailError`."""
        return self._reservations.release(pod_name, namespace=namespace)

    def _with_memory(self, wanted: GPURequest, *, memory_gb: float) -> GPURequest:
        """The request with the pod's memory: of a share as it is, of whole GPUs as their least nominal size."""
        if not wanted.whole:
            return wanted if wanted.memory_mib is not None else replace(wanted, memory_mib=math.ceil(memory_gb * 1024))
        least = math.ceil(memory_gb)
        return replace(wanted, min_nominal_gb=max(least, wanted.min_nominal_gb or 0))


def _checked_priority(request: SchedulingRequest) -> int:
    """The priority in the queue. Raises `InvalidError`."""
    if not LOWEST_PRIORITY <= request.priority <= HIGHEST_PRIORITY:
        message = f"priority {request.priority}: {LOWEST_PRIORITY} to {HIGHEST_PRIORITY} are allowed"
        raise InvalidError(message, status=422, reason="Invalid")
    return USUAL_PRIORITY + request.priority

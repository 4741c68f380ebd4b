"""`GPUMemoryGuard`: whether a request's GPUs have the memory that a program needs. Pure.

A module of its own: scripts also use the guard alone, without a scheduler.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from dovetail.api.gpujob import MemoryRequest
from dovetail.gpu import models
from dovetail.gpu.memory_strategy import AGGRESSIVE, CONSERVATIVE, DYNAMIC, FRACTIONS, fraction_of
from dovetail.gpu.request import GPURequest, RequestError
from dovetail.jobs.model_memory import memory_of_model
from dovetail.sdk.errors import InvalidError
from dovetail.sdk.scheduling.parser import GPUResourceParser, read
from dovetail.sdk.scheduling.reservations import is_official

_NO_SPECS: Final[Mapping[str, float]] = MappingProxyType({})
_MIB_PER_GB: Final = 1024
# Dynamic adds a tenth to what a job used before, as the operator does.
_MARGIN: Final = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCheck:
    """Whether the memory is enough; it is true where it is.

    - `required_gb`: GiB of each GPU that are needed
    - `available_gb`: GiB of each GPU that may be used; None if the request leaves the model open
    - `message`: one sentence with both numbers
    """

    fits: bool
    required_gb: float
    available_gb: float | None
    message: str

    def __bool__(self) -> bool:
        return self.fits


class GPUMemoryGuard:
    """Compares memory with that of a request's GPUs. Raises `InvalidError`.

    A whole GPU has all its memory, as in the queue. Of a share's, `strategy` is the part that may be used: conservative
    (0.8), aggressive (0.95), a fraction such as 0.7, or dynamic: 0.95 for a need that is known from the model's
    `parameters` and `batch_size`, or from `used_gb`, what the job used before; otherwise as conservative. `specs` has
    the GB of models that the table does not know. Scripts may pass a Kubernetes client and a parser instead of a
    strategy: the guard needs neither, and is conservative.
    """

    def __init__(
        self,
        strategy: str | float | object = "conservative",
        gpu_parser: GPUResourceParser | None = None,  # noqa: ARG002 - as scripts pass it
        *,
        parameters: int | None = None,
        batch_size: int | None = None,
        used_gb: float | None = None,
        workload: Literal["Training", "Inference"] = "Training",
        specs: Mapping[str, float] = _NO_SPECS,
    ) -> None:
        name = CONSERVATIVE if is_official(strategy) else str(strategy).capitalize()
        try:
            self.fraction = fraction_of(name, field="strategy")
        except RequestError as error:
            raise InvalidError(str(error), status=422, reason="Invalid") from error
        self.estimate_gb = _estimate(parameters, batch_size=batch_size, used_gb=used_gb, workload=workload)
        if name != DYNAMIC:
            self.estimate_gb = None
        elif self.estimate_gb is not None:
            self.fraction = FRACTIONS[AGGRESSIVE]
        self._specs = models.by_family(specs)

    def validate_memory_requirement(self, gpu_requirement: str | float, memory_gb: float | None = None) -> MemoryCheck:
        """Whether the GPUs of a request text have so many GiB each, or as many as dynamic estimates.

        Raises `InvalidError`.
        """
        required = memory_gb if memory_gb is not None else self.estimate_gb
        if required is None or not 0 <= required < math.inf:
            raise InvalidError(f"memory_gb {required}: a number of GB from 0 on is needed", status=422)
        request = read(gpu_requirement)
        available = self._available_gb(request)
        if available is None:
            message = f"{gpu_requirement} leaves the model open: the scheduler compares the {required:g} GB"
            return MemoryCheck(fits=True, required_gb=required, available_gb=None, message=message)
        fits = required <= available
        verb = "fit into" if fits else "do not fit into"
        message = f"{required:g} GB {verb} the {available:g} GB that {gpu_requirement} may use"
        return MemoryCheck(fits=fits, required_gb=required, available_gb=available, message=message)

    def _available_gb(self, request: GPURequest) -> float | None:
        """GiB of each GPU that may be used, on the smallest GPU that the request admits; None if that is open."""
        if request.memory_mib is not None:
            return request.memory_mib / _MIB_PER_GB
        sizes = [models.memory_mib(name, specs=self._specs) for name in request.models]
        known = [size / _MIB_PER_GB for size in sizes if size is not None]
        if len(known) < len(sizes) or not (known or request.min_nominal_gb):
            return None
        smallest = max(min(known, default=0.0), float(request.min_nominal_gb or 0))
        if request.memory_percent is not None:
            return round(smallest * request.memory_percent / 100, 3)
        return smallest if request.whole else round(smallest * self.fraction * request.share_milli / 1000, 3)


def _estimate(
    parameters: int | None,
    *,
    batch_size: int | None,
    used_gb: float | None,
    workload: Literal["Training", "Inference"],
) -> float | None:
    """The GiB that a job needs: what it used before and a tenth, otherwise what its model comes to."""
    if used_gb is not None:
        return used_gb * _MARGIN
    mib = memory_of_model(MemoryRequest(parameters=parameters, batch_size=batch_size), workload=workload)
    return None if mib is None else mib / _MIB_PER_GB

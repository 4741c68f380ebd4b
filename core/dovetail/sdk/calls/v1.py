"""The calls of v1, `/api/v1/gpu`."""

from collections.abc import Mapping
from typing import Any, Final

from dovetail.answers.v1 import Allocated, NodeRow, Released, Setup, Status, Validity
from dovetail.sdk.calls.call import Call, query, segment

_ROOT: Final = "/api/v1/gpu"


def status() -> Call[Status]:
    """The cluster in numbers."""
    return Call(method="GET", path=f"{_ROOT}/status", as_type=Status)


def nodes(*, gpu_type: str | None = None, min_memory_gb: float | None = None) -> Call[list[NodeRow]]:
    """The nodes with GPUs of a type and size."""
    asked = query(gpu_type=gpu_type, min_memory_gb=min_memory_gb)
    return Call(method="GET", path=f"{_ROOT}/nodes", as_type=list[NodeRow], query=asked)


def monitoring() -> Call[dict[str, Any]]:
    """The measurements of every device."""
    return Call(method="GET", path=f"{_ROOT}/monitoring", as_type=dict[str, Any])


def health() -> Call[dict[str, Any]]:
    """Whether the gateway answers."""
    return Call(method="GET", path=f"{_ROOT}/health", as_type=dict[str, Any])


def validate(wanted: Mapping[str, Any]) -> Call[Validity]:
    """Whether a request would get its GPUs now."""
    return Call(method="POST", path=f"{_ROOT}/validate", as_type=Validity, body=wanted)


def allocate(wanted: Mapping[str, Any]) -> Call[Allocated]:
    """Reserve GPUs for 24 hours."""
    return Call(method="POST", path=f"{_ROOT}/allocate", as_type=Allocated, body=wanted)


def release(allocation_id: str) -> Call[Released]:
    """Release an allocation."""
    return Call(method="DELETE", path=f"{_ROOT}/allocations/{segment(allocation_id)}", as_type=Released)


def setup(framework: str, *, wanted: Mapping[str, Any]) -> Call[Setup]:
    """The settings of `pytorch` or `tensorflow`."""
    return Call(method="POST", path=f"{_ROOT}/setup-{framework}", as_type=Setup, body=wanted)

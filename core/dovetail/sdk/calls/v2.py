"""The calls of v2, `/api/v2`."""

from collections.abc import Mapping
from typing import Any, Final

from dovetail.answers.v2 import Configured, GPUs, Resources, Started, Task, TaskList
from dovetail.sdk.calls.call import Call, query, segment

_ROOT: Final = "/api/v2"


def start(kind: str, *, fields: Mapping[str, Any]) -> Call[Started]:
    """Start a task of kind `training` or `inference`."""
    return Call(method="POST", path=f"{_ROOT}/{kind}/start", as_type=Started, body=fields)


def resources() -> Call[Resources]:
    """Use, tasks and limits of each device."""
    return Call(method="GET", path=f"{_ROOT}/resources", as_type=Resources)


def gpus() -> Call[GPUs]:
    """The measurements of each device."""
    return Call(method="GET", path=f"{_ROOT}/resources/gpu", as_type=GPUs)


def configure(max_concurrent: Mapping[str, Mapping[str, int]]) -> Call[Configured]:
    """Change how many tasks share a device."""
    body = {"max_concurrent": max_concurrent}
    return Call(method="POST", path=f"{_ROOT}/resources/config", as_type=Configured, body=body)


def tasks(*, status: str | None, kind: str | None, limit: int, cursor: str) -> Call[TaskList]:
    """A page of tasks."""
    asked = query(status=status, type=kind, limit=limit, cursor=cursor or None)
    return Call(method="GET", path=f"{_ROOT}/tasks", as_type=TaskList, query=asked)


def task(task_id: str) -> Call[Task]:
    """One task."""
    return Call(method="GET", path=f"{_ROOT}/tasks/{segment(task_id)}", as_type=Task)


def cancel(task_id: str) -> Call[Task]:
    """Cancel a task."""
    return Call(method="POST", path=f"{_ROOT}/tasks/{segment(task_id)}/cancel", as_type=Task)

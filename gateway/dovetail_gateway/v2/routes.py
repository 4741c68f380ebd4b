"""The routes of v2."""

from dovetail.answers.v2 import Configured, GPUs, Resources, Started, Task, TaskList
from dovetail_gateway.routing.table import READ, Nothing, Route, acts, route
from dovetail_gateway.v2.resources import ResourceCalls
from dovetail_gateway.v2.tasks import Tasks
from dovetail_gateway.v2.types import (
    DETAIL,
    INFERENCE_BODY,
    TRAINING_BODY,
    NewLimits,
    TaskFilter,
    TaskPath,
    TaskRefused,
)

_ROOT = "/api/v2"


def routes(*, tasks: Tasks, resources: ResourceCalls) -> list[Route]:
    """The routes of v2."""
    return [*_starts(tasks), *_resources(resources), *_tasks(tasks)]


def _starts(tasks: Tasks) -> list[Route]:
    return [
        route(
            "POST", f"{_ROOT}/training/start", tasks.start_training, summary="Start a training task", tag="v2",
            right=acts("create"), answers={200: Started, 409: TaskRefused}, path_type=Nothing, query_type=Nothing,
            body_type=TRAINING_BODY, errors=DETAIL,
        ),
        route(
            "POST", f"{_ROOT}/inference/start", tasks.start_inference, summary="Start an inference task", tag="v2",
            right=acts("create"), answers={200: Started, 409: TaskRefused}, path_type=Nothing, query_type=Nothing,
            body_type=INFERENCE_BODY, errors=DETAIL,
        ),
    ]  # fmt: skip


def _resources(resources: ResourceCalls) -> list[Route]:
    return [
        route(
            "GET", f"{_ROOT}/resources", resources.get_resources, summary="Get use, tasks and limits of each device",
            tag="v2", right=READ, answers={200: Resources}, path_type=Nothing, query_type=Nothing, errors=DETAIL,
        ),
        route(
            "GET", f"{_ROOT}/resources/gpu", resources.get_gpus, summary="Get the measurements of each device",
            tag="v2", right=READ, answers={200: GPUs}, path_type=Nothing, query_type=Nothing, errors=DETAIL,
        ),
        route(
            "POST", f"{_ROOT}/resources/config", resources.configure, summary="Change how many tasks share a device",
            tag="v2", right=acts("patch", resource="gpunodes.dovetail.dev"),
            answers={200: Configured, 404: TaskRefused, 409: TaskRefused}, path_type=Nothing, query_type=Nothing,
            body_type=NewLimits, errors=DETAIL,
        ),
    ]  # fmt: skip


def _tasks(tasks: Tasks) -> list[Route]:
    return [
        route(
            "GET", f"{_ROOT}/tasks", tasks.list_tasks, summary="List tasks", tag="v2", right=READ,
            answers={200: TaskList}, path_type=Nothing, query_type=TaskFilter, errors=DETAIL,
        ),
        route(
            "GET", f"{_ROOT}/tasks/{{id}}", tasks.get_task, summary="Get a task", tag="v2", right=READ,
            answers={200: Task, 404: TaskRefused}, path_type=TaskPath, query_type=Nothing, errors=DETAIL,
        ),
        route(
            "POST", f"{_ROOT}/tasks/{{id}}/cancel", tasks.cancel_task, summary="Cancel a task", tag="v2",
            right=acts("patch"), answers={200: Task, 404: TaskRefused, 409: TaskRefused}, path_type=TaskPath,
            query_type=Nothing, errors=DETAIL,
        ),
    ]  # fmt: skip

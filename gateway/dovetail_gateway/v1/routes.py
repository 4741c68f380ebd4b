"""The routes of v1."""

from dovetail.answers.v1 import Allocated, Health, Monitoring, NodeRow, Released, Setup, Status, Validity
from dovetail_gateway.routing.problems import REFUSED, Refused
from dovetail_gateway.routing.table import OPEN, READ, Nothing, Route, acts, route
from dovetail_gateway.v1.allocations import Allocations
from dovetail_gateway.v1.setup import SetupCalls
from dovetail_gateway.v1.status import StatusCalls
from dovetail_gateway.v1.types import AllocationPath, NodesQuery, Wanted

_ROOT = "/api/v1/gpu"


def routes(*, status: StatusCalls, allocations: Allocations, setup: SetupCalls) -> list[Route]:
    """The routes of v1."""
    return [*_reads(status), *_allocations(allocations), *_setup(setup)]


def _reads(status: StatusCalls) -> list[Route]:
    return [
        route(
            "GET", f"{_ROOT}/status", status.get_status, summary="The cluster in numbers", tag="v1", right=READ,
            answers={200: Status}, path_type=Nothing, query_type=Nothing, errors=REFUSED,
        ),
        route(
            "GET", f"{_ROOT}/nodes", status.list_nodes, summary="List nodes with GPUs of a type and size", tag="v1",
            right=READ, answers={200: list[NodeRow]}, path_type=Nothing, query_type=NodesQuery, errors=REFUSED,
        ),
        route(
            "GET", f"{_ROOT}/monitoring", status.get_monitoring, summary="Get the measurements of every device",
            tag="v1", right=READ, answers={200: Monitoring}, path_type=Nothing, query_type=Nothing, errors=REFUSED,
        ),
        route(
            "GET", f"{_ROOT}/health", status.get_health, summary="Get whether the gateway answers", tag="v1",
            right=OPEN, answers={200: Health, 503: Health}, path_type=Nothing, query_type=Nothing, errors=REFUSED,
            synced=False,
        ),
    ]  # fmt: skip


def _allocations(allocations: Allocations) -> list[Route]:
    return [
        route(
            "POST", f"{_ROOT}/validate", allocations.validate, summary="Check whether a request would get its GPUs now",
            tag="v1", right=READ, answers={200: Validity}, path_type=Nothing, query_type=Nothing, body_type=Wanted,
            errors=REFUSED,
        ),
        route(
            "POST", f"{_ROOT}/allocate", allocations.allocate, summary="Reserve GPUs for 24 hours", tag="v1",
            right=acts("create"), answers={200: Allocated, 409: Refused}, path_type=Nothing, query_type=Nothing,
            body_type=Wanted, errors=REFUSED,
        ),
        route(
            "DELETE", f"{_ROOT}/allocations/{{id}}", allocations.release, summary="Release an allocation", tag="v1",
            right=acts("delete"), answers={200: Released, 409: Refused}, path_type=AllocationPath, query_type=Nothing,
            errors=REFUSED, synced=False,
        ),
    ]  # fmt: skip


def _setup(setup: SetupCalls) -> list[Route]:
    return [
        route(
            "POST", f"{_ROOT}/setup-pytorch", setup.setup_pytorch, summary="Get PyTorch's settings", tag="v1",
            right=READ, answers={200: Setup, 404: Refused, 409: Refused}, path_type=Nothing, query_type=Nothing,
            body_type=Wanted, errors=REFUSED,
        ),
        route(
            "POST", f"{_ROOT}/setup-tensorflow", setup.setup_tensorflow, summary="Get TensorFlow's settings", tag="v1",
            right=READ, answers={200: Setup, 404: Refused, 409: Refused}, path_type=Nothing, query_type=Nothing,
            body_type=Wanted, errors=REFUSED,
        ),
    ]  # fmt: skip

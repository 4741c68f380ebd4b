"""The routes of v3."""

from dovetail_gateway.routing.problems import Problem
from dovetail_gateway.routing.table import READ, TOKEN, Header, Nothing, Route, Strictly, acts, route
from dovetail_gateway.v3.jobs import IDEMPOTENCY_KEY, Jobs
from dovetail_gateway.v3.me import Myself
from dovetail_gateway.v3.nodes import Nodes
from dovetail_gateway.v3.types import (
    DeviceList,
    DryRunFlag,
    EventList,
    JobChange,
    JobDetails,
    JobFilter,
    JobList,
    JobPath,
    JobRow,
    Me,
    NewJob,
    NodeFilter,
    NodeList,
    NodePath,
    NodeRow,
    Position,
    QuotaList,
    Removed,
)

_JOBS = "/api/v3/jobs"
_JOB = f"{_JOBS}/{{namespace}}/{{name}}"
_KEY = Header(
    name=IDEMPOTENCY_KEY,
    description="The same key with the same body gives the same job again, instead of a second one.",
    pattern=r"^[\x21-\x7e]{1,255}$",
)


def routes(*, jobs: Jobs, nodes: Nodes, myself: Myself) -> list[Route]:
    """The routes of v3 that answer one request."""
    return [*_jobs(jobs), *_nodes(nodes), _me(myself)]


def _jobs(jobs: Jobs) -> list[Route]:
    return [
        route(
            "GET", _JOBS, jobs.list_jobs, summary="List jobs", tag="v3", right=READ, answers={200: JobList},
            path_type=Nothing, query_type=JobFilter,
        ),
        route(
            "POST", _JOBS, jobs.create_job, summary="Create a job", tag="v3", right=acts("create"),
            answers={200: JobRow, 201: JobRow, 404: Problem, 409: Problem}, path_type=Nothing, query_type=DryRunFlag,
            body_type=NewJob, headers=(_KEY,), synced=False,
        ),
        route(
            "GET", _JOB, jobs.get_job, summary="Get a job", tag="v3", right=READ,
            answers={200: JobDetails, 404: Problem}, path_type=JobPath, query_type=Strictly,
        ),
        route(
            "PATCH", _JOB, jobs.change_job, summary="Hold, release, reprioritize or renew a job", tag="v3",
            right=acts("patch"), answers={200: JobRow, 404: Problem, 409: Problem}, path_type=JobPath,
            query_type=Strictly, body_type=JobChange, synced=False,
        ),
        route(
            "DELETE", _JOB, jobs.delete_job, summary="Delete a job", tag="v3", right=acts("delete"),
            answers={200: Removed, 404: Problem, 409: Problem}, path_type=JobPath, query_type=Strictly, synced=False,
        ),
        route(
            "POST", f"{_JOB}/cancel", jobs.cancel_job, summary="Cancel a job, which stays with the phase Cancelled",
            tag="v3", right=acts("patch"), answers={200: JobRow, 404: Problem, 409: Problem}, path_type=JobPath,
            query_type=Strictly, synced=False,
        ),
        route(
            "GET", f"{_JOB}/position", jobs.get_position, summary="Get a job's place in the queue", tag="v3",
            right=READ, answers={200: Position, 404: Problem}, path_type=JobPath, query_type=Strictly,
        ),
        route(
            "GET", f"{_JOB}/events", jobs.list_events, summary="List a job's events", tag="v3", right=READ,
            answers={200: EventList, 404: Problem}, path_type=JobPath, query_type=Strictly,
        ),
    ]  # fmt: skip


def _nodes(nodes: Nodes) -> list[Route]:
    return [
        route(
            "GET", "/api/v3/nodes", nodes.list_nodes, summary="List nodes with GPUs", tag="v3", right=READ,
            answers={200: NodeList}, path_type=Nothing, query_type=NodeFilter,
        ),
        route(
            "GET", "/api/v3/nodes/{name}", nodes.get_node, summary="Get a node with GPUs", tag="v3", right=READ,
            answers={200: NodeRow, 404: Problem}, path_type=NodePath, query_type=Strictly,
        ),
        route(
            "GET", "/api/v3/devices", nodes.list_devices, summary="List the devices of a page of nodes", tag="v3",
            right=READ, answers={200: DeviceList}, path_type=Nothing, query_type=NodeFilter,
        ),
        route(
            "GET", "/api/v3/quotas", nodes.list_quotas, summary="List the quotas of your namespaces", tag="v3",
            right=READ, answers={200: QuotaList}, path_type=Nothing, query_type=Strictly,
        ),
    ]  # fmt: skip


def _me(myself: Myself) -> Route:
    return route(
        "GET", "/api/v3/me", myself.get_me, summary="Get who you are and what you may list", tag="v3", right=TOKEN,
        answers={200: Me}, path_type=Nothing, query_type=Strictly,
    )  # fmt: skip

"""The routes of v3."""

from dovetail.answers.callers import Me
from dovetail.answers.doctor import Diagnosis
from dovetail.answers.effects import Effects as EffectsAnswer
from dovetail.answers.jobs import EventList, HistoryPage, JobDetails, JobList, JobRow, Position, Removed
from dovetail.answers.moves import MovesList
from dovetail.answers.nodes import DeviceList, NodeList, NodeRow, Overview
from dovetail.answers.plan import PlanPage
from dovetail.answers.questions import Audit, DryRun, Explanation
from dovetail.answers.quotas import QuotaList, QuotaPlan, QuotaRow
from dovetail.answers.submission import SubmittedJob
from dovetail.answers.use.series import DevicesThen, Series
from dovetail.answers.use.usage import Usage
from dovetail.answers.waste import NodeFindings, RightSizePage
from dovetail_gateway.routing.problems import Problem
from dovetail_gateway.routing.table import (
    READ,
    TOKEN,
    Header,
    Nothing,
    Right,
    Route,
    Stream,
    Strictly,
    acts,
    route,
)
from dovetail_gateway.v3.effects import Effects
from dovetail_gateway.v3.jobs import IDEMPOTENCY_KEY, Jobs
from dovetail_gateway.v3.logs import Logs
from dovetail_gateway.v3.me import Myself
from dovetail_gateway.v3.nodes import Nodes
from dovetail_gateway.v3.past.history import History
from dovetail_gateway.v3.past.series import TimeSeries
from dovetail_gateway.v3.past.usage import GPUTime
from dovetail_gateway.v3.plan import Plan
from dovetail_gateway.v3.questions import Questions
from dovetail_gateway.v3.quotas import Quotas
from dovetail_gateway.v3.snapshots import Snapshots
from dovetail_gateway.v3.types.common import Page
from dovetail_gateway.v3.types.effects import PlannedChange
from dovetail_gateway.v3.types.history import HistoryFilter
from dovetail_gateway.v3.types.jobs import Creation, JobChange, JobFilter, JobPath, LogQuery, NewJob
from dovetail_gateway.v3.types.nodes import NodeFilter, NodePath
from dovetail_gateway.v3.types.plan import PlanFilter
from dovetail_gateway.v3.types.questions import DoctorQuery, MovesQuery, NewRequest
from dovetail_gateway.v3.types.quotas import PlannedQuotaPatch, QuotaPatch, QuotaPath
from dovetail_gateway.v3.types.series import MomentQuery, SeriesQuery, UsageQuery
from dovetail_gateway.v3.types.stream import Delta, Snapshot, StreamQuery
from dovetail_gateway.v3.waste import Waste

_JOBS = "/api/v3/jobs"
_QUOTAS = "/api/v3/quotas"
_JOB = f"{_JOBS}/{{namespace}}/{{name}}"
_KEY = Header(
    name=IDEMPOTENCY_KEY,
    description="The same key with the same body gives the same job again, instead of a second one.",
    pattern=r"^[\x21-\x7e]{1,255}$",
)

_LAST_ID = Header(
    name="Last-Event-ID",
    description="The id of the last event that the client has, as EPOCH:SEQ.",
    pattern=r"^[0-9a-f]{8}:[0-9]{1,15}$",
)


def routes(
    *,
    jobs: Jobs,
    logs: Logs,
    history: History,
    plan: Plan,
    waste: Waste,
    nodes: Nodes,
    quotas: Quotas,
    series: TimeSeries,
    usage: GPUTime,
    questions: Questions,
    effects: Effects,
    snapshots: Snapshots,
    events: Stream,
    myself: Myself,
) -> list[Route]:
    """The routes of v3; `events` sends what changes."""
    return [
        *_jobs(jobs),
        _log(logs),
        _history(history),
        _plan(plan),
        *_waste(waste),
        *_questions(questions),
        _effects(effects),
        *_nodes(nodes),
        *_quotas(quotas),
        *_past(series, usage=usage),
        *_live(snapshots, events=events),
        _me(myself),
    ]


def _jobs(jobs: Jobs) -> list[Route]:
    return [
        route(
            "GET", _JOBS, jobs.list_jobs, summary="List jobs", tag="v3", right=READ, answers={200: JobList},
            path_type=Nothing, query_type=JobFilter, tagged=True,
        ),
        route(
            "POST", _JOBS, jobs.create_job, summary="Create a job", tag="v3", right=acts("create"),
            answers={200: SubmittedJob, 201: SubmittedJob, 404: Problem, 409: Problem}, path_type=Nothing,
            query_type=Creation,
            body_type=NewJob, headers=(_KEY,), synced=False,
        ),
        route(
            "GET", _JOB, jobs.get_job, summary="Get a job", tag="v3", right=READ,
            answers={200: JobDetails, 404: Problem}, path_type=JobPath, query_type=Strictly,
        ),
        route(
            "PATCH", _JOB, jobs.change_job, summary="Hold, release, reprioritize, renew or resize a job", tag="v3",
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


def _history(history: History) -> Route:
    return route(
        "GET", "/api/v3/history", history.list_history, summary="List jobs of a namespace that have ended", tag="v3",
        right=acts("create", resource="historyqueries.dovetail.dev"),
        answers={200: HistoryPage, 404: Problem, 409: Problem}, path_type=Nothing, query_type=HistoryFilter,
        synced=False,
    )  # fmt: skip


def _plan(plan: Plan) -> Route:
    return route(
        "GET", "/api/v3/plan", plan.get_plan, summary="Get when jobs run, or are estimated to start", tag="v3",
        right=READ, answers={200: PlanPage}, path_type=Nothing, query_type=PlanFilter, tagged=True,
    )  # fmt: skip


def _waste(waste: Waste) -> list[Route]:
    return [
        route(
            "GET", "/api/v3/right-sizes", waste.list_right_sizes, summary="List what jobs should request", tag="v3",
            right=READ, answers={200: RightSizePage}, path_type=Nothing, query_type=Page, tagged=True,
        ),
        route(
            "GET", "/api/v3/findings", waste.list_findings, summary="List what is wrong with nodes", tag="v3",
            right=READ, answers={200: NodeFindings}, path_type=Nothing, query_type=Strictly,
        ),
    ]  # fmt: skip


def _log(logs: Logs) -> Route:
    return Route(
        method="GET", path=f"{_JOB}/logs", operation="v3_read_log", summary="Read what workers print", tag="v3",
        right=READ, answers={200: str, 404: Problem, 409: Problem}, stream=logs.read_log, media_type="text/plain",
        path_type=JobPath, query_type=LogQuery,
    )  # fmt: skip


def _questions(questions: Questions) -> list[Route]:
    return [
        route(
            "POST", "/api/v3/dry-run", questions.dry_run, summary="Ask where and when a job would start", tag="v3",
            right=READ, answers={200: DryRun, 404: Problem}, path_type=Nothing, query_type=Strictly,
            body_type=NewRequest,
        ),
        route(
            "GET", f"{_JOB}/explain", questions.explain_job, summary="Ask why a job waits, or where it is", tag="v3",
            right=READ, answers={200: Explanation, 404: Problem}, path_type=JobPath, query_type=Strictly,
        ),
        route(
            "GET", "/api/v3/moves", questions.get_moves, summary="Ask which jobs to restart so that others start",
            tag="v3", right=READ, answers={200: MovesList, 404: Problem}, path_type=Nothing, query_type=MovesQuery,
        ),
        route(
            "GET", "/api/v3/audit", questions.get_audit, summary="Prove that no device is promised twice", tag="v3",
            right=READ, answers={200: Audit}, path_type=Nothing, query_type=Strictly,
        ),
        route(
            "GET", "/api/v3/doctor", questions.diagnose, summary="Find what is wrong with the installation", tag="v3",
            right=READ, answers={200: Diagnosis, 404: Problem}, path_type=Nothing, query_type=DoctorQuery,
        ),
        route(
            "GET", "/api/v3/overview", questions.get_overview, summary="Get all devices and their sums", tag="v3",
            right=READ, answers={200: Overview}, path_type=Nothing, query_type=Strictly,
        ),
    ]  # fmt: skip


def _effects(effects: Effects) -> Route:
    return route(
        "POST", f"{_JOB}/effects", effects.get_effects, summary="Ask what a change to a job would do to others",
        tag="v3", right=READ, answers={200: EffectsAnswer, 404: Problem}, path_type=JobPath, query_type=Strictly,
        body_type=PlannedChange,
    )  # fmt: skip


def _nodes(nodes: Nodes) -> list[Route]:
    return [
        route(
            "GET", "/api/v3/nodes", nodes.list_nodes, summary="List nodes with GPUs", tag="v3", right=READ,
            answers={200: NodeList}, path_type=Nothing, query_type=NodeFilter, tagged=True,
        ),
        route(
            "GET", "/api/v3/nodes/{name}", nodes.get_node, summary="Get a node with GPUs", tag="v3", right=READ,
            answers={200: NodeRow, 404: Problem}, path_type=NodePath, query_type=Strictly,
        ),
        route(
            "GET", "/api/v3/devices", nodes.list_devices, summary="List the devices of a page of nodes", tag="v3",
            right=READ, answers={200: DeviceList}, path_type=Nothing, query_type=NodeFilter, tagged=True,
        ),
    ]  # fmt: skip


def _quotas(quotas: Quotas) -> list[Route]:
    return [
        route(
            "GET", _QUOTAS, quotas.list_quotas, summary="List the quotas of your namespaces", tag="v3", right=READ,
            answers={200: QuotaList}, path_type=Nothing, query_type=Strictly, tagged=True,
        ),
        route(
            "PATCH", f"{_QUOTAS}/{{name}}", quotas.change_quota, summary="Change a quota", tag="v3",
            right=acts("patch", resource="gpuquotas.dovetail.dev"),
            answers={200: QuotaRow, 404: Problem, 409: Problem}, path_type=QuotaPath, query_type=Strictly,
            body_type=QuotaPatch,
        ),
        route(
            "POST", f"{_QUOTAS}/{{name}}/effects", quotas.get_quota_effects,
            summary="Ask what a change to a quota would do", tag="v3", right=READ,
            answers={200: QuotaPlan, 404: Problem}, path_type=QuotaPath, query_type=Strictly,
            body_type=PlannedQuotaPatch,
        ),
    ]  # fmt: skip


def _past(series: TimeSeries, *, usage: GPUTime) -> list[Route]:
    return [
        route(
            "GET", "/api/v3/series", series.get_series, summary="Get what was used over time", tag="v3", right=READ,
            answers={200: Series, 404: Problem}, path_type=Nothing, query_type=SeriesQuery, tagged=True,
        ),
        route(
            "GET", "/api/v3/devices/then", series.get_devices_then, summary="Get what devices did at a time",
            tag="v3", right=READ, answers={200: DevicesThen}, path_type=Nothing, query_type=MomentQuery, tagged=True,
        ),
        route(
            "GET", "/api/v3/usage", usage.get_usage, summary="Get who used how much GPU time", tag="v3", right=READ,
            answers={200: Usage}, path_type=Nothing, query_type=UsageQuery, tagged=True,
        ),
    ]  # fmt: skip


def _live(snapshots: Snapshots, *, events: Stream) -> list[Route]:
    return [
        route(
            "GET", "/api/v3/snapshot", snapshots.get_snapshot, summary="Get everything that you may see", tag="v3",
            right=READ, answers={200: Snapshot}, path_type=Nothing, query_type=Strictly, tagged=True,
        ),
        Route(
            method="GET", path="/api/v3/stream", operation="v3_stream", summary="Follow what changes (SSE)", tag="v3",
            right=Right(by="reviews", verb="list and watch", resource="gpujobs.dovetail.dev"), answers={200: Delta},
            stream=events, media_type="text/event-stream", query_type=StreamQuery, headers=(_LAST_ID,),
        ),
    ]  # fmt: skip


def _me(myself: Myself) -> Route:
    return route(
        "GET", "/api/v3/me", myself.get_me, summary="Get who you are and what you may list", tag="v3", right=TOKEN,
        answers={200: Me}, path_type=Nothing, query_type=Strictly,
    )  # fmt: skip

"""The calls of v3, `/api/v3`."""

from collections.abc import Mapping
from typing import Any, Final

from dovetail.answers.callers import Me
from dovetail.answers.doctor import Diagnosis
from dovetail.answers.effects import Effects
from dovetail.answers.jobs import EventList, HistoryPage, JobDetails, JobList, JobRow, Removed
from dovetail.answers.moves import MovesList
from dovetail.answers.nodes import NodeList, Overview
from dovetail.answers.plan import PlanPage
from dovetail.answers.questions import Audit, DryRun, Explanation
from dovetail.answers.quotas import QuotaList, QuotaPlan, QuotaRow
from dovetail.answers.submission import SubmittedJob
from dovetail.answers.use.series import Series, Subject
from dovetail.answers.use.usage import Usage, UsageGroup
from dovetail.answers.waste import NodeFindings, RightSizePage
from dovetail.sdk.calls.call import Call, query, segment

_JOBS: Final = "/api/v3/jobs"


def me() -> Call[Me]:
    """Who you are and what you may list."""
    return Call(method="GET", path="/api/v3/me", as_type=Me)


def jobs(
    *,
    namespace: str | None = None,
    phase: str | None = None,
    user: str | None = None,
    number: int | None = None,
    unfinished: bool = False,
    limit: int,
    cursor: str = "",
) -> Call[JobList]:
    """A page of jobs."""
    asked = query(
        namespace=namespace,
        phase=phase,
        user=user,
        number=number,
        unfinished=unfinished or None,
        limit=limit,
        cursor=cursor or None,
    )
    return Call(method="GET", path=_JOBS, as_type=JobList, query=asked)


def create(body: Mapping[str, Any], *, key: str, answer_seconds: int = 0) -> Call[SubmittedJob]:
    """Create a job, and wait so long for the queue's answer; the same key gives the same job again."""
    asked = query(answerSeconds=answer_seconds or None)
    return Call(method="POST", path=_JOBS, as_type=SubmittedJob, query=asked, body=body, key=key)


def job(namespace: str, *, name: str) -> Call[JobDetails]:
    """One job."""
    return Call(method="GET", path=_path(namespace, name=name), as_type=JobDetails)


def change(namespace: str, *, name: str, body: Mapping[str, Any]) -> Call[JobRow]:
    """Hold, release, reprioritize, renew or move a job, or request moves of others for it."""
    return Call(method="PATCH", path=_path(namespace, name=name), as_type=JobRow, body=body)


def cancel(namespace: str, *, name: str) -> Call[JobRow]:
    """Cancel a job, which stays with the phase Cancelled."""
    return Call(method="POST", path=f"{_path(namespace, name=name)}/cancel", as_type=JobRow)


def delete(namespace: str, *, name: str) -> Call[Removed]:
    """Delete a job with its pods."""
    return Call(method="DELETE", path=_path(namespace, name=name), as_type=Removed)


def events(namespace: str, *, name: str) -> Call[EventList]:
    """What happened to a job."""
    return Call(method="GET", path=f"{_path(namespace, name=name)}/events", as_type=EventList)


def log(namespace: str, *, name: str, worker: int, tail: int | None, follow: bool) -> Call[str]:
    """What a worker prints, as text."""
    asked = query(worker=worker, tail=tail, follow=follow)
    return Call(method="GET", path=f"{_path(namespace, name=name)}/logs", as_type=str, query=asked)


def explain(namespace: str, *, name: str) -> Call[Explanation]:
    """Why a job waits, or where it is."""
    return Call(method="GET", path=f"{_path(namespace, name=name)}/explain", as_type=Explanation)


def moves(jobs: str, *, willing: bool) -> Call[MovesList]:
    """Which running jobs would have to restart elsewhere so that these jobs start: `namespace/name`, with commas."""
    asked = query(jobs=jobs, willing=willing or None)
    return Call(method="GET", path="/api/v3/moves", as_type=MovesList, query=asked)


def effects(namespace: str, *, name: str, body: Mapping[str, Any]) -> Call[Effects]:
    """What a change to a job would do to it and to others; nothing is changed."""
    return Call(method="POST", path=f"{_path(namespace, name=name)}/effects", as_type=Effects, body=body)


def dry_run(namespace: str, *, spec: Mapping[str, Any]) -> Call[DryRun]:
    """Where and when a job would start."""
    return Call(method="POST", path="/api/v3/dry-run", as_type=DryRun, body={"namespace": namespace, "spec": spec})


def nodes(*, model: str | None, limit: int, cursor: str) -> Call[NodeList]:
    """A page of the nodes with GPUs."""
    asked = query(model=model, limit=limit, cursor=cursor or None)
    return Call(method="GET", path="/api/v3/nodes", as_type=NodeList, query=asked)


def quotas() -> Call[QuotaList]:
    """The quotas of your namespaces."""
    return Call(method="GET", path="/api/v3/quotas", as_type=QuotaList)


def quota_effects(name: str, *, body: Mapping[str, Any]) -> Call[QuotaPlan]:
    """What a change to a quota would do; nothing is changed."""
    return Call(method="POST", path=f"/api/v3/quotas/{segment(name)}/effects", as_type=QuotaPlan, body=body)


def change_quota(name: str, *, body: Mapping[str, Any]) -> Call[QuotaRow]:
    """Change a quota."""
    return Call(method="PATCH", path=f"/api/v3/quotas/{segment(name)}", as_type=QuotaRow, body=body)


def plan(*, namespace: str | None, bounded: bool, limit: int, cursor: str) -> Call[PlanPage]:
    """A page of the plan."""
    asked = query(namespace=namespace, bounded=bounded or None, limit=limit, cursor=cursor or None)
    return Call(method="GET", path="/api/v3/plan", as_type=PlanPage, query=asked)


def right_sizes(*, namespace: str | None, limit: int, cursor: str) -> Call[RightSizePage]:
    """A page of right sizes."""
    asked = query(namespace=namespace, limit=limit, cursor=cursor or None)
    return Call(method="GET", path="/api/v3/right-sizes", as_type=RightSizePage, query=asked)


def findings() -> Call[NodeFindings]:
    """What is wrong with nodes."""
    return Call(method="GET", path="/api/v3/findings", as_type=NodeFindings)


def series(
    of: Subject, *, name: str | None, namespace: str | None, since: str | None, until: str | None
) -> Call[Series]:
    """What a subject used over time."""
    asked = query(of=of, name=name, namespace=namespace, since=since, until=until)
    return Call(method="GET", path="/api/v3/series", as_type=Series, query=asked)


def usage(by: UsageGroup, *, namespace: str | None, since: str | None, until: str | None) -> Call[Usage]:
    """Who used how much GPU time."""
    asked = query(by=by, namespace=namespace, since=since, until=until)
    return Call(method="GET", path="/api/v3/usage", as_type=Usage, query=asked)


def doctor(*, node: str | None, namespace: str) -> Call[Diagnosis]:
    """What is wrong with the installation or a node."""
    return Call(method="GET", path="/api/v3/doctor", as_type=Diagnosis, query=query(node=node, namespace=namespace))


def overview() -> Call[Overview]:
    """All devices with their sums."""
    return Call(method="GET", path="/api/v3/overview", as_type=Overview)


def audit() -> Call[Audit]:
    """The proof that no device is promised beyond its capacity."""
    return Call(method="GET", path="/api/v3/audit", as_type=Audit)


def history(namespace: str, *, since: str | None, until: str | None, limit: int, cursor: str) -> Call[HistoryPage]:
    """A page of the jobs of a namespace that have ended."""
    asked = query(namespace=namespace, since=since, until=until, limit=limit, cursor=cursor or None)
    return Call(method="GET", path="/api/v3/history", as_type=HistoryPage, query=asked)


def _path(namespace: str, *, name: str) -> str:
    return f"{_JOBS}/{segment(namespace)}/{segment(name)}"

"""The tools that read: jobs, their logs and reasons, nodes, quotas, and the history."""

from typing import Any, Final

import msgspec

from dovetail.answers.jobs import job_details, job_row
from dovetail.answers.node_rows import inventory_row
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.historyquery import HistoryQuerySpec
from dovetail.api.resources import GPUQUOTAS
from dovetail.kube.errors import StatusError
from dovetail.query.explain.explanation import explain
from dovetail.query.explain.rows import explanation_row
from dovetail.query.jobs.columns import View
from dovetail.query.jobs.filters import JobQuery, choose
from dovetail.query.jobs.states import parse_states
from dovetail.query.quotas.listing import quota_list
from dovetail_cli.agents.session import Session, find
from dovetail_cli.cluster import identity, snapshot
from dovetail_cli.cluster.connection import list_jobs
from dovetail_cli.explain.reads import find_job
from dovetail_cli.jobs import history, job_events, logs
from dovetail_cli.jobs.log_follow import no_log
from dovetail_cli.nodes import inventory
from dovetail_cli.ui import times
from dovetail_cli.ui.errors import CommandError, UsageError

# What one answer may have: a model reads all of it.
MOST_ROWS: Final = 200
MOST_LINES: Final = 1000
Answer = dict[str, Any]


def checked(name: str, *, number: int, most: int) -> int:
    """A number from 1 to `most`. Raises `UsageError`."""
    if not 1 <= number <= most:
        raise UsageError(f"{name} {number}: must be from 1 to {most}")
    return number


async def whoami(session: Session) -> Answer:
    """Who the API server says that the caller is, and which cluster it is."""
    made = session.cluster.client.connection
    user = await identity.username(session.cluster)
    return {"user": user, "server": made.server, "namespace": session.cluster.namespace, "source": made.source}


async def jobs(session: Session, *, namespace: str | None, states: str | None, finished: bool, limit: int) -> Answer:
    """The jobs of a namespace as `gqueue -o json` has them. Raises `UsageError`."""
    checked("limit", number=limit, most=MOST_ROWS)
    query = JobQuery(states=parse_states(states, field="states"), everything=finished)
    found = choose(await list_jobs(session.at(namespace)), query=query, view=View(now=times.utc_now()))
    rows = [msgspec.to_builtins(job_row(job)) for job in found[:limit]]
    return {"items": rows, "left_out": len(found) - len(rows)}


async def job(session: Session, *, job: str, namespace: str | None) -> Answer:
    """Everything about a job, with its events."""
    cluster = session.at(namespace)
    found = await find(cluster, job=job)
    events = await job_events.events_or_none(cluster, job=found)
    return {**msgspec.to_builtins(job_details(found)), "events": msgspec.to_builtins(events)}


async def log(session: Session, *, job: str, namespace: str | None, worker: int, lines: int) -> Answer:
    """The last lines that a worker has printed. Raises `CommandError` where there are none."""
    checked("lines", number=lines, most=MOST_LINES)
    if worker < 0:
        raise UsageError(f"worker {worker}: workers count from 0")
    cluster = session.at(namespace)
    found = await find(cluster, job=job)
    pod = await logs.worker_pod(cluster, job=found, worker=worker)
    if pod is None:
        raise CommandError(f"job {job} has no pod of worker {worker} now, and so no log")
    container = pod.spec.containers[0].name
    try:
        data = await cluster.client.log(
            pod.metadata.name, namespace=pod.metadata.namespace, container=container, tail_lines=lines
        )
    except StatusError as error:
        raise CommandError(no_log(pod, error=error)) from error
    return {"lines": data.decode(errors="replace").splitlines()}


async def explained(session: Session, *, job: str, namespace: str | None) -> Answer:
    """Why a job is where it is, or waits: each node's answer, and what would have to change."""
    cluster = session.at(namespace)
    taken = await snapshot.take(cluster, say=lambda _: None)
    subject = await find_job(job)(cluster, taken)
    found: Answer = msgspec.to_builtins(explanation_row(explain(subject, objects=taken, now=times.utc_now())))
    return found


async def nodes(session: Session) -> Answer:
    """The nodes with GPUs, their devices, and who holds them."""
    found: Answer = msgspec.to_builtins(inventory_row(await inventory.read_inventory(session.cluster)))
    return found


async def quotas(session: Session) -> Answer:
    """The limits of namespaces and users, and what they use."""
    found = quota_list((await session.cluster.client.list(GPUQUOTAS, as_type=GPUQuota)).items)
    return {"items": msgspec.to_builtins(found.items)}


async def ended(session: Session, *, since: str, namespace: str | None, limit: int) -> Answer:
    """The jobs of a namespace that have ended since then, the latest first."""
    checked("limit", number=limit, most=MOST_ROWS)
    begin = times.since_time(since, now=times.local_now(), option="since")
    answer = await history.ask(session.at(namespace), question=HistoryQuerySpec(since=begin, limit=limit))
    return {"items": msgspec.to_builtins(answer.records), "more": bool(answer.next)}

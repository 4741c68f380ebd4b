"""Jobs that have ended, by the history's records: a question is an object that the operator answers."""

import asyncio
import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.gpujob import GPUJob, job_of
from dovetail.api.historyquery import HistoryQuery, HistoryQuerySpec, HistoryQueryStatus, JobRecord
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import HISTORYQUERIES
from dovetail.formats.timestamps import moment, timestamp
from dovetail.kube.errors import NotFound
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui.errors import CommandError

ANSWER_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.05


async def ask(cluster: Cluster, question: HistoryQuerySpec, *, seconds: float = ANSWER_SECONDS) -> HistoryQueryStatus:
    """The answer to one question. Raises `CommandError` when none comes, or it is that something is wrong."""
    body = HistoryQuery(metadata=ObjectMeta(generate_name="ask-"), spec=question)
    asked = await cluster.client.create(
        HISTORYQUERIES, msgspec.to_builtins(body), as_type=HistoryQuery, namespace=cluster.namespace
    )
    try:
        answer = await _answered(cluster, asked, seconds=seconds)
    finally:
        await _forget(cluster, asked)
    if answer.message:
        raise CommandError(answer.message)
    return answer


async def records(cluster: Cluster, question: HistoryQuerySpec) -> list[JobRecord]:
    """All records that the question means, page after page, the latest end first."""
    found: list[JobRecord] = []
    while True:
        answer = await ask(cluster, question)
        found += answer.records
        if not answer.next:
            return found
        question = msgspec.structs.replace(question, after=answer.next)


def last_run_seconds(record: JobRecord) -> float:
    """How long the last of its runs was: it may have had earlier ones, or been suspended long before its end."""
    if record.started is None or record.ended is None:
        return record.run_seconds
    return min(record.run_seconds, (moment(record.ended) - moment(record.started)).total_seconds())


def as_job(record: JobRecord) -> GPUJob:
    """A job that is no more as the lists know jobs, as far as its record tells."""
    status = {
        "number": record.number,
        "phase": record.phase,
        "reason": record.reason,
        "message": record.message,
        "request": record.request,
        "gpus": math.ceil(record.gpus),
        "nodes": record.nodes,
        "nodeList": ",".join(record.nodes),
        "startTime": record.started,
        "completionTime": record.ended,
        "attempt": record.attempts,
        "conditions": _stopped(record),
    }
    metadata = {
        "name": record.name,
        "namespace": record.namespace,
        "uid": record.uid,
        "creationTimestamp": record.submitted,
        "annotations": {names.USER: record.user} if record.user else {},
        "labels": {names.LABEL_PROJECT: record.project} if record.project else {},
    }
    spec: dict[str, Any] = {
        "gpu": record.request or None,
        "priority": record.priority,
        "workers": record.workers,
        "template": {"spec": {"containers": []}},
    }
    return job_of({"metadata": metadata, "spec": spec, "status": status})


def _stopped(record: JobRecord) -> list[dict[str, str]]:
    """As a job says that its run was suspended, where that was before its end."""
    if record.started is None or record.ended is None:
        return []
    at = timestamp(moment(record.started) + timedelta(seconds=last_run_seconds(record)))
    if moment(at) >= moment(record.ended):
        return []
    return [{"type": "Suspended", "status": "True", "reason": "Held", "message": "", "lastTransitionTime": at}]


def joined(jobs: Sequence[GPUJob], past: Sequence[JobRecord]) -> list[GPUJob]:
    """The jobs that are there, and behind them those of which only a record is left, in the order of their numbers."""
    there = {job.metadata.uid for job in jobs}
    gone = [as_job(record) for record in past if record.uid not in there]
    return sorted([*jobs, *gone], key=lambda job: (job.status.number is None, job.status.number, job.metadata.name))


async def _answered(cluster: Cluster, asked: HistoryQuery, *, seconds: float) -> HistoryQueryStatus:
    name, found = asked.metadata.name, asked
    try:
        async with asyncio.timeout(seconds):
            while not found.status.answered:
                await asyncio.sleep(_LOOK_SECONDS)
                found = await cluster.client.get(
                    HISTORYQUERIES, name, as_type=HistoryQuery, namespace=cluster.namespace
                )
    except TimeoutError as error:
        raise CommandError(
            f"no operator has answered within {seconds:g} s what ran here: is dovetail-operator running?"
        ) from error
    return found.status


async def _forget(cluster: Cluster, asked: HistoryQuery) -> None:
    try:
        await cluster.client.delete(HISTORYQUERIES, asked.metadata.name, namespace=cluster.namespace)
    except NotFound:
        return

"""Records of ended jobs, which outlive their objects, in lists of jobs. Pure."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from dovetail import names
from dovetail.api.gpujob import GPUJob, job_of
from dovetail.api.historyquery import JobRecord
from dovetail.api.reasons.codes import HELD
from dovetail.formats.timestamps import moment, timestamp
from dovetail.query.jobs.groups import in_order


def joined(jobs: Sequence[GPUJob], *, records: Sequence[JobRecord]) -> list[GPUJob]:
    """The jobs and, as jobs, the records of those whose objects are gone, by number."""
    there = {job.metadata.uid for job in jobs}
    return in_order([*jobs, *(as_job(record) for record in records if record.uid not in there)])


def last_run_seconds(record: JobRecord) -> float:
    """How long the last run of the job lasted, in seconds.

    The job may have had earlier runs, or been suspended long before its end.
    """
    if record.started is None or record.ended is None:
        return record.run_seconds
    return min(record.run_seconds, (moment(record.ended) - moment(record.started)).total_seconds())


def as_job(record: JobRecord) -> GPUJob:
    """The job of a record, as far as the record describes it. Its template is empty."""
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
    return job_of({"metadata": metadata, "spec": spec, "status": _status(record)})


def _status(record: JobRecord) -> dict[str, Any]:
    return {
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
        "conditions": _suspended(record),
    }


def _suspended(record: JobRecord) -> list[dict[str, str]]:
    """The condition of a job whose last run was suspended before its end; empty for other jobs."""
    if record.started is None or record.ended is None:
        return []
    at = timestamp(moment(record.started) + timedelta(seconds=last_run_seconds(record)))
    if moment(at) >= moment(record.ended):
        return []
    return [{"type": "Suspended", "status": "True", "reason": HELD.code, "message": "", "lastTransitionTime": at}]

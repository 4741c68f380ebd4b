"""What `gbatch --dry-run` prints: the answer of `dovetail.query.dry_run` as text. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from dovetail.answers import questions
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.cluster.objects import ClusterObjects
from dovetail.engine.filter.messages import gpus
from dovetail.formats.timestamps import timestamp
from dovetail.query.dry_run import DryRun, GPUsOnNode, dry_run
from dovetail.query.preemption import Preempting
from dovetail.queue.estimates.simulation import Start
from dovetail_cli.ui.errors import CommandError
from dovetail_cli.ui.times import brief

_BLIND: Final = " Limits are not counted: that takes the right to list GPUQuotas."


def foretell(job: GPUJob, *, objects: ClusterObjects, now: datetime) -> str:
    """What the queue would do with a job that is not submitted yet.

    Raises `CommandError` if it would do nothing because the request is invalid.
    """
    found = dry_run(job, objects=objects, now=now)
    match found.outcome:
        case "NotBefore":
            return f"It would not start before {found.message} (spec.beginTime)."
        case "Invalid":
            raise CommandError(f"{found.reason}: {found.message}")
        case "Blocked":
            return f"{found.reason}: {found.message}."
        case _:
            first = "Its first task: " if job.spec.array is not None or job.spec.sweep is not None else ""
            blind = _BLIND if objects.quotas is None else ""
            return first + _sentences(found, job=job, now=now) + blind


def by_gateway(found: questions.DryRun, *, now: datetime) -> str:
    """The same by the gateway, which names no other tenant.

    Raises `CommandError` as `foretell` does.
    """
    why = f"{found.reason}: {found.message}."
    match found.outcome:
        case "Starts":
            nodes = [GPUsOnNode(node=each.node, gpus=each.gpus) for each in found.nodes]
            return f"It would start now{_where(nodes or None)}."
        case "NotBefore":
            return f"It would not start before {found.message} (spec.beginTime)."
        case "Never":
            return f"It could never start here. {why}"
        case "Waits":
            when = _seconds(found.starts_in_seconds, basis=found.basis, now=now)
            ended = f"Jobs that would be preempted for it: {found.victims}." if found.victims else ""
            return " ".join(filter(None, (f"It would wait at place {found.position}. {why}", when, ended)))
        case "Invalid":
            raise CommandError(f"{found.reason}: {found.message}")
        case _:
            return why


def _seconds(seconds: float | None, *, basis: str, now: datetime) -> str:
    if seconds is None:
        return "No end that is known makes room for it."
    at = timestamp(now + timedelta(seconds=seconds))
    return f"It would start in about {brief(seconds)}, at {at}{f': {basis}' if basis else ''}."


def _sentences(found: DryRun, *, job: GPUJob, now: datetime) -> str:
    if found.outcome == "Starts":
        on_cpu = f" {found.message}." if found.message else ""
        return f"It would start now{_where(found.nodes)}.{on_cpu}"
    why = f"{found.reason}: {found.message}."
    if found.outcome == "Never":
        return f"It could never start here. {why}"
    parts = [f"It would wait at place {found.position}. {why}"]
    by_preemption = found.preempting
    if by_preemption is None or by_preemption.in_seconds:
        parts.append(_by_itself(found, now=now))
    if by_preemption is not None:
        parts.append(_by_preemption(by_preemption, job=job, now=now))
    if found.cpu_in_seconds is not None and (found.start is None or found.start.in_seconds < found.cpu_in_seconds):
        at = timestamp(now + timedelta(seconds=found.cpu_in_seconds))
        parts.append(f"If it still waits at {at}, it runs on the CPU (onNoGPU).")
    return " ".join(part for part in parts if part)


def _by_itself(found: DryRun, *, now: datetime) -> str:
    if found.start is not None:
        return _at(found.start, now=now)
    # What is kept for others says itself for whom, and new nodes come at no known time.
    return "" if found.reason in {"Reserved", "Provisioning"} else "No end that is known makes room for it."


def _at(start: Start, *, now: datetime) -> str:
    return _seconds(start.in_seconds, basis=start.basis, now=now)


def _by_preemption(found: Preempting, *, job: GPUJob, now: datetime) -> str:
    who = " and ".join(_named(victim, beside=job) for victim in found.victims)
    warned = f"{'each ' if len(found.victims) > 1 else ''}with a warning {found.grace_seconds:.0f} s before"
    way = (
        f"In {brief(found.in_seconds)} {who} may be preempted for it"
        if found.in_seconds
        else f"{who} would be preempted for it"
    )
    at = timestamp(now + timedelta(seconds=found.starts_in_seconds))
    return f"{way}, {warned}: it would start in about {brief(found.starts_in_seconds)}, at {at}."


def _named(victim: GPUJob, *, beside: GPUJob) -> str:
    meta = victim.metadata
    name = meta.name if meta.namespace == beside.metadata.namespace else key_of(meta)
    return f"{name} (priority {victim.spec.priority})"


def _where(nodes: Sequence[GPUsOnNode] | None) -> str:
    if nodes is None:
        return ", wherever kube-scheduler finds CPU and memory for it"
    return " on " + ", ".join(f"{each.node} ({gpus(each.gpus)})" for each in nodes)

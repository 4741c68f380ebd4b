"""What `gbatch --dry-run` prints: the answer of the queue as text. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from dovetail.answers.questions import DryRun, DryRunPreemption, NodeShare, Victim
from dovetail.engine.filter.messages import gpus
from dovetail.formats.timestamps import timestamp
from dovetail_cli.ui.errors import CommandError
from dovetail_cli.ui.times import brief

BLIND: Final = "Limits are not counted: that takes the right to list GPUQuotas."


def in_words(found: DryRun, *, namespace: str, now: datetime) -> str:
    """What the queue would do with a job of the namespace that is not submitted yet.

    Raises `CommandError` if it would do nothing because the request is invalid.
    """
    match found.outcome:
        case "NotBefore":
            return f"It would not start before {found.message} (spec.beginTime)."
        case "Invalid":
            raise CommandError(f"{found.reason}: {found.message}")
        case "Blocked":
            return f"{found.reason}: {found.message}."
        case _:
            first = "Its first task: " if found.array else ""
            blind = "" if found.limits_counted else f" {BLIND}"
            return first + _sentences(found, namespace=namespace, now=now) + blind


def _sentences(found: DryRun, *, namespace: str, now: datetime) -> str:
    if found.outcome == "Starts":
        on_cpu = f" {found.message}." if found.message else ""
        return f"It would start now{_where(found.nodes)}.{on_cpu}"
    why = f"{found.reason}: {found.message}."
    if found.outcome == "Never":
        return f"It could never start here. {why}"
    parts = [f"It would wait at place {found.position}. {why}"]
    preemption = found.preemption
    if preemption is None or preemption.in_seconds:
        parts.append(_by_itself(found, now=now))
    if preemption is not None:
        parts.append(_by_preemption(preemption, namespace=namespace, now=now))
    if found.cpu_in_seconds is not None and (found.start is None or found.start.seconds < found.cpu_in_seconds):
        at = timestamp(now + timedelta(seconds=found.cpu_in_seconds))
        parts.append(f"If it still waits at {at}, it runs on the CPU (onNoGPU).")
    return " ".join(part for part in parts if part)


def _by_itself(found: DryRun, *, now: datetime) -> str:
    start = found.start
    if start is None:
        # What is kept for others says itself for whom, and new nodes come at no known time.
        return "" if found.reason in {"Reserved", "Provisioning"} else "No end that is known makes room for it."
    at = timestamp(now + timedelta(seconds=start.seconds))
    basis = f": {start.basis}" if start.basis else ""
    return f"It would start in about {brief(start.seconds)}, at {at}{basis}."


def _by_preemption(found: DryRunPreemption, *, namespace: str, now: datetime) -> str:
    who = [_named(victim, namespace=namespace) for victim in found.victims]
    if found.other_victims:
        who.append(f"{found.other_victims} {'job' if found.other_victims == 1 else 'jobs'} of other tenants")
    several = len(found.victims) + found.other_victims > 1
    warned, who_all = f"{'each ' if several else ''}with a warning", " and ".join(who)
    way = (
        f"In {brief(found.in_seconds)} {who_all} may be preempted for it"
        if found.in_seconds
        else f"{who_all} would be preempted for it"
    )
    at = timestamp(now + timedelta(seconds=found.starts_in_seconds))
    return (
        f"{way}, {warned} {found.grace_seconds:.0f} s before: "
        f"it would start in about {brief(found.starts_in_seconds)}, at {at}."
    )


def _named(victim: Victim, *, namespace: str) -> str:
    name = victim.name if victim.namespace == namespace else f"{victim.namespace}/{victim.name}"
    return f"{name} (priority {victim.priority})"


def _where(nodes: Sequence[NodeShare] | None) -> str:
    if nodes is None:
        return ", wherever kube-scheduler finds CPU and memory for it"
    return " on " + ", ".join(f"{each.node} ({gpus(each.gpus)})" for each in nodes)

"""The answer that a submission gets: from the status of the new job, and in words. Pure.

The queue's own decision is in the status some milliseconds after the submission, so asking costs no second look at the
cluster. `query.dry_run` gives the same answer before a submission.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import asdict, replace

from dovetail.answers.jobs import JobRow, job_row
from dovetail.answers.questions import DryRun, DryRunPreemption, DryRunStart, NodeShare, Victim
from dovetail.api.gpujob import FINISHED, GPUJob
from dovetail.formats.durations import brief
from dovetail.formats.timestamps import moment, timestamp
from dovetail.gpu.request import RequestError, parse

BLIND: Final = "Limits are not counted: that takes the right to list GPUQuotas."
_ON_CPU: Final = "Runs on the CPU"
_UNDECIDED: Final = frozenset({"", "Evaluating"})
# A job with this reason waits for something other than room.
_BLOCKING: Final = frozenset({"Dependency", "DependencyFailed", "Held", "ExternallyManaged"})


class SubmittedJob(JobRow, frozen=True, kw_only=True):
    """A job that was created. `answer` is the queue's; null if it was not asked, or has not decided in time."""

    answer: DryRun | None = None


def submitted_job(job: GPUJob, *, answer: DryRun | None) -> SubmittedJob:
    """The row of a job, with the answer to its submission."""
    return SubmittedJob(**asdict(job_row(job)), answer=answer)


def answer_of(job: GPUJob, *, now: datetime) -> DryRun | None:
    """The queue's answer to a job that is submitted; None until it has decided.

    It has no preemption: victims are warned before the status says so.
    """
    status = job.status
    phase, reason = status.phase, status.reason or ""
    if status.number is None or phase is None or (phase == "Queued" and reason in _UNDECIDED):
        return None
    is_array = job.spec.array is not None or job.spec.sweep is not None
    # Of an array, what the task says that waits; the numbers of tasks come before it.
    task = status.message.partition("; ")[2] if is_array else ""
    found = DryRun(
        outcome="Waits",
        reason=reason,
        message=task or status.message,
        details=[] if task else list(status.details),
        nodes=None,
        position=None,
        start=None,
        preemption=None,
        cpu_in_seconds=None,
        array=is_array,
        limits_counted=True,
        text="",
    )
    if phase not in {"Queued", "Held"} and (phase not in FINISHED or status.start_time is not None):
        on_cpu = _ON_CPU if job.spec.gpu is not None and status.device == "cpu" else ""
        found = replace(found, outcome="Starts", reason="", message=on_cpu, details=[], nodes=_nodes(job))
    elif reason == "ExceedsCapacity":
        found = replace(found, outcome="Never")
    elif reason == "BeginTime":
        found = replace(found, outcome="NotBefore", message=job.spec.begin_time or "", details=[])
    elif reason == "Invalid":
        found = replace(found, outcome="Invalid")
    elif phase != "Queued" or reason in _BLOCKING:
        found = replace(found, outcome="Blocked")
    else:
        found = replace(found, position=_position(job), start=_start(job, now=now))
    return with_text(found, namespace=job.metadata.namespace, now=now, submitted=True)


def with_text(found: DryRun, *, namespace: str, now: datetime, submitted: bool = False) -> DryRun:
    """The answer with its `text`, about a job of the namespace that is `submitted`, or that is not yet."""
    return replace(found, text=_Words(namespace=namespace, now=now, submitted=submitted).text(found))


def _position(job: GPUJob) -> int | None:
    return None if job.status.queue is None else job.status.queue.position


def _start(job: GPUJob, *, now: datetime) -> DryRunStart | None:
    queue = job.status.queue
    if queue is None or queue.estimated_start is None:
        return None

    def seconds(at: str | None) -> float | None:
        return None if at is None else max(0.0, (moment(at) - now).total_seconds())

    return DryRunStart(
        seconds=seconds(queue.estimated_start) or 0.0,
        earliest=seconds(queue.estimated_start_earliest),
        latest=seconds(queue.estimated_start_latest),
        basis=queue.basis,
        basis_details=queue.basis_details,
    )


def _nodes(job: GPUJob) -> list[NodeShare] | None:
    """The nodes that the status names, with their GPUs; empty where it names none yet. None: any node is right."""
    placement = job.status.placement
    if placement is None or not placement.nodes:
        return [] if job.spec.gpu is not None else None
    try:
        each = parse(placement.worker.request).count
    except RequestError:
        # It runs on the CPU.
        return None
    return [NodeShare(node=node.name, gpus=node.workers * each) for node in placement.nodes]


class _Words:
    """Sentences about a job; before the submission they are conditional."""

    def __init__(self, *, namespace: str, now: datetime, submitted: bool) -> None:
        self._namespace = namespace
        self._now = now
        self._submitted = submitted

    def text(self, found: DryRun) -> str:
        match found.outcome:
            case "NotBefore":
                not_before = "It does not start before" if self._submitted else "It would not start before"
                return f"{not_before} {found.message}."
            case "Invalid" | "Blocked":
                return f"{found.reason}: {found.message}."
            case _:
                first = "Its first task: " if found.array and not self._submitted else ""
                blind = "" if found.limits_counted else f" {BLIND}"
                return first + self._sentences(found) + blind

    def _sentences(self, found: DryRun) -> str:
        if found.outcome == "Starts":
            on_cpu = f" {found.message}." if found.message else ""
            return f"It {self._verb('start')} now{self._where(found.nodes)}.{on_cpu}"
        why = f"{found.reason}: {found.message.removesuffix('?')}{'?' if found.message.endswith('?') else '.'}"
        if found.outcome == "Never":
            return f"It {'can' if self._submitted else 'could'} never start here. {why}"
        place = "" if found.position is None else f" at place {found.position}"
        parts = [f"It {self._verb('wait')}{place}. {why}"]
        preemption = found.preemption
        if preemption is None or preemption.in_seconds:
            parts.append(self._by_itself(found))
        if preemption is not None:
            parts.append(self._by_preemption(preemption))
        if found.cpu_in_seconds is not None and (found.start is None or found.start.seconds < found.cpu_in_seconds):
            at = timestamp(self._now + timedelta(seconds=found.cpu_in_seconds))
            parts.append(f"If it still waits at {at}, it runs on the CPU.")
        return " ".join(part for part in parts if part)

    def _by_itself(self, found: DryRun) -> str:
        start = found.start
        if start is None:
            # What is kept for others says itself for whom, and new nodes come at no known time. Of a submitted job the
            # estimate comes a moment later.
            known = self._submitted or found.reason in {"Reserved", "Provisioning"}
            return "" if known else "No end that is known makes room for it."
        at = timestamp(self._now + timedelta(seconds=start.seconds))
        basis = f": {start.basis}" if start.basis else ""
        return f"It {self._verb('start')} in about {brief(start.seconds)}{_bounds(start)}, at {at}{basis}."

    def _by_preemption(self, found: DryRunPreemption) -> str:
        who = [self._named(victim) for victim in found.victims]
        if found.other_victims:
            who.append(f"{found.other_victims} {'job' if found.other_victims == 1 else 'jobs'} of other tenants")
        several = len(found.victims) + found.other_victims > 1
        warned, who_all = f"{'each ' if several else ''}with a warning", " and ".join(who)
        way = (
            f"In {brief(found.in_seconds)} {who_all} may be preempted for it"
            if found.in_seconds
            else f"{who_all} would be preempted for it"
        )
        at = timestamp(self._now + timedelta(seconds=found.starts_in_seconds))
        return (
            f"{way}, {warned} {found.grace_seconds:.0f} s before: "
            f"it would start in about {brief(found.starts_in_seconds)}, at {at}."
        )

    def _named(self, victim: Victim) -> str:
        name = victim.name if victim.namespace == self._namespace else f"{victim.namespace}/{victim.name}"
        return f"{name} (priority {victim.priority})"

    def _where(self, nodes: Sequence[NodeShare] | None) -> str:
        if nodes is None:
            return "" if self._submitted else ", wherever enough CPU and memory is free"
        named = ", ".join(f"{each.node} ({each.gpus} {'GPU' if each.gpus == 1 else 'GPUs'})" for each in nodes)
        return f" on {named}" if named else ""

    def _verb(self, verb: str) -> str:
        return f"{verb}s" if self._submitted else f"would {verb}"


def _bounds(start: DryRunStart) -> str:
    """The span in which nine of ten such starts are; empty where only the likeliest is known."""
    if start.earliest is None or start.latest is None or brief(start.earliest) == brief(start.latest):
        return ""
    return f" ({'now' if start.earliest < 1 else brief(start.earliest)} to {brief(start.latest)})"

"""Where and when a job would start if it were submitted now, by the queue's own rules over the cluster as it was read.
Pure: the clock is an argument."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.engine.filter.messages import gpus
from dovetail.engine.model.claims import Claim
from dovetail.formats.timestamps import timestamp
from dovetail.gpu.request import RequestError
from dovetail.jobs.plan import planned_nodes
from dovetail.queue.dependencies import states_of, unmet
from dovetail.queue.estimates.simulation import Start, play
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.scope import reach
from dovetail.queue.model.candidates import Candidate, order
from dovetail.queue.preemption.policy import Evictor
from dovetail.queue.verdicts import Admitted, Waits
from dovetail_cli.cluster.preemption import Way, Yielding, way_made, yielding
from dovetail_cli.cluster.queue_view import ASKED, Queue, asked_as, queue_of
from dovetail_cli.cluster.snapshot import Picture
from dovetail_cli.ui.times import brief, parse_timestamp

_BLIND: Final = " Limits are not counted: that takes the right to list GPUQuotas."


def foretell(job: GPUJob, *, picture: Picture, now: datetime) -> str:
    """What the queue would do with a job that is not submitted yet, in one sentence or two."""
    begin = parse_timestamp(job.spec.begin_time)
    if begin is not None and begin > now:
        return f"It would not start before {job.spec.begin_time} (spec.beginTime)."
    named = {key_of(each.metadata): each for each in picture.jobs}
    states = states_of(job.spec.dependencies, job_named=lambda name: named.get(f"{job.metadata.namespace}/{name}"))
    if (waits := unmet(states, spec=job.spec)) is not None:
        return f"{waits.reason}: {waits.message}."
    queue = queue_of(picture, now=now)
    try:
        asked, counted = asked_as(job, picture=picture, queue=queue)
    except RequestError as error:
        return f"Invalid: {error}."
    others = yielding(picture, now=now)
    many = "Its first task: " if job.spec.array is not None or job.spec.sweep is not None else ""
    told = _told(job, asked, counted, queue=queue, others=others)
    return many + told + (_BLIND if picture.quotas is None else "")


def _told(job: GPUJob, asked: Candidate, counted: Counted, *, queue: Queue, others: Yielding) -> str:
    waiting = [asked, *queue.waiting]
    evictor = others.evictor()
    position, verdict = _verdict(waiting, counted=counted, queue=queue, evictor=evictor)
    if isinstance(verdict, Admitted):
        return f"It would start now{_where(verdict.claims)}."
    of_which = reach(job, verdict.reason, pools=queue.quotas.pools_of(job), view=queue.view)
    why = f"{verdict.reason}: {verdict.message}{of_which}."
    if verdict.reason == "ExceedsCapacity":
        return f"It could never start here. {why}"
    said = f"It would wait at place {position}. {why}"
    start = _start_by_itself(waiting, counted=counted, queue=queue)
    if (way := way_made(evictor, job=job, others=others, now=queue.now)) is not None:
        return f"{said} {way.told}"
    by_itself = _by_itself(start, verdict, now=queue.now)
    ripe = _made_later(waiting, job=job, counted=counted, queue=queue, others=others)
    if ripe is None or (start is not None and start.in_seconds <= ripe.starts_in):
        return f"{said} {by_itself}".rstrip()
    return " ".join(part for part in (said, by_itself, ripe.told) if part)


def _start_by_itself(waiting: Sequence[Candidate], *, counted: Counted, queue: Queue) -> Start | None:
    """When it starts by the ends of others that are foreseen."""
    starts = play(order(waiting), look=queue.look(counted))
    return next((start for start in starts if start is not None and start.key == ASKED), None)


def _by_itself(start: Start | None, verdict: Waits, *, now: datetime) -> str:
    if start is not None:
        return _at(start, now=now)
    # What is kept for others says itself for whom.
    return "" if verdict.reason == "Reserved" else "No end that is known makes room for it."


def _at(start: Start, *, now: datetime) -> str:
    at = timestamp(now + timedelta(seconds=start.in_seconds))
    return f"It would start in about {brief(start.in_seconds)}, at {at}: {start.basis}."


def _made_later(
    waiting: Sequence[Candidate], *, job: GPUJob, counted: Counted, queue: Queue, others: Yielding
) -> Way | None:
    """Who makes way once jobs have run for as long as they may before they do; None where nobody does."""
    for wait in others.ripe_in(priority=job.spec.priority):
        evictor = others.evictor(in_seconds=wait)
        _verdict(waiting, counted=counted, queue=queue, evictor=evictor)
        if (way := way_made(evictor, job=job, others=others, now=queue.now, in_seconds=wait)) is not None:
            return way
    return None


def _verdict(
    waiting: Sequence[Candidate], *, counted: Counted, queue: Queue, evictor: Evictor
) -> tuple[int, Admitted | Waits]:
    """The verdict on the job that is asked about, and its place among those that wait."""
    look, position = queue.look(counted, evictor=evictor), 1
    for job in order(waiting):
        verdict = look.at(job)
        if job.key == ASKED:
            return position, verdict
        position += isinstance(verdict, Waits) and verdict.reason != "ExceedsCapacity"
    raise AssertionError("the job that is asked about is among those that wait")


def _where(claims: Sequence[Claim]) -> str:
    if not claims:
        return ", wherever kube-scheduler finds CPU and memory for it"
    held = {node.name: [claim for claim in claims if claim.node == node.name] for node in planned_nodes(claims)}
    devices = {name: sum(len(claim.devices) + claim.unnamed for claim in each) for name, each in held.items()}
    return " on " + ", ".join(f"{name} ({gpus(count)})" for name, count in devices.items())

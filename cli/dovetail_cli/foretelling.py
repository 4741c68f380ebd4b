"""Where and when a job would start if it were submitted now, by the queue's own rules over the cluster as it was read.
Pure: the clock is an argument."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.asks import ask_of_job
from dovetail.cluster import ClusterView
from dovetail.engine.claims import Claim
from dovetail.engine.sentences import gpus
from dovetail.estimates import estimated
from dovetail.kube.objects import Pod
from dovetail.kube.reflector import key_of
from dovetail.plans import planned_nodes
from dovetail.queue.admission import Admitted, Look, Waits
from dovetail.queue.candidates import Candidate, Leaving, Sites, order
from dovetail.queue.dependencies import states_of, unmet
from dovetail.queue.foresight import foresee
from dovetail.requests import RequestError
from dovetail.vendor import asks_by_kind
from dovetail_cli.picture import Picture, claim_for_starting, its_nodes
from dovetail_cli.times import brief, parse_timestamp

# Words for jobs that wait for room; the others are not in the queue's way.
_FOR_ROOM: Final = frozenset({"Priority", "Resources", "Fragmentation", "MemoryGuard", "Reserved", "NodeUnhealthy", ""})
# What Kubernetes gives a container to end when its time is over, and the least of one that runs longer than it may.
_GRACE_SECONDS: Final = 30
_SOON_SECONDS: Final = 60.0
_NEW: Final = "the job that is asked about"


def foretell(job: GPUJob, *, picture: Picture, now: datetime) -> str:
    """What the queue would do with a job that is not submitted yet, in one sentence or two."""
    begin = parse_timestamp(job.spec.begin_time)
    if begin is not None and begin > now:
        return f"It would not start before {job.spec.begin_time} (spec.beginTime)."
    named = {key_of(each.metadata): each for each in picture.jobs}
    states = states_of(job.spec.dependencies, job_named=lambda name: named.get(f"{job.metadata.namespace}/{name}"))
    if (waits := unmet(states, spec=job.spec)) is not None:
        return f"{waits.reason}: {waits.message}."
    view, sites = picture.view(), dict[str, list[str]]()
    claim_for_starting(picture, view)
    try:
        asked = _candidate(job, key=_NEW, created="9", picture=picture, view=view, sites=sites)
    except RequestError as error:
        return f"Invalid: {error}."
    waiting = [asked, *_waiting(picture, view=view, sites=sites)]
    leaving = _leaving(picture, now=now)
    position, verdict = _verdict(waiting, view=view, sites=sites, leaving=leaving)
    if isinstance(verdict, Admitted):
        return f"It would start now{_where(verdict.claims)}."
    if verdict.reason == "ExceedsCapacity":
        return f"It could never start here. {verdict.reason}: {verdict.message}."
    said = f"It would wait at place {position}. {verdict.reason}: {verdict.message}."
    for start in foresee(waiting, ledger=view.ledger, sites=sites, leaving=leaving):
        if start is not None and start.key == _NEW:
            at = (now + timedelta(seconds=start.in_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
            return f"{said} It would start in about {brief(start.in_seconds)}, at {at}: {start.basis}."
    return f"{said} No end that is known makes room for it."


def _verdict(
    waiting: Sequence[Candidate], *, view: ClusterView, sites: Sites, leaving: Sequence[Leaving]
) -> tuple[int, Admitted | Waits]:
    """The verdict on the job that is asked about, and its place among those that wait."""
    look, position = Look(view.ledger.copy(), sites=sites, leaving=leaving), 1
    for job in order(waiting):
        verdict = look.at(job)
        if job.key == _NEW:
            return position, verdict
        position += isinstance(verdict, Waits) and verdict.reason != "ExceedsCapacity"
    raise AssertionError("the job that is asked about is among those that wait")


def _waiting(picture: Picture, *, view: ClusterView, sites: dict[str, list[str]]) -> list[Candidate]:
    found = []
    for job in picture.jobs:
        if job.status.phase == "Queued" and job.status.reason in _FOR_ROOM and job.status.tasks is None:
            meta = job.metadata
            try:
                found.append(
                    _candidate(
                        job, key=meta.uid, created=meta.creation_timestamp, picture=picture, view=view, sites=sites
                    )
                )
            except RequestError:
                continue
    return found


def _candidate(
    job: GPUJob, *, key: str, created: str, picture: Picture, view: ClusterView, sites: dict[str, list[str]]
) -> Candidate:
    """The job as the queue sees it. Raises `RequestError`."""
    ask = ask_of_job(job, default_policy=picture.settings.policy_in(job.metadata.namespace), vendors=view.vendors)
    first, *others = asks_by_kind(estimated(ask, use=job.status.memory), vendors=view.vendors)
    sites[key] = its_nodes(job, view=view)
    return Candidate(
        key=key,
        ask=first,
        others=tuple(others),
        workers=job.spec.workers,
        least=job.spec.min_workers,
        priority=job.spec.priority,
        created=created,
        name=key_of(job.metadata),
        site=key,
        run_seconds=_run_seconds(job, picture=picture),
        limited=job.spec.active_deadline_seconds is not None,
    )


def _run_seconds(job: GPUJob, *, picture: Picture) -> float:
    limit = job.spec.active_deadline_seconds
    if limit is not None:
        return limit + _GRACE_SECONDS
    settings = picture.settings
    return float(settings.namespace_time_limits.get(job.metadata.namespace, settings.default_time_limit))


def _leaving(picture: Picture, *, now: datetime) -> list[Leaving]:
    """When what running jobs hold is taken to end."""
    pods_of: Mapping[str, Sequence[Pod]] = picture.pods_by_job()
    found = []
    for job in picture.jobs:
        start = parse_timestamp(job.status.start_time)
        if job.status.phase != "Running" or start is None:
            continue
        limited = job.spec.active_deadline_seconds is not None
        run = (now - start).total_seconds()
        at = _run_seconds(job, picture=picture) - run
        if at <= 0:
            at = _SOON_SECONDS if limited else max(_SOON_SECONDS, run)
        found += [
            Leaving(key=pod.metadata.uid, job=job.metadata.uid, at_seconds=at, assumed=not limited)
            for pod in pods_of.get(key_of(job.metadata), ())
            if pod.spec.node_name and pod.status.phase not in {"Succeeded", "Failed"}
        ]
    return found


def _where(claims: Sequence[Claim]) -> str:
    if not claims:
        return ", wherever kube-scheduler finds CPU and memory for it"
    held = {node.name: [claim for claim in claims if claim.node == node.name] for node in planned_nodes(claims)}
    devices = {name: sum(len(claim.devices) + claim.unnamed for claim in each) for name, each in held.items()}
    return " on " + ", ".join(f"{name} ({gpus(count)})" for name, count in devices.items())

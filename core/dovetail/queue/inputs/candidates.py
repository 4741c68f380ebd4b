"""A job as the queue's candidate: the way of its request that applies now, its workers, and the nodes they may go to.

Pure.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob, Move, PlannedNode
from dovetail.api.meta import key_of
from dovetail.cluster.view import ClusterView
from dovetail.engine.model.claims import Ask
from dovetail.jobs.batch_job import deadline_seconds, expected_workers, is_guests
from dovetail.jobs.cpu_fallback import cpu_after_seconds, cpu_in_seconds, on_cpu
from dovetail.jobs.moves import under_way
from dovetail.pods.demand import written_spec
from dovetail.queue.estimates.expectations import Expectations
from dovetail.queue.inputs.run_ends import RunTimes, is_limited, leave_seconds
from dovetail.queue.limits.quotas import Quotas, spec_in_pools
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.verdicts import Admitted, Verdict

_WHERE: Final = ("nodeSelector", "tolerations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The inputs of candidates other than their own objects."""

    # Pools, priority, fair share and limits.
    quotas: Quotas
    # How long a job without a time limit is taken to run.
    run_times: RunTimes
    # How long jobs like it ran, for estimates alone.
    expectations: Expectations
    # After how many seconds jobs that do not set onNoGPU run on the CPU, by namespace.
    cpu_fallback: Mapping[str, int]


def candidate_of(
    job: GPUJob,
    *,
    child: Job | None,
    ways: Sequence[Ask],
    admitted: Ask | None,
    workers: int,
    nodes: tuple[str, ...] = (),
    number: int,
    rules: Rules,
) -> Candidate | None:
    """The job as a candidate; None without `ways`, which means that its request is unreadable.

    `workers` have no node yet, and a plan that holds has `nodes` for them. `child` is its own batch Job, `admitted` the
    way in which the queue admitted it.
    """
    ask = chosen_way(ways, child=child, admitted=admitted)
    if ask is None:
        return None
    rank = rules.quotas.rank_of(job)
    return Candidate(
        key=job.metadata.uid,
        ask=ask,
        others=other_ways(ways, chosen=ask, child=child),
        workers=workers,
        nodes=nodes,
        least=job.spec.min_workers,
        likely_seconds=rules.expectations.run_seconds(job),
        likely_range=rules.expectations.range_seconds(job),
        priority=rank.priority,
        may_preempt=rank.may_preempt,
        created=job.metadata.creation_timestamp,
        number=number,
        name=key_of(job.metadata),
        site=site_of_job(job, quotas=rules.quotas),
        run_seconds=rules.run_times.run_seconds(job),
        limited=is_limited(job),
        limit_seconds=deadline_seconds(job),
        share=rules.quotas.level_of(job),
        cpu_in_seconds=cpu_after_seconds(job, by_namespace=rules.cpu_fallback),
        first=under_way(job.status.move),
        leave_seconds=leave_seconds(job) if rules.quotas.reserve else None,
    )


def held_elsewhere(candidate: Candidate, *, move: Move) -> Candidate | None:
    """What is held for a job at the destination of its move, as an admitted job with a plan; None if nothing is.

    `candidate` is the job with all its workers. The claims have a key of their own: the run that goes on has its own.
    """
    room = move.reserved
    if room is None:
        return None
    nodes = _by_worker(room.nodes)
    return replace(candidate, key=destination_key(candidate.key), nodes=nodes, workers=len(nodes), others=())


def destination_key(uid: str) -> str:
    """The key of what is held for a job at the destination of its move."""
    return f"{uid}/move"


def _by_worker(nodes: Sequence[PlannedNode]) -> tuple[str, ...]:
    return tuple(each.name for each in nodes for _ in range(each.workers))


def timed(made: Candidate, *, job: GPUJob, now: datetime) -> Candidate:
    """The candidate of a job that has waited for some time: when it runs on the CPU counts from `now`."""
    left = cpu_in_seconds(job, after_seconds=made.cpu_in_seconds, now=now)
    return made if left == made.cpu_in_seconds else replace(made, cpu_in_seconds=left)


def expected_now(made: Candidate, *, job: GPUJob, expectations: Expectations) -> Candidate:
    """The same candidate with the currently expected run time."""
    likely, within = expectations.run_seconds(job), expectations.range_seconds(job)
    if (made.likely_seconds, made.likely_range) == (likely, within):
        return made
    return replace(made, likely_seconds=likely, likely_range=within)


def eligible_nodes(job: GPUJob, *, view: ClusterView, quotas: Quotas) -> list[str]:
    """The nodes that the job's template and its pools allow."""
    return view.eligible_nodes(spec_in_pools(written_spec(job), pools=quotas.pools_of(job)))


def site_of_job(job: GPUJob, *, quotas: Quotas) -> str:
    """The key of the nodes that the job's template and its pools allow; see `site_of`."""
    return site_of(spec_in_pools(written_spec(job), pools=quotas.pools_of(job)))


def site_of(spec: Mapping[str, Any]) -> str:
    """A key for a pod spec's node constraints: jobs with one key share their nodes in a cycle."""
    said: dict[str, Any] = {field: spec[field] for field in _WHERE if spec.get(field)}
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    if node_affinity:
        said["affinity"] = {"nodeAffinity": node_affinity}
    # Thousands of jobs have the same key, so they share one string.
    return sys.intern(json.dumps(said, sort_keys=True))


CPU: Final = "cpu"


def chosen_way(ways: Sequence[Ask], *, child: Job | None, admitted: Ask | None) -> Ask | None:
    """Each worker's request: the way of the batch Job, else the `admitted` one, else the first.

    None without any way: the request cannot be read.
    """
    if not ways:
        return None
    if fell_back(child) or (child is None and admitted is not None and admitted.gpu is None):
        return on_cpu(ways[0])
    if child is not None:
        resource = child.metadata.annotations.get(names.GPU_RESOURCE, "")
        return next((way for way in ways if way.resource == resource), replace(ways[0], resource=resource))
    return next((way for way in ways if admitted is not None and way.resource == admitted.resource), ways[0])


def other_ways(ways: Sequence[Ask], *, chosen: Ask, child: Job | None) -> tuple[Ask, ...]:
    """The ways that the queue may try after the `chosen` one."""
    # The pods of a running batch Job have one request, which does not change.
    at_work = child is not None and not child.spec.suspend
    return () if at_work else tuple(way for way in ways if way != chosen)


def fell_back(child: Job | None) -> bool:
    """Whether the batch Job runs without its GPUs."""
    return child is not None and child.metadata.annotations.get(names.DEVICE) == CPU


def sized(job: GPUJob, *, child: Job | None, verdict: Verdict | None) -> GPUJob:
    """The job with its actual number of workers: an elastic job may start with fewer, a guest may ask for fewer."""
    if is_guests(job):
        workers = expected_workers(job, child=child)
        return job if workers == job.spec.workers else _with_workers(job, workers=workers)
    if job.spec.min_workers is None:
        return job
    workers = job.spec.workers
    if child is not None and not child.spec.suspend:
        workers = child.spec.completions or workers
    elif isinstance(verdict, Admitted) and verdict.claims:
        workers = len(verdict.claims)
    return _with_workers(job, workers=workers)


def _with_workers(job: GPUJob, *, workers: int) -> GPUJob:
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, workers=workers))

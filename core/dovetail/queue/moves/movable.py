"""Running jobs that may restart elsewhere, from their objects. Pure."""

from collections.abc import Sequence
from datetime import datetime

from dovetail.api.builtin import Job, Pod
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpujob import GPUJob
from dovetail.formats.timestamps import moment
from dovetail.jobs.batch_job import is_external, is_guests, is_on_the_way, workers_without_node
from dovetail.pods.disruption_budgets import covered_pods
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.moves.plan import Movable


def pods_to_move(
    job: GPUJob, *, child: Job | None, pods: Sequence[Pod], least_seconds: float, now: datetime
) -> tuple[Pod, ...]:
    """The pods of a running job whose restart elsewhere its owner and its state allow; empty for any other job.

    Its owner allows that it is ended for others, the queue alone decides where it runs, it has run for `least_seconds`,
    and all its workers are on nodes. `child` is its own batch Job, `pods` are the pods of that.
    """
    spec, made, start = job.spec, job.status.preemption, job.status.start_time
    if child is None or start is None or not is_on_the_way(job, child=child):
        return ()
    if not spec.preemptible or spec.suspend or spec.reservation is not None or is_external(job) or is_guests(job):
        return ()
    if (made is not None and made.at is not None) or (now - moment(start)).total_seconds() < least_seconds:
        return ()
    bound = tuple(
        pod
        for pod in pods
        if pod.spec.node_name and not pod.metadata.deletion_timestamp and pod.status.phase != "Failed"
    )
    if len(bound) != spec.workers or workers_without_node(job, child=child, pods=pods):
        return ()
    return bound


def movable_of(
    job: GPUJob, *, candidate: Candidate, pods: Sequence[Pod], budgets: Sequence[PodDisruptionBudget], now: datetime
) -> Movable:
    """A running job as one that may move. `pods` are those that `pods_to_move` returns."""
    saved, start = job.spec.checkpoint_interval_seconds, job.status.start_time
    assert start is not None, "it runs"
    return Movable(
        job=candidate,
        claims=tuple(pod.metadata.uid for pod in pods),
        run_seconds=(now - moment(start)).total_seconds(),
        saved_every_seconds=float("inf") if saved is None else float(saved),
        covered_pods=covered_pods(pods, budgets=budgets),
    )

"""A job whose batch Job runs: claims of its pods, their ends, workers without a node. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.jobs.batch_job import refused_since, workers_without_node
from dovetail.jobs.plan import open_nodes
from dovetail.queue.inputs.candidates import sized
from dovetail.queue.inputs.run_ends import Run, RunTimes


class AtWork(NamedTuple):
    """A job at work.

    `workers` have no node yet, and a plan that holds has `nodes` for them. `refused`: kube-scheduler finds no place for
    one of those.
    """

    job: GPUJob
    child: Job
    pods: tuple[Pod, ...]
    run: Run
    workers: int
    nodes: tuple[str, ...]
    refused: bool


def at_work(job: GPUJob, *, child: Job, pods: Sequence[Pod], run_times: RunTimes) -> AtWork:
    """The running job; `child` is its own batch Job, and `pods` are the pods of that batch Job."""
    workers = workers_without_node(sized(job, child=child, verdict=None), child=child, pods=pods)
    nodes = open_nodes(job, pods=pods, workers=workers) if workers else ()
    return AtWork(
        job=job,
        child=child,
        pods=tuple(pods),
        run=run_times.run_of(job, child=child, pods=pods),
        workers=len(nodes) or workers,
        nodes=nodes,
        refused=bool(nodes) and refused_since(pods) is not None,
    )

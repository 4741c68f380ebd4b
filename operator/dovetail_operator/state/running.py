"""Jobs whose batch Job is at work, as the queue goes by them: what they hold, and which workers have no node. No I/O.

Each look at the queue takes all of them, and of thousands that run hardly one has changed since the look before: what
was made of a job is kept as long as it, its batch Job and its pods are the very same objects.
"""

from typing import NamedTuple

from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail_operator.job.observation import is_child, is_on_the_way, workers_without_node
from dovetail_operator.job.plan import open_nodes, refused_since, sized
from dovetail_operator.job.time_limits import Run
from dovetail_operator.state.generation_cache import Remembered
from dovetail_operator.state.state import State


class AtWork(NamedTuple):
    """A job at work. `workers` have no node yet, and a plan that stands has `nodes` for them; `refused`: for one of
    them kube-scheduler finds no place."""

    job: GPUJob
    child: Job
    pods: tuple[Pod, ...]
    run: Run
    workers: int
    nodes: tuple[str, ...]
    refused: bool


class Runs(Remembered[AtWork]):
    """The jobs at work from look to look, by UID."""

    def of(self, job: GPUJob, *, key: str, state: State, running: set[str]) -> AtWork | None:
        """The job of that key at work, None where it is not; the UID of its batch Job is noted in `running`."""
        child = state.child_named(key)
        if child is None:
            return None
        uid, pods = job.metadata.uid, state.pods.of(child)
        known = self.get(uid)
        same = known is not None and known.job is job and known.child is child and known.pods is pods
        if not same and not (is_child(child, job=job) and is_on_the_way(job, child)):
            return None
        running.add(child.metadata.uid)
        if known is None or not same:
            known = _made(job, child, pods, state=state)
        self.keep(uid, known)
        return known


def _made(job: GPUJob, child: Job, pods: tuple[Pod, ...], *, state: State) -> AtWork:
    workers = workers_without_node(sized(job, child=child, verdict=None), child, pods)
    nodes = open_nodes(job, pods, workers=workers) if workers else ()
    return AtWork(
        job=job,
        child=child,
        pods=pods,
        run=state.run_times.run_of(job, child, pods),
        workers=len(nodes) or workers,
        nodes=nodes,
        refused=bool(nodes) and refused_since(pods) is not None,
    )

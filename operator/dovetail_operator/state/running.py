"""Running jobs of a scheduling cycle, cached while their inputs stay the same. No I/O.

Each cycle needs all of them, and few of thousands have changed since the previous cycle. An entry is valid as long as
the job, its batch Job and its pods are the identical objects. `dovetail.queue.inputs` computes each entry.
"""

from dovetail.api.gpujob import GPUJob
from dovetail.jobs.batch_job import is_child, is_on_the_way
from dovetail.queue.inputs.at_work import AtWork, at_work
from dovetail_operator.state.generation_cache import Remembered
from dovetail_operator.state.state import State


class Runs(Remembered[AtWork]):
    """Running jobs by UID, from one cycle to the next."""

    def running_job(self, job: GPUJob, *, key: str, state: State, running: set[str]) -> AtWork | None:
        """The running job with this key, or None if it does not run.

        Adds its batch Job's UID to `running`.
        """
        child = state.store.child_named(key)
        if child is None:
            return None
        uid, pods = job.metadata.uid, state.store.pods.pods_of(child)
        known = self.get(uid)
        same = known is not None and known.job is job and known.child is child and known.pods is pods
        if not same and not (is_child(child, job=job) and is_on_the_way(job, child=child)):
            return None
        running.add(child.metadata.uid)
        if known is None or not same:
            known = at_work(job, child=child, pods=pods, run_times=state.run_times)
        self.keep(uid, value=known)
        return known

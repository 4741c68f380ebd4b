"""Tasks that a job names as dependencies before their array has created them. Pure.

An array creates no task before its own dependencies are met, so a job that waits for such a task waits for those too.
All keys are `namespace/name`.
"""

from collections.abc import Collection, Iterable

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.jobs.array_tasks import TasksError, tasks_of


def has_tasks(job: GPUJob) -> bool:
    """Whether the job is an array or a sweep."""
    return job.spec.array is not None or job.spec.sweep is not None


def task_keys(array: GPUJob, *, keys: Iterable[str]) -> list[str]:
    """The keys that name tasks of the array, whether or not they exist."""
    # All its tasks begin with its name. Most keys do not, and need no list of its tasks.
    alike = [key for key in keys if key.startswith(f"{key_of(array.metadata)}-")]
    if not alike:
        return []
    try:
        tasks = {f"{array.metadata.namespace}/{task.name}" for task in tasks_of(array)}
    except TasksError:
        return []
    return [key for key in alike if key in tasks]


def of_all(jobs: Iterable[GPUJob], *, keys: Collection[str]) -> dict[str, str]:
    """The keys that name tasks of an array or a sweep among the jobs, each with its array's key."""
    return {task: key_of(job.metadata) for job in jobs if has_tasks(job) for task in task_keys(job, keys=keys)}
